//! System tables as declarations: their columns in a line of text, their rows by name.

use super::picture::Picture;
use arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Int16Array, Int32Array, Int64Array, ListBuilder, RecordBatch,
    StringArray, StringBuilder,
};
use arrow::array::{Int16Builder, Int64Builder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use std::sync::{Arc, LazyLock};

/// A table of `pg_catalog`, `information_schema` or `system`.
#[derive(Debug)]
pub struct SystemTable {
    pub schema: &'static str,
    pub name: &'static str,
    pub columns: Vec<SystemColumn>,
    rows: fn(&Picture) -> Vec<Row>,
}

#[derive(Debug)]
pub struct SystemColumn {
    pub name: &'static str,
    pub kind: Kind,
    /// What a row that does not name the column has.
    default: Option<&'static str>,
}

/// A row: values by column name.
pub type Row = Vec<(&'static str, Cell)>;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Int(i64),
    Real(f32),
    Bool(bool),
    Text(String),
    Ints(Vec<i64>),
}

/// PostgreSQL's types of system columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Char,
    Name,
    Text,
    Int2,
    Int4,
    Int8,
    /// As bigint: no arithmetic on it surprises, and clients read it as a number.
    Oid,
    Float4,
    Int2Array,
    OidArray,
    TextArray,
}

/// How a table is declared: schema, name, columns as `name type [default], …`, and its rows.
pub type Declaration = (&'static str, &'static str, &'static str, fn(&Picture) -> Vec<Row>);

/// All system tables.
pub fn system_tables() -> &'static [SystemTable] {
    static TABLES: LazyLock<Vec<SystemTable>> = LazyLock::new(|| {
        let declared = [
            super::relations::TABLES,
            super::server::TABLES,
            super::empty::TABLES,
            super::standard::TABLES,
            super::transactions::TABLES,
            super::queries::TABLES,
        ];
        declared.into_iter().flatten().map(|declaration| SystemTable::declare(*declaration)).collect()
    });
    &TABLES
}

/// The rows of a table that never has any.
pub fn none(_: &Picture) -> Vec<Row> {
    Vec::new()
}

