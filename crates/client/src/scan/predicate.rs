//! Comparisons, as the ranges that go over the wire: inclusive below, exclusive above.

use oribi_kudu::predicate::{Test, ValueRange};
use oribi_types::Value;

/// How a column compares with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl Compare {
    /// The test of a value that is not null.
    pub(super) fn test(self, value: Value) -> Test {
        let from = |lower| Test::Range(ValueRange { lower: Some(lower), upper: None });
        let to = |upper| Test::Range(ValueRange { lower: None, upper: Some(upper) });
        match self {
            Compare::Equal => Test::Equality(value),
            Compare::Less => to(value),
            Compare::GreaterOrEqual => from(value),
            // Nothing follows the greatest value: all are up to it, and none is beyond.
            Compare::LessOrEqual => next(value).map_or(Test::IsNotNull, to),
            Compare::Greater => next(value).map_or(Test::Nothing, from),
        }
    }
}

/// The value that follows, with none between; `None` after the greatest.
fn next(value: Value) -> Option<Value> {
    Some(match value {
        Value::Bool(v) => Value::Bool(Some(true).filter(|_| !v)?),
        Value::Int8(v) => Value::Int8(v.checked_add(1)?),
        Value::Int16(v) => Value::Int16(v.checked_add(1)?),
        Value::Int32(v) => Value::Int32(v.checked_add(1)?),
        Value::Int64(v) => Value::Int64(v.checked_add(1)?),
        Value::Date(v) => Value::Date(v.checked_add(1)?),
        Value::Timestamp(v) => Value::Timestamp(v.checked_add(1)?),
        Value::Decimal(v) => Value::Decimal(v.checked_add(1)?),
        Value::Float(v) => Value::Float(Some(v.next_up()).filter(|next| *next > v)?),
        Value::Double(v) => Value::Double(Some(v.next_up()).filter(|next| *next > v)?),
        Value::String(v) => Value::String(v + "\0"),
        Value::Json(v) => Value::Json(v + "\0"),
        Value::Binary(mut v) => {
            v.push(0);
            Value::Binary(v)
        }
        Value::Uuid(v) => Value::Uuid(u128::from_be_bytes(v).checked_add(1)?.to_be_bytes()),
        Value::Null => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_types::ValueRef;

    #[test]
    fn up_to_a_value_is_below_the_next() {
        let upper = |value| match Compare::LessOrEqual.test(value) {
            Test::Range(ValueRange { lower: None, upper }) => upper,
            _ => None,
        };
        assert_eq!(upper(Value::Int8(5)), Some(Value::Int8(6)));
        assert_eq!(upper(Value::String("a".into())), Some(Value::String("a\0".into())));
        assert_eq!(Compare::LessOrEqual.test(Value::Int64(i64::MAX)), Test::IsNotNull);
        assert_eq!(Compare::Greater.test(Value::Bool(true)), Test::Nothing);
        assert_eq!(Compare::Greater.test(Value::Double(f64::INFINITY)), Test::Nothing);
    }

    #[test]
    fn a_value_is_on_one_side_of_itself() {
        for value in [Value::Int32(-1), Value::Double(-0.5), Value::Double(0.0), Value::Binary(vec![0])] {
            let holds = |compare: Compare| match compare.test(value.clone()) {
                Test::Range(range) => range.contains(value.as_ref()),
                Test::Equality(other) => other.as_ref() == value.as_ref() && value.as_ref() != ValueRef::Null,
                other => panic!("{other:?}"),
            };
            use Compare::*;
            let held: Vec<bool> = [Less, LessOrEqual, Equal, GreaterOrEqual, Greater].map(holds).into();
            assert_eq!(held, [false, true, true, true, false], "{value:?}");
        }
    }
}
