//! A file of frames, appended one at a time and each synced before the next begins (`docs/format/frames.md`).
//!
//! That rule is what tells a torn tail from damage: at most the last frame can be incomplete, and an incomplete one
//! lacks its end or whole sectors. So a frame is `Corrupt` if it does not check and
//!
//! - another frame's header stands anywhere behind it, or the file goes on behind its stated end; or
//! - all of it has been written: the file does not end within it, none of its 512-byte sectors is all zeros, and its
//!   last byte is not zero. (Frames that hold text have no zeros of their own, so every flipped bit is found.)
//!
//! Otherwise it is the torn tail, of a write that nobody was promised, and is left out. Nothing is ever appended to a
//! file that was read: its reader goes on in a new one.

use oribi_env::{File, Files};
use oribi_types::{Error, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const HEADER_BYTES: usize = 16;
/// What a disk writes wholly or not at all.
const SECTOR_BYTES: usize = 512;
/// The largest payload of one frame.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// Appends frames to a file.
pub struct FrameWriter {
    file: Arc<dyn File>,
    /// For messages.
    name: String,
    end: u64,
    chain: u32,
    buffer: Vec<u8>,
    failed: Option<Error>,
}

impl FrameWriter {
    /// Creates `path`, without frames. Syncing its folder is the caller's.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(files: &dyn Files, path: &Path) -> Result<FrameWriter> {
        let name = path.display().to_string();
        let file = files.create(path).map_err(|error| Error::from(error).context(&name))?;
        Ok(FrameWriter { file, name, end: 0, chain: 0, buffer: Vec::new(), failed: None })
    }

    /// Appends a frame and makes it durable.
    ///
    /// # Errors
    /// `DiskFull` or `Unavailable` after a failed write or sync, then and ever after: what the disk holds is not known any more, and
    /// only reading the file tells. `TooLarge`, which changes nothing.
    pub fn append(&mut self, payload: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::too_large(format!("{}: a frame of {} bytes", self.name, payload.len())));
        }
        let header =
            Header { length: payload.len() as u32, previous: self.chain, checksum: crc32c::crc32c(payload) };
        let (header, chain) = header.encode(self.end);
        self.buffer.clear();
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(payload);
        if let Err(error) = self.file.write_at(&self.buffer, self.end).and_then(|()| self.file.sync()) {
            let error = Error::from(error).into_refusal().context(&self.name);
            self.failed = Some(error.clone());
            return Err(error);
        }
        self.end += self.buffer.len() as u64;
        self.chain = chain;
        Ok(())
    }

    /// Bytes of the file.
    pub fn size_bytes(&self) -> u64 {
        self.end
    }
}

/// The frames of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Frames {
    /// Where each payload stands in the file.
    pub payloads: Vec<Range<usize>>,
    /// Where the last whole frame ends; what lies behind is a torn tail.
    pub end: usize,
}

/// Finds the frames in the bytes of a file.
///
/// # Errors
/// `Corrupt` with the offset, as the header of this module says.
pub fn read_frames(bytes: &[u8]) -> Result<Frames> {
    let mut frames = Frames { payloads: Vec::new(), end: 0 };
    let mut last_checksum = 0;
    while frames.end < bytes.len() {
        match frame_at(bytes, frames.end, last_checksum) {
            Ok((payload, checksum)) => {
                frames.end = payload.end;
                last_checksum = checksum;
                frames.payloads.push(payload);
            }
            Err(why) if is_torn(bytes, frames.end) => {
                tracing::debug!(offset = frames.end, why, "torn frame");
                break;
            }
            Err(why) => return Err(Error::corrupt(format!("{why} at offset {}", frames.end))),
        }
    }
    Ok(frames)
}

struct Header {
    length: u32,
    /// Checksum of the header before.
    previous: u32,
    /// Checksum of the payload.
    checksum: u32,
}

impl Header {
    /// The header for a frame at `offset`, and its checksum.
    fn encode(&self, offset: u64) -> ([u8; HEADER_BYTES], u32) {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&self.length.to_le_bytes());
        out[4..8].copy_from_slice(&self.previous.to_le_bytes());
        out[8..12].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = header_checksum(&out, offset);
        out[12..].copy_from_slice(&checksum.to_le_bytes());
        (out, checksum)
    }

    /// The header at `offset` and its checksum, if one stands there.
    fn decode(bytes: &[u8], offset: usize) -> Option<(Header, u32)> {
        let header = bytes.get(offset..)?.get(..HEADER_BYTES)?;
        let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let checksum = field(12);
        (header_checksum(header, offset as u64) == checksum)
            .then(|| (Header { length: field(0), previous: field(4), checksum: field(8) }, checksum))
    }
}

