//! Expressions over the columns of a row: planned once, and evaluated without a plan of a query.

use super::coerce::{coerce, scalar};
use super::constant::{ParameterTypes, Parameters, parameter_number};
use super::{Run, matched::Target};
use crate::context::QueryEngine;
use crate::error::{invalid, unsupported};
use crate::functions;
use crate::literals::{self, TypedLiterals};
use crate::number;
use crate::syntax::fold;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Field;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, TableReference};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{self, EmptyRelation, ExprSchemable, LogicalPlan, Projection, Volatility};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::sql::sqlparser::ast::{Expr, ExprWithAlias, Query, Visit, Visitor, visit_expressions};
use oribi_engine::RowVersion;
use oribi_session::sql::SqlError;
use oribi_types::batch::BatchBuilder;
use oribi_types::{Column, ColumnType, Schema};
use std::ops::ControlFlow;
use std::sync::Arc;

/// An expression that was planned.
pub(super) struct Expression {
    logical: logical_expr::Expr,
    /// If it is the same at each execution. One with parameters is not, nor one that asks for the time, or the like.
    ready: Option<Arc<dyn PhysicalExpr>>,
}

impl Expression {
    /// Plans `expr` over `columns`, and notes the types of its parameters.
    ///
    /// # Errors
    /// Those of planning; `Unsupported` for a subquery.
    pub(super) fn plan(
        state: &SessionState,
        columns: &DFSchema,
        expr: &Expr,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        let logical = logical(state, columns, expr)?;
        let (logical, has_parameters) =
            logical.infer_placeholder_types(columns).map_err(QueryEngine::error)?;
        if !has_parameters {
            let physical = evaluable(state, columns, logical.clone()).map_err(QueryEngine::error)?;
            return Ok(Expression::of(logical, physical));
        }
        let mut noted = Ok(());
        let _ = logical.apply(|expr| {
            if let logical_expr::Expr::Placeholder(placeholder) = expr {
                let column_type = placeholder.field.as_ref().map(|f| ColumnType::from_arrow(f.data_type()));
                match parameter_number(&placeholder.id) {
                    Ok(n) => types.note_compared(n, column_type.and_then(Result::ok)),
                    Err(error) => noted = Err(error),
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
        noted.map(|()| Expression { logical, ready: None })
    }

    /// With `expr` as it is evaluated now, and the field it yields.
    ///
    /// # Errors
    /// Those of planning; `Unsupported` for a subquery.
    pub(super) fn with_field(
        state: &SessionState,
        columns: &DFSchema,
        expr: &Expr,
    ) -> Result<(Self, Arc<dyn PhysicalExpr>, Field), SqlError> {
        let logical = logical(state, columns, expr)?;
        let (_, field) = logical.to_field(columns).map_err(QueryEngine::error)?;
        let physical = evaluable(state, columns, logical.clone()).map_err(QueryEngine::error)?;
        let data_type = physical.data_type(columns.as_arrow()).map_err(QueryEngine::error)?;
        let field = field.as_ref().clone().with_data_type(data_type).with_nullable(true);
        Ok((Expression::of(logical, Arc::clone(&physical)), physical, field))
    }

    /// One without parameters, which is evaluated as `physical` now.
    pub(super) fn of(logical: logical_expr::Expr, physical: Arc<dyn PhysicalExpr>) -> Self {
        let changes = |expr: &logical_expr::Expr| match expr {
            logical_expr::Expr::ScalarFunction(call) => {
                Ok(call.func.signature().volatility != Volatility::Immutable)
            }
            _ => Ok(false),
        };
        let changes = logical.exists(changes).unwrap_or(true);
        Expression { logical, ready: (!changes).then_some(physical) }
    }

    /// As it is to be evaluated by a statement that begins, with the values of parameters.
    fn bind(
        &self,
        state: &SessionState,
        columns: &DFSchema,
        parameters: Parameters<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
        let bound = self.logical.clone().transform_up(|expr| match expr {
            logical_expr::Expr::Placeholder(placeholder) => {
                let n = parameter_number(&placeholder.id).map_err(external)?;
                let value = scalar(parameters.values[n].as_ref(), parameters.types[n]).map_err(external)?;
                Ok(Transformed::yes(logical_expr::Expr::Literal(value, None)))
            }
            other => Ok(Transformed::no(other)),
        });
        bound.and_then(|bound| evaluable(state, columns, bound.data)).map_err(QueryEngine::error)
    }

    fn has_known_parameters(&self, types: &ParameterTypes) -> bool {
        let is_unknown = |expr: &logical_expr::Expr| match expr {
            logical_expr::Expr::Placeholder(placeholder) => {
                Ok(!parameter_number(&placeholder.id).is_ok_and(|n| types.get(n).is_some()))
            }
            _ => Ok(false),
        };
        !self.logical.exists(is_unknown).unwrap_or(true)
    }

    /// Whether one row is all it is computed from.
    fn is_of_one_row(&self) -> bool {
        let is_of_many = |expr: &logical_expr::Expr| {
            use logical_expr::Expr::{AggregateFunction, WindowFunction};
            Ok(matches!(expr, AggregateFunction(_) | WindowFunction(_)))
        };
        !self.logical.exists(is_of_many).unwrap_or(true)
    }
}

fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Expressions as they are to be evaluated by a statement that begins.
///
/// # Errors
/// Those of planning with the values of parameters.
pub(super) fn bound<'e>(
    expressions: impl IntoIterator<Item = &'e Expression>,
    columns: &DFSchema,
    run: Run<'_>,
) -> Result<Vec<Arc<dyn PhysicalExpr>>, SqlError> {
    let mut context = None;
    let bind = |expression: &Expression| {
        if let Some(ready) = &expression.ready {
            return Ok(Arc::clone(ready));
        }
        if context.is_none() {
            context = Some(run.query.begin(run.session)?);
        }
        let state = &context.as_ref().expect("it was begun").state;
        expression.bind(state, columns, run.parameters)
    };
    expressions.into_iter().map(bind).collect()
}

/// What columns of a row are set to, by expressions over the row.
pub(super) struct Computing {
    columns: DFSchema,
    set: Arc<[Column]>,
    written: Vec<Expr>,
    expressions: Vec<Expression>,
}

/// Longer expressions are planned where a stack is large.
const PARTS_MAX: usize = 64;

impl Computing {
    /// `None` if that is to be a query's: there is another in it, it is long, or the query says more about a parameter or an
    /// error; `types` is untouched then.
    pub(super) fn plan(
        state: &SessionState,
        columns: DFSchema,
        computed: &[(Column, Expr)],
        types: &mut ParameterTypes,
    ) -> Option<Self> {
        if !computed.iter().all(|(_, expr)| is_short(expr)) {
            return None;
        }
        let mut noted = types.clone();
        let planned =
            computed.iter().map(|(_, expr)| Expression::plan(state, &columns, expr, &mut noted).ok());
        let expressions: Vec<Expression> = planned.collect::<Option<_>>()?;
        let is_plain =
            |expression: &Expression| expression.is_of_one_row() && expression.has_known_parameters(&noted);
        if !expressions.iter().all(is_plain) {
            return None;
        }
        *types = noted;
        let (set, written): (Vec<Column>, Vec<Expr>) = computed.iter().cloned().unzip();
        Some(Computing { columns, set: set.into(), written, expressions })
    }

    /// The columns of a table by the name that it has in a statement.
    pub(super) fn columns_of(target: &Target) -> Option<DFSchema> {
        let alias = TableReference::bare(fold(&target.alias));
        DFSchema::try_from_qualified_schema(alias, target.schema.arrow()).ok()
    }

    /// The `n`th value as it was written.
    pub(super) fn written(&self, n: usize) -> &Expr {
        &self.written[n]
    }

    /// The values for a row, in arrays of one, of the types of their columns.
    ///
    /// # Errors
    /// Those of planning with the values of parameters, and of evaluation.
    pub(super) async fn values(&self, run: Run<'_>, row: RecordBatch) -> Result<Vec<ArrayRef>, SqlError> {
        let (set, expressions) = (Arc::clone(&self.set), bound(&self.expressions, &self.columns, run)?);
        match expressions.iter().any(functions::may_be_large) {
            // It is not made on the thread that serves the client.
            true => run.query.runtime().run(async move { evaluated(&set, &expressions, &row) }).await,
            false => evaluated(&set, &expressions, &row),
        }
    }
}

fn evaluated(
    set: &[Column],
    expressions: &[Arc<dyn PhysicalExpr>],
    row: &RecordBatch,
) -> Result<Vec<ArrayRef>, SqlError> {
    let value = |(column, expression): (&Column, &Arc<dyn PhysicalExpr>)| {
        let value = expression.evaluate(row).and_then(|value| value.into_array(1));
        coerce(&value.map_err(QueryEngine::error)?, column)
    };
    set.iter().zip(expressions).map(value).collect()
}

/// A row with all columns.
///
/// # Errors
/// Those of its encoding.
pub(super) fn batch_of(schema: &Schema, row: RowVersion<'_>) -> oribi_types::Result<RecordBatch> {
    let all: Vec<usize> = (0..schema.columns().len()).collect();
    let mut batch = BatchBuilder::new(schema, &all, false);
    batch.push(row.key, row.row, row.ts)?;
    batch.finish()
}

fn is_short(expr: &Expr) -> bool {
    let mut parts = 0;
    visit_expressions(expr, |_: &Expr| {
        parts += 1;
        if parts > PARTS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .is_continue()
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

/// Refuses window functions in a clause which is computed of one row at a time, but for those of its subqueries.
///
/// # Errors
/// 42P20.
pub(super) fn refuse_windows(of: &impl Visit, clause: &str) -> Result<(), SqlError> {
    match of.visit(&mut Windows { queries: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => {
            Err(invalid("42P20", format!("window functions are not allowed in {clause}")))
        }
    }
}

/// Finds a window function outside of queries.
struct Windows {
    queries: usize,
}

impl Visitor for Windows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) if call.over.is_some() && self.queries == 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// An expression over `columns`, not yet ready to evaluate.
///
/// # Errors
/// Those of planning; `Unsupported` for a subquery.
fn logical(state: &SessionState, columns: &DFSchema, expr: &Expr) -> Result<logical_expr::Expr, SqlError> {
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
fn evaluable(
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
