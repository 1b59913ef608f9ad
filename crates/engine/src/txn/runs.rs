//! Runs: parts of a write set in files of their own, sorted, which nobody but their transaction reads.
//!
//! A run has its changes by tablet and key, those of one key from the last to the first, in blocks. Where each block begins is known
//! in memory, so that a key is found by reading one, and so is the block's checksum. Nothing is synced: after a crash a
//! transaction is gone, and whoever opens the folder next removes what is left. A run is removed when nobody reads it any more.
//!
//! ```text
//! per change: u64 tablet, u64 number of the change, u64 what was seen (0 nothing, MAX the transaction's own, or a timestamp),
//!             u32 key bytes, u32 row bytes (MAX: deleted), key, row
//! ```
//! Little-endian.

use super::writes::Seen;
use crate::tablet::TabletId;
use oribi_env::{Env, File, Files};
use oribi_types::{Error, Result, Timestamp};
use std::cmp::{Ordering, Reverse};
use std::path::PathBuf;
use std::sync::Arc;

/// A block ends behind the change with which it has so many bytes.
const BLOCK_BYTES: usize = 32 << 10;
/// Blocks are written in pieces of about so many bytes.
const WRITE_BYTES: usize = 1 << 20;

const HEADER_BYTES: usize = 32;
const DELETED: u32 = u32::MAX;
const SEEN_NOTHING: u64 = 0;
const SEEN_OWN: u64 = u64::MAX;

/// A change as a run has it.
#[derive(Clone, Copy)]
pub(super) struct Entry<'r> {
    pub tablet: TabletId,
    pub key: &'r [u8],
    /// The number of the change in its transaction.
    pub number: u64,
    pub seen: Seen,
    /// `None` if it is deleted.
    pub row: Option<&'r [u8]>,
}

pub(super) struct Run {
    files: Arc<dyn Files>,
    path: PathBuf,
    file: Arc<dyn File>,
    blocks: Vec<Block>,
    /// The number of its first change.
    first: u64,
}

struct Block {
    tablet: TabletId,
    /// Its first key.
    key: Box<[u8]>,
    offset: u64,
    bytes: usize,
    sum: u32,
}

/// A run, as far as it counts: changes of higher numbers were undone, or came later.
#[derive(Clone)]
pub(super) struct RunView {
    pub run: Arc<Run>,
    pub below: u64,
}

/// The block that was read last.
#[derive(Default)]
pub(super) struct ReadBlock {
    block: Option<usize>,
    bytes: Vec<u8>,
}

impl Run {
    /// Writes changes, which come in order; `first` is the lowest of their numbers.
    ///
    /// # Errors
    /// Those of the file system. Nothing is left then.
    pub fn write<'e>(
        env: &Env,
        path: PathBuf,
        first: u64,
        entries: impl Iterator<Item = Entry<'e>>,
    ) -> Result<Self> {
        let file = env.files.create(&path)?;
        let mut run = Run { files: env.files.clone(), path, file, blocks: Vec::new(), first };
        let (mut written, mut block_from, mut buf) = (0, 0, Vec::new());
        let mut begin = None;
        #[cfg(debug_assertions)]
        let mut last: Option<(TabletId, Vec<u8>, Reverse<u64>)> = None;
        for entry in entries {
            #[cfg(debug_assertions)]
            {
                let next = (entry.tablet, entry.key.to_vec(), Reverse(entry.number));
                assert!(last.as_ref().is_none_or(|last| *last < next), "changes come in order");
                last = Some(next);
            }
            begin.get_or_insert_with(|| (entry.tablet, Box::from(entry.key)));
            push(&mut buf, &entry);
            if buf.len() - block_from >= BLOCK_BYTES {
                run.end_block(begin.take(), written, block_from, &buf);
                block_from = buf.len();
            }
            if block_from >= WRITE_BYTES {
                run.file.write_at(&buf[..block_from], written)?;
                written += block_from as u64;
                buf.drain(..block_from);
                block_from = 0;
            }
        }
        run.end_block(begin.take(), written, block_from, &buf);
        run.file.write_at(&buf, written)?;
        Ok(run)
    }

    fn end_block(&mut self, begin: Option<(TabletId, Box<[u8]>)>, written: u64, from: usize, buf: &[u8]) {
        let Some((tablet, key)) = begin else { return };
        let (bytes, sum) = (buf.len() - from, crc32c::crc32c(&buf[from..]));
        self.blocks.push(Block { tablet, key, offset: written + from as u64, bytes, sum });
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| size_of::<Block>() + block.key.len()).sum()
    }

    /// The first block that may have the key.
    fn block_of(&self, tablet: TabletId, key: &[u8]) -> usize {
        let is_before = |block: &Block| (block.tablet, &*block.key) < (tablet, key);
        self.blocks.partition_point(is_before).saturating_sub(1)
    }

    fn read(&self, block: usize, into: &mut ReadBlock) -> Result<()> {
        if into.block == Some(block) {
            return Ok(());
        }
        into.block = None;
        let Block { offset, bytes, sum, .. } = self.blocks[block];
        into.bytes.resize(bytes, 0);
        self.file.read_at(&mut into.bytes, offset)?;
        if crc32c::crc32c(&into.bytes) != sum {
            let path = self.path.display();
            return Err(Error::corrupt(format!("{path}: checksum mismatch at offset {offset}")));
        }
        into.block = Some(block);
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = self.files.remove(&self.path) {
            tracing::warn!(%error, "cannot remove a file of a transaction that has ended");
        }
    }
}

