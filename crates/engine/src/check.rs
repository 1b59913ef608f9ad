//! Check: every checksum and every invariant of a folder that no process has open.

use crate::deletions::Deletions;
use crate::fragments::Fragments;
use crate::manifest::{Manifest, ManifestState, TableRecord};
use crate::record::{self, Record};
use crate::recovery::{LOG_DIR, lock, open_files, settle_undecided};
use crate::tablet::{FileSet, TabletId};
use oribi_env::Env;
use oribi_types::Result;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// One sentence per damage or broken invariant, naming the file.
    pub findings: Vec<String>,
    pub tables: usize,
    pub sstables: usize,
    /// Rows in SSTables, marked ones included.
    pub rows: u64,
    pub marks: u64,
    pub log_records: u64,
}

/// Verifies log, manifest, SSTables and marks files of `dir` without changing anything: every checksum, that the log
/// decodes, that marks lie within their files, and that each key belongs to its tablet and has at most one live row over
/// all files.
///
/// # Errors
/// `Unavailable` if a process has the folder open; those of the file system. Damage is not an error but a finding.
pub fn check(env: Env, dir: &Path) -> Result<CheckReport> {
    let _lock = lock(&env, dir, "oribi check")?;
    let mut report = CheckReport::default();
    let mut state = match Manifest::read(&env, dir) {
        Ok(state) => state,
        Err(error) => {
            report.findings.push(format!("manifest: {error}"));
            return Ok(report);
        }
    };
    // The log's damage is found below.
    let _ = settle_undecided(&env, dir, &mut state);
    for table in state.tables.values() {
        report.tables += 1;
        for number in 0..table.tablets.len() {
            if let Err(error) = check_tablet(&env, dir, &state, table, number, &mut report) {
                let name = format!("{}.{}", table.definition.schema_name, table.definition.name);
                report.findings.push(format!("table {name}: {error}"));
            }
        }
    }
    check_log(&env, dir, &state, &mut report);
    Ok(report)
}

fn check_tablet(
    env: &Env,
    dir: &Path,
    state: &ManifestState,
    table: &TableRecord,
    number: usize,
    report: &mut CheckReport,
) -> Result<()> {
    let table_dir = dir.join(crate::ddl::TABLES_DIR).join(table.id.to_string());
    let files = open_files(env, &table_dir, table, table.tablets[number], state)?;
    for file in &files.files {
        report.sstables += 1;
        report.rows += file.sstable.meta().rows;
        report.marks += file.deletions.len();
        if let Err(error) = file.sstable.verify(&table.definition.schema) {
            report.findings.push(error.to_string());
        }
        let outside = |d: &Deletions| d.iter().any(|(row, _)| u64::from(row) >= file.sstable.meta().rows);
        if outside(&file.deletions) {
            report.findings.push(format!("sstable {}: a mark lies outside of it", file.id()));
        }
    }
    one_live_row_per_key(table, number, &files, report)
}

/// Merges the keys of all files and looks for one that has two live rows, and for one that belongs to another tablet.
fn one_live_row_per_key(
    table: &TableRecord,
    number: usize,
    files: &FileSet,
    report: &mut CheckReport,
) -> Result<()> {
    let schema = &table.definition.schema;
    let mut sources: Vec<_> = files
        .files
        .iter()
        .map(|file| {
            let rows = file.sstable.keys(schema)?.flat_map(|batch| match batch {
                Ok((keys, _)) => keys.iter().map(|key| Ok(key.to_vec())).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            });
            let live =
                rows.enumerate().filter(|(row, key)| key.is_err() || !file.deletions.is_marked(*row as u32));
            Ok(live.map(|(_, key)| key))
        })
        .collect::<Result<_>>()?;
    let mut heap = BinaryHeap::new();
    for (i, source) in sources.iter_mut().enumerate() {
        if let Some(key) = source.next() {
            heap.push(Reverse((key?, i)));
        }
    }
    let mut last: Option<(Vec<u8>, usize)> = None;
    while let Some(Reverse((key, i))) = heap.pop() {
        if let Some((_, other)) = last.as_ref().filter(|(before, _)| *before == key) {
            let (a, b) = (files.files[*other].id(), files.files[i].id());
            report.findings.push(format!("sstables {a} and {b}: key {key:02x?} is live in both"));
        }
        if table.definition.partitioning.tablet_of(schema, &key) != Some(number) {
            let id = files.files[i].id();
            report.findings.push(format!("sstable {id}: key {key:02x?} does not belong to its tablet"));
        }
        if let Some(next) = sources[i].next() {
            heap.push(Reverse((next?, i)));
        }
        last = Some((key, i));
    }
    Ok(())
}

fn check_log(env: &Env, dir: &Path, state: &ManifestState, report: &mut CheckReport) {
    // There are always tables once the first open has come to its end.
    let is_missing =
        |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound && state.tables.is_empty();
    if env.files.list(&dir.join(LOG_DIR)).is_err_and(is_missing) {
        return;
    }
    let mut problem = None;
    let layouts: std::collections::HashMap<TabletId, &TableRecord> =
        state.tables.values().flat_map(|t| t.tablets.iter().map(move |id| (*id, t))).collect();
    let check_changes = |changes: record::Changes<'_>| {
        for change in changes {
            let change = change?;
            if let (Some(table), Some(row)) = (layouts.get(&change.tablet), change.row) {
                table.definition.schema.layout().validate(row)?;
            }
        }
        Ok(())
    };
    let mut fragments = Fragments::from(state.log_start);
    let read = oribi_wal::verify(env.files.as_ref(), &dir.join(LOG_DIR), state.log_start, &mut |record| {
        fragments.begin(record.term);
        let checked = record::read(record.payload).and_then(|read| match read {
            Record::Write(contents) => check_changes(contents.changes),
            Record::Fragment { bulk, changes } => {
                fragments.add(bulk, ());
                check_changes(changes)
            }
            Record::Commit(commit) => fragments.take(commit.bulk, commit.fragments).map(|_| ()),
            Record::GivenUp { bulk } => {
                fragments.forget(bulk);
                Ok(())
            }
            Record::Files(_) => Ok(()),
        });
        if let Err(error) = checked {
            problem.get_or_insert_with(|| format!("log record {}: {error}", record.lsn));
        }
        Ok(())
    });
    report.findings.extend(problem);
    match read {
        Ok(summary) => report.log_records = summary.records,
        Err(error) => report.findings.push(error.to_string()),
    }
}
