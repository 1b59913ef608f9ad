//! Where a scan's rows come from: the files of a tablet one after the other and then its memory, or, where keys or their order
//! matter, a range read. A batch is read when it is asked for and not before.

use super::spec::ScanSpec;
use arrow::array::RecordBatch;
use oribi_engine::{Engine, FileScan, MemoryColumns, Obligation, RangeReader, Snapshot, TabletColumns};
use oribi_types::Result;
use oribi_types::batch::BatchBuilder;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a batch that is made of a range.
const BATCH_ROWS: usize = 1024;

type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

pub(super) enum Source {
    Nothing,
    Tablet(TabletSource),
    Range(Box<RangeReader>),
}

/// All rows of a tablet, in no order.
pub(super) struct TabletSource {
    /// Those that were not begun.
    files: std::vec::IntoIter<FileScan>,
    /// Of the file that is being read.
    batches: Option<Batches>,
    memory: MemoryColumns,
    obligation: Obligation,
}

impl Source {
    /// # Errors
    /// Those of [`Engine::scan_columns`].
    pub fn open(engine: &Arc<Engine>, spec: &ScanSpec, snapshot: &Arc<Snapshot>) -> Result<Self> {
        if spec.is_empty() {
            return Ok(Source::Nothing);
        }
        if let Some(keys) = &spec.keys {
            let reader = engine.range(&spec.table, spec.tablet, keys.clone(), &spec.read, snapshot);
            return Ok(Source::Range(Box::new(reader)));
        }
        let TabletColumns { files, memory, obligation } =
            engine.scan_columns(&spec.table, spec.tablet, &spec.read, snapshot)?;
        Ok(Source::Tablet(TabletSource { files: files.into_iter(), batches: None, memory, obligation }))
    }

    /// The next rows, of the columns that the scan reads; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system; `Conflict` if the table was truncated meanwhile.
    pub fn next(&mut self, spec: &ScanSpec) -> Result<Option<RecordBatch>> {
        match self {
            Source::Nothing => Ok(None),
            Source::Tablet(tablet) => tablet.next(spec),
            Source::Range(reader) => {
                let mut builder = BatchBuilder::new(spec.table.schema_ref(), &spec.read, false);
                let rows = reader.read(BATCH_ROWS, |row| builder.push(row.key, row.row, row.ts))?;
                if rows == 0 { Ok(None) } else { builder.finish().map(Some) }
            }
        }
    }

    /// What must be settled before the rows read so far may be answered.
    pub fn obligation(&self) -> Obligation {
        match self {
            Source::Nothing => Obligation::default(),
            Source::Tablet(tablet) => tablet.obligation,
            Source::Range(reader) => reader.obligation(),
        }
    }
}

impl TabletSource {
    fn next(&mut self, spec: &ScanSpec) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batches) = &mut self.batches {
                match batches.next() {
                    Some(batch) => return batch.map(Some),
                    None => self.batches = None,
                }
            }
            let Some(file) = self.files.next() else { break };
            if file.live_rows() > 0 {
                let live = live_rows(&file);
                let schema = spec.table.schema_ref();
                let batches = file.sstable.batches(schema, &spec.read, false, live.as_deref())?;
                self.batches = Some(Box::new(batches));
            }
        }
        self.memory.next_batch()
    }
}

/// Which rows of a file the scan sees; `None` for all.
fn live_rows(file: &FileScan) -> Option<Vec<Range<u32>>> {
    if file.hidden.is_empty() {
        return None;
    }
    let mut live = Vec::new();
    let mut next = 0;
    for hidden in file.hidden.iter() {
        if next < hidden {
            live.push(next..hidden);
        }
        next = hidden + 1;
    }
    let end = file.sstable.meta().rows as u32;
    if next < end {
        live.push(next..end);
    }
    Some(live)
}
