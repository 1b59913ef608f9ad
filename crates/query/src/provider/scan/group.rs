//! A row group on its way through a scan.
//!
//! As a rule all columns of a batch are read, the predicate is asked, and the rows that are hidden and those that do not pass
//! are left out at once. Where most pages have no row that passes ([`is_late`](Tested::is_late)), what the predicate asks for is
//! read first, of all rows, and of the other columns only the pages that have some.

use super::super::Places;
use super::TableSource;
use super::filter::{Filter, Test};
use arrow::array::{ArrayRef, BooleanBufferBuilder, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat_batches, filter_record_batch};
use datafusion::common::{DataFusionError, Result};
use oribi_engine::{FileScan, GroupRows, RowSelection, SeenBatch, SeenBatches};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a page, about.
const PAGE_ROWS: usize = 1024;

/// Rows of a batch that the scan's snapshot sees, and of them those that pass.
#[derive(Clone, Copy, Default)]
pub(super) struct Tested {
    pub(super) rows: usize,
    pub(super) seen: usize,
    pub(super) passed: usize,
    /// Pages, about, and of them those with rows that pass.
    pages: usize,
    pages_passed: usize,
}

impl Tested {
    fn new(rows: usize, seen: usize, passing: Option<&BooleanBuffer>) -> Self {
        let pages = rows.div_ceil(PAGE_ROWS);
        let passes = |page: &usize, passing: &BooleanBuffer| {
            let (from, left) = (page * PAGE_ROWS, rows - page * PAGE_ROWS);
            passing.slice(from, left.min(PAGE_ROWS)).has_true()
        };
        let pages_passed = passing.map_or(pages, |rows| (0..pages).filter(|page| passes(page, rows)).count());
        let passed = passing.map_or(rows, BooleanBuffer::count_set_bits);
        Tested { rows, seen, passed, pages, pages_passed }
    }

    /// Whether most columns are read late of what is like this. A page with few rows that pass is decompressed as a whole.
    pub(super) fn is_late(&self) -> bool {
        2 * self.pages_passed < self.pages
    }

    pub(super) fn add(&mut self, other: Tested) {
        self.rows += other.rows;
        self.seen += other.seen;
        self.passed += other.passed;
        self.pages += other.pages;
        self.pages_passed += other.pages_passed;
    }
}

/// Columns of a row group, some rows of it.
pub(super) struct Group {
    batches: SeenBatches,
    /// Their positions among the table's.
    columns: Vec<usize>,
    test: Test,
    places: Selected,
}

impl Group {
    pub(super) fn open(
        source: &TableSource,
        (file, group): (&FileScan, usize),
        rows: GroupRows,
        columns: Vec<usize>,
        filter: &Filter,
    ) -> Result<Self> {
        let test = filter.test(&columns)?;
        let places = Selected::new(source, (file, group), &columns, &rows.selected);
        let batches = open(source, (file, group), &columns, rows)?;
        Ok(Group { batches, columns, test, places })
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.batches.bytes_read()
    }

    /// The next batch, as it is in the file, and which rows of it are left, if not all.
    pub(super) fn next(
        &mut self,
        source: &TableSource,
        filter: &mut Filter,
    ) -> Result<Option<(RecordBatch, Option<BooleanBuffer>, Tested)>> {
        let Some(batch) = self.batches.next() else { return Ok(None) };
        let SeenBatch { batch, seen } = batch.map_err(external)?;
        let rows = batch.num_rows();
        let batch = source.columns.arrange(&self.columns, batch, self.places.take(rows)).map_err(external)?;
        let seen_rows = seen.as_ref().map_or(rows, BooleanBuffer::count_set_bits);
        let passing = filter.passing(&self.test, &batch, seen)?;
        let tested = Tested::new(rows, seen_rows, passing.as_ref());
        Ok(Some((batch, passing, tested)))
    }

    /// A batch with the columns as projected.
    pub(super) fn projected(&self, source: &TableSource, batch: &RecordBatch) -> Result<RecordBatch> {
        projected(source, &self.columns, batch)
    }
}

/// The rows of a row group that passed.
pub(super) struct Late {
    /// What the predicate asked for, as far as it is projected: values, and positions of columns.
    tested: RecordBatch,
    tested_columns: Vec<usize>,
    next: usize,
    /// The other columns.
    rest: SeenBatches,
    rest_columns: Vec<usize>,
    places: Selected,
}

