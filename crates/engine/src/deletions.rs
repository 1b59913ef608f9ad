//! Deletion marks of one SSTable: which of its rows are replaced or deleted, and since when.
//!
//! Marks at or below the horizon no longer need their time: they are *folded* into a plain bitmap. Of the others, those that one
//! statement gives to many rows are a bitmap and one time. A file's marks are immutable on disk; each installation that adds some
//! writes the next `<sstable>.<number>.marks` file whole: about two bytes at most for each of many, twelve for one by itself.
//!
//! Layout, little-endian, described in `docs/format/marks.md`:
//! ```text
//! 4  magic "ORBM"     4  version (2, or 1 without sets)
//! 8  sstable          8  folded_to (timestamp)
//! 4  bitmap bytes     4  single marks
//! …  roaring bitmap, portable serialization
//! 12 per single mark: u32 row, u64 deleted_at; rows ascending
//! …  per set: u64 deleted_at, u32 bitmap bytes, roaring bitmap
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
const VERSION: u32 = 2;
/// Of files that have no sets.
const VERSION_WITHOUT_SETS: u32 = 1;
const HEADER_BYTES: usize = 32;
const SINGLE_BYTES: usize = 12;
const SET_HEADER_BYTES: usize = 12;

/// So many rows that are marked at one time are a set.
const SET_ROWS_MIN: usize = 4 << 10;
/// Each look-up of a mark asks every set. While snapshots of before keep so many apart, further marks are single ones.
const SETS_MAX: usize = 32;

/// What a change marks in one file.
#[derive(Clone, Debug)]
pub(crate) enum Marks {
    /// Rows, each since a time of its own; in any order.
    Each(Vec<(u32, Timestamp)>),
    /// Rows that all are marked at one time.
    At(Timestamp, Arc<RoaringBitmap>),
}

impl Default for Marks {
    fn default() -> Self {
        Marks::Each(Vec::new())
    }
}

/// What the manifest says of a marks file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MarksRecord {
    pub sstable: SstableId,
    pub number: u64,
    pub checksum: u32,
}

/// No row has two marks, wherever they are kept: so it is made, and what is read is refused otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Deletions {
    /// Rows deleted for every snapshot.
    folded: Arc<RoaringBitmap>,
    /// No snapshot at or below this reads the file by its marks.
    folded_to: Timestamp,
    /// Later marks of many rows at one time.
    sets: Vec<(Timestamp, Arc<RoaringBitmap>)>,
    /// The other later marks, by row.
    singles: Vec<(u32, Timestamp)>,
    /// What snapshots do not see that are later than all marks; made by the first scan.
    hidden: OnceLock<Hidden>,
}

impl Deletions {
    /// With `marks` added and those at or below `horizon` folded. Of two marks of a row the older one counts.
    pub fn with(&self, marks: &Marks, horizon: Timestamp) -> Self {
        let mut all = Deletions { hidden: OnceLock::new(), ..self.clone() };
        match marks {
            Marks::Each(marks) if marks.len() < SET_ROWS_MIN => all.add_singles(marks.iter().copied()),
            Marks::Each(marks) => {
                let mut by_time = marks.clone();
                by_time.sort_unstable_by_key(|(row, ts)| (*ts, *row));
                for of_time in by_time.chunk_by(|a, b| a.1 == b.1).filter(|marks| is_set(marks.len())) {
                    all.add_at(of_time[0].1, of_time.iter().map(|(row, _)| *row).collect());
                }
                let few = by_time.chunk_by(|a, b| a.1 == b.1).filter(|marks| !is_set(marks.len()));
                all.add_singles(few.flatten().copied());
            }
            Marks::At(ts, rows) => all.add_at(*ts, RoaringBitmap::clone(rows)),
        }
        all.fold(horizon);
        all
    }

    fn add_at(&mut self, ts: Timestamp, rows: RoaringBitmap) {
        if is_set(rows.len() as usize) && self.sets.len() < SETS_MAX {
            self.add_set(ts, rows);
        } else {
            self.add_singles(rows.iter().map(|row| (row, ts)));
        }
    }

