//! `RETURNING`: expressions over the rows that a statement wrote.

use crate::context::{QueryEngine, StatementContext};
use crate::delivery;
use crate::error::unsupported;
use crate::functions;
use crate::literals::{self, TypedLiterals};
use crate::number;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use datafusion::common::{DFSchema, TableReference};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{self, EmptyRelation, ExprSchemable, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::sql::sqlparser::ast::{Expr, ExprWithAlias, SelectItem, Visit, visit_expressions};
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::{ErrorKind, Schema};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The expressions, ready to evaluate.
pub(crate) struct Returning {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
}

impl Returning {
    /// # Errors
    /// Those of planning an expression over the columns of the table, known as `alias`.
    pub(crate) fn plan(
        context: &StatementContext,
        schema: &Schema,
        alias: &str,
        items: &[SelectItem],
    ) -> Result<Self, SqlError> {
        let columns = DFSchema::try_from_qualified_schema(TableReference::bare(alias), schema.arrow())
            .map_err(QueryEngine::error)?;
        let (mut expressions, mut fields) = (Vec::new(), Vec::new());
        for item in items {
            let (expr, name) = match item {
                SelectItem::Wildcard(_) => {
                    for (i, field) in schema.arrow().fields().iter().enumerate() {
                        expressions.push(Arc::new(datafusion::physical_expr::expressions::Column::new(
                            field.name(),
                            i,
                        )) as _);
                        fields.push(field.as_ref().clone());
                    }
                    continue;
                }
                SelectItem::UnnamedExpr(expr) => (expr, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(crate::syntax::fold(alias))),
                other => {
                    return Err(SqlError::new(
                        ErrorKind::Unsupported,
                        format!("RETURNING {other} is not supported"),
                    ));
                }
            };
            let (expression, field) = physical(&context.state, &columns, expr)?;
            fields.push(name.map_or(field.clone(), |name| field.with_name(name)));
            expressions.push(expression);
        }
        // What cannot be evaluated at all is refused before anything is written.
        let nothing = RecordBatch::new_empty(Arc::clone(schema.arrow()));
        for expression in &expressions {
            match functions::planned(|| expression.evaluate(&nothing)) {
                Err(error) if !functions::is_postponed(&error) => return Err(QueryEngine::error(error)),
                _ => {}
            }
        }
        Ok(Returning { expressions, schema: Arc::new(ArrowSchema::new(fields)) })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The answer, given the rows written: a batch of all columns of the table.
    ///
    /// # Errors
    /// Those of evaluation.
    pub(crate) async fn outcome(&self, query: &QueryEngine, rows: RecordBatch) -> Result<Outcome, SqlError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let arrays = if self.expressions.iter().any(functions::may_be_large) {
            let expressions = self.expressions.clone();
            query.runtime().run(async move { evaluated(&expressions, &rows) }).await?
        } else {
            evaluated(&self.expressions, &rows)?
        };
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(oribi_types::Error::from)?;
        let counted = query.unread().count(&batch);
        Ok(Outcome::Rows(delivery::made(batch, counted)))
    }
}

fn evaluated(expressions: &[Arc<dyn PhysicalExpr>], rows: &RecordBatch) -> Result<Vec<ArrayRef>, SqlError> {
    let arrays = expressions.iter().map(|e| e.evaluate(rows)?.into_array(rows.num_rows()));
    arrays.collect::<datafusion::common::Result<_>>().map_err(QueryEngine::error)
}

/// An expression over `columns`, with the field it yields.
///
/// # Errors
/// Those of planning; `Unsupported` for a subquery.
pub(crate) fn physical(
    state: &SessionState,
    columns: &DFSchema,
    expr: &Expr,
) -> Result<(Arc<dyn PhysicalExpr>, Field), SqlError> {
    let logical = logical(state, columns, expr)?;
    let (_, field) = logical.to_field(columns).map_err(QueryEngine::error)?;
    let physical = evaluable(state, columns, logical).map_err(QueryEngine::error)?;
    let data_type = physical.data_type(columns.as_arrow()).map_err(QueryEngine::error)?;
    let field = field.as_ref().clone().with_data_type(data_type).with_nullable(true);
    Ok((physical, field))
}

/// Whether part of an expression, or of a statement, is a query of its own.
pub(super) fn has_subquery(of: &impl Visit) -> bool {
    let is_query =
        |expr: &Expr| matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. });
    visit_expressions(of, |expr| match is_query(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
    .is_break()
}

/// An expression over `columns`, not yet ready to evaluate.
///
/// # Errors
/// Those of planning; `Unsupported` for a subquery.
pub(crate) fn logical(
    state: &SessionState,
    columns: &DFSchema,
    expr: &Expr,
) -> Result<logical_expr::Expr, SqlError> {
    if has_subquery(expr) {
        return Err(unsupported("a subquery in RETURNING or DO UPDATE"));
    }
    let mut expr = expr.clone();
    number::mark(&mut expr);
    let expr = ExprWithAlias { expr, alias: None };
    let expr = state.create_logical_expr_from_sql_expr(expr, columns).map_err(QueryEngine::error)?;
    Ok(literals::typed(expr, columns).map_err(QueryEngine::error)?.data)
}

/// Makes `expr`, of which literals have their types, ready to evaluate, by the rules that change the expressions of a query.
///
/// # Errors
/// Those of the rules.
pub(crate) fn evaluable(
    state: &SessionState,
    columns: &DFSchema,
    expr: logical_expr::Expr,
) -> datafusion::common::Result<Arc<dyn PhysicalExpr>> {
    functions::planned(|| planned(state, columns, expr))
}

fn planned(
    state: &SessionState,
    columns: &DFSchema,
    expr: logical_expr::Expr,
) -> datafusion::common::Result<Arc<dyn PhysicalExpr>> {
    let schema = Arc::new(columns.clone());
    let rows = EmptyRelation { produce_one_row: false, schema: Arc::clone(&schema) };
    let query = Projection::try_new(vec![expr], Arc::new(LogicalPlan::EmptyRelation(rows)))?;
    let config = state.config_options();
    let mut analyzer = state.analyzer().clone();
    analyzer.rules.retain(|rule| rule.name() != TypedLiterals.name());
    let query = analyzer.execute_and_check(LogicalPlan::Projection(query), config, |_, _| {})?;
    let context = SimplifyContext::builder()
        .with_schema(schema)
        .with_config_options(Arc::clone(config))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let expr = ExprSimplifier::new(context).simplify(query.expressions().swap_remove(0))?;
    create_physical_expr(&expr, columns, state.execution_props(), &PhysicalPlanningContext::default())
}
