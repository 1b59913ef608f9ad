//! Catalog: schemas and tables as immutable pictures, replaced whole by each change.

use crate::manifest::TableRecord;
use crate::memtable::{Listing, Memtable};
use crate::range::KeyRange;
use crate::tablet::{FileSet, LiveFile, Tablet};
use crate::txn::Unchanged;
use oribi_types::partition::KeyFilter;
use oribi_types::schema::{Attributes, ColumnSpec, Generated};
use oribi_types::{
    ColumnSource, Durability, Result, Schema, TableDefinition, TableOptions, Timestamp, Value,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Name of the schema of tables without one.
pub const PUBLIC_SCHEMA: &str = "public";
/// Schema and name of the key-value bucket that always exists.
pub const DEFAULT_BUCKET: (&str, &str) = ("default", "kv");

/// An attribute of a table that is to [take another's place](CatalogChange::Replace): it goes when the folder is opened, since nobody
/// completes it then.
pub const DRAFT: &str = "oribi.draft";

/// An attribute of a table that is a sequence: its rules. Its one row says how far its numbers have been handed out.
pub const SEQUENCE: &str = "oribi.sequence";

/// A picture of all schemas and tables.
#[derive(Clone, Default)]
pub struct Catalog {
    pub(crate) version: u64,
    pub(crate) schemas: BTreeMap<String, BTreeMap<String, Arc<Table>>>,
    /// [`DEFAULT_BUCKET`] of the schemas, which is asked for with each key-value request.
    bucket: Option<Arc<Table>>,
}

impl Catalog {
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        self.schemas.keys().map(String::as_str)
    }

    /// The tables of a schema by name; none if there is no such schema.
    pub fn tables(&self, schema: &str) -> impl Iterator<Item = &Arc<Table>> {
        self.schemas.get(schema).into_iter().flat_map(BTreeMap::values)
    }

    pub fn all_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.schemas.values().flat_map(BTreeMap::values)
    }

    pub fn table(&self, schema: &str, name: &str) -> Option<&Arc<Table>> {
        self.schemas.get(schema)?.get(name)
    }

    /// [`DEFAULT_BUCKET`], without a look for it.
    pub fn bucket(&self) -> Option<&Arc<Table>> {
        self.bucket.as_ref()
    }

    /// Due when the schemas have changed.
    pub(crate) fn note_bucket(&mut self) {
        self.bucket = self.table(DEFAULT_BUCKET.0, DEFAULT_BUCKET.1).cloned();
    }

    pub fn table_by_id(&self, id: u64) -> Option<&Arc<Table>> {
        self.all_tables().find(|table| table.id() == id)
    }

    /// Changes with every change of a schema or table.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// A table as it was defined at one version of the catalog. Its rows are shared with the handles before and after. Of the
/// tablets, some may have been dropped since, with their ranges, and others added.
pub struct Table {
    id: u64,
    /// Grows with each change of the definition, but for that of partitions. Rows are made for one version, and its
    /// tablets take none that are made for another.
    version: u64,
    definition: Arc<TableDefinition>,
    schema: Arc<Schema>,
    expiry: Expiry,
    is_key_value: bool,
    /// By number, as the partitioning has it.
    pub(crate) tablets: Vec<Arc<Tablet>>,
    /// Where keys are looked for that are in no range: it is empty and takes no write, like one that was dropped.
    uncovered: Arc<Tablet>,
    /// Whose rows a transaction sees that has emptied the table: none that were there before. The table's id, if none has.
    rows_of: u64,
    /// Only a transaction sees this definition: what is read by it is nobody else's.
    is_uncommitted: bool,
    /// When a range was dropped, last. Snapshots from before saw rows for which the table has no tablet.
    range_dropped: Timestamp,
}

impl Table {
    pub(crate) fn new(record: &TableRecord, tablets: Vec<Arc<Tablet>>, version: u64) -> Self {
        let definition = Arc::new(record.definition.clone());
        let schema = Arc::new(definition.schema.clone());
        let expiry = Expiry::of(&definition);
        let is_key_value = has_key_value_shape(&schema);
        let uncovered =
            Tablet::new(0, PathBuf::new(), 0, Memtable::new(0, 0, Listing::Hashes), FileSet::default());
        uncovered.set_dropped();
        let (uncovered, range_dropped) = (Arc::new(uncovered), Timestamp::MIN);
        Table {
            id: record.id,
            version,
            definition,
            schema,
            expiry,
            is_key_value,
            tablets,
            uncovered,
            rows_of: record.id,
            is_uncommitted: false,
            range_dropped,
        }
    }

