//! Columns, between Kudu's messages and the workspace's types.

use bytes::Bytes;
use oribi_kudu::cell::{read_value, write_value};
use oribi_kudu::column::WireColumn;
use oribi_kudu::messages::common::{ColumnSchema, ColumnTypeAttributes, DataType};
use oribi_types::{ColumnType, Error, Result, Value};

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub column_type: ColumnType,
    pub is_key: bool,
    pub nullable: bool,
    /// What a row has that does not set the column.
    pub default: Option<Value>,
    /// Of a `VARCHAR`, in characters: longer text is cut.
    pub length_max: Option<u32>,
}

impl Column {
    /// A column that is nullable and not of the key.
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        let name = name.into();
        Column { name, column_type, is_key: false, nullable: true, default: None, length_max: None }
    }

    /// The same as a column of the key.
    #[must_use]
    pub fn key(self) -> Self {
        Column { is_key: true, nullable: false, ..self }
    }

    #[must_use]
    pub fn not_null(self) -> Self {
        Column { nullable: false, ..self }
    }

    #[must_use]
    pub fn with_default(self, value: Value) -> Self {
        Column { default: Some(value), ..self }
    }

    pub(crate) fn of(message: &ColumnSchema) -> Result<Self> {
        let column = || format!("column {}", message.name);
        let attributes = message.type_attributes.clone().unwrap_or_default();
        let data_type = DataType::from_number(message.data_type).map_err(|error| error.context(column()))?;
        let column_type = data_type.column_type(&attributes).map_err(|error| error.context(column()))?;
        let default = message.write_default_value.as_ref().or(message.read_default_value.as_ref());
        let default = default.map(|bytes| Ok(read_value(column_type, bytes)?.to_owned())).transpose();
        let is_varchar = data_type == DataType::Varchar;
        Ok(Column {
            name: message.name.clone(),
            column_type,
            is_key: message.is_key(),
            nullable: message.is_nullable(),
            default: default.map_err(|error: Error| error.context(column()))?,
            length_max: attributes
                .length
                .filter(|_| is_varchar)
                .and_then(|length| u32::try_from(length).ok()),
        })
    }

    /// As the requests that only need to tell types carry it.
    pub(crate) fn in_request(&self) -> ColumnSchema {
        let (data_type, attributes) = match self.length_max {
            Some(length) => {
                let length = Some(i32::try_from(length).unwrap_or(i32::MAX));
                (DataType::Varchar, ColumnTypeAttributes { length, ..ColumnTypeAttributes::default() })
            }
            None => DataType::of(self.column_type),
        };
        ColumnSchema {
            name: self.name.clone(),
            data_type: data_type.into(),
            is_key: Some(self.is_key),
            is_nullable: Some(self.nullable),
            type_attributes: Some(attributes).filter(|set| *set != ColumnTypeAttributes::default()),
            ..ColumnSchema::default()
        }
    }

    /// As the requests that make a column carry it.
    pub(crate) fn in_definition(&self) -> ColumnSchema {
        let default = self.default.as_ref().map(|value| {
            let mut bytes = Vec::new();
            write_value(value, self.column_type, &mut bytes);
            Bytes::from(bytes)
        });
        ColumnSchema { read_default_value: default, ..self.in_request() }
    }

    pub(crate) fn wire(&self) -> WireColumn {
        WireColumn::new(self.name.clone(), self.column_type, self.nullable)
    }
}