    fn add_singles(&mut self, marks: impl Iterator<Item = (u32, Timestamp)>) {
        let is_older = |set: &(Timestamp, Arc<RoaringBitmap>), (row, ts)| set.0 <= ts && set.1.contains(row);
        let is_new = |mark: &(u32, Timestamp)| {
            !self.folded.contains(mark.0) && !self.sets.iter().any(|set| is_older(set, *mark))
        };
        let added: Vec<_> = marks.filter(is_new).collect();
        let Some(oldest) = added.iter().map(|(_, ts)| *ts).min() else { return };
        for (_, rows) in self.sets.iter_mut().filter(|(ts, _)| *ts > oldest) {
            if added.iter().any(|(row, _)| rows.contains(*row)) {
                let rows = Arc::make_mut(rows);
                added.iter().for_each(|(row, _)| _ = rows.remove(*row));
            }
        }
        self.sets.retain(|(_, rows)| !rows.is_empty());
        self.singles.extend(added);
        // By row, oldest mark first: the oldest counts. They are a few ascending runs, which a stable sort finds and merges.
        self.singles.sort();
        self.singles.dedup_by_key(|(row, _)| *row);
    }

    fn add_set(&mut self, ts: Timestamp, mut rows: RoaringBitmap) {
        rows -= &*self.folded;
        for (at, others) in &mut self.sets {
            if *at <= ts {
                rows -= &**others;
            } else {
                *Arc::make_mut(others) -= &rows;
            }
        }
        self.singles.retain(|(row, at)| {
            let stays = *at <= ts || !rows.contains(*row);
            if stays {
                rows.remove(*row);
            }
            stays
        });
        self.sets.push((ts, Arc::new(rows)));
        self.sets.retain(|(_, rows)| !rows.is_empty());
    }

    fn fold(&mut self, horizon: Timestamp) {
        let sets: Vec<_> = self.sets.extract_if(.., |(ts, _)| *ts <= horizon).collect();
        let singles: Vec<_> = self.singles.extract_if(.., |(_, ts)| *ts <= horizon).collect();
        let times = sets.iter().map(|(ts, _)| *ts).chain(singles.iter().map(|(_, ts)| *ts));
        let Some(last) = times.max() else { return };
        self.folded_to = self.folded_to.max(last);
        let folded = Arc::make_mut(&mut self.folded);
        sets.iter().for_each(|(_, rows)| *folded |= &**rows);
        folded.extend(singles.iter().map(|(row, _)| *row));
    }

    pub fn is_marked(&self, row: u32) -> bool {
        self.deleted_at(row).is_some()
    }

    /// Whether none of `rows` is marked.
    pub fn are_unmarked(&self, rows: &RoaringBitmap) -> bool {
        self.folded.is_disjoint(rows)
            && self.sets.iter().all(|(_, set)| set.is_disjoint(rows))
            && !self.singles.iter().any(|(row, _)| rows.contains(*row))
    }

    /// The time of the mark of `row`; `MIN` for a folded one.
    pub fn deleted_at(&self, row: u32) -> Option<Timestamp> {
        if self.folded.contains(row) {
            return Some(Timestamp::MIN);
        }
        if let Some((ts, _)) = self.sets.iter().find(|(_, rows)| rows.contains(row)) {
            return Some(*ts);
        }
        let i = self.singles.binary_search_by_key(&row, |(r, _)| *r).ok()?;
        Some(self.singles[i].1)
    }

