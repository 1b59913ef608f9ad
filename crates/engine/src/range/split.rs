//! Splits a range of keys into parts of about the same size, for readers that work side by side: by the key indexes of files
//! and the ordered views of memtables. No file is read.

use super::keys::KeyRange;
use super::memory::MemoryRows;
use crate::catalog::Table;
use crate::engine::Engine;
use oribi_types::schema::ColumnId;

/// Keys that are looked at, of each file and each run in memory. Parts are as even as that allows.
const SAMPLES: u64 = 4096;
/// The most parts.
const PARTS_MAX: u64 = 1024;

/// A part of a range, and about how many bytes its rows take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePart {
    pub keys: KeyRange,
    pub bytes: u64,
}

/// A key, and the bytes of rows that stand for it: those from it on, until the next sample of the same source.
type Sample = (Vec<u8>, u64);

impl Engine {
    /// Parts of `keys` in tablet number `tablet`, ascending and without gaps: of about `part_bytes` each, as far as it is known
    /// what lies between two keys. The bytes are those of the columns `columns` in files, and those of whole rows in
    /// memory. Keys between parts need not be whole ones. Builds the ordered views of memtables; do not call from a thread of
    /// idle priority.
    pub fn split_range(
        &self,
        table: &Table,
        tablet: usize,
        keys: &KeyRange,
        columns: &[ColumnId],
        part_bytes: u64,
    ) -> Vec<RangePart> {
        let mut samples = self.samples(table, tablet, keys, columns);
        samples.sort_unstable();
        let total: u64 = samples.iter().map(|(_, bytes)| bytes).sum();
        let part_bytes = part_bytes.max(total / PARTS_MAX).max(1);
        let mut parts = Vec::new();
        let (mut from, mut bytes) = (keys.from.clone(), 0);
        for (key, of_key) in samples {
            if bytes >= part_bytes && key > from {
                let keys = KeyRange { from: std::mem::replace(&mut from, key.clone()), to: Some(key) };
                parts.push(RangePart { keys, bytes: std::mem::take(&mut bytes) });
            }
            bytes += of_key;
        }
        parts.push(RangePart { keys: KeyRange { from, to: keys.to.clone() }, bytes });
        parts
    }

    fn samples(&self, table: &Table, tablet: usize, keys: &KeyRange, columns: &[ColumnId]) -> Vec<Sample> {
        let state = arc_swap::Guard::into_inner(table.tablets[tablet].state());
        let mut samples = Vec::new();
        for file in &state.files.files {
            let (sstable, to) = (&file.sstable, keys.to.as_deref());
            let rows = u64::from(sstable.rows_between_max(&keys.from, to));
            if rows > 0 {
                let bytes = share(sstable.columns_bytes(columns.iter().copied()), rows, sstable.meta().rows);
                let first = keys.from.as_slice().max(&sstable.meta().min_key);
                let apart = sstable.keys_apart(first, to, (rows / SAMPLES) as u32);
                spread(std::iter::once(first).chain(apart), bytes, &mut samples);
            }
        }
        let (bytes, in_memory) =
            state.memtables().fold((0, 0), |(b, n), m| (b + m.bytes(), n + m.len() as u64));
        let memory = MemoryRows::new(self, &state, keys);
        for run in memory.iter().flat_map(MemoryRows::rests) {
            let rows = run.len() as u64;
            let step = (rows / SAMPLES).max(1) as usize;
            spread(run.step_by(step), share(bytes, rows, in_memory), &mut samples);
        }
        samples
    }
}

/// The bytes of `part` of the `whole` rows that have `bytes`.
fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Has the bytes of a source lie evenly between its keys and behind the last.
fn spread<'k>(keys: impl Iterator<Item = &'k [u8]>, bytes: u64, samples: &mut Vec<Sample>) {
    let start = samples.len();
    samples.extend(keys.map(|key| (key.to_vec(), 0)));
    let count = (samples.len() - start) as u64;
    samples[start..].iter_mut().for_each(|sample| sample.1 = bytes / count);
}
