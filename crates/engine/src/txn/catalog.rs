//! What a transaction changes of the catalog: schemas and tables are for it what it has made of them, and for everybody else what
//! they were, until it commits.
//!
//! Nothing is locked meanwhile. `COMMIT` finds out whether what was changed is still what it was when the transaction changed it
//! first, and otherwise fails with a conflict. Rows are as safe as ever: those that the transaction has written are for the version
//! of their table that its tablets take, which an `ALTER TABLE` of others changes.
//!
//! A table that the transaction has created has its tablets, which nobody else knows. One that it has emptied has new tablets, so
//! that it has no rows for the transaction, and those before go with the commit, as those of a dropped one.
//!
//! # The commit
//!
//! The log decides: a change of the catalog and the rows of its transaction count together, or not at all. Here that is of a transaction
//! whose rows are in memory; one that has spilled [writes files](super::files) before.
//!
//! 1. The manifest is told what is to be done, under a number: it does not count yet.
//! 2. The rows are logged, in one record that has that number. With the gate held alone, the catalog becomes what it is to be,
//!    and the rows are applied: everybody sees both.
//! 3. When the record is durable, the manifest is told that it is there. If it cannot be told, it writes so whenever it can write
//!    again.
//!
//! A crash before the record is durable leaves a number that the log does not have, which counts for nothing. One behind that
//! finds the record: whoever opens the folder next looks for it before the tables are opened. The log keeps it until then. Folders
//! and files go, or are there, as the manifest has it.
//!
//! What others could learn of the catalog between the second step and the third, while the record is synced, tells of no row.

use super::{Committing, Transaction, Unchanged};
use crate::catalog::{Alteration, Catalog, CatalogChange, DEFAULT_BUCKET, DRAFT, Table};
use crate::ddl::{Emptied, altered_definition, schema_to_drop, table_to_drop};
use crate::engine::Engine;
use crate::manifest::{Edit, TableRecord};
use crate::record;
use crate::tablet::Tablet;
use crate::tracked::Tracks;
use crate::undecided::{Change as UndecidedChange, Deciding};
use crate::write::{Commit, Decide, ReadAhead, WriteOp};
use oribi_types::{Error, ErrorKind, Result, TableDefinition, Timestamp};
use oribi_wal::Lsn;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Versions of catalogs as transactions see them: no catalog that everybody sees has such a high one.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(1 << 63);

/// Schemas and tables that a transaction has changed, as they are for it.
#[derive(Clone, Default)]
pub(super) struct Changed {
    /// By schema and name; `None` if there is none of the name.
    tables: BTreeMap<(String, String), Option<Arc<Table>>>,
    /// Whether there is one of the name, and whether there was.
    schemas: BTreeMap<String, (bool, bool)>,
    /// The ids of tables that it has created, whether they are still there or not.
    created: BTreeSet<u64>,
    /// The tables of others that it has changed, as they were before, by id.
    before: BTreeMap<u64, Arc<Table>>,
    /// Tables of others from whose rows it has made what takes their place.
    made_from: Vec<Arc<Unchanged>>,
}

/// A catalog as a transaction sees it.
pub(super) struct Picture {
    /// The version of the catalog below.
    of: u64,
    changed: Arc<Changed>,
    catalog: Arc<Catalog>,
}

impl Transaction {
    /// The catalog as this transaction sees it: the newest, and what it has changed itself.
    pub fn catalog(&self) -> Arc<Catalog> {
        let newest = self.engine.catalog();
        let mut state = self.state.lock();
        let Some(changed) = state.catalogs.last().cloned() else { return newest };
        let is_it = |it: &&Picture| it.of == newest.version() && Arc::ptr_eq(&it.changed, &changed);
        if let Some(picture) = state.picture.as_ref().filter(is_it) {
            return picture.catalog.clone();
        }
        let catalog = Arc::new(changed.seen_over(&newest));
        state.picture = Some(Picture { of: newest.version(), changed, catalog: catalog.clone() });
        catalog
    }

    /// Whether it has changed the catalog.
    pub fn changes_catalog(&self) -> bool {
        !self.state.lock().catalogs.is_empty()
    }

    /// Whether it has created or changed a table.
    pub fn changes_table(&self, table: &Table) -> bool {
        let state = self.state.lock();
        let Some(changed) = state.catalogs.last() else { return false };
        changed.knows(table.id())
    }

