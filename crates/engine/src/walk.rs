//! A scan's rows in memory as columns: one walk over the memtables, which goes on when a batch is asked for.
//!
//! The walk holds no rows; it looks at each once, when its turn has come. That it finds what it would have found at its
//! beginning:
//!
//! - Of each key its snapshot sees the newest version at or below its timestamp, in the memtable to which that was written. As
//!   long as the snapshot is registered, other versions come on top of that one and none takes it away, and as long as its
//!   memtable is not flushed, it stays that memtable's. So it does not matter when the walk comes by, and each row is seen with
//!   one memtable.
//! - The memtable lists the key's hash by then: its row was noted before it was published, and it was published before the
//!   snapshot was registered. What is listed after the walk began has no row for it.
//! - Who wants keys alone finds most of them in the memtable's list. A key that is not [covered](Memtable::is_covered) has one
//!   version there, which has a row, and if that is not newer than the snapshot, the snapshot sees it: whatever it sees besides would
//!   have been noted before it was published.
//! - So it is of rows that were made into columns before, in [blocks](crate::memtable::Block).
//! - Rows are unpinned by a flush, or swept by a truncate or drop. All of them first publish it: a state of the tablet without
//!   the memtable. Then, still with the tablet's installer, they [end](Walks::end) the walks of
//!   the memtable: each holds what is left of its rows from then on, in *all* memtables, and needs the index no more. Then
//!   rows go. So whoever makes them go finds the walks of every memtable that is in the state, and those of others ended.
//! - A scan takes a [`Reading`], begins its walk, and then asks whether that is still valid. If not, it begins again with
//!   another. If so, whoever publishes a change later finds the walk, as it takes the lock of the list after it
//!   was registered: had it taken the lock before, the scan would have seen the change.

use crate::catalog::Table;
use crate::holders::{Holder, given_up};
use crate::index::{GROUP, KeyRef, RowIndex, Version, VersionRef, version_at};
use crate::memtable::{BLOCK_ROWS, Block, Memtable, Wanted};
use crate::range::KeyRange;
use crate::reading::Reading;
use crate::scan::MemoryState;
use crate::timeline::Snapshot;
use arrow::array::RecordBatch;
use arrow::buffer::BooleanBuffer;
use oribi_env::locks::{self, Mutex};
use oribi_types::batch::{BatchBuilder, EncodedRow};
use oribi_types::{ColumnSource, Result};
use smallvec::SmallVec;
use std::sync::{Arc, Weak};

/// Rows that no file has yet, as batches that are made when they are asked for. What a slow reader has not come to stays
/// in memory until it has, or until this is dropped.
///
/// A batch is small: its columns lie where those of the batch before did, which the processor has in its cache. Memory that is
/// new to the process, and cleared by the system first, would cost more than all else.
pub struct MemoryColumns {
    rest: Arc<Shared>,
    wanted: Arc<Wanted>,
    /// Of a row of the batch before, on the average.
    row_bytes: usize,
}

/// A batch that is being made.
struct Filling<'s> {
    wanted: &'s Wanted,
    builder: BatchBuilder<'s>,
    bytes: usize,
    row_bytes: usize,
    /// The batch, if it was made before.
    made: Option<RecordBatch>,
}

/// Rows of a batch, of this many bytes at most, about: as many as builders of columns have room for from the start.
const COLUMNS_ROWS: usize = 1024;
const COLUMNS_BYTES: usize = 8 << 20;
/// What a row is taken for as long as none was seen: few are read then, and more when they are shorter.
const ROW_BYTES_FIRST: usize = COLUMNS_BYTES / GROUP;
/// Rows that are held are found so many keys at a time. For a batch so many are looked at before others have their turn, as
/// where few are wanted, all that is left may have none: who ends the walk waits meanwhile, with the tablet's installer.
const KEYS_AT_ONCE: usize = 4096;

