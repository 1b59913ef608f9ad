//! Rows that are being read from files, as far as they are long: each is in memory about twice, decompressed and copied, and
//! many threads read.
//!
//! They have a [share](MemoryBudget::long_reads_max) of the memory of queries. Who reads one has room for it before, and until what
//! was read has gone where it is counted, or is of no use any more. Who finds none waits, in order of arrival; a row that is longer
//! than all of the room is read alone. Who has room waits neither for a client nor for a latch, so everybody's turn comes.

use crate::memory::{MemoryBudget, Reserved};
use oribi_env::locks::{self, Condvar, Mutex};
use std::sync::Arc;

/// What a row has of long pages is more, or reading it is not counted.
pub(crate) const UNCOUNTED_BYTES: usize = 256 << 10;
/// The page and the value; then the value and the row; then the row and what is made of it.
const BYTES_PER_BYTE: u64 = 2;

pub(crate) struct LongReads {
    budget: Arc<MemoryBudget>,
    queue: Mutex<Queue, { locks::LEAF }>,
    /// There is more room, or it is another's turn.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    bytes: u64,
    /// Those who have come, and those of them who have been let in.
    came: u64,
    entered: u64,
}

/// Room for a row, until this is dropped.
pub(crate) struct LongRead<'a> {
    reads: &'a LongReads,
    bytes: u64,
    _reserved: Reserved,
}

/// A row as it comes from a file.
#[derive(Default)]
pub(crate) struct FileRowBuffer<'a> {
    pub row: Vec<u8>,
    /// If it is long.
    pub room: Option<LongRead<'a>>,
}

impl LongReads {
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        LongReads { budget: budget.clone(), queue: Mutex::new(Queue::default()), changed: Condvar::new() }
    }

    /// Room for reading a row of so many bytes, which the caller waits for while it has none.
    pub fn room(&self, row_bytes: usize) -> LongRead<'_> {
        let bytes = BYTES_PER_BYTE * row_bytes as u64;
        let most = self.budget.long_reads_max();
        let mut queue = self.queue.lock();
        let number = queue.came;
        queue.came += 1;
        while queue.entered != number || !(queue.bytes == 0 || queue.bytes + bytes <= most) {
            self.changed.wait(&mut queue);
        }
        queue.entered += 1;
        queue.bytes += bytes;
        drop(queue);
        self.changed.notify_all();
        LongRead { reads: self, bytes, _reserved: Reserved::new(&self.budget, bytes) }
    }

    /// Bytes that are taken, and how many wait for some.
    pub fn bytes_and_waiting(&self) -> (u64, u64) {
        let queue = self.queue.lock();
        (queue.bytes, queue.came - queue.entered)
    }
}

impl Drop for LongRead<'_> {
    fn drop(&mut self) {
        self.reads.queue.lock().bytes -= self.bytes;
        self.reads.changed.notify_all();
    }
}

impl FileRowBuffer<'_> {
    /// Gives back what a long row took.
    pub fn clear(&mut self) {
        if self.room.is_some() {
            *self = FileRowBuffer::default();
        }
        self.row.clear();
    }
}