    /// Changes the catalog for this transaction, until it commits; returns the table that was created, if one was.
    ///
    /// # Errors
    /// Those of [`Engine::change`], but for what only the commit finds; `Unsupported` for the bucket that always exists, and in a
    /// serializable transaction: a commit with a catalog does not compare what was read.
    pub fn change(&self, change: &CatalogChange) -> Result<Option<Arc<Table>>> {
        if self.state.lock().reads.is_some() {
            return Err(not_compared());
        }
        let catalog = self.catalog();
        let mut changed = self.state.lock().catalogs.last().map(|last| (**last).clone()).unwrap_or_default();
        let created = changed.apply(&self.engine, &catalog, change)?;
        let mut state = self.state.lock();
        if state.ended {
            return Err(Error::unavailable("the statement was given up"));
        }
        state.catalogs.push(Arc::new(changed));
        Ok(created)
    }
}

impl Changed {
    fn seen_over(&self, newest: &Catalog) -> Catalog {
        let mut catalog = newest.clone();
        self.put_into(&mut catalog, self.tables.values().flatten());
        catalog.version = NEXT_VERSION.fetch_add(1, Relaxed);
        catalog
    }

    /// Has `catalog` be as the transaction has it, with these `tables` of its own.
    fn put_into<'t>(&self, catalog: &mut Catalog, tables: impl Iterator<Item = &'t Arc<Table>>) {
        for (name, (is_there, _)) in &self.schemas {
            match is_there {
                true => drop(catalog.schemas.entry(name.clone()).or_default()),
                false => drop(catalog.schemas.remove(name)),
            }
        }
        let gone = self.tables.iter().filter(|(_, table)| table.is_none()).map(|(name, _)| name);
        for (schema, name) in gone {
            catalog.schemas.get_mut(schema).and_then(|tables| tables.remove(name));
        }
        for table in tables {
            let tables = catalog.schemas.entry(table.schema_name().to_owned()).or_default();
            tables.insert(table.name().to_owned(), table.clone());
        }
        catalog.note_bucket();
    }

    /// Whether a table was created or changed.
    pub(super) fn knows(&self, id: u64) -> bool {
        self.created.contains(&id) || self.before.contains_key(&id)
    }

    /// The tables that it has created and that are still there.
    pub(super) fn created(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values().flatten().filter(|table| self.created.contains(&table.id()))
    }

    /// The table of this id, if it was created or changed and is still there.
    fn table(&self, id: u64) -> Option<&Arc<Table>> {
        self.tables.values().flatten().find(|table| table.id() == id)
    }

    fn apply(
        &mut self,
        engine: &Engine,
        catalog: &Catalog,
        change: &CatalogChange,
    ) -> Result<Option<Arc<Table>>> {
        match change {
            CatalogChange::CreateSchema { name } => {
                if catalog.schemas.contains_key(name) {
                    return Err(Error::already_exists(format!("schema \"{name}\" already exists")));
                }
                self.schemas.entry(name.clone()).or_insert((true, false)).0 = true;
            }
            CatalogChange::DropSchema { name, cascade } => {
                schema_to_drop(catalog, name, *cascade)?.values().for_each(|table| self.remove(table));
                self.schemas.entry(name.clone()).or_insert((false, true)).0 = false;
            }
            CatalogChange::CreateTable(definition) => {
                let table = engine.new_table(catalog, definition.clone())?;
                self.created.insert(table.id());
                self.put(&table);
                return Ok(Some(table));
            }
            CatalogChange::DropTable { schema, name } => self.remove(&table_to_drop(catalog, schema, name)?),
            CatalogChange::AlterTable { schema, name, changes } => {
                let table = catalog.table(schema, name).cloned();
                let unknown = || Error::not_found(format!("table \"{schema}.{name}\" does not exist"));
                self.alter(catalog, &table.ok_or_else(unknown)?, changes)?;
            }
            CatalogChange::Truncate(table) => {
                let table = catalog.table_by_id(table.id()).cloned();
                self.truncate(engine, &table.ok_or_else(|| Error::not_found("the table was dropped"))?)?;
            }
            CatalogChange::Replace { table, by, made_from } => {
                let find = |table: &Table| {
                    let found = catalog.table_by_id(table.id()).cloned();
                    found.ok_or_else(|| Error::not_found(format!("table \"{}\" was dropped", table.name())))
                };
                self.replace(&find(table)?, &find(by)?, made_from);
            }
        }
        Ok(None)
    }

    /// Notes a table of the catalog that is to be changed.
    fn note(&mut self, table: &Arc<Table>) {
        if !self.knows(table.id()) {
            self.before.insert(table.id(), table.clone());
        }
    }

    fn put(&mut self, table: &Arc<Table>) {
        self.tables.insert((table.schema_name().to_owned(), table.name().to_owned()), Some(table.clone()));
    }

    fn remove(&mut self, table: &Arc<Table>) {
        self.note(table);
        self.tables.insert((table.schema_name().to_owned(), table.name().to_owned()), None);
    }

    /// The tablets stay, and take rows of the version that they took.
    fn alter(&mut self, catalog: &Catalog, table: &Arc<Table>, changes: &[Alteration]) -> Result<()> {
        let definition = altered_definition(catalog, table, changes)?;
        self.remove(table);
        self.put(&Arc::new(table.with_definition(definition, table.tablets.clone())));
        Ok(())
    }

    fn truncate(&mut self, engine: &Engine, table: &Arc<Table>) -> Result<()> {
        if (table.schema_name(), table.name()) == DEFAULT_BUCKET {
            let (schema, name) = DEFAULT_BUCKET;
            let message = format!("emptying \"{schema}.{name}\" in a transaction is not supported");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.note(table);
        let dir = engine.table_dir(table.id());
        let tablet = |_: &Arc<Tablet>| {
            let tablet = engine.new_tablet(table.schema_ref(), engine.manifest.next_id(), &dir);
            tablet.set_version(table.version());
            tablet
        };
        let tablets = table.tablets.iter().map(tablet).collect();
        let emptied = table.with_definition((*table.definition()).clone(), tablets);
        self.put(&Arc::new(emptied.with_rows_of(engine.manifest.next_id())));
        Ok(())
    }

    fn replace(&mut self, table: &Arc<Table>, by: &Arc<Table>, made_from: &Arc<Unchanged>) {
        let mut definition = (*by.definition()).clone();
        definition.name = table.name().to_owned();
        definition.options.attributes.remove(DRAFT);
        self.remove(table);
        self.remove(by);
        self.put(&Arc::new(by.with_definition(definition, by.tablets.clone())));
        // Nobody else writes to what is this transaction's own.
        if !self.created.contains(&table.id()) {
            self.made_from.push(made_from.clone());
        }
    }

    /// The table to commit rows to that the transaction has written to `table`; `None` if those went with it.
    pub(super) fn table_of_rows(&self, table: &Arc<Table>) -> Option<Arc<Table>> {
        match self.table(table.id()) {
            Some(now) => (now.rows_of() == table.rows_of()).then(|| now.clone()),
            None => (!self.knows(table.id())).then(|| table.clone()),
        }
    }
}

