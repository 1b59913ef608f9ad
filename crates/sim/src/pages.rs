//! The bytes of a file, sparse and cheap to copy: a preallocated file takes no memory, a snapshot shares its pages.

use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Bytes from 0 to `len`; what no page holds is zero.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    len: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

impl Pages {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` from `offset`; what lies behind the end is zero.
    pub fn read(&self, buf: &mut [u8], offset: u64) {
        for (at, page, within) in spans(offset, buf.len()) {
            let out = &mut buf[at.clone()];
            match self.pages.get(&page) {
                Some(bytes) => out.copy_from_slice(&bytes[within..within + at.len()]),
                None => out.fill(0),
            }
        }
    }

    /// Writes `bytes` at `offset`, growing the file if they reach beyond its end.
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        for (at, page, within) in spans(offset, bytes.len()) {
            let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + at.len()].copy_from_slice(&bytes[at]);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Cuts the file or makes it longer.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE as u64));
            let (page, within) = (len / PAGE as u64, len as usize % PAGE);
            if let Some(page) = self.pages.get_mut(&page) {
                Arc::make_mut(page)[within..].fill(0);
            }
        }
        self.len = len;
    }
}

/// The pieces of `len` bytes at `offset` that lie in one page each: range in the buffer, page, place in the page.
fn spans(offset: u64, len: usize) -> impl Iterator<Item = (std::ops::Range<usize>, u64, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let position = offset + at as u64;
        let (page, within) = (position / PAGE as u64, (position % PAGE as u64) as usize);
        let span = at..len.min(at + PAGE - within);
        at = span.end;
        (!span.is_empty()).then_some((span, page, within))
    })
}