impl RunView {
    /// The last change of a key: its row, `None` if it is deleted.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    #[allow(clippy::option_option, reason = "whether it was changed, and whether there is a row then")]
    pub fn find(
        &self,
        tablet: TabletId,
        key: &[u8],
        read: &mut ReadBlock,
    ) -> Result<Option<Option<Vec<u8>>>> {
        let run = &self.run;
        for block in run.block_of(tablet, key)..run.blocks.len() {
            if (run.blocks[block].tablet, &*run.blocks[block].key) > (tablet, key) {
                break;
            }
            run.read(block, read)?;
            let mut rest = &read.bytes[..];
            while !rest.is_empty() {
                let (entry, later) = take(rest)?;
                rest = later;
                match (entry.tablet, entry.key).cmp(&(tablet, key)) {
                    Ordering::Less => {}
                    Ordering::Equal if entry.number >= self.below => {}
                    Ordering::Equal => return Ok(Some(entry.row.map(<[u8]>::to_vec))),
                    Ordering::Greater => return Ok(None),
                }
            }
        }
        Ok(None)
    }
}

/// Changes of a run one after the other.
struct Cursor {
    view: RunView,
    read: ReadBlock,
    /// The next block.
    block: usize,
    /// The places of the change, and of the next one.
    at: usize,
    next: usize,
}

impl Cursor {
    /// Before the first change of a key at or above this one.
    fn at(view: &RunView, tablet: TabletId, key: &[u8]) -> Result<Option<Self>> {
        let block = view.run.block_of(tablet, key);
        let mut cursor = Cursor { view: view.clone(), read: ReadBlock::default(), block, at: 0, next: 0 };
        while cursor.advance()? {
            if (cursor.entry()?.tablet, cursor.entry()?.key) >= (tablet, key) {
                return Ok(Some(cursor));
            }
        }
        Ok(None)
    }

    fn entry(&self) -> Result<Entry<'_>> {
        take(&self.read.bytes[self.at..]).map(|(entry, _)| entry)
    }

    /// Goes to the next change; false if there is none.
    fn advance(&mut self) -> Result<bool> {
        loop {
            if self.next == self.read.bytes.len() {
                if self.block == self.view.run.blocks.len() {
                    return Ok(false);
                }
                self.view.run.read(self.block, &mut self.read)?;
                (self.block, self.next) = (self.block + 1, 0);
            }
            let (entry, rest) = take(&self.read.bytes[self.next..])?;
            let counts = entry.number < self.view.below;
            (self.at, self.next) = (self.next, self.read.bytes.len() - rest.len());
            if counts {
                return Ok(true);
            }
        }
    }
}

