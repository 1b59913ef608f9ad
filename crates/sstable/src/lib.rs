//! SSTables: immutable files of rows in key order.
//!
//! An SSTable is two files. `<id>.parquet` holds the rows and is plain Parquet that anybody can read. `<id>.index`
//! holds what a point read needs to find one row in it without parsing Parquet's footer: the place and checksum of
//! every page, a sparse key index and bloom filters. The index is small and stays in memory.
//!
//! Nothing of the data file is believed before its checksum was compared; the checksums stand in the index, the
//! index's own in the [`SstableMeta`] that the manifest keeps. So every bit is anchored in the manifest.
//!
//! Rows lie in key order. A key may have several copies (superseded versions that some snapshot still reads); the
//! newest comes first. Which copy is live is not known here: the engine keeps deletion marks outside. Values of many rows
//! that change are a [`Patch`], beside the file.

mod bits;
pub mod bloom;
mod column;
mod data_file;
mod delta;
mod index;
mod key_cursor;
mod lz4;
mod meta;
mod pack;
mod page;
mod pages;
mod parquet_schema;
mod patch;
mod patched;
mod point;
mod portions;
mod reads;
mod scan;
mod sstable;
mod unpack;
mod value;
mod verify;
mod writer;

/// Which rows of a row group are read.
pub use parquet::arrow::arrow_reader::{RowSelection, RowSelector};

pub use meta::{Compression, SstableId, SstableMeta, SstableOptions};
pub use parquet_schema::stored_columns;
pub use patch::{Patch, PatchWriter};
pub use portions::Portion;
pub use reads::PointReads;
pub use scan::{Batches, Keys};
pub use sstable::{KeyHash, OpenFile, Sstable};
pub use value::LONG_PAGE_BYTES;
pub use writer::SstableWriter;

use oribi_env::Env;
use oribi_types::{Error, Result};
use parquet::errors::ParquetError;
use std::path::{Path, PathBuf};

/// Suffix of the data file of a live SSTable.
pub const DATA_SUFFIX: &str = ".parquet";
/// Suffix of the index file of a live SSTable.
pub const INDEX_SUFFIX: &str = ".index";
/// Suffixes of the two files before they are published. A file that bears one after a crash is garbage.
pub const TMP_SUFFIXES: [&str; 2] = [".data.tmp", ".index.tmp"];

/// The four names that SSTable `id` can have in `dir`.
pub(crate) struct Paths {
    pub data: PathBuf,
    pub index: PathBuf,
    pub data_tmp: PathBuf,
    pub index_tmp: PathBuf,
}

impl Paths {
    pub fn new(dir: &Path, id: SstableId) -> Self {
        let with = |suffix: &str| dir.join(format!("{id:016x}{suffix}"));
        Paths {
            data: with(DATA_SUFFIX),
            index: with(INDEX_SUFFIX),
            data_tmp: with(TMP_SUFFIXES[0]),
            index_tmp: with(TMP_SUFFIXES[1]),
        }
    }
}

/// The two files of a published SSTable.
pub fn paths(dir: &Path, id: SstableId) -> [PathBuf; 2] {
    let Paths { data, index, .. } = Paths::new(dir, id);
    [data, index]
}

/// Gives the files of a finished SSTable their final names, the index first, so that whoever sees a `.parquet` finds
/// the index beside it. The caller syncs `dir`.
///
/// # Errors
/// Those of the file system.
pub fn publish(env: &Env, dir: &Path, id: SstableId) -> Result<()> {
    let paths = Paths::new(dir, id);
    env.files.rename(&paths.index_tmp, &paths.index)?;
    env.files.rename(&paths.data_tmp, &paths.data)?;
    Ok(())
}

/// Removes the files of an SSTable, published or not; those that are gone already do not matter.
///
/// # Errors
/// Those of the file system.
pub fn remove(env: &Env, dir: &Path, id: SstableId) -> Result<()> {
    let paths = Paths::new(dir, id);
    for path in [&paths.data, &paths.index, &paths.data_tmp, &paths.index_tmp] {
        match env.files.remove(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
    }
    Ok(())
}

/// The id in the name of a file that belongs to an SSTable, published or not.
pub fn id_of_file_name(name: &str) -> Option<SstableId> {
    let (stem, suffix) = name.split_at_checked(16)?;
    let known = [DATA_SUFFIX, INDEX_SUFFIX].contains(&suffix) || TMP_SUFFIXES.contains(&suffix);
    let hex = stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if known && hex { SstableId::from_str_radix(stem, 16).ok() } else { None }
}

/// Whether an error says already which SSTable it is about.
fn names_sstable(error: &Error) -> bool {
    error.message().starts_with("sstable ")
}

/// The error, which says which SSTable it is about.
fn in_sstable(error: Error, id: SstableId) -> Error {
    if names_sstable(&error) { error } else { error.context(format!("sstable {id}")) }
}

/// An error of the Parquet crate: our own if it came from below, else bytes that are not what was written.
pub(crate) fn parquet_error(error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => match source.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => match other.downcast::<std::io::Error>() {
                // Ours, on its way through a reader.
                Ok(read) if read.get_ref().is_some_and(|inner| inner.is::<Error>()) => Error::from(*read),
                Ok(read) => Error::corrupt(read.to_string()),
                Err(other) => Error::corrupt(other.to_string()),
            },
        },
        other => Error::corrupt(other.to_string()),
    }
}
