//! Changes of the catalog: each is one manifest record, durable when the call returns.
//!
//! Nothing that writers or readers take is held while the record is synced. Other changes wait meanwhile, and writers of
//! rows that may be gone by it (see [`undecided`](crate::undecided)).

use crate::catalog::{Alteration, Catalog, CatalogChange, DEFAULT_BUCKET, PUBLIC_SCHEMA, Table};
use crate::engine::Engine;
use crate::installer::GivenUp;
use crate::manifest::{Edit, Install, TableRecord};
use crate::memtable::{Listing, Memtable};
use crate::stop::StopOnPanic;
use crate::tablet::{FileSet, Tablet, TabletId, TabletState};
use crate::undecided::Change;
use oribi_env::locks::{self, MutexGuard};
use oribi_types::{
    Durability, Error, Partitioning, Result, Schema, TableDefinition, TableOptions, Timestamp,
};
use oribi_wal::Lsn;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

/// The default key-value bucket is made durable this often.
const BUCKET_SYNC_MS: u32 = 100;

/// A tablet, and the state that had its rows.
pub(crate) struct Emptied<'t> {
    tablet: &'t Tablet,
    before: Arc<TabletState>,
}

impl Engine {
    /// To be held while the catalog, or what tables have, is changed: one change at a time, each as a whole.
    pub(crate) fn begin_ddl(&self) -> (MutexGuard<'_, (), { locks::DDL }>, StopOnPanic<'_>) {
        (self.ddl.lock(), self.stop_on_panic("a change of the catalog"))
    }

    /// Makes a change, durably; returns the table that was created, if one was.
    ///
    /// # Errors
    /// Those of the change.
    pub fn change(self: &Arc<Self>, change: &CatalogChange) -> Result<Option<Arc<Table>>> {
        match change {
            CatalogChange::CreateSchema { name } => self.create_schema(name)?,
            CatalogChange::DropSchema { name, cascade } => self.drop_schema(name, *cascade)?,
            CatalogChange::CreateTable(definition) => return self.create_table(definition.clone()).map(Some),
            CatalogChange::DropTable { schema, name } => self.drop_table(schema, name)?,
            CatalogChange::AlterTable { schema, name, changes } => {
                self.alter_table_by(schema, name, changes)?;
            }
            CatalogChange::Truncate(table) => self.truncate(table)?,
            CatalogChange::Replace { .. } => {
                let transaction = self.begin();
                transaction.change(change)?;
                self.commit_with_catalog(&transaction.into_commit())?;
            }
        }
        Ok(None)
    }

    /// # Errors
    /// `AlreadyExists`; those of the manifest.
    pub fn create_schema(&self, name: &str) -> Result<()> {
        let _ddl = self.begin_ddl();
        if self.catalog.load().schemas.contains_key(name) {
            return Err(Error::already_exists(format!("schema \"{name}\" already exists")));
        }
        self.manifest.commit(vec![Edit::CreateSchema { name: name.to_owned() }])?;
        self.change_catalog(|catalog| {
            catalog.schemas.insert(name.to_owned(), Default::default());
        });
        Ok(())
    }

    /// # Errors
    /// `NotFound`; `Invalid` if the schema has tables and `cascade` is false, or is one that always exists.
    pub fn drop_schema(&self, name: &str, cascade: bool) -> Result<()> {
        let _ddl = self.begin_ddl();
        let catalog = self.catalog();
        let tables = schema_to_drop(&catalog, name, cascade)?;
        let mut edits: Vec<Edit> = tables.values().map(|t| Edit::DropTable { id: t.id() }).collect();
        edits.push(Edit::DropSchema { name: name.to_owned() });
        self.discard(tables.values(), edits, |catalog| {
            catalog.schemas.remove(name);
        })
    }

    /// # Errors
    /// `AlreadyExists`; `NotFound` for the schema; `Invalid` for partitioning or options that do not fit.
    pub fn create_table(&self, definition: TableDefinition) -> Result<Arc<Table>> {
        let _ddl = self.begin_ddl();
        self.create_table_locked(definition)
    }

