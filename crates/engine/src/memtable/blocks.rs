//! Rows of a memtable as columns: blocks of so many keys each, in the order in which they came, which scans make once.
//!
//! A block has the first version of each of its keys in the memtable, if that has a row, and none other was there when it was made. So what
//! a snapshot sees of the key is that version if it is not newer than the snapshot, and nothing else, as long as the key is not
//! [covered](Memtable::is_covered): whatever the snapshot saw besides would have been noted before it was published. Of keys that
//! are covered, and of those that the block lacks, who reads it asks the row index.
//!
//! Two keys may have one hash, and then the index has both of them for either. A block with such a key is not made. But the second one may
//! come when the block of the first is there: who reads the memtable comes to the keys that came last first, notes such hashes,
//! and leaves them out of blocks.

use super::{Counted, Memtable};
use crate::index::{RowIndex, Version};
use crate::memory::MemoryBudget;
use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::UInt64Type;
use oribi_env::locks::{self, Mutex};
use oribi_types::batch::BatchBuilder;
use oribi_types::{Result, Schema, Timestamp};
use std::sync::Arc;

/// Keys of a block.
pub(crate) const BLOCK_ROWS: usize = 1024;
/// Rows that take more are not kept twice.
const BLOCK_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Blocks(Mutex<Made, { locks::KEYS }>);

struct Made {
    counted: Counted,
    /// By number.
    states: Vec<BlockState>,
}

#[derive(Default)]
enum BlockState {
    #[default]
    New,
    /// Rows that are read once are made into columns for who reads them, and not kept.
    Read,
    Block(Arc<Block>),
    /// Its rows are too long, or two keys have one hash.
    Unfit,
}

/// The columns that a scan reads: those at the positions `projection` and, if asked for, commit timestamps.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub schema: Arc<Schema>,
    pub projection: Vec<usize>,
    pub with_ts: bool,
}

pub(crate) struct Block {
    schema: Arc<Schema>,
    /// Positions of the columns of `rows`, behind which the timestamps stand.
    columns: Vec<usize>,
    rows: RecordBatch,
    /// Of the rows.
    hashes: Vec<u64>,
    /// Of keys that it lacks.
    others: Vec<u64>,
    newest: Timestamp,
}

impl Blocks {
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        Blocks(Mutex::new(Made { counted: Counted::new(budget), states: Vec::new() }))
    }

    /// The rows of `memtable` are in a file: no scan that begins now asks for them.
    pub fn forget(&self, memtable: &Memtable) {
        let Made { counted, states } = &mut *self.0.lock();
        *states = Vec::new();
        counted.set(memtable, 0);
    }

    /// The block of a number, whose keys `memtable` all has by now, with the columns that are wanted; `None` if there is none.
    pub fn get(&self, number: usize, wanted: &Wanted) -> Option<Arc<Block>> {
        match self.0.lock().states.get(number) {
            Some(BlockState::Block(block)) if block.has(wanted) => Some(block.clone()),
            _ => None,
        }
    }

    /// As [`get`](Self::get), but makes it if it is asked for more than once, and there is memory.
    ///
    /// # Errors
    /// `Corrupt` for a row that does not decode.
    pub fn get_or_make(
        &self,
        number: usize,
        (memtable, index): (&Memtable, &RowIndex),
        wanted: &Wanted,
    ) -> Result<Option<Arc<Block>>> {
        let before = {
            let Made { counted, states } = &mut *self.0.lock();
            if states.len() <= number {
                states.resize_with(number + 1, BlockState::default);
            }
            match &states[number] {
                BlockState::New => {
                    states[number] = BlockState::Read;
                    return Ok(None);
                }
                BlockState::Unfit => return Ok(None),
                BlockState::Block(block) if block.has(wanted) => return Ok(Some(block.clone())),
                _ if counted.is_scarce() => return Ok(None),
                BlockState::Read => None,
                BlockState::Block(block) => Some(block.clone()),
            }
        };
        // Others go on meanwhile. One that makes it too is heard as well.
        let made = Block::make(number, (memtable, index), wanted, before.as_deref())?.map(Arc::new);
        let Made { counted, states } = &mut *self.0.lock();
        // Unless all were forgotten meanwhile.
        if let Some(state) = states.get_mut(number) {
            let bytes = |state: &BlockState| match state {
                BlockState::Block(block) => block.bytes() as u64,
                _ => 0,
            };
            let before = counted.bytes() - bytes(state);
            *state = made.clone().map_or(BlockState::Unfit, BlockState::Block);
            counted.set(memtable, before + bytes(state));
        }
        Ok(made)
    }
}

