//! Framing extras: what a request asks for besides its operation.

/// How far a write must have come when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    pub level: Level,
    /// `None`: as long as it takes.
    pub timeout_ms: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In the memory of a majority of the copies. There is one copy.
    Majority,
    /// On the disk: that of the active copy, or of a majority.
    Persisted,
}

/// What the framing extras of a request say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    pub durability: Option<Durability>,
    /// A store keeps the expiry that is there.
    pub preserve_expiry: bool,
}

/// Why framing extras are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A frame ends beyond its place, or has another length than its kind.
    Malformed,
    UnknownFrame,
    UnknownLevel,
    /// To act as another user.
    Impersonation,
}

const BARRIER: u16 = 0;
const DURABILITY: u16 = 1;
const OPEN_TRACING: u16 = 3;
const IMPERSONATE: u16 = 4;
const PRESERVE_EXPIRY: u16 = 5;

/// Decodes framing extras. A frame begins with four bits of its kind and four of its length; 15 adds the next byte.
///
/// # Errors
/// See [`Fault`]: what is not understood is never passed over, since it may be what the client relies on.
pub fn decode(mut rest: &[u8]) -> Result<Framing, Fault> {
    let mut framing = Framing::default();
    while let Some(&first) = rest.split_off_first() {
        let kind = extended(first >> 4, &mut rest)?;
        let len = extended(first & 0x0f, &mut rest)?;
        let content = rest.split_off(..usize::from(len)).ok_or(Fault::Malformed)?;
        match (kind, content) {
            // Requests of one connection are executed in order, and nobody is traced.
            (BARRIER, []) | (OPEN_TRACING, _) => {}
            (DURABILITY, [level]) => {
                framing.durability = Some(Durability { level: decode_level(*level)?, timeout_ms: None })
            }
            (DURABILITY, [level, high, low]) => {
                let timeout_ms =
                    Some(u16::from_be_bytes([*high, *low])).filter(|ms| (1..u16::MAX).contains(ms));
                framing.durability = Some(Durability { level: decode_level(*level)?, timeout_ms });
            }
            (PRESERVE_EXPIRY, []) => framing.preserve_expiry = true,
            (IMPERSONATE, _) => return Err(Fault::Impersonation),
            (BARRIER | DURABILITY | PRESERVE_EXPIRY, _) => return Err(Fault::Malformed),
            _ => return Err(Fault::UnknownFrame),
        }
    }
    Ok(framing)
}

fn extended(nibble: u8, rest: &mut &[u8]) -> Result<u16, Fault> {
    if nibble < 15 {
        return Ok(u16::from(nibble));
    }
    let more = rest.split_off_first().ok_or(Fault::Malformed)?;
    Ok(15 + u16::from(*more))
}

fn decode_level(level: u8) -> Result<Level, Fault> {
    match level {
        1 => Ok(Level::Majority),
        2 | 3 => Ok(Level::Persisted),
        _ => Err(Fault::UnknownLevel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_and_expiry_are_understood() {
        assert_eq!(decode(b""), Ok(Framing::default()));
        let durable = |level, timeout_ms| Some(Durability { level, timeout_ms });
        assert_eq!(
            decode(b"\x13\x03\x05\xdc\x50"),
            Ok(Framing { durability: durable(Level::Persisted, Some(1500)), preserve_expiry: true })
        );
        assert_eq!(decode(b"\x11\x01").unwrap().durability, durable(Level::Majority, None));
        // As long as the server likes, and for ever.
        assert_eq!(decode(b"\x13\x02\x00\x00").unwrap().durability, durable(Level::Persisted, None));
        assert_eq!(decode(b"\x13\x02\xff\xff").unwrap().durability, durable(Level::Persisted, None));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert_eq!(decode(b"\x11\x00"), Err(Fault::UnknownLevel));
        assert_eq!(decode(b"\x11\x04"), Err(Fault::UnknownLevel));
        assert_eq!(decode(b"\x12\x01\x00"), Err(Fault::Malformed));
        assert_eq!(decode(b"\x13\x01\x00"), Err(Fault::Malformed));
        assert_eq!(decode(b"\x51\x00"), Err(Fault::Malformed));
        assert_eq!(decode(b"\x42ab"), Err(Fault::Impersonation));
        assert_eq!(decode(b"\x61\x00"), Err(Fault::UnknownFrame));
        assert_eq!(decode(b"\xf0\x10"), Err(Fault::UnknownFrame));
        assert_eq!(decode(b"\xf0"), Err(Fault::Malformed));
        assert_eq!(decode(b"\x3f\x01"), Err(Fault::Malformed));
        assert_eq!(decode(b"\x3f\x010123456789abcdef"), Ok(Framing::default()));
    }
}
