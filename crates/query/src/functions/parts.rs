//! `LIKE '%a%b'`: patterns that begin with `%` and have no other wildcard. DataFusion makes a regular expression of those that
//! have several parts, which costs several times as much as looking for the parts one after the other.
//!
//! A pattern that begins with text stays as it is: files are pruned by that text.

use arrow::array::{ArrayAccessor, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Like, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use memchr::memmem::Finder;
use std::sync::Arc;

/// The name that a plan shows.
pub(super) const NAME: &str = "like";

/// A `LIKE` of several parts as a call of the function here; any other as it was.
pub(super) fn in_parts(like: Like, schema: &DFSchema) -> std::result::Result<Expr, Like> {
    let pattern = match like.pattern.as_ref() {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    };
    let fits = !like.case_insensitive
        && pattern.is_some_and(has_parts)
        && like.expr.get_type(schema).is_ok_and(|text| is_text(&text));
    if !fits {
        return Err(like);
    }
    let function = Arc::new(LikeInParts::function());
    let call = Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*like.expr, *like.pattern]));
    Ok(if like.negated { Expr::Not(Box::new(call)) } else { call })
}

/// Whether a pattern begins with `%` and has several parts between its `%`, without `_` and the escape character. Of one part
/// DataFusion knows what to do.
fn has_parts(pattern: &str) -> bool {
    let parts = pattern.split('%').filter(|part| !part.is_empty());
    pattern.starts_with('%') && !pattern.contains(['_', '\\']) && parts.count() > 1
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The parts of a pattern.
struct Parts<'p> {
    /// What a text holds, one after the other and none in another.
    within: Vec<Finder<'p>>,
    /// What it ends with, behind them.
    end: &'p [u8],
}

impl<'p> Parts<'p> {
    /// The parts of a pattern that begins with `%`.
    fn of(pattern: &'p str) -> Self {
        let (within, end) = pattern.rsplit_once('%').unwrap_or(("", pattern));
        let within = within.split('%').filter(|part| !part.is_empty());
        Parts { within: within.map(Finder::new).collect(), end: end.as_bytes() }
    }

    /// Each part is taken where it is first: that leaves most for those behind it.
    fn are_in(&self, text: &str) -> bool {
        let Some(mut rest) = text.as_bytes().strip_suffix(self.end) else { return false };
        self.within.iter().all(|part| match part.find(rest) {
            Some(at) => {
                rest = &rest[at + part.needle().len()..];
                true
            }
            None => false,
        })
    }

    fn are_in_each<'t>(&self, texts: impl ArrayAccessor<Item = &'t str>) -> BooleanArray {
        BooleanArray::from_unary(texts, |text| self.are_in(text))
    }
}

/// Whether a text is like a pattern of several parts.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct LikeInParts {
    signature: Signature,
}

impl LikeInParts {
    pub(super) fn function() -> ScalarUDF {
        ScalarUDF::new_from_impl(LikeInParts::new())
    }

    fn new() -> Self {
        LikeInParts { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for LikeInParts {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, ColumnarValue::Scalar(pattern)] = args.args.as_slice() else {
            return exec_err!("{NAME} takes a text and a pattern");
        };
        let Some(pattern) = pattern.try_as_str().flatten() else {
            return exec_err!("the pattern of {NAME} is no text");
        };
        let parts = Parts::of(pattern);
        Ok(match texts {
            ColumnarValue::Scalar(text) => {
                let text = text.try_as_str().flatten();
                ColumnarValue::Scalar(ScalarValue::Boolean(text.map(|text| parts.are_in(text))))
            }
            ColumnarValue::Array(texts) => ColumnarValue::Array(Arc::new(are_in_array(&parts, texts)?)),
        })
    }
}

fn are_in_array(parts: &Parts<'_>, texts: &ArrayRef) -> Result<BooleanArray> {
    Ok(match texts.data_type() {
        DataType::Utf8 => parts.are_in_each(texts.as_string::<i32>()),
        DataType::LargeUtf8 => parts.are_in_each(texts.as_string::<i64>()),
        DataType::Utf8View => parts.are_in_each(texts.as_string_view()),
        other => return exec_err!("{NAME} takes a text, not {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{StringArray, StringViewArray};
    use arrow::compute::like;
    use proptest::prelude::*;

    #[test]
    fn patterns_of_several_parts_are_ours() {
        for pattern in ["%a%b%", "%a%b", "%%a%%b", "%ä%ö%ü%"] {
            assert!(has_parts(pattern), "{pattern}");
        }
        for pattern in ["", "%", "a", "%a%", "%a", "a%b", "a%b%", "%a_%b%", "%a\\%%b%"] {
            assert!(!has_parts(pattern), "{pattern}");
        }
    }

    #[test]
    fn parts_do_not_overlap() {
        assert!(Parts::of("%ab%b").are_in("abb"));
        assert!(!Parts::of("%ab%b").are_in("ab"));
        assert!(!Parts::of("%aa%aa%").are_in("aaa"));
        assert!(Parts::of("%aa%aa%").are_in("aaaa"));
    }

    proptest! {
        #[test]
        fn texts_are_like_a_pattern_as_by_a_regular_expression(
            texts in proptest::collection::vec(proptest::option::of("[abä\n%.]{0,12}"), 1..20),
            pattern in "%[abä\n.%]{0,8}",
        ) {
            let plain = StringArray::from(texts.clone());
            let by_regex = like(&plain, &StringArray::new_scalar(&pattern)).unwrap();
            let parts = Parts::of(&pattern);
            prop_assert_eq!(&by_regex, &are_in_array(&parts, &(Arc::new(plain) as ArrayRef)).unwrap());
            let views: ArrayRef = Arc::new(StringViewArray::from(texts));
            prop_assert_eq!(&by_regex, &are_in_array(&parts, &views).unwrap());
        }
    }
}