    fn create_table_locked(&self, definition: TableDefinition) -> Result<Arc<Table>> {
        let table = self.new_table(&self.catalog(), definition)?;
        self.create_folders([&table])?;
        self.manifest.commit(vec![Edit::PutTable(table.record())])?;
        self.put(&table);
        Ok(table)
    }

    /// A table that `catalog` lacks; nobody knows of it yet.
    pub(crate) fn new_table(&self, catalog: &Catalog, definition: TableDefinition) -> Result<Arc<Table>> {
        let (schema, name) = (&definition.schema_name, &definition.name);
        let tables = catalog.schemas.get(schema);
        let tables = tables.ok_or_else(|| Error::not_found(format!("schema \"{schema}\" does not exist")))?;
        if tables.contains_key(name) {
            return Err(Error::already_exists(format!("table \"{schema}.{name}\" already exists")));
        }
        validate(&definition)?;
        let id = self.manifest.next_id();
        let tablets = (0..definition.partitioning.tablets()).map(|_| self.manifest.next_id()).collect();
        let record = TableRecord { id, definition, tablets };
        let dir = self.table_dir(id);
        let schema = &record.definition.schema;
        let tablets = record.tablets.iter().map(|id| self.new_tablet(schema, *id, &dir)).collect();
        Ok(Arc::new(Table::new(&record, tablets, 0)))
    }

