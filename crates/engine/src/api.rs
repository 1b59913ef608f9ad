//! Skeleton.
#![allow(clippy::todo, unused_variables)]
use arrow::array::RecordBatch;
use oribi_env::Env;
use oribi_types::schema::ColumnSpec;
use oribi_types::*;
use roaring::RoaringBitmap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

pub type Lsn = u64;

#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub memory_bytes: u64,
    pub durability: Durability,
    pub statement_bytes_max: usize,
    pub flush_bytes_max: u64,
    pub log_bytes_max: u64,
    pub history_ms: u64,
}
impl Default for EngineOptions {
    fn default() -> Self {
        todo!()
    }
}
pub struct MemoryBudget;
impl MemoryBudget {
    pub fn try_reserve(&self, bytes: u64) -> bool {
        todo!()
    }
    pub fn release(&self, bytes: u64) {
        todo!()
    }
    pub fn used(&self) -> u64 {
        todo!()
    }
    pub fn limit(&self) -> u64 {
        todo!()
    }
}
pub struct Engine;
pub struct Table;
pub struct Catalog;
#[derive(Clone, Debug)]
pub enum Alteration {
    AddColumn(ColumnSpec),
    DropColumn(String),
    RenameColumn { from: String, to: String },
    SetDefault { column: String, default: Option<Value> },
    Rename { to: String },
    SetOptions(TableOptions),
}
#[derive(Clone, Copy, Debug)]
pub struct ReadView {
    pub ts: Timestamp,
    pub now_micros: u64,
}
pub struct Snapshot;
impl Snapshot {
    pub fn ts(&self) -> Timestamp {
        todo!()
    }
}
pub struct RowVersion<'a> {
    pub key: &'a [u8],
    pub row: &'a [u8],
    pub ts: Timestamp,
}
pub struct WriteOp<'a> {
    pub table: &'a Arc<Table>,
    pub key: &'a [u8],
    pub read: Read,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Blind,
    Existing,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Put,
    Delete,
    Keep,
}
pub struct Commit {
    pub ts: Timestamp,
    pub obligation: Obligation,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Obligation {
    pub durable: Lsn,
    pub written: Lsn,
}
impl Obligation {
    pub fn merge(&mut self, other: Obligation) {
        self.durable = self.durable.max(other.durable);
        self.written = self.written.max(other.written);
    }
}
pub enum Lookup<R> {
    Found(R, Obligation),
    Absent(Obligation),
    Pending,
}
pub struct TableScan {
    pub schema: Arc<Schema>,
    pub tablets: Vec<TabletScan>,
    pub obligation: Obligation,
}
pub struct TabletScan {
    pub files: Vec<FileScan>,
    pub memory: MemoryRows,
}
pub struct FileScan {
    pub sstable: Arc<oribi_sstable::Sstable>,
    pub hidden: Arc<RoaringBitmap>,
}
#[derive(Clone)]
pub struct MemoryRows;
impl MemoryRows {
    pub fn rows(&self) -> usize {
        todo!()
    }
    pub fn bytes(&self) -> usize {
        todo!()
    }
    pub fn batches(
        &self,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        batch_rows: usize,
    ) -> Result<Vec<RecordBatch>> {
        todo!()
    }
}
pub struct Import;
impl Import {
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        todo!()
    }
    pub fn commit(self) -> Result<u64> {
        todo!()
    }
}
#[derive(Clone, Debug, Default)]
pub struct EngineStats {}
pub struct CheckReport {
    pub findings: Vec<String>,
}
pub fn check(env: Env, dir: &Path) -> Result<CheckReport> {
    todo!()
}
impl Table {
    pub fn id(&self) -> u64 {
        todo!()
    }
    pub fn schema_name(&self) -> &str {
        todo!()
    }
    pub fn name(&self) -> &str {
        todo!()
    }
    pub fn definition(&self) -> Arc<TableDefinition> {
        todo!()
    }
    pub fn schema(&self) -> Arc<Schema> {
        todo!()
    }
    pub fn is_key_value(&self) -> bool {
        todo!()
    }
    pub fn is_dropped(&self) -> bool {
        todo!()
    }
    pub fn estimated_rows(&self) -> u64 {
        todo!()
    }
}
impl Catalog {
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
    pub fn tables(&self, schema: &str) -> impl Iterator<Item = &Arc<Table>> {
        std::iter::empty()
    }
    pub fn table(&self, schema: &str, name: &str) -> Option<&Arc<Table>> {
        todo!()
    }
    pub fn version(&self) -> u64 {
        todo!()
    }
}
impl Engine {
    pub fn open(env: Env, dir: &Path, options: EngineOptions) -> Result<Arc<Engine>> {
        todo!()
    }
    pub fn close(&self) -> Result<()> {
        todo!()
    }
    pub fn options(&self) -> &EngineOptions {
        todo!()
    }
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        todo!()
    }
    pub fn catalog(&self) -> Arc<Catalog> {
        todo!()
    }
    pub fn create_schema(&self, name: &str) -> Result<()> {
        todo!()
    }
    pub fn drop_schema(&self, name: &str, cascade: bool) -> Result<()> {
        todo!()
    }
    pub fn create_table(&self, definition: TableDefinition) -> Result<Arc<Table>> {
        todo!()
    }
    pub fn drop_table(&self, schema: &str, name: &str) -> Result<()> {
        todo!()
    }
    pub fn alter_table(&self, schema: &str, name: &str, change: &Alteration) -> Result<()> {
        todo!()
    }
    pub fn truncate(&self, table: &Arc<Table>) -> Result<()> {
        todo!()
    }
    pub fn table(&self, schema: &str, name: &str) -> Result<Arc<Table>> {
        todo!()
    }
    pub fn read_view(&self) -> ReadView {
        todo!()
    }
    pub fn snapshot(&self) -> Snapshot {
        todo!()
    }
    pub fn try_get<R>(
        &self,
        table: &Table,
        key: &[u8],
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Lookup<R> {
        todo!()
    }
    pub fn get<R>(
        &self,
        table: &Table,
        key: &[u8],
        view: ReadView,
        answer: impl FnOnce(RowVersion<'_>) -> R,
    ) -> Result<(Option<R>, Obligation)> {
        todo!()
    }
    pub fn write(
        &self,
        ops: &[WriteOp<'_>],
        decide: &mut dyn FnMut(usize, Option<RowVersion<'_>>, &mut Vec<u8>) -> Result<Decision>,
    ) -> Result<Commit> {
        todo!()
    }
    pub fn settle(&self, obligation: Obligation) -> Result<()> {
        todo!()
    }
    pub fn settled(&self, obligation: Obligation) -> impl Future<Output = Result<()>> + Send + 'static {
        async { todo!() }
    }
    pub fn admission(&self) -> impl Future<Output = ()> + Send + 'static {
        async { todo!() }
    }
    pub fn scan(&self, table: &Arc<Table>, snapshot: &Snapshot) -> Result<TableScan> {
        todo!()
    }
    pub fn flush(&self, table: &Arc<Table>) -> Result<()> {
        todo!()
    }
    pub fn compact(&self, table: &Arc<Table>) -> Result<()> {
        todo!()
    }
    pub fn import(&self, table: &Arc<Table>) -> Result<Import> {
        todo!()
    }
    pub fn stats(&self) -> EngineStats {
        todo!()
    }
}