/// Covers where the header stands, so that frames within a payload are never taken for frames of the file.
fn header_checksum(header: &[u8], offset: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&offset.to_le_bytes()), &header[..12])
}

/// The payload of the frame at `offset`, which follows a header of checksum `chain`, and its own.
fn frame_at(bytes: &[u8], offset: usize, chain: u32) -> Result<(Range<usize>, u32), &'static str> {
    let (header, header_checksum) = Header::decode(bytes, offset).ok_or("frame header checksum mismatch")?;
    if header.previous != chain {
        return Err("a frame that does not follow the one before it");
    }
    let start = offset + HEADER_BYTES;
    let payload = bytes[start..].get(..header.length as usize).ok_or("a frame is longer than its file")?;
    if crc32c::crc32c(payload) != header.checksum {
        return Err("checksum mismatch");
    }
    Ok((start..start + payload.len(), header_checksum))
}

/// Whether the bytes at `offset`, which are no frame, can be what a crash left of the last one.
fn is_torn(bytes: &[u8], offset: usize) -> bool {
    let header = Header::decode(bytes, offset).map(|(header, _)| header);
    let end = header.as_ref().map_or(bytes.len(), |header| offset + HEADER_BYTES + header.length as usize);
    if end < bytes.len() || (offset + 1..bytes.len()).any(|later| Header::decode(bytes, later).is_some()) {
        return false;
    }
    let ends_early = end > bytes.len() || bytes.len() - offset < HEADER_BYTES;
    let first_sector = offset - offset % SECTOR_BYTES;
    let mut sectors = (first_sector..bytes.len()).step_by(SECTOR_BYTES);
    let lacks_sector = sectors.any(|sector| {
        let sector = &bytes[sector.max(offset)..bytes.len().min(sector + SECTOR_BYTES)];
        sector.iter().all(|&byte| byte == 0)
    });
    ends_early || lacks_sector || bytes.last() == Some(&0)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "damages files as only the outside does")]
mod tests {
    use super::*;

    const PAYLOADS: [&str; 4] = [r#"{"add":1}"#, "", r#"{"remove":[2,3]}"#, r#"{"add":"a longer name"}"#];

    fn file_of(payloads: &[&str]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let mut writer = FrameWriter::create(&oribi_env::RealFiles, &path).unwrap();
        payloads.iter().for_each(|payload| writer.append(payload.as_bytes()).unwrap());
        std::fs::read(path).unwrap()
    }

    fn texts(bytes: &[u8]) -> Result<Vec<String>> {
        let frames = read_frames(bytes)?;
        Ok(frames.payloads.into_iter().map(|at| String::from_utf8(bytes[at].to_vec()).unwrap()).collect())
    }

    #[test]
    fn frames_come_back() {
        for frames in 0..=PAYLOADS.len() {
            assert_eq!(texts(&file_of(&PAYLOADS[..frames])).unwrap(), PAYLOADS[..frames]);
        }
    }

    #[test]
    fn a_tail_torn_at_any_byte_is_left_out() {
        let long = "x".repeat(3000);
        let (before, all) = (file_of(&PAYLOADS), file_of(&[&PAYLOADS[..], &[&long]].concat()));
        for end in before.len()..all.len() {
            assert_eq!(texts(&all[..end]).unwrap(), PAYLOADS, "cut at {end}");
            let mut zeroed = all.clone();
            zeroed[end..].fill(0);
            assert_eq!(texts(&zeroed).unwrap(), PAYLOADS, "zeros from {end}");
        }
        for sector in (before.len().next_multiple_of(512)..all.len()).step_by(512) {
            let mut lost = all.clone();
            lost[sector..all.len().min(sector + 512)].fill(0);
            assert_eq!(texts(&lost).unwrap(), PAYLOADS, "lost sector at {sector}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_named() {
        let all = file_of(&PAYLOADS);
        for bit in 0..all.len() * 8 {
            let mut flipped = all.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = texts(&flipped).expect_err("a flipped bit");
            assert!(error.message().contains("at offset"), "{error}");
        }
    }

    #[test]
    fn a_synced_frame_that_lost_a_sector_is_no_torn_tail() {
        let payloads = ["first", &"x".repeat(2000), "third"];
        let all = file_of(&payloads);
        let (second, third) = (file_of(&payloads[..1]).len(), file_of(&payloads[..2]).len());
        // Its header or a part of its payload; the frame behind it is whole, or has a header, or is hardly begun.
        for lost in [second..512, 1024..1536] {
            for end in [all.len(), all.len() - 1, third + 5] {
                let mut bytes = all[..end].to_vec();
                bytes[lost.clone()].fill(0);
                let without_trace = lost.start == second && end == third + 5;
                assert_eq!(texts(&bytes).is_err(), !without_trace, "{lost:?} of {end}");
            }
        }
    }
}
