//! What an executed plan read, and where its rows came from.

use crate::provider::{FILE_BYTES, FILE_ROWS, FILES, MEMORY_ROWS, MEMTABLE_BYTES, RangeSource, TableSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

/// Where rows of a table came from.
#[derive(Default)]
pub(super) struct Reads {
    pub(super) memory_rows: usize,
    pub(super) memory_bytes: usize,
    pub(super) files: usize,
    pub(super) file_rows: usize,
    pub(super) file_bytes: usize,
}

impl Reads {
    /// What one operator of an executed plan read, and of which table, schema and name; `None` for what is no scan of one.
    pub(super) fn of(plan: &dyn ExecutionPlan) -> Option<(String, Reads)> {
        let source = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source)?;
        let range = source.downcast_ref::<RangeSource>().map(RangeSource::table);
        let table = range.or_else(|| source.downcast_ref::<TableSource>().map(TableSource::table))?;
        let metrics = plan.metrics().unwrap_or_default();
        let sum = |name: &str| metrics.sum_by_name(name).map_or(0, |value| value.as_usize());
        let reads = Reads {
            memory_rows: sum(MEMORY_ROWS),
            memory_bytes: sum(MEMTABLE_BYTES),
            files: sum(FILES),
            file_rows: sum(FILE_ROWS),
            file_bytes: sum(FILE_BYTES),
        };
        Some((table, reads))
    }
}

impl AddAssign for Reads {
    fn add_assign(&mut self, other: Reads) {
        self.memory_rows += other.memory_rows;
        self.memory_bytes += other.memory_bytes;
        self.files += other.files;
        self.file_rows += other.file_rows;
        self.file_bytes += other.file_bytes;
    }
}

impl std::fmt::Display for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "memtable {} rows, {} bytes; row cache 0 rows, 0 bytes (scans do not read it); \
             sstables {} rows, {} bytes in {} files",
            self.memory_rows, self.memory_bytes, self.file_rows, self.file_bytes, self.files
        )
    }
}

/// What an executed plan read, by table.
pub(super) fn by_table(plan: &Arc<dyn ExecutionPlan>) -> BTreeMap<String, Reads> {
    let mut tables = BTreeMap::new();
    collect(plan, &mut tables);
    tables
}

fn collect(plan: &Arc<dyn ExecutionPlan>, tables: &mut BTreeMap<String, Reads>) {
    for child in plan.children() {
        collect(child, tables);
    }
    if let Some((table, reads)) = Reads::of(plan.as_ref()) {
        *tables.entry(table).or_default() += reads;
    }
}
