//! Schemas and table options.

use crate::key::encode_key;
use crate::partition::Partitioning;
use crate::row::{RowLayout, RowRef};
use crate::{ColumnType, Error, Result, Value, ValueRef};
use arrow::datatypes::{Field, SchemaRef};
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Identifies a column for its whole life: a name that is dropped and added again gets a new id, so that it brings
/// no old values back.
pub type ColumnId = u32;

/// Where a column's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnSource {
    /// The n-th component of the encoded key.
    Key(u16),
    /// The n-th slot of the encoded row.
    Slot(u16),
    /// The time of the write that made the row, as a bigint: never stored, never written by a client. This is
    /// what the key-value bucket shows as `cas`.
    CommitTimestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    pub id: ColumnId,
    pub name: String,
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    pub nullable: bool,
    /// What an insert that does not name the column stores.
    pub default: Option<Value>,
    /// What rows written before the column was added answer.
    pub missing: Option<Value>,
    pub source: ColumnSource,
    /// What an insert that does not name the column stores, if that is another value each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<Generated>,
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
}

/// Where values come from that the database makes, one for each row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generated {
    /// A number that no other row of the table has, or had. The column is the key of a table without a primary key: it stands
    /// last, and statements do not know it.
    RowId,
    /// The next number of a sequence.
    Sequence(OfSequence),
}

/// How the numbers of a sequence come into a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfSequence {
    /// The id of the sequence's table.
    pub id: u64,
    /// Whether the sequence goes with the column.
    pub owned: bool,
    /// Of a column `GENERATED … AS IDENTITY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// Whether an insert may give the column another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    Always,
    ByDefault,
}

impl Column {
    /// The sequence that it has its numbers from.
    pub fn sequence(&self) -> Option<&OfSequence> {
        match &self.generated {
            Some(Generated::Sequence(of)) => Some(of),
            _ => None,
        }
    }
}

/// What a protocol says of a column beyond its type, or of a table, to be told again: nothing else looks at it. Names begin with the
/// protocol's, as in `kudu.comment`.
pub type Attributes = BTreeMap<String, String>;

/// The columns of a table, in their SQL order, and the layout of its rows.
///
/// Slots are append-only: a dropped column keeps its slot, so a row written under any earlier schema is read by any
/// later one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "StoredSchema", into = "StoredSchema")]
pub struct Schema {
    columns: Vec<Column>,
    next_column_id: ColumnId,
    layout: RowLayout,
    /// Positions in `columns` of the key columns, in key order.
    key: Vec<usize>,
    arrow: SchemaRef,
    /// Of the columns that statements know.
    shown_arrow: SchemaRef,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredSchema {
    columns: Vec<Column>,
    next_column_id: ColumnId,
    slots: Vec<ColumnType>,
}

impl From<Schema> for StoredSchema {
    fn from(schema: Schema) -> Self {
        let slots = schema.layout.slots().to_vec();
        StoredSchema { columns: schema.columns, next_column_id: schema.next_column_id, slots }
    }
}

impl TryFrom<StoredSchema> for Schema {
    type Error = Error;
    fn try_from(stored: StoredSchema) -> Result<Self> {
        Schema::assemble(stored.columns, stored.next_column_id, stored.slots)
    }
}

/// A column as `CREATE TABLE` or `ALTER TABLE ADD COLUMN` names it.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    pub name: String,
    pub column_type: ColumnType,
    pub nullable: bool,
    pub default: Option<Value>,
    pub generated: Option<Generated>,
    pub attributes: Attributes,
}

impl ColumnSpec {
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        ColumnSpec {
            name: name.into(),
            column_type,
            nullable: true,
            default: None,
            generated: None,
            attributes: Attributes::new(),
        }
    }

    #[must_use]
    pub fn not_null(mut self) -> Self {
        self.nullable = false;
        self
    }
}

/// Name of the hidden column that holds each row's commit timestamp in SSTables.
pub const TS_COLUMN: &str = "_ts";

