//! The pages of a column chunk as they are stored.

use crate::data_file::DataFile;
use crate::point::SCRATCH_BYTES_MAX;
use oribi_types::Result;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are read at a time, about.
const AHEAD_BYTES: u64 = 128 << 10;

/// Reads pages in their order, some of them by one call of the operating system if most are wanted.
pub struct Pages {
    pub file: Arc<DataFile>,
    /// Where reading ahead ends, as all positions here among the extents of the file.
    ahead_to: Option<usize>,
    /// Those in hand, and their bytes.
    read: Range<usize>,
    bytes: Vec<u8>,
    bytes_read: Arc<AtomicU64>,
}

impl Pages {
    pub fn new(file: Arc<DataFile>, ahead_to: Option<usize>, bytes_read: Arc<AtomicU64>) -> Self {
        Pages { file, ahead_to, read: 0..0, bytes: Vec::new(), bytes_read }
    }

    /// A page, header and all.
    ///
    /// # Errors
    /// `Corrupt`, naming the page; those of the file system.
    pub fn stored(&mut self, extent: usize) -> Result<&[u8]> {
        if !self.read.contains(&extent) {
            self.read = 0..0;
            let extents = extent..self.end(extent);
            self.file.read_extents(extents.clone(), &mut self.bytes)?;
            self.bytes_read.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
            self.read = extents;
        }
        let index = self.file.index();
        let (first, page) = (index.extents[self.read.start].offset, index.extent_range(extent));
        Ok(&self.bytes[(page.start - first) as usize..(page.end - first) as usize])
    }

    /// Gives back what a long page was read into.
    pub fn shrink(&mut self) {
        if self.bytes.capacity() > SCRATCH_BYTES_MAX {
            (self.read, self.bytes) = (0..0, Vec::new());
        }
    }

    /// Where to read to, from the page `extent` on.
    fn end(&self, extent: usize) -> usize {
        let next = extent + 1;
        let Some(end) = self.ahead_to else { return next };
        let index = self.file.index();
        let bytes_end = index.extents[extent].offset + AHEAD_BYTES;
        (next..end).find(|extent| index.extent_range(*extent).end > bytes_end).unwrap_or(end.max(next))
    }
}
