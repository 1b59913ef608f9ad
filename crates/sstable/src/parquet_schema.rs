//! The columns of an SSTable's data file, for Arrow and for Parquet.

use crate::index::IndexColumn;
use crate::value::Physical;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use oribi_types::batch::{TS_FIELD_ID, ts_field};
use oribi_types::{ColumnId, ColumnSource, ColumnType, Error, Result, Schema};
use parquet::arrow::{ArrowSchemaConverter, PARQUET_FIELD_ID_META_KEY};
use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use std::sync::Arc;

/// The id under which the index knows the hidden column of commit timestamps.
pub const TS_COLUMN_ID: ColumnId = TS_FIELD_ID as ColumnId;

/// That of the column of a [patch](crate::Patch) with the rows that its values are of.
pub const ROW_COLUMN_ID: ColumnId = TS_COLUMN_ID - 1;
/// Its name, unless a column of the table has that.
pub const ROW_COLUMN: &str = "_row";

/// Positions of the columns that are stored: all but those that show the commit timestamp.
pub fn stored_columns(schema: &Schema) -> Vec<usize> {
    let stored = |i: &usize| schema.columns()[*i].source != ColumnSource::CommitTimestamp;
    (0..schema.columns().len()).filter(stored).collect()
}

/// What a batch for an SSTable looks like: the stored columns in SQL order, then the commit timestamps. Each has the
/// column's id as Parquet's field id.
pub fn arrow_schema(schema: &Schema) -> SchemaRef {
    let with_id = |field: Field, id: ColumnId| {
        let mut metadata = field.metadata().clone();
        metadata.insert(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
        field.with_metadata(metadata)
    };
    let stored = stored_columns(schema).into_iter();
    let fields = stored.map(|i| with_id(schema.arrow().field(i).clone(), schema.columns()[i].id));
    let ts = with_id(ts_field(), TS_COLUMN_ID);
    Arc::new(ArrowSchema::new(fields.chain([ts]).collect::<Vec<_>>()))
}

/// The Parquet schema of the data file: what the Parquet crate makes of [`arrow_schema`], with the logical types
/// that Arrow has no name for.
pub fn parquet_schema(schema: &Schema, arrow: &ArrowSchema) -> Result<SchemaDescriptor> {
    let converted = ArrowSchemaConverter::new().convert(arrow).map_err(|e| Error::internal(e.to_string()))?;
    let mut fields: Vec<TypePtr> = converted.root_schema().get_fields().to_vec();
    for (field, column) in fields.iter_mut().zip(stored_columns(schema)) {
        let logical = match schema.columns()[column].column_type {
            ColumnType::Json => LogicalType::Json,
            ColumnType::Uuid => LogicalType::Uuid,
            _ => continue,
        };
        *field = with_logical_type(field, logical)?;
    }
    let root = Type::group_type_builder(converted.root_schema().name())
        .with_fields(fields)
        .build()
        .map_err(|e| Error::internal(e.to_string()))?;
    Ok(SchemaDescriptor::new(Arc::new(root)))
}

fn with_logical_type(field: &Type, logical: LogicalType) -> Result<TypePtr> {
    let info = field.get_basic_info();
    let repetition = if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED };
    let length = match logical {
        LogicalType::Uuid => 16,
        _ => -1,
    };
    Type::primitive_type_builder(field.name(), field.get_physical_type())
        .with_repetition(repetition)
        .with_length(length)
        .with_logical_type(Some(logical))
        .with_id(info.has_id().then(|| info.id()))
        .build()
        .map(Arc::new)
        .map_err(|e| Error::internal(e.to_string()))
}

/// The columns as the index describes them.
///
/// # Errors
/// `Corrupt` for a column without field id or of a type that the writer does not produce.
pub fn index_columns(schema: &SchemaDescriptor) -> Result<Vec<IndexColumn>> {
    let column = |descr: &parquet::schema::types::ColumnDescPtr| {
        let info = descr.self_type().get_basic_info();
        let physical = match descr.physical_type() {
            PhysicalType::BOOLEAN => Physical::Bool,
            PhysicalType::INT32 => Physical::Int32,
            PhysicalType::INT64 => Physical::Int64,
            PhysicalType::FLOAT => Physical::Float,
            PhysicalType::DOUBLE => Physical::Double,
            PhysicalType::BYTE_ARRAY => Physical::Bytes,
            PhysicalType::FIXED_LEN_BYTE_ARRAY => Physical::Fixed(u16::try_from(descr.type_length()).ok()?),
            PhysicalType::INT96 => return None,
        };
        let nullable = match (descr.max_def_level(), descr.max_rep_level()) {
            (0, 0) => false,
            (1, 0) => true,
            _ => return None,
        };
        let id = info.has_id().then(|| info.id()).and_then(|id| ColumnId::try_from(id).ok())?;
        Some(IndexColumn { id, physical, nullable })
    };
    schema
        .columns()
        .iter()
        .map(|c| column(c).ok_or_else(|| Error::corrupt(format!("unexpected column \"{}\"", c.name()))))
        .collect()
}

/// The Arrow schema to read a data file with: text and bytes as views.
pub fn read_schema(file: &ArrowSchema) -> SchemaRef {
    let fields = file.fields().iter().map(|field| {
        let view = match field.data_type() {
            DataType::Utf8 => DataType::Utf8View,
            DataType::Binary => DataType::BinaryView,
            _ => return field.clone(),
        };
        Arc::new(field.as_ref().clone().with_data_type(view))
    });
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}