impl MemoryColumns {
    /// What `snapshot` sees of the memtables of `reading`. The caller asks then whether that is still valid, and has it
    /// [counted](Self::holder). Batches have the columns at these positions and, if asked for, the commit timestamps last.
    pub(crate) fn begin(
        index: &Arc<RowIndex>,
        table: &Arc<Table>,
        reading: &Reading,
        (projection, with_ts): (&[usize], bool),
        snapshot: &Snapshot,
    ) -> Self {
        let mut parts: Vec<Part> =
            reading.state.memtables().map(Part::of).filter(|part| part.keys_left() > 0).collect();
        // The last is the next.
        parts.reverse();
        let memtables: Vec<_> = parts.iter().map(|part| part.memtable.clone()).collect();
        let (index, table, snapshot) = (index.clone(), table.clone(), snapshot.clone());
        let schema = table.schema();
        let is = |p: &usize, is: fn(&ColumnSource) -> bool| is(&schema.columns()[*p].source);
        let with_rows = projection.iter().any(|p| is(p, |source| matches!(source, ColumnSource::Slot(_))));
        let is_key = |p: &usize| is(p, |source| matches!(source, ColumnSource::Key(_)));
        let keys_alone = !with_ts && table.expiry().never() && projection.iter().all(is_key);
        let generation = reading.generation();
        let in_blocks = table.expiry().never() && !table.is_uncommitted();
        let wanted = Arc::new(Wanted { schema, projection: projection.to_vec(), with_ts });
        let walk = Walk {
            index,
            table,
            generation,
            snapshot,
            wanted: wanted.clone(),
            with_rows,
            keys_alone,
            in_blocks,
            has_begun: false,
            keys: None,
            parts,
        };
        let rest = Arc::new(Shared::new(Rest::Walk(walk)));
        memtables.iter().for_each(|memtable| memtable.walks.add(&rest));
        MemoryColumns { rest, wanted, row_bytes: ROW_BYTES_FIRST }
    }

    /// What may have to give up the rows that it holds.
    pub(crate) fn holder(&self) -> Weak<dyn Holder> {
        let rest: Weak<Shared> = Arc::downgrade(&self.rest);
        rest
    }

    /// Leaves out the rows with other keys, before the first batch is asked for.
    pub fn retain(&mut self, keys: &KeyRange) {
        match &mut *self.rest.lock() {
            Rest::Walk(walk) => walk.keys = Some(keys.clone()),
            Rest::Held(Held { rows, blocks }) => {
                debug_assert!(blocks.is_empty(), "blocks are held once a batch was asked for");
                let mut held: Vec<VersionRef> = std::mem::take(rows).collect();
                held.retain(|version| keys.contains(version.key()));
                *rows = held.into_iter();
            }
            Rest::HeldKeys(held) => {
                let (mut left, len) = (std::mem::take(&mut held.keys).collect::<Vec<u64>>(), held.len);
                left.retain(|key| keys.contains(&key.to_be_bytes()[KEY_BYTES - len..]));
                *held = HeldKeys::new(left, len);
            }
            Rest::GivenUp => {}
        }
    }

    /// Leaves out rows that a quiet state had, and that have not changed since.
    pub(crate) fn leave_out(&self, state: &MemoryState) {
        if let Rest::Walk(walk) = &mut *self.rest.lock() {
            (walk.keys_alone, walk.in_blocks) = (false, false);
            walk.parts.iter_mut().for_each(|part| part.leave_out(state.keys_of(part.memtable.id)));
        }
    }

    /// How many keys are left to be looked at.
    pub fn keys_left(&self) -> usize {
        match &*self.rest.lock() {
            Rest::Walk(walk) => walk.keys_left(),
            Rest::Held(held) => held.rows.len() + held.blocks.len() * BLOCK_ROWS,
            Rest::HeldKeys(held) => held.keys.len(),
            Rest::GivenUp => 0,
        }
    }

    /// The next rows, never none; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt` for a key that does not decode; `Conflict` if it held rows for too long.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let wanted = &self.wanted;
        let builder = BatchBuilder::new(&wanted.schema, &wanted.projection, wanted.with_ts);
        let mut filling = Filling { wanted, builder, bytes: 0, row_bytes: self.row_bytes, made: None };
        while self.rest.lock().fill(&mut filling)? {}
        if filling.made.is_some() {
            return Ok(filling.made);
        }
        if filling.builder.rows() == 0 {
            return Ok(None);
        }
        self.row_bytes = filling.bytes / filling.builder.rows();
        filling.builder.finish().map(Some)
    }
}