/// What became of the keys of several runs, in order, each once.
pub(super) struct Merge {
    cursors: Vec<Cursor>,
    /// A heap of the cursors that have more: the next in order is the first.
    heap: Vec<usize>,
    pub tablet: TabletId,
    pub key: Vec<u8>,
    /// `None` if it is deleted.
    pub row: Option<Vec<u8>>,
    /// What the first change of the key has seen.
    pub seen: Seen,
}

impl Merge {
    /// From a key of a tablet on, through all tablets behind it.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn from(runs: &[RunView], tablet: TabletId, key: &[u8]) -> Result<Self> {
        let cursors = runs.iter().map(|view| Cursor::at(view, tablet, key));
        let cursors: Vec<Cursor> = cursors.filter_map(Result::transpose).collect::<Result<_>>()?;
        let heap = Vec::with_capacity(cursors.len());
        let mut merge = Merge { cursors, heap, tablet, key: Vec::new(), row: None, seen: Seen::Nothing };
        for cursor in 0..merge.cursors.len() {
            merge.heap.push(cursor);
        }
        for place in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(place)?;
        }
        Ok(merge)
    }

    /// Goes to the next key; false if there is none.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn next(&mut self) -> Result<bool> {
        let Some(&first) = self.heap.first() else { return Ok(false) };
        let Merge { cursors, key, row, .. } = self;
        let entry = cursors[first].entry()?;
        key.clear();
        key.extend_from_slice(entry.key);
        match entry.row {
            Some(bytes) => {
                let row = row.get_or_insert_default();
                row.clear();
                row.extend_from_slice(bytes);
            }
            None => *row = None,
        }
        self.tablet = entry.tablet;
        while let Some(&first) = self.heap.first() {
            let entry = self.cursors[first].entry()?;
            if entry.tablet != self.tablet || entry.key != self.key {
                break;
            }
            self.seen = entry.seen;
            if !self.cursors[first].advance()? {
                self.heap.swap_remove(0);
            }
            self.sift_down(0)?;
        }
        Ok(true)
    }

    fn sift_down(&mut self, mut place: usize) -> Result<()> {
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.is_before(child, least)? {
                    least = child;
                }
            }
            if least == place {
                return Ok(());
            }
            self.heap.swap(place, least);
            place = least;
        }
    }

    fn is_before(&self, a: usize, b: usize) -> Result<bool> {
        let (a, b) = (self.cursors[self.heap[a]].entry()?, self.cursors[self.heap[b]].entry()?);
        Ok((a.tablet, a.key, Reverse(a.number)) < (b.tablet, b.key, Reverse(b.number)))
    }
}

fn push(buf: &mut Vec<u8>, entry: &Entry<'_>) {
    let seen = match entry.seen {
        Seen::Nothing => SEEN_NOTHING,
        Seen::RowOf(ts) => ts.0,
        Seen::Own => SEEN_OWN,
    };
    buf.extend_from_slice(&entry.tablet.to_le_bytes());
    buf.extend_from_slice(&entry.number.to_le_bytes());
    buf.extend_from_slice(&seen.to_le_bytes());
    buf.extend_from_slice(&(entry.key.len() as u32).to_le_bytes());
    buf.extend_from_slice(&entry.row.map_or(DELETED, |row| row.len() as u32).to_le_bytes());
    buf.extend_from_slice(entry.key);
    buf.extend_from_slice(entry.row.unwrap_or_default());
}

