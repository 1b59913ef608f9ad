//! `ORDER BY` the primary key with a `LIMIT`: tells the table that few rows are wanted, in key order.
//!
//! The table is asked for a scan without being told of the sort above it. Reading by key then is worth while even if the
//! range is long, provided that every row of it passes the filters.

use super::OribiTable;
use super::key_bounds::KeyBounds;
use datafusion::catalog::default_table_source::{DefaultTableSource, source_as_provider};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, TableScan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use oribi_types::Schema;
use std::sync::Arc;

/// Runs after DataFusion's own rules.
#[derive(Debug)]
pub(crate) struct OrderedLimits;

impl OptimizerRule for OrderedLimits {
    fn name(&self) -> &str {
        "ordered_limits"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Sort(Sort { expr, input, fetch: Some(fetch) }) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let columns = expr.iter().map(|sort| match &sort.expr {
            Expr::Column(column) if sort.asc => Some(column.name.clone()),
            _ => None,
        });
        let Some(columns) = columns.collect::<Option<Vec<_>>>() else { return Ok(Transformed::no(plan)) };
        let Some(told) = tell(input, columns, &[], *fetch)? else { return Ok(Transformed::no(plan)) };
        let (expr, fetch) = (expr.clone(), *fetch);
        Ok(Transformed::yes(LogicalPlan::Sort(Sort { expr, input: Arc::new(told), fetch: Some(fetch) })))
    }
}

/// `plan` with its table told that its first `fetch` rows by `columns` are wanted, of those that pass `filters`; `None`
/// if the rows do not come from a table as they are, or it knows already.
fn tell(
    plan: &LogicalPlan,
    columns: Vec<String>,
    filters: &[Expr],
    fetch: usize,
) -> Result<Option<LogicalPlan>> {
    let input = match plan {
        LogicalPlan::TableScan(scan) => return tell_table(scan, &columns, filters, fetch),
        LogicalPlan::SubqueryAlias(alias) => tell(&alias.input, columns, filters, fetch)?,
        LogicalPlan::Filter(filter) if filters.is_empty() => {
            tell(&filter.input, columns, &split_conjunction_owned(filter.predicate.clone()), fetch)?
        }
        LogicalPlan::Projection(projection) => {
            let below = columns.iter().map(|column| {
                let position = projection.schema.index_of_column_by_name(None, column)?;
                match projection.expr.get(position)?.clone().unalias() {
                    Expr::Column(below) => Some(below.name),
                    _ => None,
                }
            });
            let Some(below) = below.collect::<Option<Vec<_>>>() else { return Ok(None) };
            tell(&projection.input, below, filters, fetch)?
        }
        _ => return Ok(None),
    };
    let Some(input) = input else { return Ok(None) };
    Ok(Some(plan.clone().map_children(|_| Ok(Transformed::yes(input.clone())))?.data))
}

fn tell_table(
    scan: &TableScan,
    columns: &[String],
    filters: &[Expr],
    fetch: usize,
) -> Result<Option<LogicalPlan>> {
    let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
    let Some(table) = provider.downcast_ref::<OribiTable>() else { return Ok(None) };
    let schema = &table.columns.schema;
    let filters = if filters.is_empty() { &scan.filters } else { filters };
    let bounds = KeyBounds::of(schema, filters);
    let wanted = Some(fetch);
    if table.first_by_key == wanted || !bounds.exact || !is_key_order(schema, bounds.equal, columns) {
        return Ok(None);
    }
    let table = OribiTable { first_by_key: wanted, ..table.clone() };
    let source = Arc::new(DefaultTableSource::new(Arc::new(table)));
    Ok(Some(LogicalPlan::TableScan(TableScan { source, ..scan.clone() })))
}

/// Whether rows in key order are ordered by `columns`, where the first `equal` columns of the key have one value each.
fn is_key_order(schema: &Schema, equal: usize, columns: &[String]) -> bool {
    let key: Vec<&str> = schema.key_columns().map(|column| column.name.as_str()).collect();
    let (one_value, ordered) = key.split_at(equal);
    let columns = columns.iter().map(String::as_str).filter(|column| !one_value.contains(column));
    let columns: Vec<&str> = columns.collect();
    ordered.starts_with(&columns)
}
