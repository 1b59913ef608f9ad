//! What a task has to read of a scan, as its owner tells it, and how it is read where the task runs.

use crate::context::StatementView;
use crate::nodes::Owner;
use crate::provider::{Assigned, TableColumns};
use futures::stream::{self, StreamExt, TryStreamExt};
use oribi_engine::{FileScan, Hidden};
use oribi_env::Env;
use oribi_sstable::{Patch, Sstable, SstableMeta};
use oribi_types::{Error, Result, Schema, Timestamp};
use prost::Message;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Opened {
    #[prost(message, repeated, tag = "1")]
    pub(super) files: Vec<File>,
    /// Tablets of which rows in memory are the task's.
    #[prost(uint32, repeated, tag = "2")]
    pub(super) memory: Vec<u32>,
}

/// A file of which a task reads some row groups.
#[derive(Clone, PartialEq, Message)]
pub(super) struct File {
    /// Where it is in the folder of the data.
    #[prost(string, tag = "1")]
    pub(super) folder: String,
    /// What the manifest keeps of it, as JSON.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) meta: Vec<u8>,
    /// A bit for each row: whether the snapshot sees it.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(super) seen: Option<Vec<u8>>,
    #[prost(uint32, repeated, tag = "4")]
    pub(super) groups: Vec<u32>,
    /// What the manifest keeps of its patches that the snapshot sees, as JSON, the oldest first.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(super) patches: Vec<Vec<u8>>,
}

/// The folders, in the folder of the data, of a file: `tables/17`.
pub(super) fn folder_of(path: &Path) -> Result<String> {
    let names: Vec<_> = path.parent().into_iter().flat_map(Path::components).collect();
    let names = names.iter().rev().take(2).rev().filter_map(|name| match name {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    match names.collect::<Vec<_>>().as_slice() {
        [tables, table] => Ok(format!("{tables}/{table}")),
        _ => Err(Error::internal(format!("{} is not in the folder of a table", path.display()))),
    }
}

/// Files that stay open though no query reads them, and for how long: the disk has those that their owner has removed until then.
const OPEN_MAX: usize = 512;
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Files that are open, by folder and number, and when each was asked for.
type Open = HashMap<(String, u64), (Arc<Sstable>, Instant)>;

/// The folder of the data, as a process reads it that does not own it.
pub struct SharedFolder {
    env: Env,
    dir: PathBuf,
    open: Mutex<Open>,
}

impl SharedFolder {
    pub fn new(env: Env, dir: PathBuf) -> Arc<Self> {
        Arc::new(SharedFolder { env, dir, open: Mutex::default() })
    }

    /// The SSTable of this name, with these patches. What says how it is to be read comes from the owner's manifest, as do its checksums.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    fn sstable(
        &self,
        folder: &str,
        meta: &SstableMeta,
        patches: &[SstableMeta],
        schema: &Schema,
    ) -> Result<Arc<Sstable>> {
        let name = (folder.to_owned(), meta.id);
        let now = Instant::now();
        let mut known = None;
        if let Some((sstable, asked)) = self.lock().get_mut(&name).filter(|open| open.0.meta() == meta) {
            *asked = now;
            if sstable.patches().iter().map(|patch| patch.meta()).eq(patches) {
                return Ok(Arc::clone(sstable));
            }
            known = Some(Arc::clone(sstable));
        }
        let is_plain = |name: Component<'_>| matches!(name, Component::Normal(_));
        if !Path::new(folder).components().all(is_plain) {
            return Err(Error::corrupt(format!("{folder:?} is not the folder of a table")));
        }
        let opened = self.open(folder, meta, patches, schema, known.as_deref());
        let opened = Arc::new(opened.map_err(|e| e.context(format!("{}/{folder}", self.dir.display())))?);
        let mut open = self.lock();
        let opened_files = open.values().map(|(sstable, _)| 1 + sstable.patches().len()).sum::<usize>();
        if opened_files >= OPEN_MAX {
            open.retain(|_, (sstable, _)| Arc::strong_count(sstable) > 1);
        }
        open.insert(name, (Arc::clone(&opened), now));
        Ok(opened)
    }

    /// Opens what is not open of a file that is `known` with other patches, maybe.
    fn open(
        &self,
        folder: &str,
        meta: &SstableMeta,
        patches: &[SstableMeta],
        schema: &Schema,
        known: Option<&Sstable>,
    ) -> Result<Sstable> {
        let dir = self.dir.join(folder);
        let open = known.map_or(&[][..], Sstable::patches);
        let patch = |patch: &SstableMeta| match open.iter().find(|open| open.meta() == patch) {
            Some(open) => Ok(Arc::clone(open)),
            // The owner names those alone that the snapshot sees.
            None => Patch::open(&self.env, &dir, patch, schema, meta.rows, Timestamp::MIN).map(Arc::new),
        };
        let patches = patches.iter().map(patch).collect::<Result<_>>()?;
        match known {
            Some(known) => Ok(known.with_patches(patches)),
            None => Ok(Sstable::open(&self.env, &dir, meta, schema)?.with_patches(patches)),
        }
    }

    /// Closes what nobody has asked for of late, and nobody reads.
    pub fn forget_idle(&self) {
        let now = Instant::now();
        self.lock().retain(|_, (sstable, asked)| {
            Arc::strong_count(sstable) > 1 || now.duration_since(*asked) < IDLE_MAX
        });
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a task has to read.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system; those of the owner.
    pub(crate) async fn assigned(
        self: &Arc<Self>,
        view: &StatementView,
        columns: &TableColumns,
        offer: u64,
        owner: &Arc<dyn Owner>,
        opened: &[u8],
    ) -> Result<Assigned> {
        let opened = Opened::decode(opened).map_err(damaged)?;
        // They are asked for when it is their turn.
        let rows = |tablet| {
            let owner = Arc::clone(owner);
            stream::once(async move { owner.rows(offer, tablet).await }).try_flatten().boxed()
        };
        let memory = opened.memory.into_iter().map(rows).collect();
        let (folder, schema) = (Arc::clone(self), Arc::clone(&columns.schema));
        let files = view.runtime.lookup(move || {
            opened.files.into_iter().map(|file| folder.file(file, &schema)).collect::<Result<Vec<_>>>()
        });
        Ok(Assigned { files: files.await?, memory })
    }

    fn file(&self, file: File, schema: &Schema) -> Result<(Arc<FileScan>, Vec<usize>)> {
        let meta: SstableMeta = serde_json::from_slice(&file.meta).map_err(damaged)?;
        let hidden = Hidden::from_bytes(meta.rows as usize, file.seen)?;
        let patch = |json: &Vec<u8>| serde_json::from_slice(json).map_err(damaged);
        let patches = file.patches.iter().map(patch).collect::<Result<Vec<SstableMeta>>>()?;
        let sstable = self.sstable(&file.folder, &meta, &patches, schema)?;
        let groups = file.groups.into_iter().map(|group| group as usize).collect();
        Ok((Arc::new(FileScan { sstable, hidden }), groups))
    }
}

fn damaged(why: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("what a task has to read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_by_its_last_two_names() {
        assert_eq!(folder_of(Path::new("/a/data/tables/7/01.parquet")).unwrap(), "tables/7");
        assert!(folder_of(Path::new("01.parquet")).is_err());
    }
}
