//! A query that a statement reads from.

use super::coerce::scalar;
use super::constant::{ParameterTypes, parameter_number};
use super::{Run, Scope};
use crate::context::{QueryEngine, StatementContext};
use crate::literals;
use crate::number;
use crate::one_type;
use crate::pg_catalog;
use crate::planners::Length;
use crate::table_names;
use crate::unread;
use arrow::datatypes::SchemaRef;
use datafusion::common::ParamValues;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use oribi_session::sql::{RowStream, SqlError};
use oribi_types::{ColumnType, ErrorKind};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A query as planned once for its types; each run plans it again, on a new snapshot.
#[derive(Clone)]
pub(crate) struct SourceQuery {
    statement: ast::Statement,
    /// The text that the tree's positions are in.
    sql: Arc<str>,
    schema: SchemaRef,
}

impl SourceQuery {
    /// Plans `statement` and notes the types of its parameters.
    ///
    /// # Errors
    /// Those of planning; `Unsupported` for anything but a query.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        statement: ast::Statement,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        check_written_width(&statement)?;
        let context = scope.query.begin(scope.session)?;
        let plan = plan(scope.query, &context, &statement, scope.sql).await?;
        check_planned_width(&plan)?;
        if matches!(
            plan,
            LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Statement(_) | LogicalPlan::Copy(_)
        ) {
            let what = statement.to_string();
            let what = what.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            return Err(SqlError::new(ErrorKind::Unsupported, format!("{what} is not supported")));
        }
        let parameters = plan.get_parameter_fields().map_err(QueryEngine::error)?;
        let plan = if parameters.is_empty() { analyzed(scope.query, &context, plan).await? } else { plan };
        let casts = if parameters.is_empty() { HashMap::new() } else { cast_parameters(&plan)? };
        for (name, field) in parameters {
            let n = parameter_number(&name)?;
            if let Some(field) = &field {
                types.note_moment(n, field.data_type());
            }
            let column_type = field.and_then(|f| ColumnType::from_arrow(f.data_type()).ok());
            types.note_compared(n, column_type.or_else(|| casts.get(&name).copied()));
        }
        let schema = pg_catalog::output_schema(&statement, plan.schema().as_arrow());
        Ok(SourceQuery { statement, sql: Arc::clone(scope.sql), schema })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Its rows, for a statement that takes all of them.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) async fn run(&self, run: Run<'_>) -> Result<RowStream, SqlError> {
        let (context, plan) = self.begin(run).await?;
        Ok(run.query.run(context, plan, None).await?.1)
    }

    /// Its rows, for a client that may leave them unread.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) async fn run_for_client(&self, run: Run<'_>) -> Result<RowStream, SqlError> {
        let (context, plan) = self.begin(run).await?;
        let unread = (!unread::is_short(&self.schema)).then(|| Arc::clone(run.query.unread()));
        Ok(run.query.run(context, plan, unread).await?.1)
    }

    /// A new snapshot, and the plan for it.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) async fn begin(&self, run: Run<'_>) -> Result<(StatementContext, LogicalPlan), SqlError> {
        let context = run.query.begin(run.session)?;
        let plan = plan(run.query, &context, &self.statement, &self.sql).await?;
        Ok((context, with_parameters(plan, run)?))
    }
}

/// The most columns of a result, as PostgreSQL has it: its protocol counts them with 16 bits.
const RESULT_COLUMNS_MAX: usize = 1664;

/// # Errors
/// `TooLarge` (54011).
fn check_result_width(columns: usize) -> Result<(), SqlError> {
    if columns <= RESULT_COLUMNS_MAX {
        return Ok(());
    }
    let message = format!("target lists can have at most {RESULT_COLUMNS_MAX} entries");
    Err(SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("54011"))
}