/// Name of the hidden column that is the key of a table without a primary key.
pub const ROW_ID_COLUMN: &str = "_rowid";

/// The most columns of a table: slots are numbered with 16 bits.
pub const COLUMNS_MAX: usize = 4096;

/// Rows of up to this many slots are made without an allocation.
const SLOTS_INLINE: usize = 16;

impl Schema {
    /// A schema of `columns` in SQL order, of which those named in `primary_key` are the key, in that order.
    ///
    /// # Errors
    /// `Invalid` for an empty key, an unknown, repeated or reserved name, a key column of a type without total
    /// order, or a default that does not fit.
    pub fn new(columns: Vec<ColumnSpec>, primary_key: &[&str]) -> Result<Self> {
        if primary_key.is_empty() {
            return Err(Error::invalid("a table needs a primary key"));
        }
        for (i, name) in primary_key.iter().enumerate() {
            if !columns.iter().any(|c| c.name == *name) {
                return Err(Error::invalid(format!("primary key column \"{name}\" does not exist")));
            }
            if primary_key[..i].contains(name) {
                return Err(Error::invalid(format!("primary key names column \"{name}\" twice")));
            }
        }
        let mut slots = Vec::new();
        let mut built = Vec::with_capacity(columns.len());
        for (i, spec) in columns.into_iter().enumerate() {
            let key = primary_key.iter().position(|k| *k == spec.name);
            let source = match key {
                Some(position) => ColumnSource::Key(position as u16),
                None => {
                    slots.push(spec.column_type);
                    ColumnSource::Slot((slots.len() - 1) as u16)
                }
            };
            built.push(Column {
                id: i as ColumnId + 1,
                name: spec.name,
                column_type: spec.column_type,
                nullable: spec.nullable && key.is_none(),
                default: spec.default,
                missing: None,
                source,
                generated: spec.generated,
                attributes: spec.attributes,
            });
        }
        let next = built.len() as ColumnId + 1;
        Schema::assemble(built, next, slots)
    }

