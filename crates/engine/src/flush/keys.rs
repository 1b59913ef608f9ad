//! The keys of a memtable on their way into an SSTable.

use super::output::{self, Place};
use super::{CHUNK_KEYS, FlushVersion};
use crate::index::{GROUP, KeyRef, Older, RowIndex, Taking, Version};
use crate::memtable::Memtable;
use crate::scan::resolve;
use crate::tablet::FileSet;
use oribi_sstable::SstableId;
use oribi_types::{Result, Timestamp};
use smallvec::SmallVec;

/// What a memtable holds of one key.
struct FlushKey {
    hash: u64,
    /// Where it is in the bytes of all.
    start: usize,
    len: u32,
    /// How many of its versions have a place.
    versions: u32,
    /// What the oldest version of the memtable replaces, and since when; `None` as long as no version was taken.
    replaced: Option<(Older, Timestamp)>,
}

/// The keys of a memtable: copies, so that they keep no row in memory.
pub(super) struct FlushKeys {
    generation: u64,
    memtable: u64,
    keys: Vec<FlushKey>,
    bytes: Vec<u8>,
    /// Of the newest version of any key, also of a later memtable.
    newest: Timestamp,
}

impl FlushKeys {
    /// Those of which the memtable still has a version.
    pub fn of(index: &RowIndex, memtable: &Memtable) -> Self {
        let generation = memtable.generation;
        let (keys, bytes, newest) = (Vec::new(), Vec::new(), Timestamp::MIN);
        let mut all = FlushKeys { generation, memtable: memtable.id, keys, bytes, newest };
        index.visit(generation, memtable.hashes(), |hash, newest| {
            if chain(newest, memtable.id).any(|version| version.meta.memtable() == memtable.id) {
                let (start, key) = (all.bytes.len(), newest.key());
                all.bytes.extend_from_slice(key);
                all.keys.push(FlushKey { hash, start, len: key.len() as u32, versions: 0, replaced: None });
            }
        });
        all
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Memory of the keys, and of where their versions went.
    pub fn memory_bytes(&self) -> usize {
        self.keys.len() * (size_of::<FlushKey>() + size_of::<Place>()) + self.bytes.len()
    }

    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        self.keys.sort_unstable_by(|a, b| a.of(bytes).cmp(b.of(bytes)));
    }

    /// Takes those versions of the `chunk`-th [`CHUNK_KEYS`] keys that somebody may read; newest first, key by key. Where others
    /// are told of the file, it is complete without the log: the newest version of the memtable is taken although a later
    /// memtable has another, which is to mark it.
    pub fn take_rows(
        &mut self,
        index: &RowIndex,
        chunk: usize,
        horizon: Timestamp,
        is_told: bool,
        rows: &mut Vec<FlushVersion>,
    ) {
        let (generation, memtable, bytes) = (self.generation, self.memtable, &self.bytes);
        let Some(keys) = self.keys.chunks_mut(CHUNK_KEYS).nth(chunk) else { return };
        for group in keys.chunks_mut(GROUP) {
            let refs: Group<'_> = group.iter().map(|key| key.key_ref(generation, bytes)).collect();
            index.visit_keys(&refs, |i, newest| {
                self.newest = self.newest.max(newest.meta.ts);
                group[i].take(newest, (memtable, horizon, is_told), rows);
            });
        }
    }

    /// The timestamp of the newest version that was seen of any key: those that were taken may be marked as replaced by it.
    pub fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Leaves out the keys that were overwritten before a version of them was taken.
    pub fn forget_cut_off(&mut self) {
        self.keys.retain(|key| key.replaced.is_some());
    }

    /// Finds what is replaced in `files`, where that is not known.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn resolve(&mut self, files: &FileSet) -> Result<()> {
        let bytes = &self.bytes;
        // Nearly always few.
        let mut open: Vec<(&[u8], &mut Older)> = self
            .keys
            .iter_mut()
            .filter_map(|key| Some((key.of(bytes), &mut key.replaced.as_mut()?.0)))
            .filter(|(_, older)| older.known(files).is_none())
            .collect();
        let names: Vec<_> = open.iter().map(|(key, older)| (*key, **older)).collect();
        for ((_, older), place) in open.iter_mut().zip(resolve(files, &names)?) {
            **older = place.map_or(Older::Nothing, Older::At);
        }
        Ok(())
    }

    /// What each key replaces, and since when.
    pub fn replaced(&self) -> impl Iterator<Item = (Older, Timestamp)> {
        self.keys.iter().filter_map(|key| key.replaced)
    }

    /// Lets the memtable's rows go on as row cache: only now, that their file, which is `id`, is what readers find.
    /// `places` are those of all versions taken, in order.
    pub fn unpin(self, index: &RowIndex, id: SstableId, mut places: &[Place]) {
        for group in self.keys.chunks(GROUP) {
            let refs: Group<'_> = group.iter().map(|key| key.key_ref(self.generation, &self.bytes)).collect();
            drop(index.fetch_ahead(refs.iter().map(|key| (key.hash, true))));
            for (key, key_ref) in group.iter().zip(refs) {
                let (own, rest) = places.split_at(key.versions as usize);
                places = rest;
                // The newest comes first.
                let home = own.first().and_then(|place| output::home(*place, id));
                index.unpin(key_ref, self.memtable, home);
            }
        }
    }
}

type Group<'a> = SmallVec<[KeyRef<'a>; GROUP]>;

/// The versions of a row that no flush before that of `memtable` has written.
fn chain(newest: &Version, memtable: u64) -> impl Iterator<Item = &Version> {
    let versions = std::iter::successors(Some(newest), |version| version.previous());
    versions.take_while(move |version| version.meta.memtable() >= memtable)
}

impl FlushKey {
    fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..][..self.len as usize]
    }

    fn key_ref<'a>(&self, generation: u64, bytes: &'a [u8]) -> KeyRef<'a> {
        KeyRef { hash: self.hash, generation, key: self.of(bytes) }
    }

    fn take(
        &mut self,
        newest: &Version,
        (memtable, horizon, is_told): (u64, Timestamp, bool),
        rows: &mut Vec<FlushVersion>,
    ) {
        let (mut superseded, mut taking): (Option<Timestamp>, _) = (None, Taking::default());
        for version in chain(newest, memtable) {
            let (ts, lineage) = (version.meta.ts, &version.meta.lineage);
            if lineage.memtable() == memtable && taking.take(lineage) {
                self.replaced = Some((lineage.older(), ts));
                if superseded.is_none_or(|at| at > horizon) {
                    rows.push(FlushVersion { version: version.hold(), superseded });
                    self.versions += 1;
                }
            }
            superseded = (!is_told || lineage.memtable() == memtable).then_some(ts);
        }
    }
}
