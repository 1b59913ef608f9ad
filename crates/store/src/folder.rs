//! A folder as a store: `file:///folder`. For tests, and for machines that share one.
//!
//! An object comes to be by a link to a finished file, which fails where there is one; it is replaced under the lock of a file.

#![allow(clippy::disallowed_methods, reason = "a store is outside of the engine's folder")]

use crate::bucket::{
    Body, Bucket, CHUNK_BYTES, Expected, Listed, Sink, get_small, hex, if_there, random_text,
};
use oribi_env::{Files, RealFiles};
use oribi_types::{Error, Result};
use ring::digest::{SHA256, digest};
use std::any::Any;
use std::fs;
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Objects that are replaced, and so have a tag of their bytes, are short.
const TAGGED_BYTES_MAX: usize = 1 << 30;
/// Names that begin so are not objects'.
const HIDDEN: char = '.';
/// So do those of files that are no objects yet. What follows is chosen at random: processes of several machines, or of containers,
/// may have the same number.
const NEW: &str = ".new-";
/// Who replaces an object has the lock for as long as it takes to read that one.
const LOCKED_MAX: Duration = Duration::from_secs(20);

pub struct FolderBucket {
    root: PathBuf,
    /// The device and the number of the root as it was opened: where another file system was mounted, its place is another folder.
    id: (u64, u64),
    url: String,
}

impl FolderBucket {
    /// # Errors
    /// Those of the file system.
    pub fn open(root: &Path) -> Result<Self> {
        let failed = |error| Error::from(error).context(root.display());
        let missing = root.ancestors().take_while(|folder| !folder.exists()).count();
        fs::create_dir_all(root).map_err(failed)?;
        let root = fs::canonicalize(root).map_err(failed)?;
        // A process that was killed may have left the folder itself without its name being durable.
        let mut above = root.ancestors().skip(1).take(missing.max(1));
        above.try_for_each(|folder| RealFiles.sync_dir(folder)).map_err(failed)?;
        let id = id_of(&root).map_err(failed)?;
        Ok(FolderBucket { url: format!("file://{}", root.display()), root, id })
    }

    /// Does something in the folder that was opened. What was found, or not found, in another that is in its place by then says
    /// nothing.
    fn at_home<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check_home()?;
        let result = act();
        self.check_home()?;
        result
    }

    fn check_home(&self) -> Result<()> {
        let gone = |what: &str| Err(Error::unavailable(format!("{}: {what}", self.root.display())));
        match id_of(&self.root) {
            Ok(id) if id == self.id => Ok(()),
            Ok(_) => {
                gone("it is another folder than when it was opened, as if its file system were not mounted")
            }
            Err(error) => gone(&error.to_string()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes `body` to a file that is no object yet.
    fn prepare(&self, body: Body<'_>) -> Result<PathBuf> {
        let path = self.root.join(format!("{NEW}{}", random_text()?));
        let mut file = fs::File::create_new(&path)?;
        body.read(&mut |part| Ok(file.write_all(part)?))?;
        file.sync_all()?;
        Ok(path)
    }

    fn publish(&self, new: &Path, name: &str, expected: Expected<'_>) -> Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        match expected {
            Expected::Nothing => fs::hard_link(new, &path).map_err(|error| match error.kind() {
                IoErrorKind::AlreadyExists => Error::conflict(format!("{name} is there already")),
                _ => lost(error, name),
            })?,
            Expected::Tag(tag) => {
                let _alone = self.lock()?;
                if if_there(self.tag(name))?.as_deref() != Some(tag) {
                    return Err(Error::conflict(format!("{name} has changed")));
                }
                fs::rename(new, &path).map_err(|error| lost(error, name))?;
            }
        }
        // Those above may be new, or their names not durable since whoever made them ended.
        let folders = folder.ancestors().take_while(|folder| folder.starts_with(&self.root));
        Ok(folders.into_iter().try_for_each(|folder| RealFiles.sync_dir(folder))?)
    }

    /// Of all processes, one at a time.
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        let pause = Duration::from_millis(1);
        for _ in 0..LOCKED_MAX.as_millis() {
            match RealFiles.lock(&self.root.join(format!("{HIDDEN}lock")), "") {
                Err(error) if error.kind() == IoErrorKind::WouldBlock => sleep(pause),
                locked => return Ok(locked?),
            }
        }
        Err(Error::unavailable(format!("{}: somebody keeps its lock", self.root.display())))
    }

    fn list_folder(&self, folder: &Path, listed: &mut Vec<Listed>) -> Result<()> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(HIDDEN) {
                continue;
            }
            let metadata = match entry.metadata() {
                // It went meanwhile.
                Err(error) if error.kind() == IoErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if metadata.is_dir() {
                self.list_folder(&entry.path(), listed)?;
            } else if let Ok(name) = entry.path().strip_prefix(&self.root) {
                listed.push(Listed { name: name.to_string_lossy().into_owned(), bytes: metadata.len() });
            }
        }
        Ok(())
    }
}

fn id_of(folder: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = fs::metadata(folder)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// What becomes of a file that is no object yet, where somebody has taken it for [left over](Bucket::remove_leftovers).
fn lost(error: std::io::Error, name: &str) -> Error {
    match error.kind() {
        IoErrorKind::NotFound => Error::unavailable(format!("{name}: {error}")),
        _ => Error::from(error).context(name),
    }
}

impl Bucket for FolderBucket {
    fn url(&self) -> &str {
        &self.url
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        self.at_home(|| self.list_folder(&self.path(folder), &mut listed))?;
        listed.sort();
        Ok(listed)
    }

    fn get(&self, name: &str, sink: &mut Sink<'_>) -> Result<String> {
        let open = || fs::File::open(self.path(name)).map_err(|error| Error::from(error).context(name));
        let mut file = self.at_home(open)?;
        let mut context = ring::digest::Context::new(&SHA256);
        let (mut part, mut at) = (vec![0; CHUNK_BYTES], 0);
        loop {
            let read = match file.read(&mut part)? {
                0 => return Ok(hex(context.finish().as_ref())),
                read => &part[..read],
            };
            context.update(read);
            sink(read, at)?;
            at += read.len() as u64;
        }
    }

    fn tag(&self, name: &str) -> Result<String> {
        get_small(self, name, TAGGED_BYTES_MAX).map(|(bytes, _)| hex(digest(&SHA256, &bytes).as_ref()))
    }

    fn put(&self, name: &str, body: Body<'_>, expected: Expected<'_>) -> Result<String> {
        let tag = body.digest()?;
        self.at_home(|| {
            let new = self.prepare(body)?;
            let published = self.publish(&new, name, expected);
            let _ = fs::remove_file(&new);
            published.map(|()| tag)
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.at_home(|| match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != IoErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        })
    }

    fn remove_leftovers(&self) -> Result<()> {
        self.at_home(|| {
            for entry in fs::read_dir(&self.root)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with(NEW) {
                    self.remove(&entry.file_name().to_string_lossy())?;
                }
            }
            Ok(())
        })
    }
}
