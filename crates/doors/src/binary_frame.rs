//! The binary framing that memcached and Couchbase share: a header of 24 bytes, and a body of framing extras, extras,
//! key and value. No I/O, no state.
//!
//! | bytes | |
//! |---|---|
//! | 0 | magic |
//! | 1 | opcode |
//! | 2–3 | length of the key; with an alternative magic, lengths of framing extras and key, a byte each |
//! | 4 | length of the extras |
//! | 5 | datatype |
//! | 6–7 | vbucket of a request, status of a response |
//! | 8–11 | length of the body |
//! | 12–15 | opaque: returned as it came |
//! | 16–23 | cas |
//!
//! Numbers are big-endian. What a client declares costs nothing: [`decode`] looks only at bytes that are there, and a
//! value beyond the limit is reported as soon as its header is.

pub const HEADER_BYTES: usize = 24;

/// The first byte of a frame.
pub mod magic {
    pub const REQUEST: u8 = 0x80;
    pub const RESPONSE: u8 = 0x81;
    /// A request of the server's: something is pushed.
    pub const PUSH: u8 = 0x82;
    /// A request with framing extras.
    pub const ALT_REQUEST: u8 = 0x08;
    /// A response with framing extras.
    pub const ALT_RESPONSE: u8 = 0x18;
}

/// Small, since it stays with a request until the answer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub magic: u8,
    pub opcode: u8,
    pub framing_len: u8,
    pub extras_len: u8,
    pub key_len: u16,
    pub datatype: u8,
    pub vbucket: u16,
    pub body_len: u32,
    pub opaque: [u8; 4],
    pub cas: u64,
}

/// A frame that is whole, in parts borrowed from where it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub header: Header,
    pub framing: &'a [u8],
    pub extras: &'a [u8],
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Nothing whole yet.
    Incomplete,
    /// The first `len` bytes are a packet.
    Packet { packet: Packet<'a>, len: usize },
    /// The value exceeds the limit. The frame takes `len` bytes, whether they have arrived or not.
    TooLarge { header: Header, len: u64 },
    /// Framing extras, extras and key are longer than the body they are in. The frame takes `len` bytes, whether they
    /// have arrived or not, if its body can be believed.
    Malformed { header: Header, len: u64 },
    /// The first byte begins no request: nothing that follows would make sense.
    Garbage,
}

/// Reads the request at the beginning of `input`.
#[inline]
pub fn decode(input: &[u8], value_bytes_max: usize) -> Frame<'_> {
    match input.first() {
        Some(&(magic::REQUEST | magic::ALT_REQUEST)) => {}
        Some(_) => return Frame::Garbage,
        None => return Frame::Incomplete,
    }
    let Some((bytes, rest)) = input.split_first_chunk() else { return Frame::Incomplete };
    let header = Header::read(bytes);
    let len = HEADER_BYTES as u64 + u64::from(header.body_len);
    let Some(value_len) = header.value_len() else { return Frame::Malformed { header, len } };
    if value_len > value_bytes_max {
        return Frame::TooLarge { header, len };
    }
    let Some(body) = rest.get(..header.body_len as usize) else { return Frame::Incomplete };
    let (framing, body) = body.split_at(header.framing_len.into());
    let (extras, body) = body.split_at(header.extras_len.into());
    let (key, value) = body.split_at(header.key_len.into());
    Frame::Packet { packet: Packet { header, framing, extras, key, value }, len: len as usize }
}

impl Header {
    #[inline]
    fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [magic, opcode, key_high, key_low, extras_len, datatype, ..] = *bytes;
        let (framing_len, key_len) = match magic {
            magic::ALT_REQUEST => (key_high, u16::from(key_low)),
            _ => (0, u16::from_be_bytes([key_high, key_low])),
        };
        Header {
            magic,
            opcode,
            framing_len,
            extras_len,
            key_len,
            datatype,
            vbucket: u16::from_be_bytes(field(bytes, 6)),
            body_len: u32::from_be_bytes(field(bytes, 8)),
            opaque: field(bytes, 12),
            cas: u64::from_be_bytes(field(bytes, 16)),
        }
    }

    /// What the body has besides the other parts; `None` if they do not fit it.
    #[inline]
    pub fn value_len(&self) -> Option<usize> {
        let others = u32::from(self.framing_len) + u32::from(self.extras_len) + u32::from(self.key_len);
        self.body_len.checked_sub(others).map(|len| len as usize)
    }
}