/// Checks the columns that each `SELECT` and `VALUES` of a statement writes out: planning thousands takes long.
///
/// # Errors
/// `TooLarge` (54011).
fn check_written_width(statement: &ast::Statement) -> Result<(), SqlError> {
    match statement.visit(&mut Widths) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Widths;

impl Visitor for Widths {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<SqlError> {
        match check_body(&query.body) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn check_body(body: &ast::SetExpr) -> Result<(), SqlError> {
    match body {
        ast::SetExpr::Select(select) => check_result_width(select.projection.len()),
        ast::SetExpr::Values(values) => {
            check_result_width(values.rows.iter().map(|row| row.content.len()).max().unwrap_or(0))
        }
        ast::SetExpr::SetOperation { left, right, .. } => {
            check_body(left)?;
            check_body(right)
        }
        _ => Ok(()),
    }
}

/// Checks what each `SELECT` of a plan yields, `*` included.
///
/// # Errors
/// `TooLarge` (54011).
fn check_planned_width(plan: &LogicalPlan) -> Result<(), SqlError> {
    let mut widest = plan.schema().fields().len();
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Projection(projection) = plan {
            widest = widest.max(projection.expr.len());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(QueryEngine::error)?;
    check_result_width(widest)
}

/// The types that parameters are cast to, of each the first: `$1::date` says what `$1` is, as in PostgreSQL.
fn cast_parameters(plan: &LogicalPlan) -> Result<HashMap<String, ColumnType>, SqlError> {
    let mut casts = HashMap::new();
    let mut note = |expr: &Expr| {
        if let Expr::Cast(cast) = expr
            && let Expr::Placeholder(parameter) = cast.expr.as_ref()
            && let Some(column_type) = literals::type_of_parameter(&cast.field)
        {
            casts.entry(parameter.id.clone()).or_insert(column_type);
        }
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply_with_subqueries(|plan| plan.apply_expressions(|expr| expr.apply(&mut note)))
        .map_err(QueryEngine::error)?;
    Ok(casts)
}

/// `plan` with its parameters replaced by their values.
fn with_parameters(plan: LogicalPlan, run: Run<'_>) -> Result<LogicalPlan, SqlError> {
    let parameters = run.parameters;
    if parameters.values.is_empty() {
        return Ok(plan);
    }
    let scalars = parameters
        .values
        .iter()
        .zip(parameters.types)
        .map(|(value, column_type)| scalar(value.as_ref(), *column_type))
        .collect::<Result<Vec<_>, SqlError>>()?;
    plan.with_param_values(ParamValues::from(scalars)).map_err(QueryEngine::error)
}

/// The plan with the types that its values have when it runs, and refused if it cannot run. One with parameters is
/// analyzed once their values are known.
async fn analyzed(
    query: &QueryEngine,
    context: &StatementContext,
    plan: LogicalPlan,
) -> Result<LogicalPlan, SqlError> {
    let state = Arc::clone(&context.state);
    let length = Length::of_plan(&plan);
    let analyze = async move {
        let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {});
        analyzed.map_err(QueryEngine::error)
    };
    query.runtime().plan(length, analyze).await
}

/// Plans where it holds up nobody; errors carry their position in `sql`.
async fn plan(
    query: &QueryEngine,
    context: &StatementContext,
    statement: &ast::Statement,
    sql: &Arc<str>,
) -> Result<LogicalPlan, SqlError> {
    let length = Length::of_query(&context.view, statement, sql);
    let attempt = |mut statement: ast::Statement| {
        number::mark(&mut statement);
        let (state, statement) = (Arc::clone(&context.state), Statement::Statement(Box::new(statement)));
        let planned = async move { Ok(state.statement_to_plan(statement).await.and_then(one_type::settled)) };
        query.runtime().plan(length, planned)
    };
    let mut planned = attempt(statement.clone()).await?;
    if planned.as_ref().is_ok_and(table_names::is_taken_for_column) {
        let mut renamed = statement.clone();
        table_names::rename(&mut renamed);
        planned = attempt(renamed).await?;
    }
    planned.map_err(|error| QueryEngine::error_in(sql, error))
}
