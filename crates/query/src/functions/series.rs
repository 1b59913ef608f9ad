//! `generate_series` in `FROM`: DataFusion's, of two or three integers. What else it takes it does not take as PostgreSQL
//! does.

use super::kinds::Kind;
use crate::error::{invalid, unsupported};
use arrow::datatypes::DataType;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Column, DataFusionError, Result, ScalarValue, plan_datafusion_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast};
use oribi_session::sql::SqlError;
use std::sync::Arc;

const NAME: &str = "generate_series";

/// Puts the checks around DataFusion's function.
///
/// # Errors
/// None are expected.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    let theirs = state.table_functions().get(NAME);
    let theirs = theirs.ok_or_else(|| plan_datafusion_err!("there is no {NAME}"))?;
    let series = Series { theirs: Arc::clone(theirs.function()) };
    state.register_udtf(NAME, Arc::new(series));
    Ok(())
}

#[derive(Debug)]
struct Series {
    theirs: Arc<dyn TableFunctionImpl>,
}

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let bounds = args.exprs().iter().map(bound).collect::<std::result::Result<Vec<_>, SqlError>>();
        let bounds = bounds.and_then(|bounds| match bounds.len() {
            2 | 3 => Ok(bounds),
            _ => Err(invalid("42883", format!("function {NAME} takes two or three arguments"))),
        });
        let bounds = bounds.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let series = self.theirs.call_with_args(TableFunctionArgs::new(&bounds, args.session()))?;
        let wide = |expr: &Expr| matches!(expr, Expr::Literal(ScalarValue::Int64(_), _));
        if args.exprs().iter().any(wide) { Ok(series) } else { integers(series) }
    }
}

/// A series, which DataFusion makes of `bigint`, with a column of `integer`.
fn integers(series: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    let name = series.schema().field(0).name().clone();
    let series = LogicalPlanBuilder::scan(NAME, provider_as_source(series), None)?;
    let column = cast(Expr::Column(Column::from_name(&name)), DataType::Int32).alias(name);
    Ok(Arc::new(ViewTable::new(series.project([column])?.build()?, None)))
}

/// An argument as DataFusion's function takes it.
fn bound(expr: &Expr) -> std::result::Result<Expr, SqlError> {
    let Expr::Literal(value, _) = expr else {
        return Err(unsupported(&format!("{NAME} of what is not a constant")));
    };
    let whole = match Kind::of_arrow(&value.data_type()) {
        Kind::Unknown if value.is_null() => ScalarValue::Null,
        Kind::Int2 | Kind::Int4 | Kind::Int8 if value.is_null() => ScalarValue::Null,
        Kind::Int2 | Kind::Int4 | Kind::Int8 => {
            value.cast_to(&DataType::Int64).map_err(crate::error::sql_error)?
        }
        kind => return Err(unsupported(&format!("{NAME} of {kind}")).with_hint("it takes integers")),
    };
    Ok(Expr::Literal(whole, None))
}
