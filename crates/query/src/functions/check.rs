//! Calls, operators and casts in a plan: those with arguments of types that PostgreSQL does not take are refused, as it
//! refuses them, before DataFusion converts the arguments so that they fit.

use super::any_element;
use super::casts::{self, Casting};
use super::kinds::Kind;
use super::large::{Concatenation, measured};
use super::moment_operators;
use super::moments;
use super::patterns;
use super::signature::Argument;
use super::table;
use super::texts;
use super::unary_plus::NAME as UNARY_PLUS;
use super::value_or_null;
use crate::error::{invalid, unsupported};
use crate::number;
use crate::pg_catalog;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::functions::datetime::expr_fn::to_local_time;
use datafusion::logical_expr::expr::{BinaryExpr, Cast, ScalarFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{Expr, ExprSchemable, Join, Like, Operator, Union, Values, cast, lit, when};
use oribi_session::sql::SqlError;

/// `expr`, whose parts are checked already, if it may be evaluated; its conversions from and to text are then those of
/// PostgreSQL.
///
/// # Errors
/// 42883 for a function or an operator that does not take such arguments, 42846 and `Unsupported` for a cast, 42804 for
/// types that do not go together.
pub(crate) fn checked(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Cast(cast) => {
            let from = kind(&cast.expr, schema)?;
            match casts::of(&from, &cast.field).map_err(foreign)? {
                Casting::Theirs => Ok(Transformed::no(Expr::Cast(cast))),
                Casting::Clock(then) => {
                    let shown = to_local_time(vec![*cast.expr]);
                    Ok(Transformed::yes(match then {
                        Some(name) => moments::call(name, vec![shown]),
                        None => Expr::Cast(Cast { expr: Box::new(shown), field: cast.field }),
                    }))
                }
                Casting::Ours(function) => Ok(Transformed::yes(function.call(vec![*cast.expr]))),
                Casting::Moment(name) => Ok(Transformed::yes(moments::call(name, vec![*cast.expr]))),
            }
        }
        Expr::BinaryExpr(binary) if binary.op == Operator::StringConcat => concatenation(binary, schema),
        Expr::BinaryExpr(binary) if regex_operator(binary.op).is_some() => {
            check_operator(&binary, schema)?;
            let (name, negated) = regex_operator(binary.op).expect("it is one");
            Ok(Transformed::yes(patterns::operator(name, vec![*binary.left, *binary.right], negated)))
        }
        Expr::Like(like) => {
            check_like(&like, schema)?;
            Ok(like_of(like))
        }
        Expr::BinaryExpr(binary) if like_operator(binary.op).is_some() => {
            check_operator(&binary, schema)?;
            let (case_insensitive, negated) = like_operator(binary.op).expect("it is one");
            let BinaryExpr { left, right, .. } = binary;
            let like = Like { negated, expr: left, pattern: right, escape_char: None, case_insensitive };
            Ok(Transformed::yes(like_of(like).data))
        }
        Expr::ScalarFunction(call) if texts::is_replaced(&call) => {
            check_call(call.func.name(), &call.args, schema)?;
            Ok(Transformed::yes(texts::ours(call)))
        }
        Expr::SimilarTo(like) => {
            check_like(&like, schema)?;
            let mut arguments = vec![*like.expr, *like.pattern];
            arguments.extend(like.escape_char.map(|escape| lit(escape.to_string())));
            Ok(Transformed::yes(patterns::operator("is_similar", arguments, like.negated)))
        }
        Expr::ScalarFunction(call) if call.func.name() == "to_timestamp" => {
            check_call(call.func.name(), &call.args, schema)?;
            moment(call, schema)
        }
        Expr::ScalarFunction(mut call) if call.func.name() == UNARY_PLUS => {
            match kind(&call.args[0], schema)? {
                kind if kind.is_number() => Ok(Transformed::yes(call.args.swap_remove(0))),
                Kind::Unknown => refuse(invalid("42725", "operator is not unique: + unknown")),
                kind => refuse(invalid("42883", format!("operator does not exist: + {kind}"))),
            }
        }
        Expr::ScalarFunction(call) if call.func.name() == "array_element" => {
            check_call(call.func.name(), &call.args, schema)?;
            Ok(Transformed::yes(element(call)?))
        }
        Expr::ScalarFunction(call) if call.func.name() == "array_length" => {
            check_call(call.func.name(), &call.args, schema)?;
            // An array without elements has no dimensions.
            let length = Expr::ScalarFunction(call);
            Ok(Transformed::yes(when(length.clone().gt(lit(0_i64)), length).end()?))
        }
        Expr::ScalarFunction(call) if call.func.name() == "array_has" => {
            check_call(call.func.name(), &call.args, schema)?;
            Ok(Transformed::yes(any_element::compared(call)))
        }
        Expr::ScalarFunction(mut call) if matches!(call.func.name(), "concat" | "concat_ws") => {
            check_call(call.func.name(), &call.args, schema)?;
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
        expr => {
            check(&expr, schema)?;
            if let Expr::ScalarFunction(call) = &expr
                && let Some(measured) = measured(call)
            {
                return Ok(Transformed::yes(measured));
            }
            moment_operators::compared(expr, schema)
        }
    }
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

fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::ScalarFunction(call) => check_call(call.func.name(), &call.args, schema),
        Expr::AggregateFunction(call) => {
            let distinct = call.params.args.iter().filter(|_| call.params.distinct);
            let ordered = call.params.order_by.iter().map(|sort| &sort.expr);
            ordered.chain(distinct).try_for_each(|expr| check_order(expr, schema))?;
            check_call(call.func.name(), &call.params.args, schema)
        }
        Expr::WindowFunction(call) => {
            let name = match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => function.name(),
                WindowFunctionDefinition::WindowUDF(function) => function.name(),
            };
            check_call(name, &call.params.args, schema)?;
            let ordered = call.params.order_by.iter().map(|sort| &sort.expr);
            ordered.chain(&call.params.partition_by).try_for_each(|expr| check_order(expr, schema))?;
            check_window(name, &call.params.args, schema)
        }
        Expr::HigherOrderFunction(call) => refuse(unsupported(&format!("function {}", call.func.name()))),
        Expr::BinaryExpr(binary) => check_operator(binary, schema),
        Expr::Not(inner) => check_condition(inner, "NOT", schema),
        Expr::IsTrue(inner) | Expr::IsNotTrue(inner) => check_condition(inner, "IS TRUE", schema),
        Expr::IsFalse(inner) | Expr::IsNotFalse(inner) => check_condition(inner, "IS FALSE", schema),
        Expr::IsUnknown(inner) | Expr::IsNotUnknown(inner) => check_condition(inner, "IS UNKNOWN", schema),
        Expr::Negative(inner) => match kind(inner, schema)? {
            Kind::Unknown => refuse(invalid("42725", "operator is not unique: - unknown")),
            Kind::Interval => Ok(()),
            kind if kind.is_number() => Ok(()),
            kind => refuse(invalid("42883", format!("operator does not exist: - {kind}"))),
        },
        Expr::Between(between) => {
            let value = kind(&between.expr, schema)?;
            check_order(&between.expr, schema)?;
            check_comparable(&value, ">=", &kind(&between.low, schema)?)?;
            check_comparable(&value, "<=", &kind(&between.high, schema)?)
        }
        Expr::InList(list) => {
            let value = kind(&list.expr, schema)?;
            check_order(&list.expr, schema)?;
            list.list.iter().try_for_each(|item| check_comparable(&value, "=", &kind(item, schema)?))
        }
        Expr::Case(case) => {
            if let Some(value) = &case.expr {
                check_order(value, schema)?;
                let value = kind(value, schema)?;
                for (when, _) in &case.when_then_expr {
                    let when = kind(when, schema)?;
                    // A value without a type is a text.
                    if value == Kind::Unknown && !is_text(&when) {
                        return refuse(no_operator(&Kind::Text, "=", &when));
                    }
                    check_comparable(&value, "=", &when)?;
                    check_alike("CASE", &value, &when)?;
                }
            } else {
                for (when, _) in &case.when_then_expr {
                    check_condition(when, "CASE/WHEN", schema)?;
                }
            }
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            check_one_type("CASE", results.chain(case.else_expr.as_deref()), schema)
        }
        Expr::InSubquery(within) => {
            let found = Kind::of(within.subquery.subquery.schema().field(0));
            let value = kind(&within.expr, schema)?;
            check_order(&within.expr, schema)?;
            check_comparable(&value, "=", &found)?;
            check_alike("IN", &value, &found)?;
            check_floats("IN (SELECT …)", &value, &found)
        }
        Expr::TryCast(_) => refuse(unsupported("TRY_CAST")),
        _ => Ok(()),
    }
}

