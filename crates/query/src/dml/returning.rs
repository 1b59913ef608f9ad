//! `RETURNING`: expressions over the rows that a statement wrote.

use super::Run;
use super::expression::{Expression, bound, refuse_windows};
use crate::context::{QueryEngine, StatementContext};
use crate::delivery;
use crate::functions;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use datafusion::common::{DFSchema, TableReference};
use datafusion::logical_expr;
use datafusion::physical_expr::{PhysicalExpr, expressions};
use datafusion::sql::sqlparser::ast::SelectItem;
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::{ErrorKind, Schema};
use std::sync::Arc;

/// The expressions.
pub(crate) struct Returning {
    columns: DFSchema,
    expressions: Vec<Expression>,
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
        items.iter().try_for_each(|item| refuse_windows(item, "RETURNING"))?;
        let columns = DFSchema::try_from_qualified_schema(TableReference::bare(alias), schema.shown_arrow())
            .map_err(QueryEngine::error)?;
        // What cannot be evaluated at all is refused before anything is written.
        let nothing = RecordBatch::new_empty(Arc::clone(schema.shown_arrow()));
        let (mut planned, mut fields) = (Vec::new(), Vec::new());
        for item in items {
            let (expr, name) = match item {
                SelectItem::Wildcard(_) => {
                    for (i, (column, field)) in
                        columns.columns().into_iter().zip(columns.fields()).enumerate()
                    {
                        let physical = Arc::new(expressions::Column::new(field.name(), i));
                        planned.push(Expression::of(logical_expr::Expr::Column(column), physical));
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
            let (expression, physical, field) = Expression::with_field(&context.state, &columns, expr)?;
            match functions::planned(|| physical.evaluate(&nothing)) {
                Err(error) if !functions::is_postponed(&error) => return Err(QueryEngine::error(error)),
                _ => {}
            }
            fields.push(name.map_or(field.clone(), |name| field.with_name(name)));
            planned.push(expression);
        }
        Ok(Returning { columns, expressions: planned, schema: Arc::new(ArrowSchema::new(fields)) })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The answer, given the rows written: a batch of all columns of the table, hidden ones last.
    ///
    /// # Errors
    /// Those of evaluation.
    pub(crate) async fn outcome(&self, run: Run<'_>, rows: RecordBatch) -> Result<Outcome, SqlError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let query = run.query;
        let expressions = bound(&self.expressions, &self.columns, run)?;
        let arrays = if expressions.iter().any(functions::may_be_large) {
            query.runtime().run(async move { evaluated(&expressions, &rows) }).await?
        } else {
            evaluated(&expressions, &rows)?
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