impl Filling<'_> {
    /// Makes the batch one of rows of a block; whether there are any.
    fn take(&mut self, block: &Block, seen: Option<&BooleanBuffer>) -> Result<bool> {
        debug_assert_eq!(self.builder.rows(), 0, "a block is a batch of its own");
        self.made = Some(block.rows(self.wanted, seen)?).filter(|rows| rows.num_rows() > 0);
        Ok(self.made.is_some())
    }

    /// For how many rows there is room, about.
    fn room(&self) -> usize {
        let rows = self.builder.rows();
        let row_bytes = self.bytes.checked_div(rows).unwrap_or(self.row_bytes);
        let fit = COLUMNS_BYTES.saturating_sub(self.bytes) / row_bytes.max(1);
        fit.max(usize::from(rows == 0)).min(COLUMNS_ROWS - rows)
    }

    /// A step of a few keys is not worth it.
    fn is_nearly_full(&self) -> bool {
        self.builder.rows() + GROUP > COLUMNS_ROWS || (self.bytes > 0 && self.room() == 0)
    }

    fn push<'v>(&mut self, rows: impl Iterator<Item = EncodedRow<'v>>) -> Result<()> {
        let rows: SmallVec<[EncodedRow<'v>; GROUP]> = rows.collect();
        self.bytes += rows.iter().map(|row| row.key.len() + row.row.len()).sum::<usize>();
        self.builder.extend(&rows)
    }

    fn push_keys(&mut self, keys: &[u64], len: usize) -> Result<()> {
        self.bytes += keys.len() * len;
        self.builder.extend_keys(keys, len)
    }
}

/// The walks over a memtable.
#[derive(Default)]
pub(crate) struct Walks(Mutex<Vec<Weak<Shared>>, { locks::WALKS }>);

type Shared = Mutex<Rest, { locks::WALK }>;

impl Holder for Shared {
    fn row_bytes(&self) -> usize {
        match &*self.lock() {
            Rest::Held(Held { rows, .. }) => rows.as_slice().iter().map(VersionRef::held_bytes).sum(),
            Rest::HeldKeys(_) | Rest::Walk(_) | Rest::GivenUp => 0,
        }
    }

    fn other_bytes(&self) -> usize {
        match &*self.lock() {
            Rest::Held(Held { blocks, .. }) => {
                blocks.iter().map(|(block, _)| block.bytes() / Arc::strong_count(block)).sum()
            }
            Rest::HeldKeys(held) => held.bytes,
            Rest::Walk(_) | Rest::GivenUp => 0,
        }
    }

    fn give_up(&self) {
        let rest = std::mem::replace(&mut *self.lock(), Rest::GivenUp);
        drop(rest);
    }
}

impl Walks {
    fn add(&self, rest: &Arc<Shared>) {
        let mut walks = self.0.lock();
        walks.retain(|walk| walk.strong_count() > 0);
        walks.push(Arc::downgrade(rest));
    }

    /// Before rows of the memtable leave memory, and after it was published that they do: waits for those who make a batch
    /// just now, and has each walk hold what is left of its rows.
    pub fn end(&self) {
        let walks = std::mem::take(&mut *self.0.lock());
        walks.iter().filter_map(Weak::upgrade).for_each(|rest| rest.lock().hold());
    }
}

/// The rows that were not yielded yet.
enum Rest {
    Walk(Walk),
    Held(Held),
    /// Where nothing else is wanted.
    HeldKeys(HeldKeys),
    /// Memory was needed for them.
    GivenUp,
}

impl Rest {
    /// Goes on by [`KEYS_AT_ONCE`], about; whether there is more, and room for it.
    fn fill(&mut self, filling: &mut Filling<'_>) -> Result<bool> {
        match self {
            Rest::Walk(walk) => walk.fill(filling),
            Rest::Held(held) => {
                while filling.builder.rows() == 0
                    && let Some((block, seen)) = held.blocks.pop()
                {
                    if filling.take(&block, seen.as_ref())? {
                        return Ok(false);
                    }
                }
                fill_held(&mut held.rows, filling).map(|()| false)
            }
            Rest::HeldKeys(held) => held.fill(filling).map(|()| false),
            Rest::GivenUp => Err(given_up()),
        }
    }