impl Block {
    /// With what is wanted and, so that scans of other columns do not take turns at it, what the one `before` has.
    fn make(
        number: usize,
        (memtable, index): (&Memtable, &RowIndex),
        wanted: &Wanted,
        before: Option<&Block>,
    ) -> Result<Option<Self>> {
        let schema = &wanted.schema;
        let mut columns = wanted.projection.clone();
        columns.extend(
            before.filter(|before| Arc::ptr_eq(&before.schema, schema)).iter().flat_map(|b| &b.columns),
        );
        columns.sort_unstable();
        columns.dedup();
        let mut builder = BatchBuilder::new(schema, &columns, true);
        let (mut hashes, mut others) = (Vec::with_capacity(BLOCK_ROWS), Vec::new());
        let (mut bytes, mut shared, mut newest, mut pushed) = (0, false, Timestamp::MIN, Ok(()));
        let keys = memtable.hashes_of(number * BLOCK_ROWS..(number + 1) * BLOCK_ROWS);
        index.visit_part(memtable.generation, keys, true, &mut Vec::new(), |rows| {
            shared |= rows.windows(2).any(|pair| pair[0].hash() == pair[1].hash());
            for version in rows {
                let is_first = |below: &Version| below.meta.memtable() != memtable.id;
                let is_only =
                    version.meta.memtable() == memtable.id && version.previous().is_none_or(is_first);
                match version.row().filter(|_| is_only && pushed.is_ok()) {
                    Some(row) => {
                        bytes += version.key().len() + row.len();
                        if bytes > BLOCK_BYTES_MAX {
                            return;
                        }
                        newest = newest.max(version.meta.ts);
                        hashes.push(version.hash());
                        pushed = builder.push(version.key(), row, version.meta.ts);
                    }
                    None => others.push(version.hash()),
                }
            }
        });
        pushed?;
        if shared || bytes > BLOCK_BYTES_MAX {
            return Ok(None);
        }
        let rows = builder.finish()?;
        Ok(Some(Block { schema: schema.clone(), columns, rows, hashes, others, newest }))
    }

    fn has(&self, wanted: &Wanted) -> bool {
        let has = |position: &usize| self.columns.binary_search(position).is_ok();
        Arc::ptr_eq(&self.schema, &wanted.schema) && wanted.projection.iter().all(has)
    }

    /// Which of its rows a snapshot at `ts` sees, all if it is `None`, but for those of hashes in `shared`. Adds to `asked` the hashes of
    /// keys for which the index is to be asked.
    pub fn seen(
        &self,
        memtable: &Memtable,
        ts: Timestamp,
        shared: &[u64],
        asked: &mut Vec<u64>,
    ) -> Option<BooleanBuffer> {
        asked.extend_from_slice(&self.others);
        if !memtable.has_covered() && shared.is_empty() && self.newest <= ts {
            return None;
        }
        let times = self.rows.column(self.columns.len()).as_primitive::<UInt64Type>().values();
        Some(BooleanBuffer::collect_bool(self.hashes.len(), |row| {
            let hash = self.hashes[row];
            if shared.contains(&hash) {
                return false;
            }
            if memtable.is_hash_covered(hash) {
                asked.push(hash);
                return false;
            }
            times[row] <= ts.0
        }))
    }

    /// Some of the rows, as they are wanted.
    ///
    /// # Errors
    /// Those of Arrow.
    pub fn rows(&self, wanted: &Wanted, seen: Option<&BooleanBuffer>) -> Result<RecordBatch> {
        let place =
            |position: &usize| self.columns.binary_search(position).expect("the block has what is wanted");
        let places = wanted.projection.iter().map(place).chain(wanted.with_ts.then_some(self.columns.len()));
        let rows = self.rows.project(&places.collect::<Vec<_>>())?;
        match seen {
            Some(seen) => Ok(filter_record_batch(&rows, &BooleanArray::from(seen.clone()))?),
            None => Ok(rows),
        }
    }

    pub fn bytes(&self) -> usize {
        let hashes = (self.hashes.capacity() + self.others.capacity()) * size_of::<u64>();
        self.rows.get_array_memory_size() + hashes
    }
}