    /// A table of one tablet that no catalog has, without rows and taking none: for who shows rows of its own as those of a table.
    pub fn outside_catalog(definition: TableDefinition) -> Arc<Self> {
        const ID: u64 = u64::MAX;
        let tablet =
            Tablet::new(ID, PathBuf::new(), 0, Memtable::new(0, 0, Listing::Hashes), FileSet::default());
        tablet.set_dropped();
        let record = TableRecord { id: ID, definition, tablets: vec![ID] };
        Arc::new(Table::new(&record, vec![Arc::new(tablet)], 0))
    }

    /// The same, of which a range was dropped at `at`, and none later.
    #[must_use]
    pub(crate) fn with_range_dropped(self, at: Timestamp) -> Self {
        self.uncovered.set_emptied(at);
        Table { range_dropped: at, ..self }
    }

    /// The same, as only the transaction sees it that has made it so.
    #[must_use]
    pub(crate) fn uncommitted(self) -> Self {
        Table { is_uncommitted: true, ..self }
    }

    /// Whether it is as a transaction has it that has not committed yet: nothing that is read by it may be remembered.
    pub fn is_uncommitted(&self) -> bool {
        self.is_uncommitted
    }

    /// The same, as a transaction sees it which has emptied it.
    #[must_use]
    pub(crate) fn with_rows_of(self, rows_of: u64) -> Self {
        Table { rows_of, ..self }
    }

    pub(crate) fn rows_of(&self) -> u64 {
        self.rows_of
    }

    pub(crate) fn range_dropped(&self) -> Timestamp {
        self.range_dropped
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// As the manifest has it.
    pub(crate) fn record(&self) -> TableRecord {
        let tablets = self.tablets.iter().map(|tablet| tablet.id).collect();
        TableRecord { id: self.id, definition: (*self.definition).clone(), tablets }
    }

    pub fn schema_name(&self) -> &str {
        &self.definition.schema_name
    }

    pub fn name(&self) -> &str {
        &self.definition.name
    }

    pub fn definition(&self) -> Arc<TableDefinition> {
        self.definition.clone()
    }

    pub fn schema(&self) -> Arc<Schema> {
        self.schema.clone()
    }

    /// The schema, borrowed: what per-row code reads by.
    pub fn schema_ref(&self) -> &Schema {
        &self.schema
    }

    pub fn options(&self) -> &TableOptions {
        &self.definition.options
    }

    /// Whether the table has the shape of [`Schema::key_value`].
    pub fn is_key_value(&self) -> bool {
        self.is_key_value
    }

    /// Live rows in the SSTables plus keys in memtables: replaced rows that are not flushed count twice.
    pub fn estimated_rows(&self) -> u64 {
        let live = |file: &Arc<LiveFile>| file.sstable.meta().rows.saturating_sub(file.deletions.len());
        let in_files = |tablet: &Arc<Tablet>| tablet.state().files.files.iter().map(live).sum::<u64>();
        self.tablets.iter().map(in_files).sum::<u64>() + self.unflushed_rows()
    }

    /// Bytes of the SSTables and their patches.
    pub fn file_bytes(&self) -> u64 {
        let bytes = |tablet: &Arc<Tablet>| {
            let state = tablet.state();
            state.files.files.iter().map(|file| file.sstable.stored_bytes()).sum::<u64>()
        };
        self.tablets.iter().map(bytes).sum()
    }

    /// Bytes that a row of a file takes in the columns at the positions `columns`, on the average of the page of each in which
    /// values take most; of the files that may have keys of `keys`.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn file_row_bytes_max(&self, keys: &KeyRange, columns: &[usize]) -> Result<u64> {
        let mut most = 0;
        for tablet in &self.tablets {
            for LiveFile { sstable, .. } in tablet.state().files.files.iter().map(Arc::as_ref) {
                if sstable.rows_between_max(&keys.from, keys.to.as_deref()) > 0 {
                    let columns = columns.iter().map(|position| &self.schema.columns()[*position]);
                    let bytes: Result<u64> = columns.map(|column| sstable.value_bytes_max(column)).sum();
                    most = most.max(bytes?);
                }
            }
        }
        Ok(most)
    }

    /// Bytes that a row in memory takes, on the average of the memtable in which rows take most; versions that snapshots see
    /// beside the newest count as that.
    pub fn memory_row_bytes_max(&self) -> u64 {
        let of_memtable =
            |memtable: &Arc<Memtable>| memtable.bytes().checked_div(memtable.len() as u64).unwrap_or(0);
        let of_tablet = |tablet: &Arc<Tablet>| tablet.state().memtables().map(of_memtable).max();
        self.tablets.iter().filter_map(of_tablet).max().unwrap_or(0)
    }