    fn hold(&mut self) {
        let Rest::Walk(walk) = self else { return };
        if let Some(len) = walk.listed_key_len() {
            let mut keys = Vec::with_capacity(walk.keys_left());
            while !walk.parts.is_empty() {
                walk.step_keys(len, KEYS_AT_ONCE, |seen| keys.extend_from_slice(seen));
            }
            *self = Rest::HeldKeys(HeldKeys::new(keys, len));
            return;
        }
        let (mut rows, mut blocks) = (Vec::new(), Vec::new());
        while !walk.parts.is_empty() {
            match walk.held_block() {
                Some(block) => blocks.push(block),
                None => {
                    walk.step(KEYS_AT_ONCE, |versions| rows.extend(versions.iter().map(|v| v.hold())));
                }
            }
        }
        *self = Rest::Held(Held { rows: rows.into_iter(), blocks });
    }
}

/// What is left of a walk that has ended.
struct Held {
    rows: std::vec::IntoIter<VersionRef>,
    blocks: Vec<SeenBlock>,
}

/// A block, and which of its rows are seen, if not all.
type SeenBlock = (Arc<Block>, Option<BooleanBuffer>);

fn fill_held(rows: &mut std::vec::IntoIter<VersionRef>, filling: &mut Filling<'_>) -> Result<()> {
    rows.as_slice().iter().take(GROUP).for_each(VersionRef::prefetch);
    while filling.builder.rows() < COLUMNS_ROWS
        && filling.bytes < COLUMNS_BYTES
        && !rows.as_slice().is_empty()
    {
        rows.as_slice().iter().skip(GROUP).take(GROUP).for_each(VersionRef::prefetch);
        let left = GROUP.min(COLUMNS_ROWS - filling.builder.rows());
        let mut bytes = filling.bytes;
        let mut taken: SmallVec<[VersionRef; GROUP]> = SmallVec::new();
        while taken.len() < left
            && bytes < COLUMNS_BYTES
            && let Some(version) = rows.next()
        {
            bytes += version.key().len() + version.row().map_or(0, <[u8]>::len);
            taken.push(version);
        }
        filling.push(taken.iter().map(|version| {
            let row = version.row().expect("deleted rows are left out");
            EncodedRow { key: version.key(), row, ts: version.meta().ts }
        }))?;
    }
    Ok(())
}

fn encoded(version: &Version) -> EncodedRow<'_> {
    let row = version.row().expect("deleted rows are left out");
    EncodedRow { key: version.key(), row, ts: version.meta.ts }
}

/// Keys of a walk that has ended, as a memtable [lists](crate::memtable::Listing::Keys) them.
struct HeldKeys {
    keys: std::vec::IntoIter<u64>,
    len: usize,
    /// What they take.
    bytes: usize,
}

/// The longest key that a memtable lists.
const KEY_BYTES: usize = size_of::<u64>();

impl HeldKeys {
    fn new(keys: Vec<u64>, len: usize) -> Self {
        HeldKeys { bytes: keys.capacity() * size_of::<u64>(), keys: keys.into_iter(), len }
    }

    fn fill(&mut self, filling: &mut Filling<'_>) -> Result<()> {
        while self.keys.len() > 0 && !filling.is_nearly_full() {
            let keys: SmallVec<[u64; GROUP]> = self.keys.by_ref().take(GROUP.min(filling.room())).collect();
            filling.push_keys(&keys, self.len)?;
        }
        Ok(())
    }
}

struct Walk {
    index: Arc<RowIndex>,
    table: Arc<Table>,
    generation: u64,
    snapshot: Snapshot,
    /// Whether more is read of rows than their keys and timestamps.
    with_rows: bool,
    wanted: Arc<Wanted>,
    /// Whether nothing is asked of a row that is not deleted but its key.
    keys_alone: bool,
    /// Whether blocks have what is wanted.
    in_blocks: bool,
    /// Whether a batch was asked for: no others are left out from then on.
    has_begun: bool,
    /// Others are left out.
    keys: Option<KeyRange>,
    /// The last is the next; those that are done are gone.
    parts: Vec<Part>,
}

/// A memtable on the way. Its keys are seen in stretches of a block, the last first: what has the hash of a row in a block, and is not
/// in that block, [came later](crate::memtable::Block).
struct Part {
    memtable: Arc<Memtable>,
    /// Those before are left out.
    first: usize,
    /// The stretch, of which the keys from `next` on are left.
    start: usize,
    next: usize,
    end: usize,
    /// Hashes of keys that are to be looked up when all stretches were seen.
    again: Vec<u64>,
    /// Hashes of several rows that were seen.
    shared: Vec<u64>,
}

