//! Segments: the files of a log, preallocated.

use crate::Lsn;
use crate::format::{BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use oribi_env::{File, Files};
use oribi_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a segment is made before it has its name.
const TEMPORARY: &str = "segment.tmp";

/// A segment that can be written.
pub(crate) struct Segment {
    pub number: u64,
    pub file: Arc<dyn File>,
    /// Bytes allocated.
    pub len: u64,
}

/// What is kept of every segment of the log, oldest first, to trim and to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentInfo {
    pub number: u64,
    /// Every record before this segment is below.
    pub start: Lsn,
    pub len: u64,
}

pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016}.log"))
}

/// Where the file of a segment that was trimmed awaits another use.
pub(crate) fn spare_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016}.spare"))
}

/// Numbers of the segments in `dir`, ascending. Other files are none of the log's business.
pub(crate) fn list(files: &dyn Files, dir: &Path) -> Result<Vec<u64>> {
    numbers(files, dir, ".log")
}

fn numbers(files: &dyn Files, dir: &Path, suffix: &str) -> Result<Vec<u64>> {
    let names = files.list(dir).map_err(|error| Error::from(error).context(dir.display()))?;
    let mut numbers: Vec<u64> =
        names.iter().filter_map(|name| name.strip_suffix(suffix)?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// How making a segment failed.
pub(crate) enum CreateError {
    /// No room, or no right to take it: nothing is lost, a later attempt may succeed.
    Refused(Error),
    /// A sync failed: nothing can be said about the disk any more.
    Broken(Error),
}

/// Makes a segment of `len` bytes that begins with `header` and `opening`. When it has its name, its header, opening
/// and length are durable, and so is the name: a segment with a damaged header was damaged later.
///
/// The file of the segment `spare`, which has this length, is used again if there is one: it is on the disk and in the
/// page cache already, and writing to it costs a tenth of writing to a new one. What it holds names another segment,
/// and so is none of this one's.
pub(crate) fn create(
    files: &dyn Files,
    dir: &Path,
    header: &SegmentHeader,
    opening: &[u8],
    len: u64,
    spare: Option<u64>,
) -> Result<Segment, CreateError> {
    use CreateError::{Broken, Refused};
    let named = |error: std::io::Error| Error::from(error).context(format!("log segment {}", header.number));
    let temporary = dir.join(TEMPORARY);
    remove_if_there(files, &temporary).map_err(Refused)?;
    if let Some(number) = spare {
        let spare = spare_path(dir, number);
        if let Err(error) = files.rename(&spare, &temporary) {
            // Gives back the space; if that fails too, the next opening does it.
            let _ = files.remove(&spare);
            return Err(Refused(named(error)));
        }
        // That it has lost its old name must be durable before it is written to, or that name would stand for something
        // else.
        files.sync_dir(dir).map_err(|error| Broken(named(error)))?;
    }
    let file = match spare {
        None => files.create(&temporary),
        Some(_) => files.open(&temporary, true),
    };
    let file = file.map_err(|error| Refused(named(error)))?;
    let mut start = header.encode().to_vec();
    start.extend_from_slice(opening);
    start.resize(start.len().max(SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES), 0);
    // A spare file too: it may have been copied, and be sparse since then.
    let filled = file.allocate(len).and_then(|()| file.write_at(&start, 0));
    if let Err(error) = filled {
        // Gives back the space; if that fails too, the next attempt or recovery does it.
        let _ = files.remove(&temporary);
        return Err(Refused(named(error)));
    }
    file.sync().map_err(|error| Broken(named(error)))?;
    files.rename(&temporary, &path(dir, header.number)).map_err(|error| Refused(named(error)))?;
    files.sync_dir(dir).map_err(|error| Broken(named(error)))?;
    Ok(Segment { number: header.number, file, len })
}

/// Removes what an interrupted [`create`] left, and spare files: who they belong to is known only while the log is open.
pub(crate) fn remove_leftovers(files: &dyn Files, dir: &Path) -> Result<()> {
    remove_if_there(files, &dir.join(TEMPORARY))?;
    for number in numbers(files, dir, ".spare")? {
        remove_if_there(files, &spare_path(dir, number))?;
    }
    Ok(())
}

fn remove_if_there(files: &dyn Files, path: &Path) -> Result<()> {
    match files.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