/// Refuses floats that are to become one column with other numbers: nothing there can be cast.
fn check_floats(what: &str, one: &Kind, other: &Kind) -> Result<()> {
    if one != other && one.is_number() && other.is_number() && (one.is_float() || other.is_float()) {
        return refuse(
            unsupported(&format!("{what} of {one} and {other}"))
                .with_hint("cast one of them to the other's type"),
        );
    }
    Ok(())
}

/// `VALUES` of one column.
///
/// # Errors
/// `Unsupported` for floats beside decimals.
pub(crate) fn check_values(values: &Values) -> Result<()> {
    for field in values.schema.fields() {
        // What DataFusion makes of a float beside a decimal.
        if matches!(field.data_type(), DataType::Decimal128(30, 15) | DataType::Decimal128(15, 7)) {
            check_floats("VALUES", &Kind::Float8, &Kind::Numeric)?;
        }
    }
    Ok(())
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

/// Values that come to one type: dates and timestamps do only where they are compared by an operator.
fn check_alike(of: &str, one: &Kind, other: &Kind) -> Result<()> {
    if one.is_moment() && other.is_moment() && one != other {
        let error = unsupported(&format!("{of} of {one} and {other}"));
        return refuse(error.with_hint("cast them to one type"));
    }
    Ok(())
}

/// What a function's arguments are, before a text among them is read as the type that is wanted.
///
/// # Errors
/// 42883, 42725, `Unsupported`.
pub(crate) fn check_arguments(call: &ScalarFunction, schema: &DFSchema) -> Result<()> {
    check_call(call.func.name(), &call.args, schema)
}

fn check_call(name: &str, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
    let Some(signatures) = table::signatures(name) else {
        // Those of ours that look at the catalog, or that stand for a cast.
        let known = pg_catalog::function_names().any(|known| known == name)
            || casts::is_ours(name)
            || patterns::is_operator(name)
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

/// The element of an array at a place: there is none before the first, from where DataFusion counts backwards.
fn element(call: ScalarFunction) -> Result<Expr> {
    let Some(place) = call.args.get(1).cloned() else { return Ok(Expr::ScalarFunction(call)) };
    when(place.gt(lit(0_i64)), Expr::ScalarFunction(call)).end()
}

fn check_like(like: &Like, schema: &DFSchema) -> Result<()> {
    let operator = if like.case_insensitive { "~~*" } else { "~~" };
    let (left, right) = (kind(&like.expr, schema)?, kind(&like.pattern, schema)?);
    if is_text(&left) && is_text(&right) { Ok(()) } else { refuse(no_operator(&left, operator, &right)) }
}

/// `LIKE` as it is if its pattern is plain; ours otherwise.
fn like_of(like: Like) -> Transformed<Expr> {
    let plain = match like.pattern.as_ref() {
        Expr::Literal(ScalarValue::Utf8(Some(pattern)) | ScalarValue::Utf8View(Some(pattern)), _) => {
            !pattern.contains('\\') && like.escape_char.is_none_or(|escape| escape == '\\')
        }
        Expr::Literal(..) => true,
        _ => false,
    };
    if plain {
        return Transformed::no(Expr::Like(like));
    }
    let name = if like.case_insensitive { "is_like_ignoring_case" } else { "is_like" };
    let escape = lit(like.escape_char.unwrap_or('\\').to_string());
    Transformed::yes(patterns::operator(name, vec![*like.expr, *like.pattern, escape], like.negated))
}

fn like_operator(operator: Operator) -> Option<(bool, bool)> {
    Some(match operator {
        Operator::LikeMatch => (false, false),
        Operator::NotLikeMatch => (false, true),
        Operator::ILikeMatch => (true, false),
        Operator::NotILikeMatch => (true, true),
        _ => return None,
    })
}

fn regex_operator(operator: Operator) -> Option<(&'static str, bool)> {
    Some(match operator {
        Operator::RegexMatch => ("matches", false),
        Operator::RegexNotMatch => ("matches", true),
        Operator::RegexIMatch => ("matches_ignoring_case", false),
        Operator::RegexNotIMatch => ("matches_ignoring_case", true),
        _ => return None,
    })
}

/// The arguments of window functions that DataFusion takes otherwise.
fn check_window(name: &str, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
    let polymorphic = matches!(name, "lag" | "lead" | "first_value" | "last_value" | "nth_value");
    if polymorphic && kind(&arguments[0], schema)? == Kind::Unknown {
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

/// The kind of an expression: a text that is written out has none yet.
pub(crate) fn kind(expr: &Expr, schema: &DFSchema) -> Result<Kind> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null, None)
        | Expr::Placeholder(_) => Ok(Kind::Unknown),
        Expr::Alias(alias) => kind(&alias.expr, schema),
        expr => match Kind::of(expr.to_field(schema)?.1.as_ref()) {
            Kind::Text => Ok(json_among(expr, schema)?.unwrap_or(Kind::Text)),
            kind => Ok(kind),
        },
    }
}

/// The kind of JSON among values that come to one type: DataFusion forgets that it is not text.
fn json_among(expr: &Expr, schema: &DFSchema) -> Result<Option<Kind>> {
    let values: Vec<&Expr> = match expr {
        Expr::ScalarFunction(call) if matches!(call.func.name(), "coalesce" | "nullif") => {
            call.args.iter().collect()
        }
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            results.chain(case.else_expr.as_deref()).collect()
        }
        _ => return Ok(None),
    };
    for value in values {
        let kind = kind(value, schema)?;
        if kind.is_json() {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Negative(inner) => is_literal(inner),
        _ => false,
    }
}

fn is_text(kind: &Kind) -> bool {
    matches!(kind, Kind::Text | Kind::Unknown)
}

fn check_operator(binary: &BinaryExpr, schema: &DFSchema) -> Result<()> {
    use Operator as O;
    let (left, right) = (kind(&binary.left, schema)?, kind(&binary.right, schema)?);
    let both = |is: fn(&Kind) -> bool| is(&left) && is(&right);
    let fits = match binary.op {
        O::And | O::Or => both(|kind| matches!(kind, Kind::Bool | Kind::Unknown)),
        O::Eq | O::NotEq | O::Lt | O::LtEq | O::Gt | O::GtEq | O::IsDistinctFrom | O::IsNotDistinctFrom => {
            comparable(&left, &right)
        }
        // Those of moments are calls by now.
        O::Plus | O::Minus | O::Multiply | O::Divide | O::Modulo => {
            both(|kind| kind.is_number() || *kind == Kind::Unknown)
        }
        // It is shifted by an integer; what is shifted is one, too, if nothing says so.
        O::BitwiseShiftLeft | O::BitwiseShiftRight if left == Kind::Unknown && right == Kind::Int2 => {
            let message = format!("operator is not unique: unknown {} {right}", symbol(binary.op));
            return refuse(invalid("42725", message));
        }
        O::BitwiseShiftLeft | O::BitwiseShiftRight => {
            matches!(left, Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Unknown)
                && (right == Kind::Unknown || is_int4(&binary.right, schema)?)
        }
        O::BitwiseAnd | O::BitwiseOr | O::BitwiseXor => {
            both(|kind| matches!(kind, Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Unknown))
        }
        O::RegexMatch
        | O::RegexIMatch
        | O::RegexNotMatch
        | O::RegexNotIMatch
        | O::LikeMatch
        | O::ILikeMatch
        | O::NotLikeMatch
        | O::NotILikeMatch => both(is_text),
        _ => return refuse(unsupported(&format!("operator {}", symbol(binary.op)))),
    };
    if fits { Ok(()) } else { refuse(no_operator(&left, symbol(binary.op), &right)) }
}

/// Whether a number is an integer as PostgreSQL counts them: literals, and what is computed of them, are wider here.
pub(crate) fn is_int4(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(match kind(expr, schema)? {
        Kind::Int2 | Kind::Int4 => true,
        Kind::Int8 => match expr {
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
                is_int4(left, schema)? && is_int4(right, schema)?
            }
            Expr::Literal(..) | Expr::Negative(_) => {
                whole_number(expr).is_some_and(|number| i32::try_from(number).is_ok())
            }
            _ => false,
        },
        _ => false,
    })
}

/// `a || b`: texts, or a text and a value of a type that has a text.
fn concatenation(mut binary: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (left, right) = (kind(&binary.left, schema)?, kind(&binary.right, schema)?);
    for (side, kind, other) in [(&mut binary.left, &left, &right), (&mut binary.right, &right, &left)] {
        if is_text(kind) {
            continue;
        }
        match casts::to_text(kind) {
            // Of two that are no text, none says that texts are meant.
            // A text without a type would be one of bytes beside bytes.
            Some(function)
                if is_text(other)
                    && !kind.is_json()
                    && !(*kind == Kind::Bytea && *other == Kind::Unknown) =>
            {
                let value = std::mem::replace(side.as_mut(), Expr::Literal(ScalarValue::Null, None));
                **side = function.call(vec![value]);
            }
            _ => return refuse(no_operator(&left, "||", &right)),
        }
    }
    Ok(Transformed::yes(Concatenation::of(*binary.left, *binary.right)))
}

fn symbol(operator: Operator) -> &'static str {
    use Operator as O;
    match operator {
        O::Eq => "=",
        O::NotEq => "<>",
        O::Lt => "<",
        O::LtEq => "<=",
        O::Gt => ">",
        O::GtEq => ">=",
        O::Plus => "+",
        O::Minus => "-",
        O::Multiply => "*",
        O::Divide => "/",
        O::Modulo => "%",
        O::And => "AND",
        O::Or => "OR",
        O::IsDistinctFrom | O::IsNotDistinctFrom => "=",
        O::RegexMatch => "~",
        O::RegexIMatch => "~*",
        O::RegexNotMatch => "!~",
        O::RegexNotIMatch => "!~*",
        O::LikeMatch => "~~",
        O::ILikeMatch => "~~*",
        O::NotLikeMatch => "!~~",
        O::NotILikeMatch => "!~~*",
        O::BitwiseAnd => "&",
        O::BitwiseOr => "|",
        O::BitwiseXor => "#",
        O::BitwiseShiftLeft => "<<",
        O::BitwiseShiftRight => ">>",
        O::StringConcat => "||",
        O::AtArrow => "@>",
        O::ArrowAt => "<@",
        _ => "of this kind",
    }
}