    /// Keys in memtables.
    pub fn unflushed_rows(&self) -> u64 {
        let memtables =
            |tablet: &Arc<Tablet>| tablet.state().memtables().map(|m| m.len() as u64).sum::<u64>();
        self.tablets.iter().map(memtables).sum()
    }

    /// The id of each tablet, by number. It stays as long as the tablet, whose number may change.
    pub fn tablet_ids(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.tablets.iter().map(|tablet| tablet.id)
    }

    /// The numbers of the tablets that keys of `filter` can be in, ascending.
    pub fn tablets_of(&self, filter: &KeyFilter) -> Vec<usize> {
        self.definition.partitioning.tablets_of(filter)
    }

    #[inline]
    pub(crate) fn tablet_of(&self, key: &[u8]) -> &Arc<Tablet> {
        match self.definition.partitioning.tablet_of(&self.schema, key) {
            Some(tablet) => &self.tablets[tablet],
            None => &self.uncovered,
        }
    }

    /// The values of an encoded key, for a message.
    pub(crate) fn key_text(&self, key: &[u8]) -> String {
        let values = oribi_types::key::decode_key(&self.schema, key).unwrap_or_default();
        let mut text = Vec::new();
        for (column, value) in self.schema.key_columns().zip(&values) {
            if !text.is_empty() {
                text.extend_from_slice(b", ");
            }
            oribi_types::text::format(value.as_ref(), column.column_type, &mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Whether it is a [draft](DRAFT).
    pub fn is_draft(&self) -> bool {
        self.options().attributes.contains_key(DRAFT)
    }

    /// The rules of the [sequence](SEQUENCE) that it is, if so.
    pub fn sequence(&self) -> Option<&str> {
        self.options().attributes.get(SEQUENCE).map(String::as_str)
    }

    /// Whether clients know it as a table.
    pub fn is_shown(&self) -> bool {
        self.options().attributes.is_empty() || !self.is_draft() && self.sequence().is_none()
    }

    pub(crate) fn expiry(&self) -> Expiry {
        self.expiry
    }

    pub(crate) fn is_sync(&self) -> bool {
        self.definition.options.durability == Durability::Sync
    }
}

fn has_key_value_shape(schema: &Schema) -> bool {
    let shape = ["key", "value", "flags", "expires_at", "cas"];
    schema.columns().iter().map(|c| c.name.as_str()).eq(shape)
        && matches!(schema.columns()[4].source, ColumnSource::CommitTimestamp)
}

/// When the rows of a table expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// After their commit.
    pub ttl_micros: Option<u64>,
    /// At the time in this slot, unless it is null.
    pub slot: Option<u16>,
}

impl Expiry {
    fn of(definition: &TableDefinition) -> Self {
        let slot = definition.options.expires_at.and_then(|id| definition.schema.column_by_id(id));
        Expiry {
            ttl_micros: definition.options.ttl_ms.map(|ms| ms.saturating_mul(1000)),
            slot: slot.and_then(|column| match column.source {
                ColumnSource::Slot(slot) => Some(slot),
                _ => None,
            }),
        }
    }

    pub fn never(self) -> bool {
        self == Expiry::default()
    }
}

/// A change of the catalog.
#[derive(Clone)]
pub enum CatalogChange {
    CreateSchema {
        name: String,
    },
    /// With `cascade`, and its tables.
    DropSchema {
        name: String,
        cascade: bool,
    },
    CreateTable(TableDefinition),
    DropTable {
        schema: String,
        name: String,
    },
    /// By all of these, one after the other.
    AlterTable {
        schema: String,
        name: String,
        changes: Vec<Alteration>,
    },
    Truncate(Arc<Table>),
    /// A table that was made from the rows of another takes its place and its name.
    Replace {
        table: Arc<Table>,
        by: Arc<Table>,
        /// As its rows were before they were read.
        made_from: Arc<Unchanged>,
    },
}

/// A change of a table's definition.
#[derive(Clone, Debug)]
pub enum Alteration {
    AddColumn(ColumnSpec),
    DropColumn(String),
    RenameColumn {
        from: String,
        to: String,
    },
    /// The column takes null from now on.
    DropNotNull(String),
    SetDefault {
        column: String,
        default: Option<Value>,
    },
    /// In place of a default.
    SetGenerated {
        column: String,
        generated: Option<Generated>,
    },
    SetAttributes {
        column: String,
        attributes: Attributes,
    },
    Rename {
        to: String,
    },
    SetOptions(TableOptions),
}