impl SystemTable {
    fn declare((schema, name, columns, rows): Declaration) -> SystemTable {
        let column = |text: &'static str| {
            let mut words = text.split_ascii_whitespace();
            let name = words.next().expect("a system column has a name");
            let kind = Kind::parse(words.next().expect("a system column has a type"));
            SystemColumn { name, kind, default: words.next() }
        };
        SystemTable { schema, name, columns: columns.split(',').map(column).collect(), rows }
    }

    /// Whether the table has no rows, whatever the catalog holds.
    pub fn is_always_empty(&self) -> bool {
        std::ptr::fn_addr_eq(self.rows, none as fn(&Picture) -> Vec<Row>)
    }

    pub fn arrow(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|c| Field::new(c.name, c.kind.arrow(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The table's rows.
    ///
    /// # Errors
    /// `Internal` for a row that does not fit the declaration: a mistake of ours, which a test over all tables finds.
    pub fn batch(&self, picture: &Picture) -> Result<RecordBatch> {
        let rows = (self.rows)(picture);
        for (name, _) in rows.iter().flatten() {
            if !self.columns.iter().any(|c| c.name == *name) {
                return Err(DataFusionError::Internal(format!("{} has no column {name}", self.name)));
            }
        }
        let columns = self.columns.iter().map(|column| {
            let default = column.default.map_or(Cell::Null, |text| column.kind.read(text));
            let cells = rows.iter().map(|row| {
                row.iter().find(|(name, _)| *name == column.name).map_or(&default, |(_, cell)| cell)
            });
            column.kind.array(cells).ok_or_else(|| {
                DataFusionError::Internal(format!(
                    "{}.{} holds a value of another type",
                    self.name, column.name
                ))
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(self.arrow(), columns)?)
    }
}

impl Kind {
    fn parse(name: &str) -> Kind {
        match name {
            "bool" => Kind::Bool,
            "char" => Kind::Char,
            "name" => Kind::Name,
            "text" => Kind::Text,
            "int2" => Kind::Int2,
            "int4" => Kind::Int4,
            "int8" => Kind::Int8,
            "oid" => Kind::Oid,
            "float4" => Kind::Float4,
            "int2[]" => Kind::Int2Array,
            "oid[]" => Kind::OidArray,
            "text[]" => Kind::TextArray,
            other => unreachable!("system columns have no type {other}"),
        }
    }

    fn read(self, default: &str) -> Cell {
        match self {
            Kind::Bool => Cell::Bool(default == "true"),
            Kind::Char | Kind::Name | Kind::Text => Cell::Text(default.trim_matches('\'').to_owned()),
            Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Oid | Kind::Float4 => {
                Cell::Int(default.parse().expect("the default of a system column is of its type"))
            }
            Kind::Int2Array | Kind::OidArray | Kind::TextArray => unreachable!("arrays default to null"),
        }
    }

    pub fn arrow(self) -> DataType {
        match self {
            Kind::Bool => DataType::Boolean,
            Kind::Char | Kind::Name | Kind::Text => DataType::Utf8,
            Kind::Int2 => DataType::Int16,
            Kind::Int4 => DataType::Int32,
            Kind::Int8 | Kind::Oid => DataType::Int64,
            Kind::Float4 => DataType::Float32,
            Kind::Int2Array => DataType::new_list(DataType::Int16, true),
            Kind::OidArray => DataType::new_list(DataType::Int64, true),
            Kind::TextArray => DataType::new_list(DataType::Utf8, true),
        }
    }

    /// The type's oid, as `pg_attribute` shows it.
    pub fn oid(self) -> i64 {
        match self {
            Kind::Bool => 16,
            Kind::Char => 18,
            Kind::Name => 19,
            Kind::Int8 => 20,
            Kind::Int2 => 21,
            Kind::Int4 => 23,
            Kind::Text => 25,
            Kind::Oid => 26,
            Kind::Float4 => 700,
            Kind::Int2Array => 1005,
            Kind::TextArray => 1009,
            Kind::OidArray => 1028,
        }
    }

    /// `None` if a cell is not of this kind.
    fn array<'a>(self, cells: impl Iterator<Item = &'a Cell>) -> Option<ArrayRef> {
        let int = |cell: &Cell| match cell {
            Cell::Null => Some(None),
            Cell::Int(n) => Some(Some(*n)),
            _ => None,
        };
        Some(match self {
            Kind::Bool => {
                let values = cells.map(|cell| match cell {
                    Cell::Null => Some(None),
                    Cell::Bool(b) => Some(Some(*b)),
                    _ => None,
                });
                Arc::new(values.collect::<Option<BooleanArray>>()?)
            }
            Kind::Char | Kind::Name | Kind::Text => {
                let values = cells.map(|cell| match cell {
                    Cell::Null => Some(None),
                    Cell::Text(text) => Some(Some(text.as_str())),
                    _ => None,
                });
                Arc::new(values.collect::<Option<Vec<_>>>().map(StringArray::from)?)
            }
            Kind::Int2 => {
                Arc::new(cells.map(|c| Some(int(c)?.map(|n| n as i16))).collect::<Option<Int16Array>>()?)
            }
            Kind::Int4 => {
                Arc::new(cells.map(|c| Some(int(c)?.map(|n| n as i32))).collect::<Option<Int32Array>>()?)
            }
            Kind::Int8 | Kind::Oid => Arc::new(cells.map(int).collect::<Option<Int64Array>>()?),
            Kind::Float4 => {
                let values = cells.map(|cell| match cell {
                    Cell::Real(x) => Some(Some(*x)),
                    other => Some(int(other)?.map(|n| n as f32)),
                });
                Arc::new(values.collect::<Option<Float32Array>>()?)
            }
            Kind::Int2Array => {
                list(ListBuilder::new(Int16Builder::new()), cells, |b, n| b.append_value(n as i16))?
            }
            Kind::OidArray => list(ListBuilder::new(Int64Builder::new()), cells, |b, n| b.append_value(n))?,
            Kind::TextArray => {
                list(ListBuilder::new(StringBuilder::new()), cells, |b, n| b.append_value(n.to_string()))?
            }
        })
    }
}

fn list<'a, B: arrow::array::ArrayBuilder>(
    mut builder: ListBuilder<B>,
    cells: impl Iterator<Item = &'a Cell>,
    append: impl Fn(&mut B, i64),
) -> Option<ArrayRef> {
    for cell in cells {
        match cell {
            Cell::Null => builder.append(false),
            Cell::Ints(items) => {
                items.iter().for_each(|n| append(builder.values(), *n));
                builder.append(true);
            }
            _ => return None,
        }
    }
    Some(Arc::new(builder.finish()))
}

impl From<i64> for Cell {
    fn from(n: i64) -> Self {
        Cell::Int(n)
    }
}

impl From<bool> for Cell {
    fn from(b: bool) -> Self {
        Cell::Bool(b)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// A row: `row! { oid: 1_i64, relname: "t" }`.
macro_rules! row {
    ($($column:ident : $value:expr),* $(,)?) => {
        vec![$((stringify!($column), $crate::pg_catalog::table::Cell::from($value))),*]
    };
}
pub(super) use row;
