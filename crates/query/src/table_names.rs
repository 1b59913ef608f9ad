//! Tables that have the name of a column: `n.id` may be the column `id` of the table `n`, or, to DataFusion, a field of the
//! column `n`. It takes it for the field where the table is that of a query further out.
//!
//! Such a statement is planned again, with names of tables that no column has.

use crate::syntax::fold;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    self, Ident, ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind, Statement,
    TableAlias, TableFactor, VisitMut, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Whether what names a table was taken for a column: nothing else has fields here.
pub(crate) fn is_taken_for_column(plan: &LogicalPlan) -> bool {
    let mut taken = false;
    let mut look = |expr: &Expr| {
        taken |= matches!(expr, Expr::ScalarFunction(call) if call.func.name() == "get_field");
        Ok(if taken { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    };
    let walked = plan.apply_with_subqueries(|node| node.apply_expressions(|expr| expr.apply(&mut look)));
    walked.is_ok() && taken
}

/// Gives each table in `FROM` another name, wherever that stands.
pub(crate) fn rename(statement: &mut Statement) {
    let mut tables = Tables::default();
    let _ = statement.visit(&mut tables);
    let _ = statement.visit(&mut References(tables.0));
}

/// The name of a table that is called `name`.
fn renamed(name: &str) -> Ident {
    Ident::with_quote('"', format!("{name} (table)"))
}

/// Renames tables, and keeps the names that they had.
#[derive(Default)]
struct Tables(HashSet<String>);

impl VisitorMut for Tables {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let alias = match factor {
            TableFactor::Table { name, alias: alias @ None, .. } => {
                let Some(name) = name.0.last().and_then(ObjectNamePart::as_ident) else {
                    return ControlFlow::Continue(());
                };
                let name = Ident::with_quote('"', fold(name));
                alias.insert(TableAlias { explicit: true, name, columns: Vec::new(), at: None })
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. } => alias,
            _ => return ControlFlow::Continue(()),
        };
        let name = fold(&alias.name);
        alias.name = renamed(&name);
        self.0.insert(name);
        ControlFlow::Continue(())
    }
}

/// Renames what stands before a column or a star.
struct References(HashSet<String>);

impl References {
    fn rename(&self, table: &mut Ident) {
        let name = fold(table);
        if self.0.contains(&name) {
            *table = Ident { span: table.span, ..renamed(&name) };
        }
    }
}

impl VisitorMut for References {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::CompoundIdentifier(parts) = expr
            && let [table, _] = parts.as_mut_slice()
        {
            self.rename(table);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName(parts)),
                _,
            ) = item
                && let [ObjectNamePart::Identifier(table)] = parts.as_mut_slice()
            {
                self.rename(table);
            }
        }
        ControlFlow::Continue(())
    }
}
