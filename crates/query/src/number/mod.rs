//! Numbers in queries, as PostgreSQL computes with them.
//!
//! DataFusion's operators wrap around, divide by zero to infinity, and give other types. They are not checked where
//! they run, which is in a dozen kinds of plan nodes and in the rules that fold constants; instead none of them is ever
//! planned: wherever the text of a statement has an operator on numbers, [`operators`] puts a function of ours in its
//! place, with PostgreSQL's type and errors ([`arithmetic`]). So it is with literals ([`literals`]), which are made
//! `integer` in the syntax tree, with sums and averages ([`sums`]), which replace those of the same name, and with
//! functions ([`functions`]). Casts stay casts in the plan until types have been coerced; then those that would round or
//! overflow otherwise than PostgreSQL's are replaced ([`casts`]).

mod alike;
mod arithmetic;
mod casts;
mod choices;
mod counts;
mod decimal;
mod functions;
mod guards;
mod literals;
mod operators;
mod ranges;
mod statistics;
mod sums;

pub(crate) use alike::{Purpose, alike, common, compared, is_of_kind, scale, seen_as, with_room};
pub(crate) use arithmetic::narrowed;
pub(crate) use casts::{NumberCasts, bare_cast, bare_numeric, convert};
pub(crate) use literals::{mark, marked_type};
pub(crate) use operators::ours;
pub(crate) use ranges::ranges;
pub(crate) use sums::rules;

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::ScalarUDF;
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use std::sync::Arc;

/// Whether a function is one that [`by_name`] makes.
pub(crate) fn is_by_name(function: &ScalarUDF) -> bool {
    function.inner().is::<arithmetic::Arithmetic>() || function.inner().is::<casts::NumberCast>()
}

/// The operator or cast of this name, with results of this type.
pub(crate) fn by_name(name: &str, result: &DataType) -> Option<ScalarUDF> {
    match name {
        CAST => Some(casts::NumberCast::to(result)),
        symbol => arithmetic::Arithmetic::by_symbol(symbol),
    }
}

/// Makes operators, functions, aggregates and casts known.
///
/// # Errors
/// None are expected.
pub(crate) fn register(state: &mut SessionState) -> Result<()> {
    let functions = functions::functions().into_iter().chain(choices::functions()).map(Arc::new);
    let functions: Vec<_> = functions.collect();
    let aggregates = sums::aggregates().into_iter().chain(statistics::aggregates()).map(Arc::new);
    let aggregates: Vec<_> = aggregates.collect();
    // Those of DataFusion under all their names: whoever registers the functions of a state anew would find them again.
    for theirs in functions.iter().filter_map(|function| state.udf(function.name()).ok()).collect::<Vec<_>>()
    {
        for name in theirs.aliases().iter().map(String::as_str).chain([theirs.name()]) {
            state.deregister_udf(name)?;
        }
    }
    for theirs in
        aggregates.iter().filter_map(|aggregate| state.udaf(aggregate.name()).ok()).collect::<Vec<_>>()
    {
        for name in theirs.aliases().iter().map(String::as_str).chain([theirs.name()]) {
            state.deregister_udaf(name)?;
        }
    }
    for function in functions {
        state.register_udf(function)?;
    }
    for aggregate in aggregates {
        state.register_udaf(aggregate)?;
    }
    counts::register(state)?;
    state.register_function_rewrite(Arc::new(NumberCasts))?;
    state.register_expr_planner(Arc::new(operators::NumberOperators))
}

/// The function that a cast is.
const CAST: &str = "?cast";

/// Whether a function in a plan is one that stands for an operator or a cast, and has been given what it takes.
pub(crate) fn is_internal(name: &str) -> bool {
    name.starts_with('?') || is_operator(name)
}

/// Whether a function in a plan is one that stands for an operator with two operands.
pub(crate) fn is_operator(name: &str) -> bool {
    arithmetic::Op::ALL.iter().any(|op| op.symbol() == name)
}

fn error(sqlstate: &'static str, message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::Invalid, message).with_sqlstate(sqlstate)
}

/// An error of planning.
fn planned(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// An error in the middle of an array.
fn computed(sqlstate: &'static str, message: impl Into<String>) -> ArrowError {
    ArrowError::ExternalError(Box::new(error(sqlstate, message)))
}

fn out_of_range(type_name: &str) -> ArrowError {
    computed("22003", format!("{type_name} out of range"))
}

fn overflow() -> ArrowError {
    computed("22003", "value out of range: overflow")
}

fn underflow() -> ArrowError {
    computed("22003", "value out of range: underflow")
}

fn numeric_overflow() -> ArrowError {
    computed("22003", "value overflows numeric format: it has more than 38 digits")
}

fn division_by_zero() -> ArrowError {
    computed("22012", "division by zero")
}

fn unsupported(what: &str) -> DataFusionError {
    planned(crate::error::unsupported(what))
}
