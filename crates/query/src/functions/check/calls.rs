//! Calls: which functions there are for arguments of which types.

use super::kind::is_text;
use super::together::{check_alike, check_comparable, check_one_type, check_order, check_zones};
use super::{kind, refuse};
use crate::error::{invalid, unsupported};
use crate::functions::itself::UNARY_PLUS;
use crate::functions::kinds::Kind;
use crate::functions::large::{Concatenation, measured};
use crate::functions::signature::Argument;
use crate::functions::{any_element, casts, moment_operators, parts, patterns, table, texts, value_or_null};
use crate::{literals, number, pg_catalog};
use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit, when};
use std::sync::Arc;

/// A call of a function that there is for such arguments; ours where DataFusion's answers otherwise.
///
/// # Errors
/// 42883, 42725, `Unsupported`.
pub(super) fn checked(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if call.func.name() == UNARY_PLUS {
        return match kind(&call.args[0], schema)? {
            kind if kind.is_number() => Ok(Transformed::yes(call.args.swap_remove(0))),
            Kind::Unknown => Ok(Transformed::yes(double(call.args.swap_remove(0))?)),
            kind => refuse(invalid("42883", format!("operator does not exist: + {kind}"))),
        };
    }
    check_call(call.func.name(), &call.args, schema)?;
    if texts::is_replaced(&call) {
        return Ok(Transformed::yes(texts::ours(call)));
    }
    Ok(Transformed::yes(match call.func.name() {
        "to_timestamp" => return moment(call, schema),
        "concat" | "concat_ws" => return shown(call, schema),
        "array_element" => element(call)?,
        "array_has" => any_element::compared(call),
        "array_length" => {
            // An array without elements has no dimensions.
            let length = Expr::ScalarFunction(call);
            when(length.clone().gt(lit(0_i64)), length).end()?
        }
        _ => match measured(&call) {
            Some(measured) => measured,
            None => return moment_operators::compared(Expr::ScalarFunction(call), schema),
        },
    }))
}

/// A text or a null without a type, as the `double precision` that PostgreSQL prefers.
fn double(mut value: Expr) -> Result<Expr> {
    let field = Arc::new(Field::new("", DataType::Float64, true));
    let read = literals::among(&mut value, std::iter::once(&field))?;
    Ok(if read { value } else { cast(value, DataType::Float64) })
}

/// `concat` and the like, of the texts that clients see of other values.
fn shown(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut transformed = false;
    for argument in &mut call.args {
        let kind = kind(argument, schema)?;
        if is_text(&kind) {
            continue;
        }
        let Some(function) = casts::to_text(&kind).filter(|_| !kind.is_json()) else {
            return refuse(unsupported(&format!("{} of {kind}", call.func.name())));
        };
        let value = std::mem::replace(argument, Expr::Literal(ScalarValue::Null, None));
        *argument = function.showing().call(vec![value]);
        transformed = true;
    }
    Ok(Transformed::new_transformed(Expr::ScalarFunction(call), transformed))
}

/// `to_timestamp`. In a zone DataFusion takes whole seconds, and no others, for what the zone's clocks show.
fn moment(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_whole = call.args.iter().any(|seconds| seconds.get_type(schema).is_ok_and(|t| t.is_integer()));
    let expr = Expr::ScalarFunction(call.clone());
    let zoned = expr.get_type(schema)?;
    match (is_whole, &zoned) {
        (true, zoned_type) if Kind::of_arrow(zoned_type) == Kind::Zoned => {
            let utc = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
            Ok(Transformed::yes(cast(cast(call.args.remove(0), utc), zoned)))
        }
        _ => Ok(Transformed::no(expr)),
    }
}

/// The element of an array at a place: there is none before the first, from where DataFusion counts backwards.
fn element(call: ScalarFunction) -> Result<Expr> {
    let Some(place) = call.args.get(1).cloned() else { return Ok(Expr::ScalarFunction(call)) };
    when(place.gt(lit(0_i64)), Expr::ScalarFunction(call)).end()
}