    /// Those of new tables, durably.
    pub(crate) fn create_folders<'t>(&self, tables: impl IntoIterator<Item = &'t Arc<Table>>) -> Result<()> {
        let mut tables = tables.into_iter().peekable();
        if tables.peek().is_none() {
            return Ok(());
        }
        for table in tables {
            self.env.files.create_dir_all(&self.table_dir(table.id()))?;
        }
        Ok(self.env.files.sync_dir(&self.dir.join(TABLES_DIR))?)
    }

    /// A tablet of a table of this schema, without rows, with its files in `dir`.
    pub(crate) fn new_tablet(&self, schema: &Schema, id: TabletId, dir: &Path) -> Arc<Tablet> {
        let generation = self.manifest.next_id();
        let listing = Listing::of(schema, self.index.hasher());
        let memtable = Memtable::new(self.next_memtable(), generation, listing);
        Arc::new(Tablet::new(id, dir.to_owned(), generation, memtable, FileSet::default()))
    }

    /// The schemas and the bucket that always exist.
    pub(crate) fn create_defaults(&self) -> Result<()> {
        for schema in [PUBLIC_SCHEMA, DEFAULT_BUCKET.0] {
            if !self.catalog.load().schemas.contains_key(schema) {
                self.create_schema(schema)?;
            }
        }
        let catalog = self.catalog();
        for draft in catalog.all_tables().filter(|table| table.is_draft()) {
            self.drop_table(draft.schema_name(), draft.name())?;
        }
        let (schema_name, name) = DEFAULT_BUCKET;
        if self.catalog.load().table(schema_name, name).is_none() {
            let schema = Schema::key_value();
            let expires_at = schema.columns().iter().find(|c| c.name == "expires_at").map(|c| c.id);
            self.create_table(TableDefinition {
                schema_name: schema_name.into(),
                name: name.into(),
                schema,
                partitioning: Partitioning::none(),
                options: TableOptions {
                    expires_at,
                    ..TableOptions::new(Durability::Periodic(BUCKET_SYNC_MS))
                },
            })?;
        }
        Ok(())
    }

    /// # Errors
    /// `NotFound`.
    pub fn drop_table(&self, schema: &str, name: &str) -> Result<()> {
        let _ddl = self.begin_ddl();
        let table = table_to_drop(&self.catalog(), schema, name)?;
        self.discard([&table], vec![Edit::DropTable { id: table.id() }], |catalog| {
            catalog.schemas.get_mut(schema).and_then(|tables| tables.remove(name));
        })
    }

    /// Takes tables out of the manifest, the catalog and memory, and off the disk.
    fn discard<'t>(
        &self,
        tables: impl IntoIterator<Item = &'t Arc<Table>>,
        edits: Vec<Edit>,
        remove: impl Fn(&mut Catalog),
    ) -> Result<()> {
        let tables: Vec<&Arc<Table>> = tables.into_iter().collect();
        let tablets: Vec<&Arc<Tablet>> = tables.iter().flat_map(|table| &table.tablets).collect();
        // First: nobody installs files of a tablet that the manifest knows no more.
        let _installers: Vec<_> = tablets.iter().map(|tablet| tablet.installer.lock()).collect();
        let undecided = self.begin_deciding(Change::goes(tablets.iter().copied()));
        {
            // No write is acknowledged that a drop could take along whose commit fails and which a crash finds all the same.
            let _gate = self.gate.alone();
            tablets.iter().for_each(|tablet| tablet.set_leaving());
        }
        let committed = self.manifest.commit(edits);
        committed
            .inspect_err(|_| self.give_up_all([GivenUp::Drop(tables.iter().copied().cloned().collect())]))?;
        self.change_catalog(remove);
        let emptied = {
            let _gate = self.gate.alone();
            tablets.iter().for_each(|tablet| tablet.set_dropped());
            let flushed_lsn = self.log.appended();
            tablets.iter().map(|tablet| self.empty(tablet, Timestamp::MAX, flushed_lsn)).collect()
        };
        drop(undecided);
        self.sweep(emptied);
        Ok(())
    }

    /// Changes a table's definition, durably. A write that was planned for the definition before is applied when this
    /// returns, or it is refused and must be planned again.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `Invalid` as the change has it.
    pub fn alter_table(&self, schema: &str, name: &str, change: &Alteration) -> Result<()> {
        self.alter_table_by(schema, name, std::slice::from_ref(change))
    }

    /// As [`alter_table`](Self::alter_table), by several changes: one after the other, all or none.
    ///
    /// # Errors
    /// Those of [`alter_table`](Self::alter_table).
    pub fn alter_table_by(&self, schema: &str, name: &str, changes: &[Alteration]) -> Result<()> {
        let _ddl = self.begin_ddl();
        let table = self.table(schema, name)?;
        let definition = altered_definition(&self.catalog(), &table, changes)?;
        let tablets = table.tablets.iter().map(|t| t.id).collect();
        let record = TableRecord { id: table.id(), definition, tablets };
        self.manifest.commit(vec![Edit::PutTable(record.clone())])?;
        let altered = Table::new(&record, table.tablets.clone(), table.version() + 1);
        let altered = Arc::new(altered.with_range_dropped(table.range_dropped()));
        {
            // Under the gate no write is between asking for the version and being applied.
            let _gate = self.gate.alone();
            altered.tablets.iter().for_each(|tablet| tablet.set_version(altered.version()));
            self.change_catalog(|catalog| {
                if let Some(tables) = catalog.schemas.get_mut(schema) {
                    tables.remove(name);
                    tables.insert(altered.name().to_owned(), altered.clone());
                }
            });
        }
        self.apply_sync_interval();
        Ok(())
    }

    /// Removes all rows of a table at once. Reads by snapshots taken before are refused from then on, but for those under way
    /// that hold what they have left.
    ///
    /// # Errors
    /// `NotFound` for a dropped table; those of log and manifest.
    pub fn truncate(&self, table: &Arc<Table>) -> Result<()> {
        let _ddl = self.begin_ddl();
        let table = self.latest(table.id()).ok_or_else(|| Error::not_found("the table was dropped"))?;
        let _installers: Vec<_> = table.tablets.iter().map(|tablet| tablet.installer.lock()).collect();
        let stay = || table.tablets.iter().for_each(|tablet| tablet.set_staying(table.version()));
        let commit = |history_from, flushed_lsn| {
            let edits = table.tablets.iter().map(|tablet| {
                let removed = tablet.state().files.files.iter().map(|f| f.id()).collect();
                let install =
                    Install { tablet: tablet.id, removed, flushed_lsn, history_from, ..Install::default() };
                Edit::Install(install)
            });
            self.manifest.commit(edits.collect()).inspect_err(|_| stay())
        };
        self.remove_rows(&table, &table.tablets, commit, |_| stay())
    }

    /// Removes all rows of `tablets` of `table`, whose installers the caller holds, by what `commit` writes to the manifest: it is
    /// called with the moment at which they go, and the LSN of the last record of them. If it fails, they stay, and it says
    /// whether they can be written. `publish` is called at that moment, which it is told, with the gate held alone.
    pub(crate) fn remove_rows(
        &self,
        table: &Table,
        tablets: &[Arc<Tablet>],
        commit: impl FnOnce(Timestamp, Lsn) -> Result<()>,
        publish: impl FnOnce(Timestamp),
    ) -> Result<()> {
        // Snapshots of before and after differ, even if nobody writes.
        self.reserve_timestamps(self.timeline.now_micros(), || true)?;
        // The tablets' writers wait from the gate on, so most of the log is waited for before.
        self.log.wait_durable(self.log.appended())?;
        let undecided = self.begin_deciding(Change::goes(tablets));
        let flushed_lsn = {
            // Under the gate no write of the tablets is under way: all of them are before the record, and must be durable
            // when it is, so as not to be forgotten, or they are made when it is decided.
            let _gate = self.gate.alone();
            self.forget_given_up_drop(table);
            tablets.iter().for_each(|tablet| tablet.set_leaving());
            self.log.appended()
        };
        let stay = |_: &Error| tablets.iter().for_each(|tablet| tablet.set_staying(table.version()));
        self.log.wait_durable(flushed_lsn).inspect_err(stay)?;
        let appointment = self.timeline.appoint(self.timeline.now_micros());
        commit(appointment.at(), flushed_lsn)?;
        let (at, emptied) = {
            let _gate = self.gate.alone();
            let at = appointment.keep();
            publish(at);
            let emptied = tablets.iter().map(|tablet| self.empty(tablet, at, flushed_lsn)).collect();
            self.timeline.complete(at);
            (at, emptied)
        };
        drop(undecided);
        self.sweep(emptied);
        // Who is told of it must not come with a snapshot from before.
        self.timeline.wait_for_watermark(at)?;
        Ok(())
    }

    pub(crate) fn empty<'t>(&self, tablet: &'t Tablet, at: Timestamp, flushed_lsn: Lsn) -> Emptied<'t> {
        let listing = tablet.state().active.listing().clone();
        let active = Memtable::new(self.next_memtable(), self.manifest.next_id(), listing);
        Emptied { tablet, before: tablet.empty(at, &active, flushed_lsn) }
    }

    /// Takes rows that are gone out of memory, and their files off the disk. The caller holds the tablets' installers.
    pub(crate) fn sweep(&self, emptied: Vec<Emptied<'_>>) {
        emptied.iter().for_each(|emptied| emptied.before.end_walks());
        self.index.sweep(emptied.iter().map(|emptied| emptied.before.active.generation).collect());
        for Emptied { tablet, before } in emptied {
            self.remove_replaced(tablet, &before.files, &FileSet::default());
        }
    }

    pub(crate) fn put(&self, table: &Arc<Table>) {
        self.change_catalog(|catalog| {
            let tables = catalog.schemas.entry(table.schema_name().to_owned()).or_default();
            tables.insert(table.name().to_owned(), table.clone());
        });
        self.apply_sync_interval();
    }

    pub(crate) fn change_catalog(&self, change: impl Fn(&mut Catalog)) {
        let before = self.catalog.rcu(|catalog| {
            let mut catalog = (**catalog).clone();
            change(&mut catalog);
            catalog.note_bucket();
            catalog.version += 1;
            catalog
        });
        self.catalog_version.store(before.version + 1, Release);
    }

    pub(crate) fn table_dir(&self, id: u64) -> PathBuf {
        self.dir.join(TABLES_DIR).join(id.to_string())
    }
}