/// What a commit does to the catalog.
pub(super) struct Plan<'c> {
    changed: &'c Changed,
    pub edits: Vec<Edit>,
    created: Vec<Arc<Table>>,
    /// Tables of others, as they were, and as the transaction has them.
    altered: Vec<(Arc<Table>, Arc<Table>)>,
    /// The tablets that go.
    gone: Vec<Arc<Tablet>>,
}

impl<'c> Plan<'c> {
    /// # Errors
    /// `Conflict` if others have changed what the transaction has.
    pub fn of(changed: &'c Changed, newest: &Catalog) -> Result<Self> {
        let mut plan =
            Plan { changed, edits: Vec::new(), created: Vec::new(), altered: Vec::new(), gone: Vec::new() };
        for before in changed.before.values() {
            let is_it = newest.table_by_id(before.id()).is_some_and(|now| Arc::ptr_eq(now, before));
            if !is_it {
                return Err(overtaken("table", before.name()));
            }
            plan.replace(before);
        }
        plan.edit_schemas(newest)?;
        for table in changed.tables.values().flatten() {
            let is_free = |now: &Arc<Table>| changed.before.contains_key(&now.id());
            if !newest.table(table.schema_name(), table.name()).is_none_or(is_free) {
                return Err(overtaken("table", table.name()));
            }
            let is_made = changed.schemas.get(table.schema_name()).map(|(is_there, _)| *is_there);
            if !is_made.unwrap_or_else(|| newest.schemas.contains_key(table.schema_name())) {
                return Err(overtaken("schema", table.schema_name()));
            }
            plan.edits.push(Edit::PutTable(table.record()));
            if changed.created.contains(&table.id()) {
                plan.created.push(table.clone());
            }
        }
        for (name, _) in changed.schemas.iter().filter(|(_, there)| **there == (false, true)) {
            plan.edits.push(Edit::DropSchema { name: name.clone() });
        }
        Ok(plan)
    }