    /// A schema of `columns` without a primary key: rows are told apart by a hidden column, [`ROW_ID_COLUMN`], behind them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn without_key(mut columns: Vec<ColumnSpec>) -> Result<Self> {
        if columns.iter().any(|column| column.name == ROW_ID_COLUMN) {
            return Err(Error::invalid(format!(
                "column name \"{ROW_ID_COLUMN}\" is reserved in tables without a primary key"
            )));
        }
        columns.push(ColumnSpec::new(ROW_ID_COLUMN, ColumnType::Int64).not_null());
        let row_id = columns.last_mut().expect("it was put there");
        row_id.generated = Some(Generated::RowId);
        Schema::new(columns, &[ROW_ID_COLUMN])
    }

    fn assemble(columns: Vec<Column>, next_column_id: ColumnId, slots: Vec<ColumnType>) -> Result<Self> {
        if columns.len() > COLUMNS_MAX || slots.len() > COLUMNS_MAX {
            return Err(Error::invalid(format!("a table has at most {COLUMNS_MAX} columns")));
        }
        let mut names = HashMap::new();
        let mut key = Vec::new();
        for (i, column) in columns.iter().enumerate() {
            let is_hidden = column.generated == Some(Generated::RowId);
            if is_hidden && (i + 1 < columns.len() || column.source != ColumnSource::Key(0)) {
                return Err(Error::corrupt("a hidden key is not the last column"));
            }
            if column.name == TS_COLUMN || column.name.is_empty() {
                return Err(Error::invalid(format!("column name \"{}\" is reserved", column.name)));
            }
            if names.insert(column.name.as_str(), i).is_some() {
                return Err(Error::invalid(format!("column \"{}\" is named twice", column.name)));
            }
            if let ColumnType::Decimal { precision, scale } = column.column_type
                && !((1..=38).contains(&precision) && (0..=precision as i8).contains(&scale))
            {
                return Err(Error::invalid(format!(
                    "column \"{}\": numeric takes 1 to 38 digits, of which 0 to all stand behind the point",
                    column.name
                )));
            }
            for value in column.default.iter().chain(&column.missing) {
                if !value.as_ref().fits(column.column_type) {
                    return Err(Error::invalid(format!(
                        "default of column \"{}\" is not of type {}",
                        column.name, column.column_type
                    )));
                }
            }
            match column.source {
                ColumnSource::Key(position) => {
                    if !column.column_type.is_key_type() {
                        return Err(Error::invalid(format!(
                            "column \"{}\" of type {} cannot be part of a primary key",
                            column.name, column.column_type
                        )));
                    }
                    key.push((position, i));
                }
                ColumnSource::Slot(slot) => {
                    if slots.get(usize::from(slot)) != Some(&column.column_type) {
                        return Err(Error::corrupt(format!("column \"{}\" has no slot", column.name)));
                    }
                }
                ColumnSource::CommitTimestamp => {}
            }
        }
        key.sort_unstable();
        if key.iter().enumerate().any(|(i, (position, _))| i != usize::from(*position)) {
            return Err(Error::corrupt("key columns are not numbered from 0"));
        }
        let key = key.into_iter().map(|(_, i)| i).collect();
        let fields: Vec<Field> = columns.iter().map(arrow_field).collect();
        let is_shown = |column: &&Column| column.generated != Some(Generated::RowId);
        let shown = columns.iter().take_while(is_shown).count();
        let shown_arrow = Arc::new(arrow::datatypes::Schema::new(fields[..shown].to_vec()));
        let arrow = Arc::new(arrow::datatypes::Schema::new(fields));
        Ok(Schema { columns, next_column_id, layout: RowLayout::new(slots), key, arrow, shown_arrow })
    }

    /// The shape of a key-value bucket: `key`, `value`, `flags`, `expires_at` and `cas`, the commit timestamp.
    pub fn key_value() -> Self {
        let columns = vec![
            ColumnSpec::new("key", ColumnType::Binary).not_null(),
            ColumnSpec::new("value", ColumnType::Binary).not_null(),
            ColumnSpec::new("flags", ColumnType::Int64).not_null(),
            ColumnSpec::new("expires_at", ColumnType::Timestamp),
        ];
        let mut schema = Schema::new(columns, &["key"]).expect("the key-value schema is valid");
        let cas = Column {
            id: schema.next_column_id,
            name: "cas".into(),
            column_type: ColumnType::Int64,
            nullable: false,
            default: None,
            missing: None,
            source: ColumnSource::CommitTimestamp,
            generated: None,
            attributes: Attributes::new(),
        };
        schema.columns.push(cas);
        let next = schema.next_column_id + 1;
        let slots = schema.layout.slots().to_vec();
        Schema::assemble(schema.columns, next, slots).expect("the key-value schema is valid")
    }

    /// All columns, the hidden key of a table without a primary key last.
    #[inline]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The columns that statements know: the first of [`columns`](Self::columns), all but a hidden key.
    #[inline]
    pub fn shown(&self) -> &[Column] {
        &self.columns[..self.row_id().unwrap_or(self.columns.len())]
    }

    /// The position of the hidden key; `None` for a table with a primary key.
    #[inline]
    pub fn row_id(&self) -> Option<usize> {
        let last = self.columns.last()?;
        (last.generated == Some(Generated::RowId)).then(|| self.columns.len() - 1)
    }

    /// Positions in [`columns`](Self::columns) of the key columns, in key order.
    #[inline]
    pub fn key(&self) -> &[usize] {
        &self.key
    }

    #[inline]
    pub fn key_columns(&self) -> impl ExactSizeIterator<Item = &Column> + '_ {
        self.key.iter().map(|&i| &self.columns[i])
    }

    #[inline]
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// The position of a column that statements know.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.shown().iter().position(|c| c.name == name)
    }

    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        self.columns.iter().find(|c| c.id == id)
    }

    /// Whether the table had the column when it was defined so, or had dropped it before: else it was added later.
    pub fn has_known(&self, column: ColumnId) -> bool {
        column < self.next_column_id
    }

    /// All columns as an Arrow schema, in SQL order.
    pub fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }

    /// The columns that statements [know](Self::shown) as an Arrow schema.
    pub fn shown_arrow(&self) -> &SchemaRef {
        &self.shown_arrow
    }

    /// The schema with one more column at the end. Rows that exist answer `spec.default` for it.
    ///
    /// # Errors
    /// `AlreadyExists` for a name in use; `Invalid` if the column is not nullable and has no default.
    pub fn with_column(&self, spec: ColumnSpec) -> Result<Self> {
        if self.position(&spec.name).is_some() {
            return Err(Error::already_exists(format!("column \"{}\" already exists", spec.name)));
        }
        if !spec.nullable && spec.default.as_ref().is_none_or(Value::is_null) {
            return Err(Error::invalid(format!(
                "column \"{}\" is not null and needs a default for the rows that exist",
                spec.name
            )));
        }
        let mut slots = self.layout.slots().to_vec();
        slots.push(spec.column_type);
        let mut columns = self.columns.clone();
        // The hidden key stays behind all others.
        columns.insert(
            self.shown().len(),
            Column {
                id: self.next_column_id,
                name: spec.name,
                column_type: spec.column_type,
                nullable: spec.nullable,
                missing: spec.default.clone(),
                default: spec.default,
                source: ColumnSource::Slot((slots.len() - 1) as u16),
                generated: spec.generated,
                attributes: spec.attributes,
            },
        );
        Schema::assemble(columns, self.next_column_id + 1, slots)
    }

    /// The schema without the column `name`; its slot stays behind, unused.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a key column.
    pub fn without_column(&self, name: &str) -> Result<Self> {
        let position = self.require(name)?;
        if !matches!(self.columns[position].source, ColumnSource::Slot(_)) {
            return Err(Error::invalid(format!("column \"{name}\" cannot be dropped")));
        }
        let mut columns = self.columns.clone();
        columns.remove(position);
        Schema::assemble(columns, self.next_column_id, self.layout.slots().to_vec())
    }

    /// The columns at these positions, none of the key, with their ids, behind a bigint of this name and id that is the key.
    ///
    /// # Errors
    /// `Invalid` for a column of the key, or a name that one of them has.
    pub fn part(&self, (name, id): (&str, ColumnId), positions: &[usize]) -> Result<Self> {
        let number = Column {
            id,
            name: name.to_owned(),
            column_type: ColumnType::Int64,
            nullable: false,
            default: None,
            missing: None,
            source: ColumnSource::Key(0),
            generated: None,
            attributes: Attributes::new(),
        };
        let mut columns = vec![number];
        for (slot, position) in positions.iter().enumerate() {
            let column = &self.columns[*position];
            if !matches!(column.source, ColumnSource::Slot(_)) {
                return Err(Error::invalid(format!("column \"{}\" is none that can be set", column.name)));
            }
            columns.push(Column {
                source: ColumnSource::Slot(slot as u16),
                default: None,
                missing: None,
                generated: None,
                ..column.clone()
            });
        }
        let slots = columns[1..].iter().map(|column| column.column_type).collect();
        Schema::assemble(columns, self.next_column_id, slots)
    }

    /// The schema with column `from` called `to`.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists`.
    pub fn with_renamed(&self, from: &str, to: &str) -> Result<Self> {
        let position = self.require(from)?;
        if self.position(to).is_some() {
            return Err(Error::already_exists(format!("column \"{to}\" already exists")));
        }
        let mut columns = self.columns.clone();
        columns[position].name = to.to_owned();
        Schema::assemble(columns, self.next_column_id, self.layout.slots().to_vec())
    }

    /// The schema with another default for inserts into column `name`; `None` takes it away.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a value of another type.
    pub fn with_default(&self, name: &str, default: Option<Value>) -> Result<Self> {
        let position = self.require(name)?;
        let mut columns = self.columns.clone();
        columns[position].default = default;
        columns[position].generated = None;
        Schema::assemble(columns, self.next_column_id, self.layout.slots().to_vec())
    }

    /// The schema with another source of what inserts leave out of column `name`, in place of a default.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn with_generated(&self, name: &str, generated: Option<Generated>) -> Result<Self> {
        let position = self.require(name)?;
        let mut columns = self.columns.clone();
        columns[position].default = None;
        columns[position].generated = generated;
        Schema::assemble(columns, self.next_column_id, self.layout.slots().to_vec())
    }

    /// The schema whose column `name` takes null.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a key column.
    pub fn with_null_in(&self, name: &str) -> Result<Self> {
        let position = self.require(name)?;
        if !matches!(self.columns[position].source, ColumnSource::Slot(_)) {
            return Err(Error::invalid(format!("column \"{name}\" is in a primary key")));
        }
        let mut columns = self.columns.clone();
        columns[position].nullable = true;
        Schema::assemble(columns, self.next_column_id, self.layout.slots().to_vec())
    }

    /// The schema with other attributes of column `name`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn with_attributes(&self, name: &str, attributes: Attributes) -> Result<Self> {
        let position = self.require(name)?;
        let mut columns = self.columns.clone();
        columns[position].attributes = attributes;
        Schema::assemble(columns, self.next_column_id, self.layout.slots().to_vec())
    }

    fn require(&self, name: &str) -> Result<usize> {
        self.position(name).ok_or_else(|| Error::not_found(format!("column \"{name}\" does not exist")))
    }

    /// The value of a slot column of an encoded row: what it holds, or what the column answers for older rows.
    pub fn slot_value<'a>(&'a self, column: &'a Column, slot: u16, row: &'a [u8]) -> ValueRef<'a> {
        self.value_in(column, slot, RowRef::new(&self.layout, row))
    }

    /// As [`slot_value`](Self::slot_value), of a row of which several are asked for.
    #[inline]
    pub fn value_in<'a>(&self, column: &'a Column, slot: u16, row: RowRef<'a>) -> ValueRef<'a> {
        match row.get(usize::from(slot)) {
            Some(value) => value,
            None => column.missing.as_ref().map_or(ValueRef::Null, Value::as_ref),
        }
    }

    /// Appends the encoded `row` with some of its slots replaced. What the row is too old to have, it gets.
    pub fn replace_slots<'a>(
        &'a self,
        row: &'a [u8],
        replacements: &[(u16, ValueRef<'a>)],
        out: &mut Vec<u8>,
    ) {
        let mut slots: SmallVec<[Option<ValueRef<'_>>; SLOTS_INLINE]> =
            smallvec![None; self.layout.slots().len()];
        for &(slot, value) in replacements {
            slots[usize::from(slot)] = Some(value);
        }
        self.overlay(row, &slots, out);
    }

    /// Appends the encoded row made of `slots`, one per slot of the layout; what is `None` stays as it is in the encoded
    /// `row`. What the row is too old to have, it gets.
    pub fn overlay<'a>(&'a self, row: &'a [u8], slots: &[Option<ValueRef<'a>>], out: &mut Vec<u8>) {
        debug_assert_eq!(slots.len(), self.layout.slots().len(), "a value or none per slot");
        let old = RowRef::new(&self.layout, row);
        let stays = |slot| old.get(slot).unwrap_or_else(|| self.missing(slot));
        let values = slots.iter().enumerate().map(|(slot, new)| new.unwrap_or_else(|| stays(slot)));
        self.layout.encode_each(values, out);
    }

    /// What rows that are too old to have `slot` answer for it.
    fn missing(&self, slot: usize) -> ValueRef<'_> {
        let column = self.columns.iter().find(|c| c.source == ColumnSource::Slot(slot as u16));
        column.and_then(|column| column.missing.as_ref()).map_or(ValueRef::Null, Value::as_ref)
    }

    /// Encodes a row given its values in SQL order into an encoded key and an encoded row (both appended).
    /// `CommitTimestamp` columns are ignored.
    ///
    /// # Errors
    /// `Invalid`, naming the column, for null in a not-null column or a value of another type.
    pub fn encode(&self, values: &[ValueRef<'_>], key: &mut Vec<u8>, row: &mut Vec<u8>) -> Result<()> {
        self.check_values(values)?;
        encode_key(self, self.key.iter().map(|&i| values[i]), key)?;
        self.encode_slots(values, row);
        Ok(())
    }

    /// Checks that `values`, one per column, may stand in a row. Those of `CommitTimestamp` columns are ignored.
    ///
    /// # Errors
    /// `Invalid`, naming the column.
    pub fn check_values(&self, values: &[ValueRef<'_>]) -> Result<()> {
        debug_assert_eq!(values.len(), self.columns.len(), "a value per column");
        let stored = |(column, _): &(&Column, _)| column.source != ColumnSource::CommitTimestamp;
        let mut values = self.columns.iter().zip(values).filter(stored);
        values.try_for_each(|(column, value)| check_value(column, *value))
    }

    /// Appends the encoded row of checked values, one per column.
    pub fn encode_slots(&self, values: &[ValueRef<'_>], row: &mut Vec<u8>) {
        let mut slots: SmallVec<[ValueRef<'_>; SLOTS_INLINE]> =
            smallvec![ValueRef::Null; self.layout.slots().len()];
        for (column, value) in self.columns.iter().zip(values) {
            if let ColumnSource::Slot(slot) = column.source {
                slots[usize::from(slot)] = *value;
            }
        }
        self.layout.encode(&slots, row);
    }
}

/// Checks that `value` may stand in `column`.
///
/// # Errors
/// `Invalid`, naming the column.
pub fn check_value(column: &Column, value: ValueRef<'_>) -> Result<()> {
    if value.is_null() && !column.nullable {
        return Err(Error::invalid(format!(
            "null value in column \"{}\" violates not-null constraint",
            column.name
        )));
    }
    if !value.fits(column.column_type) {
        if let (ValueRef::Decimal(_), ColumnType::Decimal { .. }) = (value, column.column_type) {
            return Err(Error::invalid(format!(
                "value for column \"{}\" is out of range for type {}",
                column.name, column.column_type
            )));
        }
        return Err(Error::invalid(format!(
            "value for column \"{}\" is not of type {}",
            column.name, column.column_type
        )));
    }
    Ok(())
}

/// Arrow field metadata key that names the column type where Arrow's own does not (`json`, `uuid`).
pub const TYPE_METADATA: &str = "oribi.type";
/// Arrow field metadata key of JSON that a query writes as PostgreSQL writes `jsonb`.
pub const JSONB_METADATA: &str = "oribi.jsonb";

/// The column as statements see it: nothing in it tells it from a value of its type that comes from elsewhere.
fn arrow_field(column: &Column) -> Field {
    let field = Field::new(&column.name, column.column_type.arrow(), column.nullable);
    match column.column_type {
        ColumnType::Json | ColumnType::Uuid => {
            field.with_metadata(HashMap::from([(TYPE_METADATA.to_owned(), column.column_type.to_string())]))
        }
        _ => field,
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// After fdatasync: it survives a power cut.
    Sync,
    /// After write(2): it survives the process; fdatasync follows within this many milliseconds.
    Periodic(u32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableOptions {
    pub durability: Durability,
    /// Rows expire this many milliseconds after they were written.
    pub ttl_ms: Option<u64>,
    /// A nullable timestamp column: a row expires at the time it holds.
    pub expires_at: Option<ColumnId>,
    /// What clients say of the table and expect to be told again.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
}

impl TableOptions {
    /// Of rows that do not expire.
    pub fn new(durability: Durability) -> Self {
        TableOptions { durability, ttl_ms: None, expires_at: None, attributes: Attributes::new() }
    }
}

/// What `CREATE TABLE` asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableDefinition {
    pub schema_name: String,
    pub name: String,
    pub schema: Schema,
    pub partitioning: Partitioning,
    pub options: TableOptions,
}
