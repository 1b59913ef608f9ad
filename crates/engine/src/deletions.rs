//! Deletion marks of one SSTable: which of its rows are replaced or deleted, and since when.
//!
//! Marks at or below the horizon no longer need their time: they are *folded* into a plain bitmap. A file's marks are
//! immutable on disk; each installation that adds some writes the next `<sstable>.<number>.marks` file whole.
//!
//! Layout, little-endian, described in `docs/format/marks.md`:
//! ```text
//! 4  magic "ORBM"     4  version (1)
//! 8  sstable          8  folded_to (timestamp)
//! 4  bitmap bytes     4  recent marks
//! …  roaring bitmap, portable serialization
//! 12 per recent mark: u32 row, u64 deleted_at; rows ascending
//! 4  CRC-32C of all before
//! ```

use crate::hidden::Hidden;
use oribi_env::{Env, File, create_file, read_file};
use oribi_sstable::SstableId;
use oribi_types::{Error, Result, Timestamp};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const MAGIC: &[u8; 4] = b"ORBM";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const MARK_BYTES: usize = 12;

/// What the manifest says of a marks file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MarksRecord {
    pub sstable: SstableId,
    pub number: u64,
    pub checksum: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Deletions {
    /// Rows deleted for every snapshot.
    folded: Arc<RoaringBitmap>,
    /// No snapshot at or below this reads the file by its marks.
    folded_to: Timestamp,
    /// Later marks, by row.
    recent: Vec<(u32, Timestamp)>,
    /// What snapshots do not see that are later than all marks; made by the first scan.
    hidden: OnceLock<Hidden>,
}

impl Deletions {
    /// With `marks` added and those at or below `horizon` folded. A row that is marked already keeps its mark.
    pub fn with(&self, marks: impl IntoIterator<Item = (u32, Timestamp)>, horizon: Timestamp) -> Self {
        let mut recent = self.recent.clone();
        recent.extend(marks.into_iter().filter(|(row, _)| !self.folded.contains(*row)));
        // By row, oldest mark first: the oldest counts. They are a few ascending runs, which a stable sort finds and merges; sorting
        // them otherwise took three of a hundred samples of the second and third update of a tenth of a table's rows.
        recent.sort();
        recent.dedup_by_key(|(row, _)| *row);
        let mut folded = self.folded.clone();
        let mut folded_to = self.folded_to;
        if recent.iter().any(|(_, ts)| *ts <= horizon) {
            let bitmap = Arc::make_mut(&mut folded);
            recent.retain(|&(row, ts)| {
                let fold = ts <= horizon;
                if fold {
                    bitmap.insert(row);
                    folded_to = folded_to.max(ts);
                }
                !fold
            });
        }
        Deletions { folded, folded_to, recent, hidden: OnceLock::new() }
    }

    pub fn is_marked(&self, row: u32) -> bool {
        self.folded.contains(row) || self.recent.binary_search_by_key(&row, |(r, _)| *r).is_ok()
    }

    /// The time of the mark of `row`; `MIN` for a folded one.
    pub fn deleted_at(&self, row: u32) -> Option<Timestamp> {
        if self.folded.contains(row) {
            return Some(Timestamp::MIN);
        }
        let i = self.recent.binary_search_by_key(&row, |(r, _)| *r).ok()?;
        Some(self.recent[i].1)
    }

