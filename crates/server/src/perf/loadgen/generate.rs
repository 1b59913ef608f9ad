//! The rows, which are those of `kudu perf loadgen`: one number for each column, cut to its type; text is the number, a
//! point, and as many `x` as it takes.

use super::super::random::Xorshift;
use oribi_client::{OperationType, PartialRow, Session, Table};
use oribi_types::{ColumnType, Error, Result};

/// A sequence of numbers.
pub(super) enum Numbers {
    Sequence(u64),
    Random(Xorshift),
}

impl Numbers {
    pub(super) fn new(is_random: bool, seed: u64) -> Self {
        match is_random {
            // The generator takes a stream's number in its upper half only.
            true => Numbers::Random(Xorshift::new(seed ^ seed >> 32)),
            false => Numbers::Sequence(seed),
        }
    }

    fn next(&mut self) -> u64 {
        match self {
            Numbers::Sequence(next) => {
                *next += 1;
                *next - 1
            }
            Numbers::Random(random) => random.next(),
        }
    }
}

/// Makes rows of a table. The text of each column is made in memory that is used again.
pub(super) struct Generator<'f> {
    types: Vec<ColumnType>,
    key_columns: usize,
    fixed: Option<&'f str>,
    text_bytes: usize,
    numbers: Vec<u64>,
    texts: Vec<String>,
}

impl<'f> Generator<'f> {
    pub(super) fn new(table: &Table, fixed: Option<&'f str>, text_bytes: usize) -> Result<Self> {
        let types: Vec<ColumnType> = table.columns().iter().map(|column| column.column_type).collect();
        if let Some(other) = types.iter().find(|t| matches!(t, ColumnType::Uuid | ColumnType::Json)) {
            return Err(Error::unsupported(format!("a load of columns of type {other}")));
        }
        let (numbers, texts) = (vec![0; types.len()], vec![String::new(); types.len()]);
        Ok(Generator { types, key_columns: table.key_columns(), fixed, text_bytes, numbers, texts })
    }

    /// Applies the next row; of a delete, its key.
    pub(super) async fn apply(
        &mut self,
        session: &mut Session,
        table: &Table,
        operation: OperationType,
        key: &mut Numbers,
        value: &mut Numbers,
    ) -> Result<()> {
        let columns = if operation == OperationType::Delete { self.key_columns } else { self.types.len() };
        for column in 0..columns {
            let numbers = if column < self.key_columns { &mut *key } else { &mut *value };
            self.numbers[column] = numbers.next();
            if is_text(self.types[column]) && self.fixed.is_none() {
                write_text(self.numbers[column], self.text_bytes, &mut self.texts[column]);
            }
        }
        let mut row = session.row(table, operation);
        for column in 0..columns {
            let number = self.numbers[column];
            let text = || self.fixed.unwrap_or(&self.texts[column]);
            match self.types[column] {
                ColumnType::Bool => row.set_bool(column, number & 1 == 1)?,
                ColumnType::Int8 => row.set_i8(column, number as i8 & i8::MAX)?,
                ColumnType::Int16 => row.set_i16(column, number as i16 & i16::MAX)?,
                ColumnType::Int32 => row.set_i32(column, number as i32 & i32::MAX)?,
                ColumnType::Int64 => row.set_i64(column, number as i64 & i64::MAX)?,
                ColumnType::Float => row.set_f32(column, number as f32)?,
                ColumnType::Double => row.set_f64(column, number as f64)?,
                ColumnType::Date => row.set_date(column, number as i32 & i32::MAX)?,
                ColumnType::Timestamp => row.set_timestamp(column, number as i64 & i64::MAX)?,
                ColumnType::Decimal { precision, .. } => {
                    let most = 10_i128.pow(u32::from(precision)) - 1;
                    row.set_decimal(column, i128::from(number).min(most))?;
                }
                ColumnType::Binary => row.set_bytes(column, text().as_bytes())?,
                ColumnType::String | ColumnType::Json | ColumnType::Uuid => row.set_str(column, text())?,
            }
        }
        row.apply().await
    }
}

fn is_text(column_type: ColumnType) -> bool {
    matches!(column_type, ColumnType::String | ColumnType::Binary)
}

/// `number`, a point, then `x` up to `bytes`.
fn write_text(number: u64, bytes: usize, out: &mut String) {
    out.clear();
    out.push_str(itoa::Buffer::new().format(number));
    out.push('.');
    out.truncate(bytes);
    const FILL: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    while out.len() < bytes {
        out.push_str(&FILL[..FILL.len().min(bytes - out.len())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_length_asked_for() {
        let mut text = String::new();
        for (number, bytes, expected) in
            [(7, 5, "7.xxx"), (12345, 3, "123"), (1, 0, ""), (1, 36, "1.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")]
        {
            write_text(number, bytes, &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_sequence_counts_and_random_numbers_repeat_with_their_seed() {
        let mut sequence = Numbers::new(false, 5);
        assert_eq!([sequence.next(), sequence.next()], [5, 6]);
        let first = |seed| Numbers::new(true, seed).next();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}
