//! Opcodes of the Couchbase key-value protocol that have a meaning here.

pub const GET: u8 = 0x00;
pub const SET: u8 = 0x01;
pub const ADD: u8 = 0x02;
pub const REPLACE: u8 = 0x03;
pub const DELETE: u8 = 0x04;
pub const INCREMENT: u8 = 0x05;
pub const DECREMENT: u8 = 0x06;
pub const QUIT: u8 = 0x07;
pub const GET_QUIET: u8 = 0x09;
pub const NOOP: u8 = 0x0a;
pub const VERSION: u8 = 0x0b;
pub const GET_KEY: u8 = 0x0c;
pub const GET_KEY_QUIET: u8 = 0x0d;
pub const APPEND: u8 = 0x0e;
pub const PREPEND: u8 = 0x0f;
pub const STAT: u8 = 0x10;
pub const SET_QUIET: u8 = 0x11;
pub const ADD_QUIET: u8 = 0x12;
pub const REPLACE_QUIET: u8 = 0x13;
pub const DELETE_QUIET: u8 = 0x14;
pub const INCREMENT_QUIET: u8 = 0x15;
pub const DECREMENT_QUIET: u8 = 0x16;
pub const QUIT_QUIET: u8 = 0x17;
pub const APPEND_QUIET: u8 = 0x19;
pub const PREPEND_QUIET: u8 = 0x1a;
pub const TOUCH: u8 = 0x1c;
pub const GET_AND_TOUCH: u8 = 0x1d;
pub const GET_AND_TOUCH_QUIET: u8 = 0x1e;
pub const HELLO: u8 = 0x1f;
pub const SASL_LIST: u8 = 0x20;
pub const SASL_AUTH: u8 = 0x21;
pub const SASL_STEP: u8 = 0x22;
pub const GET_REPLICA: u8 = 0x83;
pub const SELECT_BUCKET: u8 = 0x89;
pub const OBSERVE_SEQNO: u8 = 0x91;
pub const OBSERVE: u8 = 0x92;
pub const GET_AND_LOCK: u8 = 0x94;
pub const UNLOCK: u8 = 0x95;
pub const GET_META: u8 = 0xa0;
pub const GET_CLUSTER_CONFIG: u8 = 0xb5;
pub const GET_RANDOM_KEY: u8 = 0xb6;
pub const GET_MANIFEST: u8 = 0xba;
pub const GET_COLLECTION_ID: u8 = 0xbb;
pub const GET_SCOPE_ID: u8 = 0xbc;
pub const SUBDOC_GET: u8 = 0xc5;
pub const SUBDOC_EXISTS: u8 = 0xc6;
pub const SUBDOC_DICT_ADD: u8 = 0xc7;
pub const SUBDOC_COUNTER: u8 = 0xcf;
pub const SUBDOC_MULTI_LOOKUP: u8 = 0xd0;
pub const SUBDOC_MULTI_MUTATION: u8 = 0xd1;
pub const SUBDOC_GET_COUNT: u8 = 0xd2;
pub const RANGE_SCAN_CREATE: u8 = 0xda;
pub const RANGE_SCAN_CONTINUE: u8 = 0xdb;
pub const RANGE_SCAN_CANCEL: u8 = 0xdc;
pub const GET_ERROR_MAP: u8 = 0xfe;

/// What the server asks of the client, behind the magic 0x82.
pub const PUSH_CLUSTER_CONFIG: u8 = 0x01;

/// The name of an operation that clients may ask for and that is not offered.
pub fn refused_name(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        GET_REPLICA => "get replica: there are no replicas",
        OBSERVE => "observe: durable writes and observe by sequence number are supported",
        GET_RANDOM_KEY => "get random key",
        RANGE_SCAN_CREATE | RANGE_SCAN_CONTINUE | RANGE_SCAN_CANCEL => "range scan",
        _ => return None,
    })
}

/// Whether a client may ask it that has not said who it is.
pub fn is_for_anybody(opcode: u8) -> bool {
    matches!(
        opcode,
        HELLO | SASL_LIST | SASL_AUTH | SASL_STEP | GET_ERROR_MAP | NOOP | VERSION | QUIT | QUIT_QUIET
    )
}
