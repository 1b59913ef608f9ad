//! What a store must be able to do: a few requests about whole objects, each of which either has happened or has not.

use oribi_env::File;
use oribi_types::{Error, ErrorKind, Result};
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes that are read or sent at a time.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// An object, by its name below the store's prefix: letters, digits, `.`, `-`, `_`, and `/` between parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    pub name: String,
    pub bytes: u64,
}

/// What an object is put on.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// There is none of this name.
    Nothing,
    /// There is one, which still has this tag.
    Tag(&'a str),
}

/// What is put.
#[derive(Clone, Copy)]
pub enum Body<'a> {
    Bytes(&'a [u8]),
    File(&'a dyn File),
    /// With what is called after each part that was read, and taken.
    Watched(&'a dyn File, &'a dyn Fn()),
}

/// Takes bytes of an object at their offset in it. An attempt that failed is followed by one from 0.
pub type Sink<'a> = dyn FnMut(&[u8], u64) -> Result<()> + 'a;

/// A store. Blocks; may be called by several threads at once.
///
/// Besides those that are named, each request fails with `Unavailable` if it may succeed later: it is not known then whether it
/// has happened; with `Forbidden` if the store refuses whoever asks; with `Invalid` if it does not understand.
pub trait Bucket: Send + Sync + 'static {
    /// What the store is called, for messages.
    fn url(&self) -> &str;

    /// All objects below `folder`, which ends with a slash, in the order of their names.
    fn list(&self, folder: &str) -> Result<Vec<Listed>>;

    /// Gives all bytes of an object to `sink`; returns its tag.
    ///
    /// # Errors
    /// `NotFound`; those of `sink`.
    fn get(&self, name: &str, sink: &mut Sink<'_>) -> Result<String>;

    /// The tag of an object, which is another whenever its bytes are.
    ///
    /// # Errors
    /// `NotFound`.
    fn tag(&self, name: &str) -> Result<String>;

    /// Puts an object where there is what is `expected`: of several who expect the same, one. Returns its tag.
    ///
    /// # Errors
    /// `Conflict` if there is something else; nothing has happened then.
    fn put(&self, name: &str, body: Body<'_>, expected: Expected<'_>) -> Result<String>;

    /// Removes an object, if there is one.
    fn remove(&self, name: &str) -> Result<()>;

    /// Removes what requests have left that did not come to their end, and no object. One that is under way may fail by it, with
    /// `Unavailable`.
    fn remove_leftovers(&self) -> Result<()> {
        Ok(())
    }
}

impl Body<'_> {
    /// # Errors
    /// Those of the file system.
    pub(crate) fn len(&self) -> Result<u64> {
        match self {
            Body::Bytes(bytes) => Ok(bytes.len() as u64),
            Body::File(file) | Body::Watched(file, _) => Ok(file.len()?),
        }
    }

    /// Gives all bytes to `take`, part by part.
    ///
    /// # Errors
    /// Those of the file system; those of `take`.
    pub fn read(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match self {
            Body::Bytes(bytes) => take(bytes),
            Body::File(file) | Body::Watched(file, _) => {
                let (mut at, len) = (0, file.len()?);
                let mut part = vec![0; CHUNK_BYTES.min(len as usize)];
                while at < len {
                    let part = &mut part[..CHUNK_BYTES.min((len - at) as usize)];
                    file.read_at(part, at)?;
                    take(part)?;
                    if let Body::Watched(_, moved) = self {
                        moved();
                    }
                    at += part.len() as u64;
                }
                Ok(())
            }
        }
    }

    /// SHA-256.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn digest(&self) -> Result<String> {
        let mut context = Context::new(&SHA256);
        self.read(&mut |part| {
            context.update(part);
            Ok(())
        })?;
        Ok(hex(context.finish().as_ref()))
    }
}

/// 32 digits.
pub(crate) fn random_text() -> Result<String> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::internal("the system gives no random numbers"))?;
    Ok(hex(&bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An object of at most so many bytes, and its tag.
///
/// # Errors
/// Those of [`Bucket::get`]; `Corrupt` for a longer one.
pub(crate) fn get_small(bucket: &dyn Bucket, name: &str, bytes_max: usize) -> Result<(Vec<u8>, String)> {
    let mut bytes = Vec::new();
    let tag = bucket.get(name, &mut |part, at| {
        bytes.truncate(at as usize);
        if bytes.len() + part.len() > bytes_max {
            return Err(Error::corrupt(format!("{name} is longer than {bytes_max} bytes")));
        }
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    Ok((bytes, tag))
}

/// `None` for what is not there.
pub(crate) fn if_there<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