impl Part {
    fn of(memtable: &Arc<Memtable>) -> Self {
        let (again, shared) = (Vec::new(), Vec::new());
        let mut part =
            Part { memtable: memtable.clone(), first: 0, start: 0, next: 0, end: 0, again, shared };
        part.go_to_end(memtable.len());
        part
    }

    /// Leaves out the first keys, but for those of which more than one version came.
    fn leave_out(&mut self, keys: usize) {
        let end = self.end;
        self.first = keys.min(end);
        self.again = self.memtable.covered_hashes(self.first);
        self.go_to_end(end);
    }

    /// To the stretch that ends there.
    fn go_to_end(&mut self, end: usize) {
        self.end = end;
        self.start = self.first.max(end.saturating_sub(1) / BLOCK_ROWS * BLOCK_ROWS).min(end);
        self.next = self.start;
    }

    fn pass(&mut self, count: usize) {
        self.next += count;
        if self.next >= self.end {
            self.go_to_end(self.start);
        }
    }

    fn is_at_block(&self) -> bool {
        self.next.is_multiple_of(BLOCK_ROWS) && self.end - self.next == BLOCK_ROWS
    }

    fn keys_left(&self) -> usize {
        self.again.len() + self.end - self.next + self.start - self.first
    }
}

impl Walk {
    fn keys_left(&self) -> usize {
        self.parts.iter().map(Part::keys_left).sum()
    }

    /// As [`Rest::fill`].
    fn fill(&mut self, filling: &mut Filling<'_>) -> Result<bool> {
        self.has_begun = true;
        let (mut keys, mut pushed) = (0, Ok(()));
        while pushed.is_ok() && !filling.is_nearly_full() && !self.parts.is_empty() {
            if keys >= KEYS_AT_ONCE {
                return Ok(true);
            }
            if self.is_at_block() {
                if filling.builder.rows() > 0 {
                    break;
                }
                if let Some((block, seen)) = self.next_block()? {
                    keys += BLOCK_ROWS;
                    if filling.take(&block, seen.as_ref())? {
                        break;
                    }
                    continue;
                }
            }
            let room = filling.room();
            keys += match self.listed_key_len() {
                Some(len) => self.step_keys(len, room, |keys| {
                    if pushed.is_ok() {
                        pushed = filling.push_keys(keys, len);
                    }
                }),
                None => self.step(room, |versions| {
                    if pushed.is_ok() {
                        pushed = filling.push(versions.iter().map(|version| encoded(version)));
                    }
                }),
            };
        }
        pushed.map(|()| false)
    }

    fn is_at_block(&self) -> bool {
        let may_be = self.in_blocks && self.keys.is_none() && self.listed_key_len().is_none();
        may_be && self.parts.last().is_some_and(Part::is_at_block)
    }

    /// The block of the next keys, if there is one; then they are passed.
    fn next_block(&mut self) -> Result<Option<SeenBlock>> {
        let Some(Part { memtable, start, .. }) = self.parts.last() else { return Ok(None) };
        let blocks = memtable.blocks(self.index.budget());
        let block = blocks.get_or_make(start / BLOCK_ROWS, (memtable, &self.index), &self.wanted)?;
        Ok(block.map(|block| self.pass_block(block)))
    }

    /// As [`next_block`](Self::next_block), of those that were made.
    fn held_block(&mut self) -> Option<SeenBlock> {
        let Part { memtable, start, .. } = self.parts.last()?;
        let may_be = self.has_begun && self.is_at_block();
        let block =
            may_be.then(|| memtable.blocks(self.index.budget()).get(start / BLOCK_ROWS, &self.wanted))??;
        Some(self.pass_block(block))
    }

    fn pass_block(&mut self, block: Arc<Block>) -> SeenBlock {
        let ts = self.snapshot.ts();
        let part = self.parts.last_mut().expect("the block is of one");
        let seen = block.seen(&part.memtable, ts, &part.shared, &mut part.again);
        self.passed(BLOCK_ROWS);
        (block, seen)
    }

    /// The length of the keys that [`step_keys`](Self::step_keys) finds in the memtable, if they are there and enough.
    fn listed_key_len(&self) -> Option<usize> {
        self.parts.last().filter(|_| self.keys_alone)?.memtable.listing().key_len()
    }

