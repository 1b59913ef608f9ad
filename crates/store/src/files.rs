//! The files of a folder whose tables are kept in a store: all are the folder's own, but for those of tables, which may be in the
//! store alone.

use crate::bucket::Listed;
use crate::cache::{Cache, FETCHED, OpenFile};
use crate::cached::Cached;
use crate::owner::term_of;
use oribi_env::{File, Files, Space};
use std::any::Any;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of tables in that of the data, and in the store: `tables/<table>/<file>`.
pub(crate) const TABLES: &str = "tables";
/// Files that are not finished.
const UNFINISHED: &str = ".tmp";

pub(crate) struct StoreFiles {
    pub local: Arc<dyn Files>,
    /// The folder of the data.
    pub dir: PathBuf,
    pub cache: Arc<Cache>,
}

impl StoreFiles {
    /// What the store calls a file of a table.
    fn name(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.dir).ok()?.to_str()?;
        let parts: Vec<&str> = below.split('/').collect();
        let is_object = parts.len() == 3 && parts[0] == TABLES && !below.ends_with(UNFINISHED);
        is_object.then(|| below.to_owned())
    }

    fn is_of_table(&self, folder: &Path) -> bool {
        folder.parent() == Some(&self.dir.join(TABLES))
    }

    /// # Errors
    /// `PermissionDenied` for a guest, who changes nothing of tables.
    fn check_owner(&self) -> Result<()> {
        if self.cache.is_guest() { Err(ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }

    fn known(&self, path: &Path) -> Option<Arc<Cached>> {
        self.cache.known(&self.name(path)?)
    }

    /// As [`known`](Self::known), also of what its owner has put there since one looked.
    fn find(&self, path: &Path) -> Result<Arc<Cached>> {
        let known = self.known(path);
        let Some(name) = self.name(path).filter(|_| known.is_none() && self.cache.is_guest()) else {
            return known.ok_or_else(|| ErrorKind::NotFound.into());
        };
        let folder = &name[..=name.rfind('/').unwrap_or(0)];
        let listed = self.cache.list(folder)?;
        self.cache.forget_missing(folder, &listed);
        // Only what is there is made known, and all of that: who asks too early asks again, and a burst of new files is listed once.
        self.note_objects(listed, u64::MAX);
        self.known(path).ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Notes of objects those that owners up to `term` have made.
    fn note_objects(&self, objects: Vec<Listed>, term: u64) {
        for object in objects {
            let path = self.dir.join(&object.name);
            if self.name(&path).is_some() && term_of(&object.name).is_none_or(|of| of <= term) {
                self.cache.note_kept(&self.cache.file(&object.name, &path), object.bytes);
            }
        }
    }

    /// Notes what the folder has, and the store: of its objects those that owners up to `term` have made.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn note_all(&self, kept: Vec<Listed>, term: u64) -> Result<()> {
        for folder in list_if_there(&*self.local, &self.dir.join(TABLES))? {
            let folder = self.dir.join(TABLES).join(folder);
            for name in list_if_there(&*self.local, &folder)? {
                let path = folder.join(&name);
                if name.ends_with(FETCHED) && !self.cache.is_guest() {
                    self.local.remove(&path)?;
                }
                if let Some(name) = self.name(&path) {
                    self.cache.note_here(&self.cache.file(&name, &path))?;
                }
            }
        }
        self.note_objects(kept, term);
        self.cache.evict(0);
        Ok(())
    }
}

fn list_if_there(files: &dyn Files, dir: &Path) -> Result<Vec<String>> {
    match files.list(dir) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        listed => listed,
    }
}

impl Files for StoreFiles {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.local.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let below = dir.strip_prefix(&self.dir).ok().and_then(Path::to_str);
        let Some(below) = below.filter(|below| below.split('/').next() == Some(TABLES)) else {
            return self.local.list(dir);
        };
        let mut names: BTreeSet<String> = list_if_there(&*self.local, dir)?.into_iter().collect();
        let prefix = format!("{below}/");
        let part = |name: &String| name[prefix.len()..].split('/').next().map(str::to_owned);
        names.extend(self.cache.names(&prefix).iter().filter_map(part));
        Ok(names.into_iter().collect())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        if let Some(folder) = path.parent().filter(|folder| self.is_of_table(folder)) {
            self.check_owner()?;
            // It is nobody's loss, and so may be lost.
            self.local.create_dir_all(folder)?;
        }
        let file = self.local.create(path)?;
        if let Some(name) = self.name(path) {
            self.cache.note_here(&self.cache.file(&name, path))?;
        }
        Ok(file)
    }

    fn open(&self, path: &Path, write: bool) -> Result<Arc<dyn File>> {
        match self.name(path) {
            Some(_) if !write => Ok(Arc::new(OpenFile::open(&self.cache, self.find(path)?)?)),
            _ => self.local.open(path, write),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let Some(name) = self.name(to) else { return self.local.rename(from, to) };
        self.check_owner()?;
        self.local.rename(from, to)?;
        // Writers may wait for this: others have what goes for it go.
        self.cache.note_here(&self.cache.file(&name, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match self.name(path) {
            Some(_) => {
                self.check_owner()?;
                self.cache.remove(&self.known(path).ok_or(ErrorKind::NotFound)?)
            }
            None => self.local.remove(path),
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        if self.is_of_table(dir) {
            self.local.create_dir_all(dir)?;
        }
        self.local.sync_dir(dir)
    }

    fn sync_all(&self, files: &[Arc<dyn File>], dir: Option<&Path>) -> Result<()> {
        if let Some(dir) = dir.filter(|dir| self.is_of_table(dir)) {
            self.local.create_dir_all(dir)?;
        }
        self.local.sync_all(files, dir)
    }

    fn space(&self, dir: &Path) -> Result<Option<Space>> {
        self.local.space(dir)
    }

    fn keep(&self, path: &Path, name: &Path) -> Result<()> {
        self.check_owner()?;
        match self.name(name) {
            Some(_) if path == name => {
                let file = self.known(path).ok_or(ErrorKind::NotFound)?;
                self.cache.keep(&file, path)
            }
            Some(object) => self.cache.keep(&self.cache.file(&object, name), path),
            None => Ok(()),
        }
    }

    fn lock(&self, path: &Path, text: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.local.lock(path, text)
    }
}