/// What a function's arguments are, before a text among them is read as the type that is wanted.
///
/// # Errors
/// 42883, 42725, `Unsupported`.
pub(crate) fn check_arguments(call: &ScalarFunction, schema: &DFSchema) -> Result<()> {
    // A text behind a sign is a number.
    if call.func.name() == UNARY_PLUS {
        return Ok(());
    }
    check_call(call.func.name(), &call.args, schema)
}

pub(super) fn check_call(name: &str, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
    let Some(signatures) = table::signatures(name) else {
        // Those of ours that look at the catalog, or that stand for a cast.
        let known = pg_catalog::function_names().any(|known| known == name)
            || casts::is_ours(name)
            || patterns::is_operator(name)
            || name == parts::NAME
            || moment_operators::is_ours(name)
            || name == texts::HAS_KEY
            || name == texts::LONG_TEXT
            || name == any_element::NAME
            || name == value_or_null::NAME
            || name == Concatenation::NAME
            || number::is_internal(name);
        return if known { Ok(()) } else { refuse(unsupported(&format!("function {name}"))) };
    };
    let described = arguments
        .iter()
        .map(|argument| Ok(Argument { kind: kind(argument, schema)?, literal: is_literal(argument) }))
        .collect::<Result<Vec<_>>>()?;
    if !matches!(name, "count" | "min" | "max" | "to_local_time") && !is_of_one_type(name) {
        check_zones(&format!("{name} of a moment"), described.iter().map(|argument| &argument.kind))?;
    }
    let mut fitting = signatures.iter().filter(|signature| signature.takes(&described));
    let fits = fitting.next();
    if let Some(first) = fits
        && described.iter().any(|argument| argument.kind == Kind::Unknown)
        && fitting.clone().count() > 0
        && !std::iter::once(first).chain(fitting).any(|signature| signature.is_preferred(&described))
    {
        let kinds: Vec<String> = described.iter().map(|argument| argument.kind.to_string()).collect();
        return refuse(invalid("42725", format!("function {name}({}) is not unique", kinds.join(", "))));
    }
    if fits.is_none() {
        let kinds: Vec<String> = described.iter().map(|argument| argument.kind.to_string()).collect();
        let message = format!("function {name}({}) does not exist", kinds.join(", "));
        return refuse(
            invalid("42883", message)
                .with_hint("no function of the name takes arguments of these types; a cast may help"),
        );
    }
    match name {
        "array_slice" if arguments[1..].iter().any(|place| whole_number(place).is_none_or(|n| n < 1)) => {
            refuse(unsupported("a slice of an array with a place that is not a number above zero"))
        }
        "date_part" | "date_trunc" | "extract_whole" | "extract_thousandths" | "extract_millionths"
            if described[1].kind == Kind::Unknown =>
        {
            let name = if name.starts_with("extract") { "extract" } else { name };
            refuse(invalid("42725", format!("function {name}({}, unknown) is not unique", described[0].kind)))
        }
        "array_cat" | "array_concat" => {
            let mut items = described.iter().filter_map(|argument| match &argument.kind {
                Kind::Array(item) if **item != Kind::Unknown => Some(item.as_ref()),
                _ => None,
            });
            let first = items.next();
            if items
                .all(|item| first.is_none_or(|first| first == item || first.is_number() && item.is_number()))
            {
                return Ok(());
            }
            let kinds: Vec<String> = described.iter().map(|argument| argument.kind.to_string()).collect();
            refuse(invalid("42883", format!("function {name}({}) does not exist", kinds.join(", "))))
        }
        "array_append" | "array_prepend"
            if described.iter().any(|argument| argument.kind == Kind::Unknown) =>
        {
            refuse(
                unsupported("an array with an untyped null or text as its element")
                    .with_hint("write the cast"),
            )
        }
        "array_agg" | "sum" | "avg" | "trunc"
            if described.len() == 1 && described[0].kind == Kind::Unknown =>
        {
            refuse(invalid("42725", format!("function {name}(unknown) is not unique")))
        }
        "gcd" | "lcm" if described.iter().all(|argument| argument.kind == Kind::Int2) => {
            refuse(invalid("42725", format!("function {name}(smallint, smallint) is not unique")))
        }
        "array_append" | "array_prepend" | "array_replace" | "array_position" | "array_positions"
        | "array_has" => {
            let item = described.iter().find_map(|argument| match &argument.kind {
                Kind::Array(item) => Some(item.as_ref()),
                _ => None,
            });
            let fits = |argument: &Argument| match &argument.kind {
                Kind::Array(_) => true,
                kind => item.is_none_or(|item| {
                    kind.is_taken_as(item) || argument.literal && kind.is_number() && item.is_number()
                }),
            };
            if described.iter().all(fits) {
                return Ok(());
            }
            let kinds: Vec<String> = described.iter().map(|argument| argument.kind.to_string()).collect();
            refuse(invalid("42883", format!("function {name}({}) does not exist", kinds.join(", "))))
        }
        "greatest" | "least" => {
            arguments.iter().try_for_each(|argument| check_order(argument, schema))?;
            check_one_type(&name.to_uppercase(), arguments.iter(), schema)
        }
        "nullif" => {
            arguments.iter().try_for_each(|argument| check_order(argument, schema))?;
            check_comparable(&described[0].kind, "=", &described[1].kind)?;
            check_alike("NULLIF", &described[0].kind, &described[1].kind)
        }
        "stddev" | "stddev_pop" | "stddev_samp" | "variance" | "var_pop" | "var_samp"
            if !matches!(described[0].kind, Kind::Float4 | Kind::Float8) =>
        {
            let what = format!("{name} of {} (cast to double precision)", described[0].kind);
            refuse(unsupported(&what))
        }
        name if is_of_one_type(name) => check_one_type(&name.to_uppercase(), arguments.iter(), schema),
        _ => Ok(()),
    }
}