impl Late {
    /// Reads and tests the columns of `group`, which has `rows`; `None` if no row passes. Calls `count` for each batch.
    pub(super) fn open(
        source: &TableSource,
        (file, number): (&FileScan, usize),
        selected: RowSelection,
        group: &mut Group,
        filter: &mut Filter,
        mut count: impl FnMut(Tested),
    ) -> Result<Option<Self>> {
        let (kept, rest_columns): (Vec<_>, Vec<_>) =
            source.projection.iter().copied().partition(|p| group.columns.binary_search(p).is_ok());
        let mut passed = BooleanBufferBuilder::new(selected.row_count());
        let mut batches = Vec::new();
        while let Some((batch, passing, tested)) = group.next(source, filter)? {
            count(tested);
            if tested.passed > 0 {
                let batch = columns_of(&group.columns, &batch, &kept)?;
                batches.push(match &passing {
                    Some(rows) => filter_record_batch(&batch, &rows.clone().into())?,
                    None => batch,
                });
            }
            match passing {
                Some(rows) => passed.append_buffer(&rows),
                None => passed.append_n(tested.rows, true),
            }
        }
        let Some(first) = batches.first() else { return Ok(None) };
        let selected = selected.and_then(&RowSelection::from_boolean_buffer(passed.finish()));
        Ok(Some(Late {
            tested: concat_batches(&first.schema(), &batches)?,
            tested_columns: kept,
            next: 0,
            places: Selected::new(source, (file, number), &rest_columns, &selected),
            rest: open(source, (file, number), &rest_columns, GroupRows { selected, seen: None })?,
            rest_columns,
        }))
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.rest.bytes_read()
    }

    /// The next batch, as projected.
    pub(super) fn next(&mut self, source: &TableSource) -> Result<Option<RecordBatch>> {
        let Some(rest) = self.rest.next() else { return Ok(None) };
        let rest = rest.map_err(external)?.batch;
        let rows = rest.num_rows();
        let rest =
            source.columns.arrange(&self.rest_columns, rest, self.places.take(rows)).map_err(external)?;
        let tested = self.tested.slice(self.next, rows);
        self.next += rows;
        let column = |position: &usize| -> ArrayRef {
            let place = |columns: &[usize]| columns.iter().position(|p| p == position);
            match place(&self.tested_columns) {
                Some(place) => Arc::clone(tested.column(place)),
                None => Arc::clone(rest.column(place(&self.rest_columns).expect("it is one or the other"))),
            }
        };
        let columns = source.projection.iter().map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(&source.projected), columns, &options)?))
    }
}

/// Where the rows lie that are selected of a row group, if that is asked.
struct Selected {
    file: u64,
    /// The runs of rows that are left, last first.
    runs: Option<Vec<Range<u32>>>,
}

impl Selected {
    fn new(
        source: &TableSource,
        (file, group): (&FileScan, usize),
        columns: &[usize],
        selected: &RowSelection,
    ) -> Self {
        let runs = source.columns.has_places(columns).then(|| {
            let mut next = file.sstable.row_groups().nth(group).map_or(0, |rows| rows.start);
            let mut runs = Vec::new();
            for run in selected.iter() {
                let start = next;
                next += run.row_count as u32;
                if !run.skip {
                    runs.push(start..next);
                }
            }
            runs.reverse();
            runs
        });
        Selected { file: file.sstable.meta().id, runs }
    }

    /// Those of the next rows.
    fn take(&mut self, rows: usize) -> Places {
        let runs = self.runs.as_mut()?;
        let mut places = Vec::with_capacity(rows);
        while places.len() < rows
            && let Some(run) = runs.last_mut()
        {
            let end = run.end.min(run.start + (rows - places.len()) as u32);
            places.extend(run.start..end);
            run.start = end;
            if run.start == run.end {
                runs.pop();
            }
        }
        Some((self.file, places))
    }
}

/// The columns of a batch that has `columns`, as a scan projects them.
pub(super) fn projected(source: &TableSource, columns: &[usize], batch: &RecordBatch) -> Result<RecordBatch> {
    columns_of(columns, batch, &source.projection)
}

/// What a scan of the projection and of `tested` reads: positions, ascending.
pub(super) fn all_columns(projection: &[usize], tested: BTreeSet<usize>) -> Vec<usize> {
    let mut all = tested;
    all.extend(projection);
    all.into_iter().collect()
}

/// The columns at the positions `wanted` of a batch of those at `columns`.
fn columns_of(columns: &[usize], batch: &RecordBatch, wanted: &[usize]) -> Result<RecordBatch> {
    let places = wanted.iter().map(|p| columns.binary_search(p).expect("it is read"));
    Ok(batch.project(&places.collect::<Vec<_>>())?)
}

fn open(
    source: &TableSource,
    (file, group): (&FileScan, usize),
    columns: &[usize],
    rows: GroupRows,
) -> Result<SeenBatches> {
    let (stored, with_ts) = source.columns.stored(columns);
    file.read(&source.columns.schema, &stored, with_ts, group, rows).map_err(external)
}

pub(super) fn external(error: oribi_types::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