    /// A table of others becomes what the transaction has made of it.
    fn replace(&mut self, before: &Arc<Table>) {
        let now = self.changed.table(before.id());
        let stays = |tablet: &Arc<Tablet>| {
            now.is_some_and(|now| now.tablets.iter().any(|stays| stays.id == tablet.id))
        };
        self.gone.extend(before.tablets.iter().filter(|tablet| !stays(tablet)).cloned());
        match now {
            Some(now) => self.altered.push((before.clone(), now.clone())),
            None => self.edits.push(Edit::DropTable { id: before.id() }),
        }
    }

    fn edit_schemas(&mut self, newest: &Catalog) -> Result<()> {
        for (name, (is_there, was_there)) in &self.changed.schemas {
            let is_in_newest = newest.schemas.contains_key(name);
            let is_dropped = |table: &Arc<Table>| self.changed.before.contains_key(&table.id());
            let fills = !is_there && !newest.tables(name).all(is_dropped);
            if is_in_newest != *was_there || fills {
                return Err(overtaken("schema", name));
            }
            if *is_there && !was_there {
                self.edits.push(Edit::CreateSchema { name: name.clone() });
            }
        }
        Ok(())
    }

    /// All tablets that are made, changed or go.
    pub fn tablets(&self) -> Vec<&Arc<Tablet>> {
        let now = self.altered.iter().map(|(_, now)| now).chain(&self.created);
        now.flat_map(|table| &table.tablets).chain(&self.gone).collect()
    }

    /// Those of others' tables that are altered, as they were.
    pub fn altered_tablets(&self) -> impl Iterator<Item = &Arc<Tablet>> {
        self.altered.iter().flat_map(|(before, _)| &before.tablets)
    }

    /// Has nobody write to the tablets that are to go, until what this returns is dropped or they are to [stay](Self::stay).
    ///
    /// # Errors
    /// `Conflict` if rows from which the transaction has made others were changed since. They stay then.
    pub fn leave<'e>(&self, engine: &'e Engine) -> Result<Deciding<'e>> {
        let undecided = engine.begin_deciding(UndecidedChange::goes(&self.gone));
        let _gate = engine.gate.alone();
        self.gone.iter().for_each(|tablet| tablet.set_leaving());
        let is_same = self.changed.made_from.iter().try_for_each(|made_from| made_from.check(engine));
        is_same.inspect_err(|_| self.stay())?;
        Ok(undecided)
    }

    /// They are not to go, after all.
    pub fn stay(&self) {
        for table in self.changed.before.values() {
            table.tablets.iter().for_each(|tablet| tablet.set_staying(table.version()));
        }
    }

    /// Has everybody see the catalog as the transaction does, from `at` on. The caller has the gate alone.
    pub fn publish(&self, engine: &Engine, at: Timestamp) -> Vec<Emptied<'_>> {
        let made = |table: &Arc<Table>| {
            Arc::new(Table::new(&table.record(), table.tablets.clone(), table.version()))
        };
        let mut tables: Vec<Arc<Table>> = self.created.iter().map(made).collect();
        for (before, now) in &self.altered {
            let stays = |tablet: &Arc<Tablet>| before.tablets.iter().any(|stays| stays.id == tablet.id);
            let mut range_dropped = before.range_dropped();
            for tablet in now.tablets.iter().filter(|tablet| !stays(tablet)) {
                tablet.set_emptied(at);
                range_dropped = at;
            }
            let version = before.version() + 1;
            now.tablets.iter().for_each(|tablet| tablet.set_version(version));
            let table = Table::new(&now.record(), now.tablets.clone(), version);
            tables.push(Arc::new(table.with_range_dropped(range_dropped)));
        }
        self.gone.iter().for_each(|tablet| tablet.set_dropped());
        engine.change_catalog(|catalog| self.changed.put_into(catalog, tables.iter()));
        let flushed_lsn = engine.log.appended();
        self.gone.iter().map(|tablet| engine.empty(tablet, Timestamp::MAX, flushed_lsn)).collect()
    }
}

/// What a serializable transaction has read is not compared when it is committed with a catalog.
fn not_compared() -> Error {
    let message = "a change of the catalog in a serializable transaction is not supported yet";
    Error::new(ErrorKind::Unsupported, message)
}

/// Others have changed what the transaction has.
fn overtaken(what: &str, name: &str) -> Error {
    Error::conflict(format!("{what} \"{name}\" was changed meanwhile"))
}

