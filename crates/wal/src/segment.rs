//! Segments: the files of a log, preallocated.

use crate::Lsn;
use crate::format::SegmentHeader;
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

/// Numbers of the segments in `dir`, ascending. Other files are none of the log's business.
pub(crate) fn list(files: &dyn Files, dir: &Path) -> Result<Vec<u64>> {
    let names = files.list(dir).map_err(|error| Error::from(error).context(dir.display()))?;
    let mut numbers: Vec<u64> =
        names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect();
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
pub(crate) fn create(
    files: &dyn Files,
    dir: &Path,
    header: &SegmentHeader,
    opening: &[u8],
    len: u64,
) -> Result<Segment, CreateError> {
    use CreateError::{Broken, Refused};
    let named = |error: std::io::Error| Error::from(error).context(format!("log segment {}", header.number));
    let temporary = dir.join(TEMPORARY);
    remove_temporary(files, dir).map_err(Refused)?;
    let file = files.create(&temporary).map_err(|error| Refused(named(error)))?;
    let mut start = header.encode().to_vec();
    start.extend_from_slice(opening);
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

/// Removes what an interrupted [`create`] left.
pub(crate) fn remove_temporary(files: &dyn Files, dir: &Path) -> Result<()> {
    match files.remove(&dir.join(TEMPORARY)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