    /// Calls `visit` with what the snapshot sees at the next keys, `keys_max` at most, some dozens at a time. Rows that are deleted or
    /// expired are left out. Returns how many keys there were.
    fn step(&mut self, keys_max: usize, mut visit: impl FnMut(&[&Version])) -> usize {
        let Some(part) = self.parts.last_mut() else { return 0 };
        let (ts, now_micros) = (self.snapshot.ts(), self.snapshot.now_micros());
        let (memtable, keys, table) = (&part.memtable, self.keys.as_ref(), &self.table);
        let is_wanted = |version: &Version| {
            // A key that is in several memtables is taken with the version that counts.
            version.meta.memtable() == memtable.id
                && keys.is_none_or(|keys| keys.contains(version.key()))
                && version.row().is_some_and(|row| !table.is_expired(row, version.meta.ts, now_micros))
        };
        let shared = &mut part.shared;
        let visit = |newest: &[&Version]| {
            let seen = newest.iter().filter_map(|newest| version_at(newest, ts));
            let seen: SmallVec<[&Version; GROUP]> = seen.filter(|version| is_wanted(version)).collect();
            visit(&seen);
        };
        if part.next < part.end {
            let hashes = memtable.hashes_of(part.next..part.end.min(part.next.saturating_add(keys_max)));
            let count = hashes.len();
            self.index.visit_part(self.generation, hashes, self.with_rows, shared, visit);
            return self.passed(count);
        }
        let again = part.again.split_off(part.again.len().saturating_sub(keys_max));
        let count = again.len();
        self.index.visit_part(self.generation, again.into_iter(), self.with_rows, shared, visit);
        self.passed(0);
        count
    }

    /// As [`step`](Self::step), without rows: of the keys, which have this length, as they are listed.
    fn step_keys(&mut self, len: usize, keys_max: usize, mut visit: impl FnMut(&[u64])) -> usize {
        let Some(part) = self.parts.last() else { return 0 };
        let (memtable, ts) = (&part.memtable, self.snapshot.ts());
        let listed = memtable.keys_of(part.next..part.end.min(part.next.saturating_add(keys_max)));
        let is_later = listed.newest > ts;
        for keys in listed.words.chunks(GROUP) {
            let is_open = |key: &u64| is_later || memtable.is_covered(*key);
            let open = keys.iter().rev().fold(0_u64, |open, key| open << 1 | u64::from(is_open(key)));
            if open == 0 && self.keys.is_none() {
                visit(keys);
                continue;
            }
            let hidden = self.hidden(memtable, keys, len, open);
            let seen = keys.iter().enumerate().filter(|(i, _)| hidden >> i & 1 == 0).map(|(_, key)| *key);
            let seen: SmallVec<[u64; GROUP]> = seen.filter(|key| self.is_between(*key, len)).collect();
            visit(&seen);
        }
        let count = listed.words.len();
        self.passed(count)
    }

    /// Which of the `open` keys, a bit each, the snapshot does not see in `memtable`.
    fn hidden(&self, memtable: &Memtable, keys: &[u64], len: usize, open: u64) -> u64 {
        let numbers: SmallVec<[usize; GROUP]> = (0..keys.len()).filter(|i| open >> i & 1 == 1).collect();
        let bytes: SmallVec<[[u8; KEY_BYTES]; GROUP]> =
            numbers.iter().map(|i| keys[*i].to_be_bytes()).collect();
        let key = |bytes| self.index.key(self.generation, bytes);
        let refs: SmallVec<[KeyRef<'_>; GROUP]> =
            bytes.iter().map(|bytes| key(&bytes[KEY_BYTES - len..])).collect();
        let mut hidden = open;
        self.index.visit_group(&refs, |n, newest| {
            let seen = version_at(newest, self.snapshot.ts());
            let seen = seen.filter(|version| version.meta.memtable() == memtable.id);
            if seen.is_some_and(|version| version.row().is_some()) {
                hidden &= !(1 << numbers[n]);
            }
        });
        hidden
    }

    fn is_between(&self, key: u64, len: usize) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(&key.to_be_bytes()[KEY_BYTES - len..]))
    }

    /// Notes that so many of the next keys of the memtable were seen.
    fn passed(&mut self, count: usize) -> usize {
        if let Some(part) = self.parts.last_mut() {
            part.pass(count);
            if part.keys_left() == 0 {
                self.parts.pop();
            }
        }
        count
    }
}
