//! Rows that are being read from files, as far as they are long: each is in memory about twice, decompressed and copied, and
//! many threads read.
//!
//! They have a [share](MemoryBudget::long_reads_max) of the memory of queries. Who reads one has room for it before, and until what
//! was read has gone where it is counted, or is of no use any more. Who finds none waits, in order of arrival; a row that is longer
//! than all of the room is read alone. Who has room waits neither for a client nor for a latch, so everybody's turn comes;
//! who has latches does not wait for room.

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
    /// Others wait for whoever reads it: it has room at once.
    is_urgent: bool,
}

impl LongReads {
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        LongReads { budget: budget.clone(), queue: Mutex::new(Queue::default()), changed: Condvar::new() }
    }

    /// Room for reading a row of so many bytes, which the caller waits for while it has none.
    fn room(&self, row_bytes: usize) -> LongRead<'_> {
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

    /// Room beyond what there is, for who has latches: as many rows as there are threads that write, at most.
    fn room_at_once(&self, row_bytes: usize) -> LongRead<'_> {
        let bytes = BYTES_PER_BYTE * row_bytes as u64;
        self.queue.lock().bytes += bytes;
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

impl<'a> FileRowBuffer<'a> {
    /// Of who has latches.
    pub fn urgent() -> Self {
        FileRowBuffer { is_urgent: true, ..FileRowBuffer::default() }
    }

    /// Gives back what a long row took.
    pub fn clear(&mut self) {
        if self.room.is_some() {
            *self = FileRowBuffer { is_urgent: self.is_urgent, ..FileRowBuffer::default() };
        }
        self.row.clear();
    }

    /// Takes room for a row of so many bytes, once there is some.
    pub fn take_room(&mut self, reads: &'a LongReads, row_bytes: usize) {
        self.room = Some(match self.is_urgent {
            true => reads.room_at_once(row_bytes),
            false => reads.room(row_bytes),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_latches_does_not_wait_for_room() {
        let budget = Arc::new(MemoryBudget::new(64 << 20));
        let reads = LongReads::new(&budget);
        let all = reads.room(budget.long_reads_max() as usize);
        let mut urgent = FileRowBuffer::urgent();
        urgent.take_room(&reads, 1 << 20);
        assert_eq!(reads.bytes_and_waiting(), (all.bytes + (2 << 20), 0));
        urgent.clear();
        urgent.take_room(&reads, 1 << 20);
        drop((urgent, all));
        assert_eq!(reads.bytes_and_waiting(), (0, 0));
    }
}