    /// All marks as (row, deleted_at), the folded ones with `MIN`.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Timestamp)> + '_ {
        self.folded.iter().map(|row| (row, Timestamp::MIN)).chain(self.recent.iter().copied())
    }

    /// The rows that a snapshot at `ts` does not see, of a file that has `rows` rows.
    ///
    /// # Errors
    /// `Invalid` if marks later than `ts` were folded: the snapshot is too old.
    pub fn hidden_at(&self, ts: Timestamp, rows: usize) -> Result<Hidden> {
        if ts < self.folded_to {
            return Err(Error::invalid("snapshot too old"));
        }
        let recent = self.recent.iter().filter(|(_, deleted_at)| *deleted_at <= ts).map(|(row, _)| *row);
        let hidden = || Hidden::new(rows, self.folded.iter().chain(recent.clone()));
        Ok(match recent.clone().count() == self.recent.len() {
            true => self.hidden.get_or_init(hidden).clone(),
            false => hidden(),
        })
    }

    /// Whether a row was marked later than `ts`.
    pub fn has_marks_after(&self, ts: Timestamp) -> bool {
        self.folded_to > ts || self.recent.iter().any(|(_, deleted_at)| *deleted_at > ts)
    }

    /// How many rows no snapshot at or above `horizon` sees.
    pub fn gone_at(&self, horizon: Timestamp) -> u64 {
        self.folded.len() + self.recent.iter().filter(|(_, deleted_at)| *deleted_at <= horizon).count() as u64
    }

    pub fn len(&self) -> u64 {
        self.folded.len() + self.recent.len() as u64
    }

    /// Memory that they take, with the bits that scans have made of them.
    pub fn memory_bytes(&self) -> usize {
        let bits = self.hidden.get().map_or(0, Hidden::memory_bytes);
        self.folded.serialized_size() + self.recent.capacity() * size_of::<(u32, Timestamp)>() + bits
    }

    /// Writes the marks file, which is to be synced, and its folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn store(
        &self,
        env: &Env,
        dir: &Path,
        sstable: SstableId,
        number: u64,
    ) -> Result<(MarksRecord, Arc<dyn File>)> {
        let (bytes, checksum) = self.encode(sstable);
        let file = create_file(env.files.as_ref(), &marks_path(dir, sstable, number), &bytes)?;
        Ok((MarksRecord { sstable, number, checksum }, file))
    }

    /// # Errors
    /// `Corrupt`, naming the file, if it is not what the manifest recorded.
    pub fn load(env: &Env, dir: &Path, record: &MarksRecord) -> Result<Self> {
        let path = marks_path(dir, record.sstable, record.number);
        let named = |e: Error| e.context(format!("marks file {}.{}", record.sstable, record.number));
        let bytes = read_file(env.files.as_ref(), &path).map_err(|e| named(e.into()))?;
        Deletions::decode(&bytes, record).map_err(named)
    }

    fn encode(&self, sstable: SstableId) -> (Vec<u8>, u32) {
        let bitmap_bytes = self.folded.serialized_size();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + bitmap_bytes + self.recent.len() * MARK_BYTES + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&sstable.to_le_bytes());
        bytes.extend_from_slice(&self.folded_to.0.to_le_bytes());
        bytes.extend_from_slice(&(bitmap_bytes as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.recent.len() as u32).to_le_bytes());
        self.folded.serialize_into(&mut bytes).expect("writing to memory does not fail");
        for (row, deleted_at) in &self.recent {
            bytes.extend_from_slice(&row.to_le_bytes());
            bytes.extend_from_slice(&deleted_at.0.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }

    fn decode(bytes: &[u8], record: &MarksRecord) -> Result<Self> {
        let malformed = || Error::corrupt("malformed");
        let (body, stored) = bytes.split_last_chunk::<4>().ok_or_else(malformed)?;
        let checksum = crc32c::crc32c(body);
        if checksum != u32::from_le_bytes(*stored) || checksum != record.checksum {
            return Err(Error::corrupt("checksum mismatch"));
        }
        let header = body.first_chunk::<HEADER_BYTES>().ok_or_else(malformed)?;
        let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if header[..4] != *MAGIC || u32_at(4) != VERSION || u64_at(8) != record.sstable {
            return Err(malformed());
        }
        let (bitmap_bytes, marks) = (u32_at(24) as usize, u32_at(28) as usize);
        let rest = &body[HEADER_BYTES..];
        if marks.checked_mul(MARK_BYTES).and_then(|m| m.checked_add(bitmap_bytes)) != Some(rest.len()) {
            return Err(malformed());
        }
        let (bitmap, recent) = rest.split_at(bitmap_bytes);
        let folded = RoaringBitmap::deserialize_from(bitmap).map_err(|_| malformed())?;
        let recent = recent
            .chunks_exact(MARK_BYTES)
            .map(|mark| {
                let (row, deleted_at) = mark.split_at(4);
                let row = u32::from_le_bytes(row.try_into().expect("four bytes"));
                (row, Timestamp(u64::from_le_bytes(deleted_at.try_into().expect("eight bytes"))))
            })
            .collect();
        let (folded, folded_to) = (Arc::new(folded), Timestamp(u64_at(16)));
        Ok(Deletions { folded, folded_to, recent, hidden: OnceLock::new() })
    }
}

const SUFFIX: &str = ".marks";

pub(crate) fn marks_path(dir: &Path, sstable: SstableId, number: u64) -> PathBuf {
    dir.join(format!("{sstable:016x}.{number:08x}{SUFFIX}"))
}

/// The SSTable and number that a marks file's name says.
pub(crate) fn parse_marks_name(name: &str) -> Option<(SstableId, u64)> {
    let (sstable, number) = name.strip_suffix(SUFFIX)?.split_once('.')?;
    Some((u64::from_str_radix(sstable, 16).ok()?, u64::from_str_radix(number, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> Timestamp {
        Timestamp(n)
    }

    #[test]
    fn a_snapshot_sees_rows_marked_later() {
        let deletions = Deletions::default().with([(3, ts(10)), (5, ts(20))], ts(0));
        assert_eq!(deletions.hidden_at(ts(9), 9).unwrap().len(), 0);
        assert!(deletions.hidden_at(ts(10), 9).unwrap().contains(3));
        assert!(!deletions.hidden_at(ts(19), 9).unwrap().contains(5));
        assert_eq!(deletions.hidden_at(ts(20), 9).unwrap().len(), 2);
    }

    #[test]
    fn folding_forgets_times_and_refuses_older_snapshots() {
        let deletions = Deletions::default().with([(3, ts(10)), (5, ts(20))], ts(15));
        assert_eq!(deletions.deleted_at(3), Some(Timestamp::MIN));
        assert_eq!(deletions.deleted_at(5), Some(ts(20)));
        assert!(deletions.hidden_at(ts(9), 9).is_err());
        assert_eq!(deletions.hidden_at(ts(15), 9).unwrap().len(), 1);
    }

    #[test]
    fn the_bits_that_scans_made_are_counted() {
        let deletions = Deletions::default().with([(3, ts(10))], ts(15));
        let before = deletions.memory_bytes();
        deletions.hidden_at(ts(20), 80_000).unwrap();
        assert!((10_000..12_000).contains(&(deletions.memory_bytes() - before)));
    }

    #[test]
    fn the_oldest_mark_of_a_row_counts() {
        let deletions = Deletions::default().with([(3, ts(10))], ts(0)).with([(3, ts(20))], ts(0));
        assert_eq!(deletions.deleted_at(3), Some(ts(10)));
        assert_eq!(deletions.len(), 1);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let deletions = Deletions::default().with([(1, ts(5)), (7, ts(50)), (9, ts(60))], ts(10));
        let (bytes, checksum) = deletions.encode(42);
        let record = MarksRecord { sstable: 42, number: 0, checksum };
        assert_eq!(Deletions::decode(&bytes, &record).unwrap(), deletions);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Deletions::decode(&damaged, &record).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Deletions::decode(&bytes[..len], &record).is_err(), "length {len}");
        }
    }
}
