//! Long files, which are put in parts: what is sent is in memory, a part at a time, and a part that fails is sent again by itself.

use super::{S3Bucket, SILENCE_MAX, tag_of, time_to_send};
use crate::bucket::{Body, CHUNK_BYTES};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, ObjectStoreExt, PutPayload};
use oribi_types::{Error, ErrorKind, Result};
use std::time::Duration;

/// What is not longer is put by one request, as a whole; the rest in parts of so many bytes, or of more if there were too many.
pub(super) const PART_BYTES_MIN: u64 = 8 << 20;
/// S3 takes 10,000.
const PARTS_MAX: u64 = 9_000;
const _: () = assert!(PART_BYTES_MIN.is_multiple_of(CHUNK_BYTES as u64));
/// How often a part is sent, before the whole is given up, which may be put again from its beginning.
const ATTEMPTS_MAX: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);
/// Once a part has been under way for so long, it is not sent again: an attempt may take longer than that by itself.
const AGAIN_MICROS: u64 = 30_000_000;

/// An object that has been begun.
struct Upload {
    path: Path,
    id: MultipartId,
    parts: Vec<PartId>,
}

impl S3Bucket {
    /// Puts an object where there is none. Whether there is one is looked at before all is sent, and told by the store behind it.
    pub(super) fn put_in_parts(&self, path: Path, body: Body<'_>) -> Result<String> {
        let (store, at) = (self.store.clone(), path.clone());
        match self.wait(SILENCE_MAX, async move { store.head(&at).await }) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            there => return Err(Error::conflict(format!("{} is there already", there?.location))),
        }
        let (store, at) = (self.store.clone(), path.clone());
        let id = self.wait(SILENCE_MAX, async move { store.create_multipart(&at).await })?;
        let mut upload = Upload { path, id, parts: Vec::new() };
        let put = self.send_parts(&mut upload, body).and_then(|()| self.complete(&mut upload));
        put.map_err(|error| {
            self.abort(upload);
            match error.kind() {
                // Somebody else has aborted it.
                ErrorKind::NotFound => Error::unavailable(error.message()),
                _ => error,
            }
        })
    }

    fn send_parts(&self, upload: &mut Upload, body: Body<'_>) -> Result<()> {
        let size = part_bytes(body.len()?) as usize;
        let mut part = Vec::new();
        body.read(&mut |bytes| {
            part.extend_from_slice(bytes);
            if part.len() >= size { self.send_part(upload, std::mem::take(&mut part)) } else { Ok(()) }
        })?;
        if part.is_empty() { Ok(()) } else { self.send_part(upload, part) }
    }

    fn send_part(&self, upload: &mut Upload, part: Vec<u8>) -> Result<()> {
        let (limit, part) = (time_to_send(part.len() as u64), PutPayload::from(part));
        let begun = self.clock.monotonic_micros();
        let may_come_again = |attempt| {
            let passed = self.clock.monotonic_micros().saturating_sub(begun);
            attempt < ATTEMPTS_MAX && passed < AGAIN_MICROS
        };
        for attempt in 1.. {
            let (store, path, id) = (self.store.clone(), upload.path.clone(), upload.id.clone());
            let (number, part) = (upload.parts.len(), part.clone());
            let sent = {
                // Not while the next one is read, by a thread that may have to wait for a processor.
                let _place = self.sending.take();
                self.wait(limit, async move { store.put_part(&path, &id, number, part).await })
            };
            match sent {
                // The same part again takes the place of one that has come through.
                Err(error) if error.kind() == ErrorKind::Unavailable && may_come_again(attempt) => {
                    std::thread::sleep(attempt * PAUSE);
                }
                sent => {
                    upload.parts.push(sent?);
                    break;
                }
            }
        }
        Ok(())
    }

    fn complete(&self, upload: &mut Upload) -> Result<String> {
        let (store, path, id) = (self.store.clone(), upload.path.clone(), upload.id.clone());
        let parts = std::mem::take(&mut upload.parts);
        let put = self.wait(SILENCE_MAX, async move { store.complete_multipart(&path, &id, parts).await })?;
        tag_of(put.e_tag)
    }

    /// What is left costs space, until the bucket's own rule for such removes it.
    fn abort(&self, upload: Upload) {
        let (store, Upload { path, id, .. }) = (self.store.clone(), upload);
        if let Err(error) = self.wait(SILENCE_MAX, async move { store.abort_multipart(&path, &id).await }) {
            tracing::warn!(%error, "an upload that was begun could not be aborted");
        }
    }
}

fn part_bytes(len: u64) -> u64 {
    len.div_ceil(PARTS_MAX).next_multiple_of(CHUNK_BYTES as u64).max(PART_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_too_many_parts() {
        for len in [1, PART_BYTES_MIN, 9_000 * PART_BYTES_MIN, 9_000 * PART_BYTES_MIN + 1, 5 << 40] {
            let size = part_bytes(len);
            assert!(
                size >= PART_BYTES_MIN
                    && size.is_multiple_of(CHUNK_BYTES as u64)
                    && len.div_ceil(size) <= 9_000,
                "{len}"
            );
        }
    }
}
