//! Queries that select nothing but a call of one function. Those whose function does something, instead of computing, are statements of
//! their own: as part of an expression it would be done once for each row, or not at all.

use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArguments, ObjectNamePart, Query, Select, SelectItem, SetExpr,
    Statement,
};

/// The parts of such a query.
pub(crate) struct OnlyCall<'s> {
    pub(crate) query: &'s Query,
    pub(crate) select: &'s Select,
    /// As folded, without `pg_catalog`.
    pub(crate) name: String,
    pub(crate) args: &'s [FunctionArg],
    alias: Option<String>,
}

impl<'s> OnlyCall<'s> {
    /// `None` if the statement is another.
    pub(crate) fn of(statement: &'s Statement) -> Option<Self> {
        let Statement::Query(query) = statement else { return None };
        let SetExpr::Select(select) = query.body.as_ref() else { return None };
        let [item] = select.projection.as_slice() else { return None };
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(fold(alias))),
            _ => return None,
        };
        let Expr::Function(function) = expr else { return None };
        let FunctionArguments::List(list) = &function.args else { return None };
        Some(OnlyCall { query, select, name: function_name(function)?, args: &list.args, alias })
    }

    /// By what name the column of the answer goes.
    pub(crate) fn column(self) -> String {
        self.alias.unwrap_or(self.name)
    }
}

/// The name of a function of `pg_catalog`; `None` if it may be one of another schema.
pub(crate) fn function_name(function: &Function) -> Option<String> {
    let part = |part: &ObjectNamePart| part.as_ident().map(fold);
    match function.name.0.as_slice() {
        [name] => part(name),
        [schema, name] if part(schema)? == "pg_catalog" => part(name),
        _ => None,
    }
}
