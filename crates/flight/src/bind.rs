//! Values that a client binds to parameters: a column of a batch for each.

use crate::lengths::check_dictionaries;
use crate::status::violation;
use crate::types::{column_type, received};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use oribi_session::sql::{Prepared, SqlError, SqlSession, TimeZone};
use oribi_types::batch::value_at;
use oribi_types::{ColumnType, Error, ErrorKind, Value, ValueRef, text};
use std::sync::Arc;

/// The columns of a batch, ready to give the values of each of its rows.
pub struct Bindings {
    columns: Vec<Column>,
    rows: usize,
}

struct Column {
    /// Nothing if all are null.
    values: Option<ArrayRef>,
    /// The type that they have …
    column_type: ColumnType,
    /// … and the one that is wanted, with whether they are rounded to it.
    wanted: ColumnType,
    rounds: bool,
    /// Set if they are moments: they become what the clocks of the session show.
    zone: Option<TimeZone>,
}

impl Bindings {
    /// # Errors
    /// 08P01 for another number of columns than there are parameters; 0A000 for a type that no parameter has; 54000 for dictionaries that
    /// stand for more than so many bytes.
    pub fn new(
        session: &SqlSession,
        prepared: &Arc<dyn Prepared>,
        batch: &RecordBatch,
        bytes_max: usize,
    ) -> Result<Self, SqlError> {
        let wanted = prepared.parameters();
        if wanted.len() != batch.num_columns() {
            let (expected, come) = (wanted.len(), batch.num_columns());
            return Err(violation(format!(
                "{come} columns are bound, but the statement has {expected} parameters"
            )));
        }
        check_dictionaries(batch, bytes_max)?;
        let (schema, zone) = (batch.schema(), session.time_zone());
        let columns = batch.columns().iter().zip(schema.fields()).zip(wanted).enumerate();
        let columns = columns.map(|(n, ((array, field), wanted))| {
            let array = received(array, None)?;
            let field = field.as_ref().clone().with_data_type(array.data_type().clone());
            let column_type = if is_null(&array) { *wanted } else { column_type(&field)? };
            let is_moment = matches!(array.data_type(), DataType::Timestamp(_, Some(_)));
            Ok(Column {
                values: values(&array, column_type)?,
                column_type,
                wanted: *wanted,
                rounds: prepared.rounds(n),
                zone: zone.filter(|_| is_moment),
            })
        });
        Ok(Bindings { columns: columns.collect::<Result<_, SqlError>>()?, rows: batch.num_rows() })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The values of a row.
    ///
    /// # Errors
    /// `Invalid` (22P02, 22003), naming the parameter, for what is no value of its type.
    pub fn row(&self, row: usize) -> Result<Vec<Value>, SqlError> {
        let value = |(n, column): (usize, &Column)| {
            column.value(row).map_err(|mut error| {
                error.error = error.error.context(format!("parameter ${}", n + 1));
                error
            })
        };
        self.columns.iter().enumerate().map(value).collect()
    }
}

fn is_null(array: &ArrayRef) -> bool {
    array.data_type() == &DataType::Null
}

/// What a column has, as values of the type; a column of nulls may have any number of them without a byte.
fn values(array: &ArrayRef, column_type: ColumnType) -> Result<Option<ArrayRef>, SqlError> {
    match is_null(array) {
        true => Ok(None),
        false => Ok(Some(cast(array, &column_type.arrow()).map_err(Error::from)?)),
    }
}

impl Column {
    fn value(&self, row: usize) -> Result<Value, SqlError> {
        let Some(values) = self.values.as_ref().filter(|values| values.is_valid(row)) else {
            return Ok(Value::Null);
        };
        let value = value_at(values, self.column_type, row);
        let value = match (value, self.zone) {
            (ValueRef::Timestamp(micros), Some(zone)) => return self.on_the_clock(micros, zone),
            // How uuids come out, and go in again from clients that have no type for them.
            (ValueRef::Binary(bytes), _) if self.wanted == ColumnType::Uuid && bytes.len() == 16 => {
                return Ok(Value::Uuid(bytes.try_into().expect("it has sixteen bytes")));
            }
            // A decimal of another scale is another number.
            (value, _) if self.column_type == self.wanted && value.fits(self.wanted) => {
                return Ok(value.to_owned());
            }
            (value, _) => text::to_string(value, self.column_type),
        };
        // The client's type is not the statement's: the text of the one is read as the other, range checks included.
        let parsed = if self.rounds {
            text::parse_sql(self.wanted, &value)
        } else {
            text::parse_exact(self.wanted, &value)
        };
        parsed.map_err(|error| SqlError::from(error).with_sqlstate("22P02"))
    }

    fn on_the_clock(&self, micros: i64, zone: TimeZone) -> Result<Value, SqlError> {
        if !self.rounds && zone.is_between_clocks(micros) {
            let message = "comparing timestamps with a moment about which the clocks of the session change is not supported";
            return Err(SqlError::new(ErrorKind::Unsupported, message));
        }
        Ok(Value::Timestamp(zone.wall_clock(micros)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Decimal128Array, Float64Array, Int64Array, NullArray, StringArray};

    fn bound(values: ArrayRef, wanted: ColumnType) -> Result<Value, &'static str> {
        let array = received(&values, None).unwrap();
        let column_type =
            if is_null(&array) { wanted } else { ColumnType::from_arrow(array.data_type()).unwrap() };
        let values = super::values(&array, column_type).unwrap();
        let column = Column { values, column_type, wanted, rounds: false, zone: None };
        column.value(0).map_err(|error| error.sqlstate())
    }

    #[test]
    fn the_clients_type_is_brought_to_the_statements() {
        let cents = ColumnType::Decimal { precision: 8, scale: 2 };
        let int = |n: i64| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
        let text = |t: &str| Arc::new(StringArray::from(vec![t])) as ArrayRef;
        assert_eq!(bound(int(7), ColumnType::Int16), Ok(Value::Int16(7)));
        assert_eq!(bound(int(70_000), ColumnType::Int16), Err("22P02"));
        assert_eq!(bound(int(7), cents), Ok(Value::Decimal(700)));
        let tenths = Decimal128Array::from(vec![205]).with_precision_and_scale(3, 1).unwrap();
        assert_eq!(bound(Arc::new(tenths), cents), Ok(Value::Decimal(2050)));
        assert_eq!(bound(text("7.25"), cents), Ok(Value::Decimal(725)));
        assert_eq!(bound(text("seven"), cents), Err("22P02"));
        assert_eq!(bound(Arc::new(Float64Array::from(vec![1.5])), ColumnType::Int32), Err("22P02"));
        assert_eq!(bound(Arc::new(NullArray::new(1)), ColumnType::Uuid), Ok(Value::Null));
    }
}