/// The folder of the tables' folders.
pub(crate) const TABLES_DIR: &str = "tables";

/// The definition of a table of `catalog` after `changes`.
///
/// # Errors
/// `NotFound`, `AlreadyExists`, `Invalid`, as the change has it.
pub(crate) fn altered_definition(
    catalog: &Catalog,
    table: &Table,
    changes: &[Alteration],
) -> Result<TableDefinition> {
    let mut definition = (*table.definition()).clone();
    for change in changes {
        alter_definition(catalog, &mut definition, change)?;
    }
    let (schema, name) = (table.schema_name(), table.name());
    let sets_options = |change: &Alteration| matches!(change, Alteration::SetOptions(_));
    if (schema, name) == DEFAULT_BUCKET && !changes.iter().all(sets_options) {
        return Err(Error::invalid(format!("the columns of \"{schema}.{name}\" cannot be changed")));
    }
    validate(&definition)?;
    Ok(definition)
}

fn alter_definition(catalog: &Catalog, definition: &mut TableDefinition, change: &Alteration) -> Result<()> {
    match change {
        Alteration::AddColumn(spec) => definition.schema = definition.schema.with_column(spec.clone())?,
        Alteration::DropColumn(column) => {
            let id = definition.schema.position(column).map(|i| definition.schema.columns()[i].id);
            if id.is_some() && id == definition.options.expires_at {
                return Err(Error::invalid(format!("rows expire by column \"{column}\"")));
            }
            definition.schema = definition.schema.without_column(column)?;
        }
        Alteration::RenameColumn { from, to } => {
            definition.schema = definition.schema.with_renamed(from, to)?;
        }
        Alteration::DropNotNull(column) => definition.schema = definition.schema.with_null_in(column)?,
        Alteration::SetDefault { column, default } => {
            definition.schema = definition.schema.with_default(column, default.clone())?;
        }
        Alteration::SetGenerated { column, generated } => {
            definition.schema = definition.schema.with_generated(column, generated.clone())?;
        }
        Alteration::SetAttributes { column, attributes } => {
            definition.schema = definition.schema.with_attributes(column, attributes.clone())?;
        }
        Alteration::Rename { to } => {
            let schema = &definition.schema_name;
            if catalog.table(schema, to).is_some() {
                return Err(Error::already_exists(format!("table \"{schema}.{to}\" already exists")));
            }
            definition.name = to.clone();
        }
        Alteration::SetOptions(options) => definition.options = options.clone(),
    }
    Ok(())
}