#[inline]
fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// A frame of the server's.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// [`magic::RESPONSE`] becomes [`magic::ALT_RESPONSE`] if there are framing extras.
    pub magic: u8,
    pub opcode: u8,
    pub status: u16,
    pub datatype: u8,
    pub opaque: [u8; 4],
    pub cas: u64,
    /// At most 255 bytes, as the extras; with it, so is the key.
    pub framing: &'a [u8],
    pub extras: &'a [u8],
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> Response<'a> {
    /// An empty answer to `request`.
    pub fn new(request: &Header, status: u16) -> Self {
        Response {
            magic: magic::RESPONSE,
            opcode: request.opcode,
            status,
            datatype: 0,
            opaque: request.opaque,
            cas: 0,
            framing: &[],
            extras: &[],
            key: &[],
            value: &[],
        }
    }

    /// Appends the frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        let body_len = self.framing.len() + self.extras.len() + self.key.len() + self.value.len();
        let mut header = [0; HEADER_BYTES];
        header[0] = self.magic;
        header[1] = self.opcode;
        if self.framing.is_empty() {
            header[2..4].copy_from_slice(&(self.key.len() as u16).to_be_bytes());
        } else {
            header[0] = magic::ALT_RESPONSE;
            header[2..4].copy_from_slice(&[self.framing.len() as u8, self.key.len() as u8]);
        }
        header[4] = self.extras.len() as u8;
        header[5] = self.datatype;
        header[6..8].copy_from_slice(&self.status.to_be_bytes());
        header[8..12].copy_from_slice(&(body_len as u32).to_be_bytes());
        header[12..16].copy_from_slice(&self.opaque);
        header[16..24].copy_from_slice(&self.cas.to_be_bytes());
        out.reserve(HEADER_BYTES + body_len);
        out.extend_from_slice(&header);
        // Most answers have one of them or none.
        for part in [self.framing, self.extras, self.key, self.value] {
            if !part.is_empty() {
                out.extend_from_slice(part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with these parts.
    fn frame(magic: u8, framing: &[u8], extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let body = [framing, extras, key, value].concat();
        let [high, low] = match magic {
            magic::ALT_REQUEST => [framing.len() as u8, key.len() as u8],
            _ => (key.len() as u16).to_be_bytes(),
        };
        let mut bytes = vec![magic, 0x01, high, low, extras.len() as u8, 3, 0, 9];
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend([1, 2, 3, 4]);
        bytes.extend(77u64.to_be_bytes());
        [bytes, body].concat()
    }

    #[test]
    fn a_packet_is_whole_or_nothing_and_comes_in_its_parts() {
        for (magic, framing) in [(magic::REQUEST, &b""[..]), (magic::ALT_REQUEST, b"\x50")] {
            let bytes = frame(magic, framing, b"ext", b"key", b"value");
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end], 5), Frame::Incomplete, "{end}");
            }
            let more = [&bytes[..], b"\x80"].concat();
            let Frame::Packet { packet, len } = decode(&more, 5) else { panic!() };
            assert_eq!(len, bytes.len());
            assert_eq!((packet.framing, packet.extras), (framing, &b"ext"[..]));
            assert_eq!((packet.key, packet.value), (&b"key"[..], &b"value"[..]));
            let header = packet.header;
            assert_eq!((header.opcode, header.datatype, header.vbucket), (1, 3, 9));
            assert_eq!((header.opaque, header.cas), ([1, 2, 3, 4], 77));
        }
    }

    #[test]
    fn lengths_are_judged_before_anything_is_waited_for() {
        let bytes = frame(magic::REQUEST, b"", b"ext", b"key", b"value");
        let Frame::TooLarge { len, .. } = decode(&bytes[..HEADER_BYTES], 4) else { panic!() };
        assert_eq!(len, bytes.len() as u64);
        let mut huge = bytes.clone();
        huge[8..12].fill(0xff);
        let Frame::TooLarge { len, .. } = decode(&huge, 1 << 20) else { panic!() };
        assert_eq!(len, 24 + u64::from(u32::MAX));
        let mut torn = bytes;
        torn[8..12].copy_from_slice(&5u32.to_be_bytes());
        let Frame::Malformed { len, .. } = decode(&torn[..HEADER_BYTES], 1 << 20) else { panic!() };
        assert_eq!(len, 29);
        assert_eq!(decode(b"get a\r\n", 5), Frame::Garbage);
        assert_eq!(decode(&[magic::RESPONSE], 5), Frame::Garbage);
    }

    #[test]
    fn a_response_has_the_layout_of_a_request() {
        let bytes = frame(magic::REQUEST, b"", b"", b"key", b"");
        let Frame::Packet { packet, .. } = decode(&bytes, 5) else { panic!() };
        let empty = Response::new(&packet.header, 0x81);
        let response = Response { cas: 77, extras: b"ext", key: b"k", value: b"v", ..empty };
        let mut out = Vec::new();
        response.write(&mut out);
        assert_eq!(out[..12], [0x81, 1, 0, 1, 3, 0, 0, 0x81, 0, 0, 0, 5]);
        assert_eq!(out[12..24], [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 77]);
        assert_eq!(&out[24..], b"extkv");
        out.clear();
        Response { framing: b"fr", ..response }.write(&mut out);
        assert_eq!(out[..4], [0x18, 1, 2, 1]);
        assert_eq!(&out[24..], b"frextkv");
    }
}
