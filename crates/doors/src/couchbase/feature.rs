//! What a client and this server agree on in HELLO.

/// A feature that this server keeps if a client asks for it. Others, such as TLS inside the connection, extended
/// attributes of users and creation as deleted, are left out of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Feature {
    /// Answers leave at once: always so here.
    NoDelay = 0x03,
    /// Answers to changes carry a mutation token.
    MutationToken = 0x04,
    /// Any code of the error map may be sent.
    ExtendedErrors = 0x07,
    SelectBucket = 0x08,
    /// Values may arrive compressed. They are stored and sent as they are without.
    Snappy = 0x0a,
    /// JSON values are marked as such.
    Json = 0x0b,
    /// The server may ask something of the client.
    Duplex = 0x0c,
    /// New cluster maps are pushed, whole.
    PushedMap = 0x0d,
    /// Answers may come in another order, and never do here.
    Unordered = 0x0e,
    /// Answers say how long the request took.
    Durations = 0x0f,
    /// Requests may have framing extras.
    FlexibleRequests = 0x10,
    DurableWrites = 0x11,
    /// Keys begin with the number of their collection.
    Collections = 0x12,
    /// Any value may arrive compressed.
    SnappyEverywhere = 0x13,
    PreserveExpiry = 0x14,
    /// Documents have the virtual attribute `$document`.
    VirtualAttributes = 0x15,
    /// A client that has the newest cluster map is not sent it again when it asks for it.
    KnownMapVersion = 0x1d,
    /// Nor when it asks the wrong node.
    KnownMapOnRefusal = 0x1e,
    /// Of new cluster maps, the versions are pushed.
    PushedMapVersion = 0x1f,
}

const ALL: [Feature; 19] = [
    Feature::NoDelay,
    Feature::MutationToken,
    Feature::ExtendedErrors,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::Duplex,
    Feature::PushedMap,
    Feature::Unordered,
    Feature::Durations,
    Feature::FlexibleRequests,
    Feature::DurableWrites,
    Feature::Collections,
    Feature::SnappyEverywhere,
    Feature::PreserveExpiry,
    Feature::VirtualAttributes,
    Feature::KnownMapVersion,
    Feature::KnownMapOnRefusal,
    Feature::PushedMapVersion,
];

/// The features that a connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    pub fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u16) != 0
    }

    /// Those of `asked`, a list of 16-bit codes, that this server keeps; `None` if it is no such list.
    pub fn accept(asked: &[u8]) -> Option<Self> {
        let (codes, []) = asked.as_chunks::<2>() else { return None };
        let mut accepted = Features::default();
        for code in codes.iter().map(|code| u16::from_be_bytes(*code)) {
            if ALL.iter().any(|feature| *feature as u16 == code) {
                accepted.0 |= 1 << code;
            }
        }
        // A push needs a client that takes requests.
        if !accepted.has(Feature::Duplex) {
            accepted.0 &= !(1 << Feature::PushedMap as u16 | 1 << Feature::PushedMapVersion as u16);
        }
        Some(accepted)
    }

    /// As a list of 16-bit codes.
    pub fn to_bytes(self) -> Vec<u8> {
        ALL.iter()
            .filter(|feature| self.has(**feature))
            .flat_map(|feature| (*feature as u16).to_be_bytes())
            .collect()
    }
}

// A feature is a bit.
const _: () = assert!((Feature::PushedMapVersion as u16) < 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_kept_is_accepted() {
        let asked = b"\x00\x02\x00\x03\x00\x06\x00\x07\x00\x17\x00\x12\x7f\xff";
        let accepted = Features::accept(asked).unwrap();
        assert_eq!(accepted.to_bytes(), b"\x00\x03\x00\x07\x00\x12");
        assert!(accepted.has(Feature::Collections) && !accepted.has(Feature::Json));
        assert_eq!(Features::accept(b"\x00\x03\x00"), None);
        assert_eq!(Features::accept(b"").unwrap(), Features::default());
    }

    #[test]
    fn maps_are_pushed_to_those_who_take_requests() {
        assert_eq!(Features::accept(b"\x00\x0d\x00\x1f").unwrap().to_bytes(), b"");
        let all = b"\x00\x0c\x00\x0d\x00\x1f";
        assert_eq!(Features::accept(all).unwrap().to_bytes(), all);
    }
}