impl Engine {
    /// As [`commit`](Self::commit), of a transaction that has changed the catalog; both are durable when this returns.
    ///
    /// # Errors
    /// As there; `Conflict` if others have changed what the transaction has. Nothing was changed then, unless the log failed: then
    /// the engine has stopped, and the next open shows what became of it.
    pub fn commit_with_catalog(&self, committing: &Committing) -> Result<Commit> {
        let Some(changed) = &committing.catalog else {
            return Err(Error::internal("the transaction changes no catalog"));
        };
        if committing.compares_reads() {
            return Err(not_compared());
        }
        if let Some((spilled, before)) = &committing.spilled {
            return self.commit_files(committing, (spilled, *before), Some(changed), None);
        }
        // Later it must not be waited for: whose files are held cannot be flushed.
        self.budget.wait_for_room(true)?;
        self.reserve_timestamps(self.timeline.now_micros(), || true)?;
        let _ddl = self.begin_ddl();
        // A log that has stopped may have the record of an earlier one, which the manifest has to keep.
        self.log.wait_durable(self.log.appended())?;
        let plan = Plan::of(changed, &self.catalog())?;
        self.create_folders(changed.created())?;
        // Nobody installs files of tablets that the manifest does not know yet, or knows no more.
        let _installers: Vec<_> = plan.tablets().iter().map(|tablet| tablet.installer.lock()).collect();
        let undecided = plan.leave(self)?;
        let kept = self.fragmented.keep(&*self.log);
        let (commit, emptied) = self.decide(committing, &plan).inspect_err(|_| plan.stay())?;
        drop(undecided);
        self.sweep(emptied);
        drop(kept);
        self.apply_sync_interval();
        self.timeline.wait_for_watermark(commit.ts)?;
        Ok(commit)
    }

    /// Tells the manifest, and the log.
    fn decide<'p>(
        &'p self,
        committing: &Committing,
        plan: &'p Plan<'_>,
    ) -> Result<(Commit, Vec<Emptied<'p>>)> {
        let number = self.manifest.next_id();
        self.manifest.commit(vec![Edit::Undecided { number, edits: plan.edits.clone() }])?;
        let ops: Vec<WriteOp<'_>> = committing.ops().collect();
        let decide: &mut Decide<'_> = &mut |i, current, _| committing.decide(i, current);
        let holder = committing.transaction.id;
        let mut writing = CatalogWriting { engine: self, plan, number, holder, logged: None };
        let mut ahead = ReadAhead::default();
        let executed = self.execute(&ops, decide, &mut writing, ahead.of_several(&ops));
        if writing.logged.is_none() {
            // Other changes follow, over which it would not be one.
            self.manifest.forget_undecided(number);
        }
        let commit = executed?;
        let unlogged = || Error::internal("a change of the catalog was not logged");
        let (lsn, emptied) = writing.logged.ok_or_else(unlogged)?;
        self.log.wait_durable(lsn).inspect_err(|error| self.fail(error.clone()))?;
        if let Err(error) = self.manifest.decide(number) {
            tracing::warn!(%error, "the manifest is told later that the catalog was changed");
        }
        Ok((commit, emptied))
    }
}

/// The write of a transaction that has changed the catalog.
struct CatalogWriting<'p, 'c> {
    engine: &'p Engine,
    plan: &'p Plan<'c>,
    number: u64,
    holder: u64,
    /// The record's LSN, and the tablets that were emptied.
    logged: Option<(Lsn, Vec<Emptied<'p>>)>,
}

impl Tracks for CatalogWriting<'_, '_> {
    fn waits(&self) -> bool {
        true
    }

    fn wait_for_room(&self, _: &crate::memory::MemoryBudget) -> Result<()> {
        Ok(())
    }

    fn holder(&self) -> u64 {
        self.holder
    }

    /// It is logged even if it writes no row.
    fn decided(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn logged(&mut self, lsn: Lsn, ts: Timestamp) {
        self.logged = Some((lsn, self.plan.publish(self.engine, ts)));
    }

    fn start_record(&self, ts: Timestamp, buf: &mut Vec<u8>) {
        record::start_catalog(buf, ts, self.number);
    }

    fn applied(&mut self, _: &[WriteOp<'_>], _: Lsn, _: &mut Commit) {}
}

impl Table {
    /// The same of another definition, whose rows are in `tablets`, as the transaction sees it that changes it.
    fn with_definition(&self, definition: TableDefinition, tablets: Vec<Arc<Tablet>>) -> Self {
        let ids = tablets.iter().map(|tablet| tablet.id).collect();
        let record = TableRecord { id: self.id(), definition, tablets: ids };
        let table = Table::new(&record, tablets, self.version()).with_range_dropped(self.range_dropped());
        table.with_rows_of(self.rows_of()).uncommitted()
    }
}
