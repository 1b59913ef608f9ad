//! Where a scan's rows come from: the files of a tablet one after the other and then its memory, or, where their order matters
//! or they are few, a range read. A batch is read when it is asked for and not before.

use super::spec::ScanSpec;
use arrow::array::RecordBatch;
use oribi_engine::{
    Engine, FileScan, KeyRange, MemoryColumns, Obligation, OwnRows, RangeReader, RowSelection, RowVersion,
    SeenBatch, SeenBatches, Snapshot, TabletScan,
};
use oribi_types::batch::BatchBuilder;
use oribi_types::{Result, Timestamp};
use std::sync::Arc;

/// Rows of a batch that is made of a range, of so many bytes at most, about; and those that are read at a time.
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 8 << 20;
const ROWS_AT_ONCE: usize = 64;

/// Row groups, and what is read of each.
type Groups = std::vec::IntoIter<(usize, Option<RowSelection>)>;

pub(super) enum Source {
    Nothing,
    Tablet(TabletSource),
    Range(Box<RangeReader>),
    /// Rows in the order of their keys, with what a transaction has made of them.
    Merged(Box<Merged>),
}

/// A range of no more rows is read in order whatever else there is: it lies in a page or two of each column.
const RANGE_ROWS: u64 = 2048;
/// So is one of a smaller part of the rows in memory, all of which a scan walks: to merge takes more for each row than to walk.
const MEMORY_PART: u64 = 8;

/// The rows of a tablet, or those between two keys, in no order.
pub(super) struct TabletSource {
    keys: Option<KeyRange>,
    /// Those that were not begun.
    files: std::vec::IntoIter<FileScan>,
    /// The file that is being read, and what of it was not begun.
    file: Option<(FileScan, Groups)>,
    /// Of the row group that is being read.
    batches: Option<SeenBatches>,
    memory: MemoryColumns,
    obligation: Obligation,
}

impl Source {
    /// # Errors
    /// Those of [`Engine::scan_tablet`].
    pub fn open(engine: &Arc<Engine>, spec: &ScanSpec, snapshot: &Arc<Snapshot>) -> Result<Self> {
        if spec.is_empty() {
            return Ok(Source::Nothing);
        }
        if let Some(own) = &spec.own {
            let keys = spec.keys.clone().unwrap_or_default();
            let own = own.rows(&keys);
            let range = || engine.range(&spec.table, spec.tablet, keys, &spec.read, snapshot);
            let reader = spec.is_stored.then(range);
            return Ok(Source::Merged(Box::new(Merged::new(reader, own))));
        }
        if let Some(keys) = &spec.keys
            && (spec.is_ordered() || is_short(engine, spec, keys))
        {
            let reader = engine.range(&spec.table, spec.tablet, keys.clone(), &spec.read, snapshot);
            return Ok(Source::Range(Box::new(reader)));
        }
        let TabletScan { files, mut memory, obligation } =
            engine.scan_tablet(&spec.table, spec.tablet, &spec.read, false, snapshot)?;
        let keys = spec.keys.clone();
        keys.iter().for_each(|keys| memory.retain(keys));
        let files = files.into_iter();
        Ok(Source::Tablet(TabletSource { keys, files, file: None, batches: None, memory, obligation }))
    }

    /// The next rows, of the columns that the scan reads; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system; `Conflict` if the table was truncated meanwhile.
    pub fn next(&mut self, spec: &ScanSpec) -> Result<Option<SeenBatch>> {
        let batch = match self {
            Source::Nothing => None,
            Source::Tablet(tablet) => return tablet.next(spec),
            Source::Range(reader) => {
                let mut builder = BatchBuilder::new(spec.table.schema_ref(), &spec.read, false);
                let mut bytes = 0;
                while builder.rows() < BATCH_ROWS && bytes < BATCH_BYTES {
                    let read = reader.read(ROWS_AT_ONCE, |row| {
                        bytes += row.key.len() + row.row.len();
                        builder.push(row.key, row.row, row.ts)
                    })?;
                    if read == 0 {
                        break;
                    }
                }
                if builder.rows() == 0 { None } else { Some(builder.finish()?) }
            }
            Source::Merged(merged) => merged.next(spec)?,
        };
        Ok(batch.map(SeenBatch::from))
    }

    /// What must be settled before the rows read so far may be answered.
    pub fn obligation(&self) -> Obligation {
        match self {
            Source::Nothing => Obligation::default(),
            Source::Tablet(tablet) => tablet.obligation,
            Source::Range(reader) => reader.obligation(),
            Source::Merged(merged) => {
                merged.reader.as_ref().map_or(merged.obligation, RangeReader::obligation)
            }
        }
    }
}

/// The rows that others see too, and those of a transaction in their places.
pub(super) struct Merged {
    /// `None` if there are no others.
    reader: Option<RangeReader>,
    /// Those that were not come to.
    own: OwnRows,
    /// That of the reader, when it has ended.
    obligation: Obligation,
    has_ended: bool,
}

impl Merged {
    fn new(reader: Option<RangeReader>, own: OwnRows) -> Self {
        Merged { reader, own, obligation: Obligation::default(), has_ended: false }
    }

