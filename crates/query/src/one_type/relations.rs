//! Relations in `FROM`, settled before anything is computed of their columns.

use super::{sets, settled};
use datafusion::common::{FunctionalDependencies, Result, internal_err};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::sql::sqlparser::ast::{
    Ident, Query, SetExpr, SetOperator, Statement, TableAlias, TableFactor,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use std::sync::Arc;

/// The name of a relation while it is planned by DataFusion. No statement can write it: a name has no question mark
/// unless it is quoted.
const PLANNED: &str = "?planned";

/// The name of the first term of a recursive query.
const STATIC: &str = "?static";

/// The name of the other.
const RECURSIVE: &str = "?recursive";

/// Plans tables, which may be those of a `WITH`, and queries in `FROM`.
#[derive(Debug)]
pub(crate) struct TypedRelations;

impl RelationPlanner for TypedRelations {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let alias = match &mut relation {
            TableFactor::Derived { alias, .. } => alias,
            TableFactor::Table { alias, args: None, name, .. } if name.0.len() == 1 => alias,
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        if alias.as_ref().is_some_and(|alias| alias.name.value == PLANNED) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let written = alias.replace(named(PLANNED));
        let LogicalPlan::SubqueryAlias(planned) = context.plan(relation)? else {
            return internal_err!("a relation without the name that it was given");
        };
        let plan = settled(Arc::unwrap_or_clone(planned.input))?;
        let is_static = written.as_ref().is_some_and(|alias| alias.name.value == STATIC);
        let plan = if is_static { sets::with_room(plan)? } else { without_keys(plan)? };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, written))))
    }
}

/// A query in `FROM` as a relation without a key, as PostgreSQL sees it: what is grouped by the key of a table may show its
/// other columns, and what is grouped by a column of a query may not. The optimizer finds the key again.
fn without_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    if matches!(plan, LogicalPlan::TableScan(_)) || plan.schema().functional_dependencies().is_empty() {
        return Ok(plan);
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let schema = plan.schema().as_ref().clone();
    let schema = schema.with_functional_dependencies(FunctionalDependencies::empty())?;
    let projection = Projection::try_new_with_schema(columns, Arc::new(plan), Arc::new(schema))?;
    Ok(LogicalPlan::Projection(projection))
}

fn named(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: Vec::new(), at: None }
}

/// Makes relations of the terms of the recursive queries that `query` begins with: DataFusion casts the second to the
/// types of the first when it has planned both, and knows no other place where both are looked at.
pub(crate) fn typed_terms(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|with| with.recursive) else { return };
    for cte in &mut with.cte_tables {
        if let SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } = cte.query.body.as_mut() {
            relation(left, STATIC);
            relation(right, RECURSIVE);
        }
    }
}

/// Makes `SELECT * FROM (term) AS name` of a term.
fn relation(term: &mut SetExpr, name: &str) {
    let Some(mut outer) = everything() else { return };
    if let SetExpr::Select(select) = &mut outer
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived { subquery, alias, .. } = &mut from.relation
    {
        std::mem::swap(subquery.body.as_mut(), term);
        *alias = Some(named(name));
        *term = outer;
    }
}

fn everything() -> Option<SetExpr> {
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, "SELECT * FROM (SELECT 1) AS t").ok()?;
    match parsed.into_iter().next()? {
        Statement::Query(query) => Some(*query.body),
        _ => None,
    }
}

/// Whether a plan is the second term of a recursive query as it was written, without what it was cast to.
pub(super) fn is_recursive_term(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::SubqueryAlias(alias) if alias.alias.table() == RECURSIVE)
}