/// The tables of a schema that may be dropped.
///
/// # Errors
/// `NotFound`; `Invalid` if it has tables and `cascade` is false, or is one that always exists.
pub(crate) fn schema_to_drop<'c>(
    catalog: &'c Catalog,
    name: &str,
    cascade: bool,
) -> Result<&'c BTreeMap<String, Arc<Table>>> {
    let tables = catalog.schemas.get(name);
    let tables = tables.ok_or_else(|| Error::not_found(format!("schema \"{name}\" does not exist")))?;
    if name == PUBLIC_SCHEMA || name == DEFAULT_BUCKET.0 {
        return Err(Error::invalid(format!("schema \"{name}\" cannot be dropped")));
    }
    if !tables.is_empty() && !cascade {
        return Err(Error::invalid(format!("schema \"{name}\" is not empty")));
    }
    Ok(tables)
}

/// # Errors
/// `NotFound`; `Invalid` for the bucket that always exists.
pub(crate) fn table_to_drop(catalog: &Catalog, schema: &str, name: &str) -> Result<Arc<Table>> {
    if (schema, name) == DEFAULT_BUCKET {
        return Err(Error::invalid(format!("table \"{schema}.{name}\" cannot be dropped")));
    }
    let table = catalog.table(schema, name).cloned();
    table.ok_or_else(|| Error::not_found(format!("table \"{schema}.{name}\" does not exist")))
}

fn validate(definition: &TableDefinition) -> Result<()> {
    definition.partitioning.check(&definition.schema)?;
    if let Some(id) = definition.options.expires_at {
        let column = definition.schema.column_by_id(id);
        let fits = column.is_some_and(|c| {
            c.column_type == oribi_types::ColumnType::Timestamp
                && matches!(c.source, oribi_types::ColumnSource::Slot(_))
        });
        if !fits {
            return Err(Error::invalid("rows expire by a timestamp column that is not in the key"));
        }
    }
    if matches!(definition.options.durability, Durability::Periodic(0)) {
        return Err(Error::invalid("durability periodic needs at least 1 ms"));
    }
    Ok(())
}
