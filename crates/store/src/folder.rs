//! A folder as a store: `file:///folder`. For tests, and for machines that share one.
//!
//! An object comes to be by a link to a finished file, which fails where there is one; it is replaced under the lock of a file.

#![allow(clippy::disallowed_methods, reason = "a store is outside of the engine's folder")]

use crate::bucket::{Body, Bucket, CHUNK_BYTES, Expected, Listed, Sink, get_small, hex, if_there};
use oribi_env::{Files, RealFiles};
use oribi_types::{Error, Result};
use ring::digest::{SHA256, digest};
use std::any::Any;
use std::fs;
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

/// Objects that are replaced, and so have a tag of their bytes, are short.
const TAGGED_BYTES_MAX: usize = 1 << 30;
/// Names that begin so are not objects'.
const HIDDEN: char = '.';

pub struct FolderBucket {
    root: PathBuf,
    url: String,
    next: AtomicU64,
}

impl FolderBucket {
    /// # Errors
    /// Those of the file system.
    pub fn open(root: &Path) -> Result<Self> {
        let failed = |error| Error::from(error).context(root.display());
        fs::create_dir_all(root).map_err(failed)?;
        let root = fs::canonicalize(root).map_err(failed)?;
        Ok(FolderBucket { url: format!("file://{}", root.display()), root, next: AtomicU64::new(0) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes `body` to a file that is no object yet.
    fn prepare(&self, body: Body<'_>) -> Result<PathBuf> {
        let number = self.next.fetch_add(1, Relaxed);
        let path = self.root.join(format!("{HIDDEN}{}-{number}", std::process::id()));
        let mut file = fs::File::create(&path)?;
        body.read(&mut |part| Ok(file.write_all(part)?))?;
        file.sync_all()?;
        Ok(path)
    }

    fn publish(&self, new: &Path, name: &str, expected: Expected<'_>) -> Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        match expected {
            Expected::Nothing => match fs::hard_link(new, &path) {
                Err(error) if error.kind() == IoErrorKind::AlreadyExists => {
                    return Err(Error::conflict(format!("{name} is there already")));
                }
                linked => linked?,
            },
            Expected::Tag(tag) => {
                let _alone = self.lock()?;
                if if_there(self.tag(name))?.as_deref() != Some(tag) {
                    return Err(Error::conflict(format!("{name} has changed")));
                }
                fs::rename(new, &path)?;
            }
        }
        Ok(RealFiles.sync_dir(folder)?)
    }

    /// Of all processes, one at a time.
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        loop {
            match RealFiles.lock(&self.root.join(format!("{HIDDEN}lock")), "") {
                Err(error) if error.kind() == IoErrorKind::WouldBlock => sleep(Duration::from_millis(1)),
                locked => return Ok(locked?),
            }
        }
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
            // One that went meanwhile is not there.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                self.list_folder(&entry.path(), listed)?;
            } else if let Ok(name) = entry.path().strip_prefix(&self.root) {
                listed.push(Listed { name: name.to_string_lossy().into_owned(), bytes: metadata.len() });
            }
        }
        Ok(())
    }
}

impl Bucket for FolderBucket {
    fn url(&self) -> &str {
        &self.url
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        self.list_folder(&self.root, &mut listed)?;
        listed.retain(|object| object.name.starts_with(prefix));
        listed.sort();
        Ok(listed)
    }

    fn get(&self, name: &str, sink: &mut Sink<'_>) -> Result<String> {
        let mut file = fs::File::open(self.path(name)).map_err(|error| Error::from(error).context(name))?;
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
        let new = self.prepare(body)?;
        let published = self.publish(&new, name, expected);
        let _ = fs::remove_file(&new);
        published.map(|()| tag)
    }

    fn remove(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != IoErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