    /// All marks as (row, deleted_at), the folded ones with `MIN`.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Timestamp)> + '_ {
        let sets = self.sets.iter().flat_map(|(ts, rows)| rows.iter().map(|row| (row, *ts)));
        self.folded.iter().map(|row| (row, Timestamp::MIN)).chain(sets).chain(self.singles.iter().copied())
    }

    /// The rows that a snapshot at `ts` does not see, of a file that has `rows` rows.
    ///
    /// # Errors
    /// `Invalid` if marks later than `ts` were folded: the snapshot is too old.
    pub fn hidden_at(&self, ts: Timestamp, rows: usize) -> Result<Hidden> {
        if ts < self.folded_to {
            return Err(Error::invalid("snapshot too old"));
        }
        let sets = self.sets.iter().filter(|(at, _)| *at <= ts).flat_map(|(_, rows)| rows.iter());
        let singles = self.singles.iter().filter(|(_, at)| *at <= ts).map(|(row, _)| *row);
        let hidden = || Hidden::new(rows, self.folded.iter().chain(sets).chain(singles));
        Ok(match self.has_marks_after(ts) {
            true => hidden(),
            false => self.hidden.get_or_init(hidden).clone(),
        })
    }

    /// Whether a row was marked later than `ts`.
    pub fn has_marks_after(&self, ts: Timestamp) -> bool {
        self.folded_to > ts
            || self.sets.iter().any(|(at, _)| *at > ts)
            || self.singles.iter().any(|(_, at)| *at > ts)
    }

    /// How many rows no snapshot at or above `horizon` sees.
    pub fn gone_at(&self, horizon: Timestamp) -> u64 {
        let sets = self.sets.iter().filter(|(at, _)| *at <= horizon);
        let singles = self.singles.iter().filter(|(_, at)| *at <= horizon);
        self.folded.len() + sets.map(|(_, rows)| rows.len()).sum::<u64>() + singles.count() as u64
    }

    pub fn len(&self) -> u64 {
        let sets = self.sets.iter().map(|(_, rows)| rows.len());
        self.folded.len() + sets.sum::<u64>() + self.singles.len() as u64
    }

    /// Memory that they take, with the bits that scans have made of them.
    pub fn memory_bytes(&self) -> usize {
        let bits = self.hidden.get().map_or(0, Hidden::memory_bytes);
        let sets = self.sets.iter().map(|(_, rows)| rows.serialized_size());
        let singles = self.singles.capacity() * size_of::<(u32, Timestamp)>();
        self.folded.serialized_size() + sets.sum::<usize>() + singles + bits
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
    /// `Corrupt`, naming the file, if it is not what the manifest recorded, or marks rows that an SSTable of `rows` rows has not.
    pub fn load(env: &Env, dir: &Path, record: &MarksRecord, rows: u64) -> Result<Self> {
        let path = marks_path(dir, record.sstable, record.number);
        let named = |e: Error| e.context(format!("marks file {}.{}", record.sstable, record.number));
        let bytes = read_file(env.files.as_ref(), &path).map_err(|e| named(e.into()))?;
        let deletions = Deletions::decode(&bytes, record).map_err(named)?;
        let are_rows = deletions.iter().all(|(row, _)| u64::from(row) < rows);
        if are_rows { Ok(deletions) } else { Err(named(malformed())) }
    }

    fn encode(&self, sstable: SstableId) -> (Vec<u8>, u32) {
        let bitmap_bytes = self.folded.serialized_size();
        let set_bytes =
            |(_, rows): &(Timestamp, Arc<RoaringBitmap>)| SET_HEADER_BYTES + rows.serialized_size();
        let sets_bytes = self.sets.iter().map(set_bytes).sum::<usize>();
        let singles_bytes = self.singles.len() * SINGLE_BYTES;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + bitmap_bytes + singles_bytes + sets_bytes + 4);
        let version = if self.sets.is_empty() { VERSION_WITHOUT_SETS } else { VERSION };
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&sstable.to_le_bytes());
        bytes.extend_from_slice(&self.folded_to.0.to_le_bytes());
        bytes.extend_from_slice(&(bitmap_bytes as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.singles.len() as u32).to_le_bytes());
        self.folded.serialize_into(&mut bytes).expect("writing to memory does not fail");
        for (row, deleted_at) in &self.singles {
            bytes.extend_from_slice(&row.to_le_bytes());
            bytes.extend_from_slice(&deleted_at.0.to_le_bytes());
        }
        for (deleted_at, rows) in &self.sets {
            bytes.extend_from_slice(&deleted_at.0.to_le_bytes());
            bytes.extend_from_slice(&(rows.serialized_size() as u32).to_le_bytes());
            rows.serialize_into(&mut bytes).expect("writing to memory does not fail");
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }

    fn decode(bytes: &[u8], record: &MarksRecord) -> Result<Self> {
        let (body, stored) = bytes.split_last_chunk::<4>().ok_or_else(malformed)?;
        let checksum = crc32c::crc32c(body);
        if checksum != u32::from_le_bytes(*stored) || checksum != record.checksum {
            return Err(Error::corrupt("checksum mismatch"));
        }
        let (header, rest) = body.split_at_checked(HEADER_BYTES).ok_or_else(malformed)?;
        let version = u32_at(header, 4);
        if header[..4] != *MAGIC
            || !matches!(version, VERSION | VERSION_WITHOUT_SETS)
            || u64_at(header, 8) != record.sstable
        {
            return Err(malformed());
        }
        let (bitmap_bytes, singles) = (u32_at(header, 24) as usize, u32_at(header, 28) as usize);
        let (folded, rest) = rest.split_at_checked(bitmap_bytes).ok_or_else(malformed)?;
        let singles_bytes = singles.checked_mul(SINGLE_BYTES).ok_or_else(malformed)?;
        let (singles, mut rest) = rest.split_at_checked(singles_bytes).ok_or_else(malformed)?;
        if (version == VERSION_WITHOUT_SETS) != rest.is_empty() {
            return Err(malformed());
        }
        let mut sets = Vec::new();
        while !rest.is_empty() {
            let (header, set) = rest.split_at_checked(SET_HEADER_BYTES).ok_or_else(malformed)?;
            let (rows, later) = set.split_at_checked(u32_at(header, 8) as usize).ok_or_else(malformed)?;
            sets.push((Timestamp(u64_at(header, 0)), Arc::new(bitmap(rows)?)));
            rest = later;
        }
        let single = |mark: &[u8]| (u32_at(mark, 0), Timestamp(u64_at(mark, 4)));
        let singles = singles.chunks_exact(SINGLE_BYTES).map(single).collect();
        let (folded, folded_to) = (Arc::new(bitmap(folded)?), Timestamp(u64_at(header, 16)));
        let deletions = Deletions { folded, folded_to, sets, singles, hidden: OnceLock::new() };
        if deletions.is_sound() { Ok(deletions) } else { Err(malformed()) }
    }

    /// Whether no row has two marks, and each is where it is looked for.
    fn is_sound(&self) -> bool {
        let mut all = RoaringBitmap::clone(&self.folded);
        let mut is_new = |rows: &RoaringBitmap| {
            let is_new = !rows.is_empty() && all.is_disjoint(rows);
            all |= rows;
            is_new
        };
        self.sets.iter().all(|(_, rows)| is_new(rows))
            && self.singles.is_sorted_by(|a, b| a.0 < b.0)
            && !self.singles.iter().any(|(row, _)| all.contains(*row))
    }
}

