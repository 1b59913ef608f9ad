//! Values that meet: what is compared, sorted and grouped, and what comes to one type.

use super::operators::no_operator;
use super::{kind, refuse};
use crate::error::{invalid, unsupported};
use crate::functions::kinds::Kind;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, Join, Union};

/// Whether values can be sorted, grouped and compared by their Arrow values: not intervals, of which a month is 30 days.
///
/// # Errors
/// 42883 for JSON, `Unsupported` for intervals.
pub(crate) fn check_order(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match kind(expr, schema)? {
        Kind::Json => refuse(invalid("42883", "could not identify an ordering operator for type json")),
        Kind::Jsonb => refuse(unsupported("an order of jsonb")),
        Kind::Interval => refuse(unsupported("an order of intervals")),
        _ => Ok(()),
    }
}

pub(super) fn check_comparable(left: &Kind, operator: &str, right: &Kind) -> Result<()> {
    if comparable(left, right) { Ok(()) } else { refuse(no_operator(left, operator, right)) }
}

/// Whether values of the two kinds can be compared. JSON cannot: its texts differ where its values do not.
pub(super) fn comparable(left: &Kind, right: &Kind) -> bool {
    match (left, right) {
        (left, right) if left.is_json() || right.is_json() => false,
        (Kind::Other, _) | (_, Kind::Other) => false,
        (Kind::Unknown, _) | (_, Kind::Unknown) => true,
        (Kind::Array(left), Kind::Array(right)) => {
            **left == Kind::Unknown || **right == Kind::Unknown || left == right
        }
        _ if needs_a_zone(left, right) => false,
        _ => {
            left == right
                || (left.is_number() && right.is_number())
                || (left.is_moment()
                    && right.is_moment()
                    && (left.is_taken_as(right) || right.is_taken_as(left)))
        }
    }
}

/// Whether one is a moment and the other what some clock shows. DataFusion moves the one to the other, and on the way
/// forgets the zone.
pub(super) fn needs_a_zone(left: &Kind, right: &Kind) -> bool {
    let shown = |kind: &Kind| matches!(kind, Kind::Date | Kind::Time | Kind::Timestamp);
    *left == Kind::Zoned && shown(right) || shown(left) && *right == Kind::Zoned
}

pub(super) const CLOCK_HINT: &str = "cast the moment to timestamp, or set the session's time zone to UTC";

/// Refuses a moment of another zone than UTC where functions count in UTC.
///
/// # Errors
/// `Unsupported`.
pub(crate) fn check_zones<'a>(what: &str, mut kinds: impl Iterator<Item = &'a Kind>) -> Result<()> {
    if kinds.any(|kind| *kind == Kind::Zoned) {
        return refuse(unsupported(&format!("{what} outside of UTC")).with_hint(CLOCK_HINT));
    }
    Ok(())
}

/// The results of a `CASE` and the like have one type.
pub(super) fn check_one_type<'a>(
    of: &str,
    values: impl Iterator<Item = &'a Expr>,
    schema: &DFSchema,
) -> Result<()> {
    let mut one = Kind::Unknown;
    for value in values {
        let kind = kind(value, schema)?;
        check_alike(of, &one, &kind)?;
        if one.is_json() && kind.is_json() && one != kind {
            return refuse(invalid("42846", format!("{of} could not convert type {kind} to {one}")));
        }
        if kind == Kind::Unknown || kind.is_taken_as(&one) && one != Kind::Unknown {
            continue;
        }
        if one != Kind::Unknown && !one.is_taken_as(&kind) {
            return refuse(invalid("42804", format!("{of} types {one} and {kind} cannot be matched")));
        }
        one = kind;
    }
    Ok(())
}

/// Values that come to one type: dates and timestamps do only where they are compared by an operator.
pub(super) fn check_alike(of: &str, one: &Kind, other: &Kind) -> Result<()> {
    if one.is_moment() && other.is_moment() && one != other {
        let error = unsupported(&format!("{of} of {one} and {other}"));
        return refuse(error.with_hint("cast them to one type"));
    }
    Ok(())
}

pub(super) fn check_condition(expr: &Expr, of: &str, schema: &DFSchema) -> Result<()> {
    match kind(expr, schema)? {
        Kind::Bool | Kind::Unknown => Ok(()),
        other => refuse(invalid("42804", format!("argument of {of} must be type boolean, not type {other}"))),
    }
}

/// Refuses floats that are to become one column with other numbers: nothing there can be cast.
pub(super) fn check_floats(what: &str, one: &Kind, other: &Kind) -> Result<()> {
    if one != other && one.is_number() && other.is_number() && (one.is_float() || other.is_float()) {
        return refuse(
            unsupported(&format!("{what} of {one} and {other}"))
                .with_hint("cast one of them to the other's type"),
        );
    }
    Ok(())
}

/// A column of `VALUES`.
///
/// # Errors
/// 42804 for values of types that have none in common.
pub(crate) fn check_cells(cells: &[&mut Expr], schema: &DFSchema) -> Result<()> {
    check_one_type("VALUES", cells.iter().map(|cell| &**cell), schema)
}

/// The columns that a join compares, in `USING` and the like.
///
/// # Errors
/// 42883 for columns of types that cannot be compared.
pub(crate) fn check_join(join: &Join) -> Result<()> {
    for (left, right) in &join.on {
        check_order(left, join.left.schema())?;
        let (left, right) = (kind(left, join.left.schema())?, kind(right, join.right.schema())?);
        check_comparable(&left, "=", &right)?;
        check_alike("JOIN", &left, &right)?;
        check_floats("a join", &left, &right)?;
    }
    Ok(())
}

/// The columns of the queries that a `UNION` puts together.
///
/// # Errors
/// 42804 for columns of types that have none in common.
pub(crate) fn check_union(union: &Union) -> Result<()> {
    let [first, others @ ..] = union.inputs.as_slice() else { return Ok(()) };
    for other in others {
        for (one, other) in first.schema().fields().iter().zip(other.schema().fields()) {
            let (one, other) = (Kind::of(one), Kind::of(other));
            let json = one.is_json() && one == other;
            if !json && !comparable(&one, &other) {
                return refuse(invalid("42804", format!("UNION types {one} and {other} cannot be matched")));
            }
            check_alike("UNION", &one, &other)?;
            check_floats("UNION", &one, &other)?;
        }
    }
    Ok(())
}
