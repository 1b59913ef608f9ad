//! Predicates on columns, as a scan states them: typed, evaluated, and as bounds to find rows by.
//!
//! A row is in the scan if all predicates hold; on null none holds but `IsNull`. Values come as the bytes of a cell,
//! or of the string itself. Clients merge several predicates on a column and turn `<=` into `<` of the next value
//! before they send, so a bound may be a value that its column cannot hold: one digit more, a UUID with a zero behind
//! it.

pub mod bloom;
pub mod evaluate;

pub use bloom::{BlockBloomFilter, BloomFilterBuilder};

use crate::cell::{cell_bytes, read_decimal, read_value, write_value};
use crate::column::WireColumn;
use crate::messages::common::column_predicate::Predicate;
use crate::messages::common::{
    ColumnPredicate as Message, Equality, InBloomFilter, InList, IsNotNull, IsNull, Range,
};
use bytes::Bytes;
use oribi_types::{ColumnType, Error, Result, Value, ValueRef};
use std::cmp::Ordering;
use std::ops::Bound;

/// One predicate.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnPredicate {
    /// Position among the columns that it was decoded with.
    pub column: usize,
    pub test: Test,
}

/// What a value is tested for.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// No value passes.
    Nothing,
    IsNull,
    IsNotNull,
    Equality(Value),
    /// Ascending and without repetition.
    InList(Vec<Value>),
    Range(ValueRange),
    /// In all filters, and in the range.
    InBloomFilter(Vec<BlockBloomFilter>, ValueRange),
}

/// Values from `lower`, inclusive, to `upper`, exclusive; `None` is unbounded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueRange {
    pub lower: Option<Value>,
    pub upper: Option<Value>,
}

impl ColumnPredicate {
    /// The predicate that a message states about one of `columns`, which are a table's and not only the projected ones.
    ///
    /// # Errors
    /// `Invalid`, naming the column, for one that is not there, for a predicate without a kind or a value, and for values
    /// that are not of the column's type; `Unsupported` for bloom filters of another hash.
    pub fn decode(columns: &[WireColumn], message: &Message) -> Result<Self> {
        let name = message.column.as_deref().ok_or_else(|| Error::invalid("a predicate without a column"))?;
        let column = columns.iter().position(|c| c.name == name).ok_or_else(|| {
            Error::invalid(format!("a predicate on column \"{name}\", which does not exist"))
        })?;
        let test = Test::decode(columns[column].column_type, message.predicate.as_ref());
        let test = test.map_err(|error| error.context(format_args!("predicate on column \"{name}\"")))?;
        Ok(ColumnPredicate { column, test })
    }

    /// The message that states this predicate about one of `columns`.
    pub fn encode(&self, columns: &[WireColumn]) -> Message {
        let WireColumn { name, column_type, .. } = &columns[self.column];
        Message { column: Some(name.clone()), predicate: Some(self.test.encode(*column_type)) }
    }
}

impl Test {
    fn decode(column_type: ColumnType, message: Option<&Predicate>) -> Result<Self> {
        Ok(match message {
            None => return Err(Error::invalid("a kind that is not known")),
            Some(Predicate::IsNull(IsNull {})) => Test::IsNull,
            Some(Predicate::IsNotNull(IsNotNull {})) => Test::IsNotNull,
            Some(Predicate::Equality(Equality { value })) => {
                let value = value.as_ref().ok_or_else(|| Error::invalid("equality without a value"))?;
                operand(column_type, value)?.map_or(Test::Nothing, Test::Equality)
            }
            Some(Predicate::InList(InList { values })) => {
                let operands = values.iter().filter_map(|value| operand(column_type, value).transpose());
                let mut values = operands.collect::<Result<Vec<Value>>>()?;
                // Values of one type compare, but for NaN, which equals nothing and so may go.
                values.retain(|value| compare(value.as_ref(), value.as_ref()).is_some());
                values.sort_unstable_by(|a, b| compare(a.as_ref(), b.as_ref()).expect("no NaN"));
                values.dedup_by(|a, b| compare(a.as_ref(), b.as_ref()) == Some(Ordering::Equal));
                if values.is_empty() { Test::Nothing } else { Test::InList(values) }
            }
            Some(Predicate::Range(Range { lower: None, upper: None })) => {
                return Err(Error::invalid("a range without bounds"));
            }
            Some(Predicate::Range(Range { lower, upper })) => {
                match range(column_type, lower.as_deref(), upper.as_deref())? {
                    None => Test::Nothing,
                    // Its upper bound was above all values.
                    Some(ValueRange { lower: None, upper: None }) => Test::IsNotNull,
                    Some(range) => Test::Range(range),
                }
            }
            Some(Predicate::InBloomFilter(InBloomFilter { bloom_filters, lower, upper })) => {
                if bloom_filters.is_empty() {
                    return Err(Error::invalid("no bloom filter"));
                }
                let filters = bloom_filters.iter().map(BlockBloomFilter::decode).collect::<Result<_>>()?;
                let range = range(column_type, lower.as_deref(), upper.as_deref())?;
                range.map_or(Test::Nothing, |range| Test::InBloomFilter(filters, range))
            }
        })
    }