/// The first change, and what is behind it.
fn take(bytes: &[u8]) -> Result<(Entry<'_>, &[u8])> {
    let malformed = || Error::corrupt("a run of a transaction is malformed");
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(malformed)?;
    let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let short = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let seen = match long(16) {
        SEEN_NOTHING => Seen::Nothing,
        SEEN_OWN => Seen::Own,
        ts => Seen::RowOf(Timestamp(ts)),
    };
    let (key, rest) = rest.split_at_checked(short(24) as usize).ok_or_else(malformed)?;
    let (row, rest) = match short(28) {
        DELETED => (None, rest),
        bytes => {
            let (row, rest) = rest.split_at_checked(bytes as usize).ok_or_else(malformed)?;
            (Some(row), rest)
        }
    };
    Ok((Entry { tablet: long(0), key, number: long(8), seen, row }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_sim::{SimClock, SimFiles};
    use std::path::Path;

    fn env(files: &SimFiles) -> Env {
        Env { files: Arc::new(files.clone()), clock: Arc::new(SimClock::new()) }
    }

    /// A run of changes (tablet, key, row), in order, with numbers from `first` on in the order of keys.
    fn run(env: &Env, name: &str, first: u64, changes: &[(u64, u32, Option<&[u8]>)]) -> Arc<Run> {
        let keys: Vec<[u8; 4]> = changes.iter().map(|(_, key, _)| key.to_be_bytes()).collect();
        let entries = changes.iter().zip(&keys).zip(first..).map(|(((tablet, _, row), key), number)| Entry {
            tablet: *tablet,
            key,
            number,
            seen: if number == 0 { Seen::RowOf(Timestamp(7)) } else { Seen::Nothing },
            row: *row,
        });
        Arc::new(Run::write(env, Path::new("/").join(name), first, entries).unwrap())
    }

    fn all(runs: &[RunView]) -> Vec<(u64, u32, Option<Vec<u8>>)> {
        let (mut merge, mut found) = (Merge::from(runs, 0, b"").unwrap(), Vec::new());
        while merge.next().unwrap() {
            let key = u32::from_be_bytes(merge.key[..].try_into().unwrap());
            found.push((merge.tablet, key, merge.row.clone()));
        }
        found
    }

    #[test]
    fn the_last_change_of_a_key_counts_that_was_not_undone() {
        let files = SimFiles::new();
        let env = env(&files);
        let long = vec![b'x'; 3 * BLOCK_BYTES];
        let older = run(&env, "a", 0, &[(1, 5, Some(b"old")), (1, 9, Some(&long)), (2, 5, Some(b"two"))]);
        let newer = run(&env, "b", 3, &[(1, 5, Some(b"new")), (1, 9, None), (1, 10, Some(b"ten"))]);
        let views = |below: u64| -> Vec<RunView> {
            [&older, &newer].map(|run| RunView { run: run.clone(), below }).into()
        };
        let row = |bytes: &[u8]| Some(bytes.to_vec());
        let two = (2, 5, row(b"two"));
        assert_eq!(all(&views(9)), [(1, 5, row(b"new")), (1, 9, None), (1, 10, row(b"ten")), two.clone()]);
        assert_eq!(all(&views(4)), [(1, 5, row(b"new")), (1, 9, row(&long)), two.clone()]);
        assert_eq!(all(&views(2)), [(1, 5, row(b"old")), (1, 9, row(&long))]);
        let key = |key: u32| key.to_be_bytes();
        let find = |view: &RunView, k| view.find(1, &key(k), &mut ReadBlock::default()).unwrap();
        assert_eq!(find(&views(9)[0], 9), Some(row(&long)));
        assert_eq!(find(&views(9)[1], 9), Some(None));
        assert_eq!(find(&views(4)[1], 9), None);
        assert_eq!(find(&views(9)[1], 4), None);
        let mut merge = Merge::from(&views(9), 1, &key(5)).unwrap();
        assert!(merge.next().unwrap() && merge.seen == Seen::RowOf(Timestamp(7)), "what the first has seen");
        let mut behind = Merge::from(&views(9), 1, &key(11)).unwrap();
        assert!(behind.next().unwrap() && behind.tablet == 2);
        assert!(!behind.next().unwrap());
        drop((merge, behind, older, newer));
        assert!(env.files.list(Path::new("/")).unwrap().is_empty(), "a run goes with who reads it");
    }

    #[test]
    fn many_blocks_are_searched_by_their_first_keys() {
        let env = env(&SimFiles::new());
        let row = vec![b'r'; 1000];
        let changes: Vec<_> = (0..500).map(|k| (1, 2 * k, Some(&row[..]))).collect();
        let view = RunView { run: run(&env, "a", 0, &changes), below: u64::MAX };
        assert!(view.run.blocks.len() > 10);
        let mut read = ReadBlock::default();
        for k in 0..1001_u32 {
            let found = view.find(1, &k.to_be_bytes(), &mut read).unwrap();
            assert_eq!(found.is_some(), k < 1000 && k % 2 == 0, "{k}");
        }
        assert_eq!(all(&[view]).len(), 500);
    }
}
