//! The functions of SQL: name, and the types of arguments that it takes, as PostgreSQL's `pg_proc` has them.
//!
//! A row is a name and its signatures, which `|` divides; `...` behind a type means any number of such arguments. The
//! kinds of types are those of [`Kind`](super::kinds::Kind). The differential test reads the names from
//! `information_schema.routines` and compares each with PostgreSQL over all types.

mod aggregates;
mod arrays;
mod json;
mod moments;
mod numbers;
mod strings;

use super::kinds::Kind;
use super::signature::Signature;
use crate::pg_catalog;
use oribi_types::ColumnType;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A name and its signatures.
type Row = (&'static str, &'static str);

const GROUPS: &[&[Row]] = &[
    aggregates::FUNCTIONS,
    arrays::FUNCTIONS,
    json::FUNCTIONS,
    moments::FUNCTIONS,
    numbers::FUNCTIONS,
    strings::FUNCTIONS,
];

/// What the planner calls for a piece of syntax or for a function of another name; no client can.
const INTERNAL: &[&[Row]] = &[arrays::INTERNAL, json::INTERNAL, moments::INTERNAL, strings::INTERNAL];

static TABLE: LazyLock<HashMap<&str, Vec<Signature>>> = LazyLock::new(|| parsed(GROUPS));

static INTERNAL_TABLE: LazyLock<HashMap<&str, Vec<Signature>>> = LazyLock::new(|| parsed(INTERNAL));

fn parsed(groups: &[&'static [Row]]) -> HashMap<&'static str, Vec<Signature>> {
    let rows = groups.iter().copied().flatten();
    rows.map(|(name, signatures)| (*name, Signature::parse_all(signatures))).collect()
}

/// Whether a client may call a function of the name, be it with the right arguments.
pub(super) fn has(name: &str) -> bool {
    TABLE.contains_key(name) || pg_catalog::function_names().any(|known| known == name)
}

/// Whether a function is an aggregate or a window function.
pub(super) fn is_aggregate(name: &str) -> bool {
    aggregates::FUNCTIONS.iter().any(|(known, _)| *known == name)
}

/// The signatures of a function in a plan; `None` for one that is checked elsewhere: those about the catalog take
/// what they are given, as they look at system tables alone.
pub(super) fn signatures(name: &str) -> Option<&'static [Signature]> {
    TABLE.get(name).or_else(|| INTERNAL_TABLE.get(name)).map(Vec::as_slice)
}

/// The type that a text which is written out has as argument `n` of a function, if that is not text: all functions of the
/// name with that many arguments take the same there.
pub(crate) fn parameter_type(name: &str, arguments: usize, n: usize) -> Option<ColumnType> {
    let mut kinds =
        signatures(name)?.iter().filter(|signature| signature.arity() == arguments).map(|s| s.kind(n));
    let first = kinds.next()??;
    if kinds.any(|kind| kind != Some(first)) {
        return None;
    }
    match first {
        Kind::Bool => Some(ColumnType::Bool),
        Kind::Int4 => Some(ColumnType::Int32),
        Kind::Int8 => Some(ColumnType::Int64),
        Kind::Float8 => Some(ColumnType::Double),
        Kind::Bytea => Some(ColumnType::Binary),
        Kind::Json => Some(ColumnType::Json),
        _ => None,
    }
}

/// The names of all functions that a client may call, in order.
pub(crate) fn callable() -> Vec<&'static str> {
    let mut names: Vec<&str> = TABLE.keys().copied().chain(pg_catalog::function_names()).collect();
    names.sort_unstable();
    names.dedup();
    names
}