/// Whether values of the two kinds can be compared. JSON cannot: its texts differ where its values do not.
fn comparable(left: &Kind, right: &Kind) -> bool {
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
fn needs_a_zone(left: &Kind, right: &Kind) -> bool {
    let shown = |kind: &Kind| matches!(kind, Kind::Date | Kind::Time | Kind::Timestamp);
    *left == Kind::Zoned && shown(right) || shown(left) && *right == Kind::Zoned
}

const CLOCK_HINT: &str = "cast the moment to timestamp, or set the session's time zone to UTC";

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

fn check_comparable(left: &Kind, operator: &str, right: &Kind) -> Result<()> {
    if comparable(left, right) { Ok(()) } else { refuse(no_operator(left, operator, right)) }
}

/// The results of a `CASE` and the like have one type.
fn check_one_type<'a>(of: &str, values: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> Result<()> {
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

fn check_condition(expr: &Expr, of: &str, schema: &DFSchema) -> Result<()> {
    match kind(expr, schema)? {
        Kind::Bool | Kind::Unknown => Ok(()),
        other => refuse(invalid("42804", format!("argument of {of} must be type boolean, not type {other}"))),
    }
}

pub(super) fn no_operator(left: &Kind, operator: &str, right: &Kind) -> SqlError {
    if needs_a_zone(left, right) {
        return unsupported(&format!("{left} {operator} {right}")).with_hint(CLOCK_HINT);
    }
    invalid("42883", format!("operator does not exist: {left} {operator} {right}"))
        .with_hint("no operator of the name takes arguments of these types; a cast may help")
}

fn refuse<T>(error: SqlError) -> Result<T> {
    Err(foreign(error))
}

fn foreign(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