    fn next(&mut self, spec: &ScanSpec) -> Result<Option<RecordBatch>> {
        let mut builder = BatchBuilder::new(spec.table.schema_ref(), &spec.read, false);
        let mut bytes = 0;
        while builder.rows() < BATCH_ROWS && bytes < BATCH_BYTES && !self.has_ended {
            let Merged { reader, own, .. } = self;
            let mut push = |key: &[u8], row: &[u8], ts: Timestamp| {
                bytes += key.len() + row.len();
                builder.push(key, row, ts)
            };
            let merge = |row: RowVersion<'_>| {
                let mut is_changed = false;
                while let Some((key, own)) = own.next_up_to(Some(row.key))? {
                    is_changed = *key == *row.key;
                    own.map_or(Ok(()), |own| push(&key, &own, Timestamp::MAX))?;
                }
                if is_changed { Ok(()) } else { push(row.key, row.row, row.ts) }
            };
            let read = reader.as_mut().map_or(Ok(0), |reader| reader.read(ROWS_AT_ONCE, merge))?;
            if read > 0 {
                continue;
            }
            // Behind the last that others see too.
            if let Some(reader) = self.reader.take() {
                self.obligation = reader.obligation();
            }
            match self.own.next_up_to(None)? {
                Some((key, Some(row))) => {
                    bytes += key.len() + row.len();
                    builder.push(&key, &row, Timestamp::MAX)?;
                }
                Some((_, None)) => {}
                None => self.has_ended = true,
            }
        }
        if builder.rows() == 0 { Ok(None) } else { builder.finish().map(Some) }
    }
}

impl TabletSource {
    fn next(&mut self, spec: &ScanSpec) -> Result<Option<SeenBatch>> {
        loop {
            if let Some(batches) = &mut self.batches {
                match batches.next() {
                    Some(batch) => return batch.map(Some),
                    None => self.batches = None,
                }
            }
            if let Some((file, groups)) = &mut self.file {
                let Some((group, within)) = groups.next() else {
                    self.file = None;
                    continue;
                };
                self.batches = file.batches(spec.table.schema_ref(), &spec.read, false, group, within)?;
                continue;
            }
            let Some(file) = self.files.next() else { break };
            let rows = match &self.keys {
                Some(keys) => file.sstable.rows_between(&keys.from, keys.to.as_deref())?,
                None => 0..file.sstable.meta().rows as u32,
            };
            let groups = file.groups(rows).into_iter();
            self.file = Some((file, groups));
        }
        Ok(self.memory.next_batch()?.map(SeenBatch::from))
    }
}

/// Whether the rows between two keys are so few that a range read has them sooner.
fn is_short(engine: &Engine, spec: &ScanSpec, keys: &KeyRange) -> bool {
    let in_memory = engine.rows_in_memory(&spec.table, spec.tablet) as u64;
    let enough = RANGE_ROWS.max(in_memory / MEMORY_PART);
    engine.estimate_range(&spec.table, spec.tablet, keys, enough) <= enough
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kudu::tserver::scan::new_scanner;
    use crate::kudu::tserver::testing::{Fixture, insert, scan};
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use oribi_kudu::column::WireColumn;
    use oribi_kudu::messages::tserver::{NewScanRequest, OrderMode};
    use oribi_kudu::predicate::{ColumnPredicate, Test, ValueRange};
    use oribi_types::{ColumnType, Value};
    use std::ops::Range;

    /// A scan of the rows with keys in a range.
    fn between(fixture: &Fixture, keys: Range<i64>) -> NewScanRequest {
        let range = ValueRange { lower: Some(Value::Int64(keys.start)), upper: Some(Value::Int64(keys.end)) };
        let column = WireColumn::new("k", ColumnType::Int64, false);
        let predicate = ColumnPredicate { column: 0, test: Test::Range(range) }.encode(&[column]);
        NewScanRequest { column_predicates: vec![predicate], ..scan(&fixture.tablet()) }
    }

    /// Whether a scan reads in order, and the keys that its source has.
    fn read(fixture: &Fixture, request: &NewScanRequest) -> (bool, Vec<i64>) {
        let node = fixture.node();
        let Ok((scanner, _)) = new_scanner(node, request) else { panic!("a scan") };
        let mut source = Source::open(&node.engine, scanner.spec(), &scanner.snapshot).unwrap();
        let mut keys = Vec::new();
        while let Some(batch) = source.next(scanner.spec()).unwrap() {
            keys.extend(batch.rows().unwrap().column(0).as_primitive::<Int64Type>().values());
        }
        (matches!(source, Source::Range(_)), keys)
    }

    #[test]
    fn nothing_but_the_range_is_read_in_order_if_it_is_short() {
        const ROWS: i64 = 40_000;
        let mut fixture = Fixture::new();
        insert(&fixture, 0..ROWS);
        let wide = between(&fixture, 7..ROWS - 3);
        let short = between(&fixture, 500..600);
        for in_files in [false, true] {
            if in_files {
                fixture.reopen();
            }
            let (in_order, mut keys) = read(&fixture, &wide);
            keys.sort_unstable();
            assert!(!in_order && keys.iter().copied().eq(7..ROWS - 3), "in files: {in_files}");
            let (in_order, keys) = read(&fixture, &short);
            assert!(in_order && keys.iter().copied().eq(500..600), "in files: {in_files}");
            let ordered = NewScanRequest { order_mode: Some(OrderMode::Ordered.into()), ..wide.clone() };
            let (in_order, keys) = read(&fixture, &ordered);
            assert!(in_order && keys.iter().copied().eq(7..ROWS - 3), "in files: {in_files}");
            assert_eq!(read(&fixture, &between(&fixture, ROWS + 5..ROWS + 9)), (true, vec![]));
        }
    }
}