    fn encode(&self, column_type: ColumnType) -> Predicate {
        let bytes = |value: &Value| {
            let mut bytes = Vec::new();
            write_value(value, column_type, &mut bytes);
            Bytes::from(bytes)
        };
        let bound = |value: &Option<Value>| value.as_ref().map(bytes);
        match self {
            // An empty list is what Kudu's own clients send for it.
            Test::Nothing => Predicate::InList(InList { values: vec![] }),
            Test::IsNull => Predicate::IsNull(IsNull {}),
            Test::IsNotNull => Predicate::IsNotNull(IsNotNull {}),
            Test::Equality(value) => Predicate::Equality(Equality { value: Some(bytes(value)) }),
            Test::InList(values) => Predicate::InList(InList { values: values.iter().map(bytes).collect() }),
            Test::Range(range) => {
                Predicate::Range(Range { lower: bound(&range.lower), upper: bound(&range.upper) })
            }
            Test::InBloomFilter(filters, range) => Predicate::InBloomFilter(InBloomFilter {
                bloom_filters: filters.iter().map(BlockBloomFilter::encode).collect(),
                lower: bound(&range.lower),
                upper: bound(&range.upper),
            }),
        }
    }

    /// Bounds that every value that passes is within: to leave out files and pages by their least and greatest value,
    /// or tablets by their range. Null passes no test with bounds. [`Nothing`](Test::Nothing) has none to tell: look
    /// for it.
    pub fn bounds(&self) -> (Bound<&Value>, Bound<&Value>) {
        match self {
            Test::Nothing | Test::IsNull | Test::IsNotNull => (Bound::Unbounded, Bound::Unbounded),
            Test::Equality(value) => (Bound::Included(value), Bound::Included(value)),
            Test::InList(values) => {
                let bound = |value: Option<_>| value.map_or(Bound::Unbounded, Bound::Included);
                (bound(values.first()), bound(values.last()))
            }
            Test::Range(range) | Test::InBloomFilter(_, range) => (
                range.lower.as_ref().map_or(Bound::Unbounded, Bound::Included),
                range.upper.as_ref().map_or(Bound::Unbounded, Bound::Excluded),
            ),
        }
    }
}

impl ValueRange {
    /// Whether a value that is not null lies within. NaN lies within no bound.
    pub fn contains(&self, value: ValueRef<'_>) -> bool {
        let above = |lower: &Value| compare(value, lower.as_ref()).is_some_and(Ordering::is_ge);
        let below = |upper: &Value| compare(value, upper.as_ref()) == Some(Ordering::Less);
        self.lower.as_ref().is_none_or(above) && self.upper.as_ref().is_none_or(below)
    }
}

/// Compares two values of one type, as Kudu does; `None` for NaN, null and values of different types.
pub fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Ordering> {
    Some(match (a, b) {
        (ValueRef::Bool(a), ValueRef::Bool(b)) => a.cmp(&b),
        (ValueRef::Int8(a), ValueRef::Int8(b)) => a.cmp(&b),
        (ValueRef::Int16(a), ValueRef::Int16(b)) => a.cmp(&b),
        (ValueRef::Int32(a), ValueRef::Int32(b)) | (ValueRef::Date(a), ValueRef::Date(b)) => a.cmp(&b),
        (ValueRef::Int64(a), ValueRef::Int64(b)) | (ValueRef::Timestamp(a), ValueRef::Timestamp(b)) => {
            a.cmp(&b)
        }
        (ValueRef::Float(a), ValueRef::Float(b)) => return a.partial_cmp(&b),
        (ValueRef::Double(a), ValueRef::Double(b)) => return a.partial_cmp(&b),
        (ValueRef::Decimal(a), ValueRef::Decimal(b)) => a.cmp(&b),
        (ValueRef::String(a), ValueRef::String(b)) | (ValueRef::Json(a), ValueRef::Json(b)) => a.cmp(b),
        (ValueRef::Binary(a), ValueRef::Binary(b)) => a.cmp(b),
        (ValueRef::Uuid(a), ValueRef::Uuid(b)) => a.cmp(&b),
        _ => return None,
    })
}

/// What a column's values are compared for equality with; `None` if none of them can equal it.
fn operand(column_type: ColumnType, bytes: &[u8]) -> Result<Option<Value>> {
    let never_equal = match column_type {
        ColumnType::Uuid => bytes.len() != 16,
        ColumnType::String | ColumnType::Json => std::str::from_utf8(bytes).is_err(),
        _ => false,
    };
    if never_equal { Ok(None) } else { bound_value(column_type, bytes).map(Some) }
}

/// The range between two bounds; `None` if it holds nothing.
fn range(column_type: ColumnType, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<Option<ValueRange>> {
    let bound = |bytes: &[u8]| match column_type {
        ColumnType::Uuid => Ok(uuid_at_or_above(bytes).map(Value::Uuid)),
        _ => bound_value(column_type, bytes).map(Some),
    };
    let lower = match lower.map(bound).transpose()? {
        // Above all values.
        Some(None) => return Ok(None),
        lower => lower.flatten(),
    };
    let upper = upper.map(bound).transpose()?.flatten();
    if let (Some(lower), Some(upper)) = (&lower, &upper)
        && compare(lower.as_ref(), upper.as_ref()) != Some(Ordering::Less)
    {
        return Ok(None);
    }
    Ok(Some(ValueRange { lower, upper }))
}

/// As [`read_value`], of decimals that may have a digit too many: the bound above the greatest has.
fn bound_value(column_type: ColumnType, bytes: &[u8]) -> Result<Value> {
    if let ColumnType::Decimal { .. } = column_type
        && bytes.len() == cell_bytes(column_type)
    {
        return Ok(Value::Decimal(read_decimal(bytes)));
    }
    Ok(read_value(column_type, bytes)?.to_owned())
}

/// The least UUID that is not below `bytes`, of any length, as bytes are ordered; `None` if all are below.
fn uuid_at_or_above(bytes: &[u8]) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let n = bytes.len().min(16);
    uuid[..n].copy_from_slice(&bytes[..n]);
    if bytes.len() <= 16 {
        Some(uuid)
    } else {
        u128::from_be_bytes(uuid).checked_add(1).map(u128::to_be_bytes)
    }
}

#[cfg(test)]
mod tests;