/// Whether so many rows of one time are a set.
fn is_set(rows: usize) -> bool {
    rows >= SET_ROWS_MIN
}

fn malformed() -> Error {
    Error::corrupt("malformed")
}

fn bitmap(bytes: &[u8]) -> Result<RoaringBitmap> {
    let mut rest = bytes;
    let bitmap = RoaringBitmap::deserialize_from(&mut rest).map_err(|_| malformed())?;
    if rest.is_empty() { Ok(bitmap) } else { Err(malformed()) }
}

/// Reads what stands before the checksum of a marks file, without keeping it; for fuzzing.
///
/// # Errors
/// `Corrupt`.
pub fn validate_marks(body: &[u8]) -> Result<()> {
    let sstable = if body.len() < HEADER_BYTES { 0 } else { u64_at(body, 8) };
    let checksum = crc32c::crc32c(body);
    let bytes = [body, &checksum.to_le_bytes()].concat();
    Deletions::decode(&bytes, &MarksRecord { sstable, number: 0, checksum }).map(drop)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
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
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ts(n: u64) -> Timestamp {
        Timestamp(n)
    }

    fn each(marks: &[(u32, u64)]) -> Marks {
        Marks::Each(marks.iter().map(|(row, at)| (*row, ts(*at))).collect())
    }

    /// `count` rows from `first` on, every `step`-th.
    fn at(n: u64, first: u32, step: usize, count: usize) -> Marks {
        Marks::At(ts(n), Arc::new((first..).step_by(step).take(count).collect()))
    }

    const MANY: usize = SET_ROWS_MIN;

    #[test]
    fn a_snapshot_sees_rows_marked_later() {
        let deletions = Deletions::default().with(&each(&[(3, 10), (5, 20)]), ts(0));
        assert_eq!(deletions.hidden_at(ts(9), 9).unwrap().len(), 0);
        assert!(deletions.hidden_at(ts(10), 9).unwrap().contains(3));
        assert!(!deletions.hidden_at(ts(19), 9).unwrap().contains(5));
        assert_eq!(deletions.hidden_at(ts(20), 9).unwrap().len(), 2);
    }

    #[test]
    fn folding_forgets_times_and_refuses_older_snapshots() {
        let deletions = Deletions::default().with(&each(&[(3, 10), (5, 20)]), ts(15));
        assert_eq!(deletions.deleted_at(3), Some(Timestamp::MIN));
        assert_eq!(deletions.deleted_at(5), Some(ts(20)));
        assert!(deletions.hidden_at(ts(9), 9).is_err());
        assert_eq!(deletions.hidden_at(ts(15), 9).unwrap().len(), 1);
    }

    #[test]
    fn the_bits_that_scans_made_are_counted() {
        let deletions = Deletions::default().with(&each(&[(3, 10)]), ts(15));
        let before = deletions.memory_bytes();
        deletions.hidden_at(ts(20), 80_000).unwrap();
        assert!((10_000..12_000).contains(&(deletions.memory_bytes() - before)));
    }

    #[test]
    fn many_rows_at_one_time_take_two_bytes_each() {
        let deletions = Deletions::default().with(&at(10, 0, 10, 100_000), ts(0));
        assert!(deletions.memory_bytes() < 200_000 && deletions.encode(42).0.len() < 200_000);
    }

    /// Two statements with many rows, two that mark rows one by one.
    fn mixed() -> Deletions {
        let deletions =
            Deletions::default().with(&at(10, 0, 3, MANY), ts(0)).with(&each(&[(1, 5), (7, 50)]), ts(10));
        deletions.with(&at(60, 2, 3, MANY), ts(10)).with(&each(&[(4, 70)]), ts(10))
    }

    fn decode(bytes: &[u8]) -> Result<Deletions> {
        let checksum = u32_at(bytes, bytes.len() - 4);
        Deletions::decode(bytes, &MarksRecord { sstable: 42, number: 0, checksum })
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let deletions = mixed();
        let (bytes, checksum) = deletions.encode(42);
        let record = MarksRecord { sstable: 42, number: 0, checksum };
        assert_eq!(Deletions::decode(&bytes, &record).unwrap(), deletions);
        let parts = [0..HEADER_BYTES, bytes.len() - 200..bytes.len()];
        for bit in parts.into_iter().flat_map(|part| part.start * 8..part.end * 8) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Deletions::decode(&damaged, &record).is_err(), "bit {bit}");
        }
        for len in (0..bytes.len()).step_by(7) {
            assert!(Deletions::decode(&bytes[..len], &record).is_err(), "length {len}");
        }
    }

    /// As a marks file with these contents would be.
    fn sealed(mut body: Vec<u8>) -> Vec<u8> {
        body.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        body
    }

    #[test]
    fn what_is_no_marks_file_is_refused_whatever_its_checksum() {
        let (bytes, _) = mixed().encode(42);
        let body = &bytes[..bytes.len() - 4];
        let set = SET_HEADER_BYTES + mixed().sets[0].1.serialized_size();
        // Without its set it would be another file.
        for len in (0..body.len()).step_by(7).filter(|len| *len != body.len() - set) {
            assert!(decode(&sealed(body[..len].to_vec())).is_err(), "length {len}");
        }
        // Magic, version and id; lengths.
        for at in (0..16).chain(24..HEADER_BYTES) {
            let mut damaged = body.to_vec();
            damaged[at] ^= 0x55;
            assert!(decode(&sealed(damaged)).is_err(), "byte {at}");
        }
        let mut twice = mixed();
        let set = twice.sets[0].clone();
        twice.sets.push(set);
        assert!(decode(&twice.encode(42).0).is_err());
        twice.sets.pop();
        twice.singles.push((2, ts(80)));
        assert!(decode(&twice.encode(42).0).is_err(), "its rows do not ascend");
    }

    #[test]
    fn files_of_today_are_read_tomorrow() {
        // By their checksum these are all bytes as they were when this version was made.
        let (bytes, checksum) = mixed().encode(42);
        assert_eq!((bytes.len(), u32_at(&bytes, 4), checksum), (16_488, VERSION, 1_595_822_866));
    }

    #[test]
    fn a_set_that_marks_nothing_new_is_none() {
        let deletions = Deletions::default().with(&at(10, 0, 1, 2 * MANY), ts(0));
        let again = deletions.with(&at(20, 0, 1, MANY), ts(0));
        assert_eq!(again, deletions);
        assert!(!again.has_marks_after(ts(10)));
        // Nor is one whose rows all turn out to have older marks.
        let older = deletions.with(&at(5, 0, 1, 2 * MANY), ts(0));
        assert_eq!((older.sets.len(), older.deleted_at(7)), (1, Some(ts(5))));
    }

    #[test]
    fn marks_of_many_rows_are_sets_whoever_tells_of_them_but_not_without_end() {
        let marks: Vec<_> = (0..2 * MANY as u32).map(|row| (row, ts(10 + u64::from(row % 2)))).collect();
        let one = (9 * MANY as u32, ts(1));
        let deletions = Deletions::default().with(&Marks::Each([marks, vec![one]].concat()), ts(0));
        assert_eq!((deletions.sets.len(), &deletions.singles[..]), (2, &[one][..]));
        let mut all = Deletions::default();
        for n in 0..2 * SETS_MAX {
            all = all.with(&at(n as u64 + 10, (n * MANY) as u32, 1, MANY), ts(0));
        }
        assert_eq!((all.sets.len(), all.len()), (SETS_MAX, (2 * SETS_MAX * MANY) as u64));
        assert_eq!(all.deleted_at((2 * SETS_MAX * MANY) as u32 - 1), Some(ts(2 * SETS_MAX as u64 + 9)));
    }

    #[test]
    fn files_without_sets_are_read() {
        let deletions = Deletions::default().with(&each(&[(1, 5), (7, 50), (9, 60)]), ts(10));
        let (bytes, _) = deletions.encode(42);
        let mut body = bytes[..bytes.len() - 4].to_vec();
        body[4..8].copy_from_slice(&VERSION_WITHOUT_SETS.to_le_bytes());
        assert_eq!(decode(&sealed(body.clone())).unwrap(), deletions);
        body.extend_from_slice(&[0; SET_HEADER_BYTES]);
        assert!(decode(&sealed(body)).is_err());
    }

    fn changes() -> impl Strategy<Value = Vec<(Marks, u64)>> {
        let marks = (0..9_000u32, 1..4usize, 1..2 * MANY, 1..9u64);
        let one = prop_oneof![
            prop::collection::vec((0..9_000u32, 1..9u64), 0..40).prop_map(|marks| each(&marks)),
            marks.prop_map(|(first, step, count, n)| at(n, first, step, count)),
        ];
        // Time goes on, and yet a mark may come that is older than one that is there.
        prop::collection::vec((one, 0..3u64), 1..8)
    }

    fn later(marks: &Marks, by: u64) -> Vec<(u32, Timestamp)> {
        match marks {
            Marks::Each(marks) => marks.iter().map(|(row, at)| (*row, ts(at.0 + by))).collect(),
            Marks::At(at, rows) => rows.iter().map(|row| (row, ts(at.0 + by))).collect(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn marks_are_those_of_a_map(changes in changes()) {
            let (mut deletions, mut model) = (Deletions::default(), BTreeMap::<u32, Timestamp>::new());
            let (mut now, mut horizon) = (0, Timestamp::MIN);
            for (marks, passed) in &changes {
                now += 4 * passed;
                let marks_now = later(marks, now);
                for (row, at) in &marks_now {
                    let of_row = model.entry(*row).or_insert(*at);
                    // What is folded is older than all.
                    *of_row = (*of_row).min(*at);
                }
                let marks = match marks {
                    Marks::Each(_) => Marks::Each(marks_now),
                    Marks::At(at, rows) => Marks::At(ts(at.0 + now), rows.clone()),
                };
                horizon = horizon.max(ts(now));
                deletions = deletions.with(&marks, horizon);
                for of_row in model.values_mut().filter(|at| **at <= horizon) {
                    *of_row = Timestamp::MIN;
                }
                prop_assert_eq!(deletions.len(), model.len() as u64);
                let (bytes, checksum) = deletions.encode(42);
                let record = MarksRecord { sstable: 42, number: 0, checksum };
                prop_assert_eq!(&Deletions::decode(&bytes, &record).unwrap(), &deletions);
            }
            prop_assert_eq!(&BTreeMap::from_iter(deletions.iter()), &model);
            for row in 0..40_000 {
                prop_assert_eq!(deletions.deleted_at(row), model.get(&row).copied());
            }
            for at in horizon.0..horizon.0 + 10 {
                let hidden = deletions.hidden_at(ts(at), 40_000).unwrap();
                let gone = model.values().filter(|of_row| **of_row <= ts(at)).count() as u64;
                prop_assert_eq!(hidden.len(), gone);
                prop_assert_eq!(deletions.gone_at(ts(at)), gone);
                prop_assert_eq!(deletions.has_marks_after(ts(at)), gone < model.len() as u64);
            }
            let unmarked = RoaringBitmap::from_iter((0..40_000).filter(|row| !model.contains_key(row)));
            prop_assert!(deletions.are_unmarked(&unmarked));
            let one = model.keys().next().copied();
            prop_assert!(one.is_none_or(|row| !deletions.are_unmarked(&(unmarked | RoaringBitmap::from_iter([row])))));
        }
    }
}