/// The arguments of window functions that DataFusion takes otherwise.
pub(super) fn check_window(name: &str, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
    let polymorphic = matches!(name, "lag" | "lead" | "first_value" | "last_value" | "nth_value");
    if polymorphic && kind(&arguments[0], schema)? == Kind::Unknown {
        if arguments.len() == 3 {
            return refuse(unsupported(&format!(
                "{name} of a value without a type, beside a default (cast it)"
            )));
        }
        let message = "could not determine polymorphic type because input has type unknown";
        return refuse(invalid("42804", message));
    }
    let counted = match name {
        "ntile" => arguments.first(),
        "lag" | "lead" | "nth_value" => arguments.get(1),
        _ => None,
    };
    match (name, counted.map(whole_number)) {
        ("nth_value", Some(Some(n))) if n < 1 => {
            refuse(invalid("22016", "argument of nth_value must be greater than zero"))
        }
        ("ntile", Some(Some(n))) if n < 1 => {
            refuse(invalid("22014", "argument of ntile must be greater than zero"))
        }
        (_, Some(None)) => {
            refuse(unsupported(&format!("{name} with a null or a column in place of a number")))
        }
        _ => Ok(()),
    }
}

/// The number that is written out.
pub(super) fn whole_number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(value, _) => match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(n)) => n,
            _ => None,
        },
        Expr::Negative(inner) => whole_number(inner)?.checked_neg(),
        Expr::Cast(cast) => whole_number(&cast.expr),
        _ => None,
    }
}

/// Whether the arguments of a function come to one type, which is its own.
pub(crate) fn is_of_one_type(name: &str) -> bool {
    matches!(name, "coalesce" | "greatest" | "least" | "make_array" | "nullif")
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Negative(inner) => is_literal(inner),
        _ => false,
    }
}
