//! Documents: the rows of a key-value table.
//!
//! The table's `flags` column is wider than the 32 bits that belong to the client; two bits above them keep what a
//! cache of expensive values needs: whether the value is *stale*, and whether somebody was *promised* the right to
//! replace it.

use oribi_engine::RowVersion;
use oribi_types::{RowRef, Schema, ValueRef};

const VALUE_SLOT: usize = 0;
const FLAGS_SLOT: usize = 1;
const EXPIRES_AT_SLOT: usize = 2;

const STALE: i64 = 1 << 32;
const PROMISED: i64 = 1 << 33;

/// A document, or a row shown as one, borrowed from where it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Document<'a> {
    pub value: &'a [u8],
    pub flags: u32,
    /// Changes with every write of the document, and never recurs.
    pub cas: u64,
    /// Microseconds since the Unix epoch; `None`: never.
    pub expires_at: Option<i64>,
    /// Of the last write, microseconds since the Unix epoch.
    pub written_at: u64,
    /// Somebody marked it as outdated.
    pub stale: bool,
    /// Somebody was told to replace it, and has not yet.
    pub promised: bool,
}

/// When something expires, as key-value protocols state it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    /// Microseconds since the Unix epoch; a moment that has passed means at once.
    At(i64),
    /// When the document that is replaced would have; never, if there is none.
    Keep,
}

const MICROS_PER_SECOND: i64 = 1_000_000;
/// 9999-12-31 23:59:59: the calendars of many clients, Python's among them, go no further.
const UNIX_SECONDS_MAX: i64 = 253_402_300_799;

impl Expiry {
    /// 0 is never, a negative number is at once, up to `relative_seconds_max` is from now, and beyond is Unix time; a
    /// year of five digits is never.
    pub(super) fn from_seconds(seconds: i64, relative_seconds_max: i64, now_micros: u64) -> Self {
        match seconds {
            0 => Expiry::Never,
            ..0 => Expiry::At(0),
            _ if seconds <= relative_seconds_max => {
                Expiry::At(now_micros as i64 + seconds * MICROS_PER_SECOND)
            }
            1..=UNIX_SECONDS_MAX => Expiry::At(seconds * MICROS_PER_SECOND),
            _ => Expiry::Never,
        }
    }

    pub fn has_passed(self, now_micros: u64) -> bool {
        matches!(self, Expiry::At(at) if at <= now_micros as i64)
    }

    /// What it is for a document in the place of one that expires at `expires_at`.
    pub(super) fn instead_of(self, expires_at: Option<i64>) -> Self {
        if self == Expiry::Keep { Expiry::from_column(expires_at) } else { self }
    }

    pub(super) fn from_column(expires_at: Option<i64>) -> Self {
        expires_at.map_or(Expiry::Never, Expiry::At)
    }

    pub(super) fn as_value(self) -> ValueRef<'static> {
        match self {
            Expiry::Never | Expiry::Keep => ValueRef::Null,
            Expiry::At(at) => ValueRef::Timestamp(at),
        }
    }
}

impl Document<'_> {
    /// Seconds until it expires, begun ones counted; `None`: never.
    pub fn ttl_seconds(&self, now_micros: u64) -> Option<u64> {
        ttl_seconds(self.expires_at, now_micros)
    }
}

/// Seconds until `expires_at`, begun ones counted; `None`: never.
pub fn ttl_seconds(expires_at: Option<i64>, now_micros: u64) -> Option<u64> {
    let micros = expires_at?.saturating_sub(now_micros as i64).max(0) as u64;
    Some(micros.div_ceil(MICROS_PER_SECOND as u64))
}

/// What a write makes of a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewDocument<'a> {
    pub value: &'a [u8],
    pub flags: u32,
    pub expiry: Expiry,
    pub stale: bool,
    pub promised: bool,
}

impl<'a> NewDocument<'a> {
    /// Neither stale nor promised to anybody.
    pub fn new(value: &'a [u8], flags: u32, expiry: Expiry) -> Self {
        NewDocument { value, flags, expiry, stale: false, promised: false }
    }
}

/// Reads and writes the rows of a key-value table.
pub(super) struct DocumentTable<'s> {
    schema: &'s Schema,
}

impl<'s> DocumentTable<'s> {
    pub fn new(schema: &'s Schema) -> Self {
        DocumentTable { schema }
    }

    /// # Panics
    /// If the row is not of a key-value table.
    pub fn read<'a>(&self, version: &RowVersion<'a>) -> Document<'a>
    where
        's: 'a,
    {
        let row = RowRef::new(self.schema.layout(), version.row);
        let (Some(ValueRef::Binary(value)), Some(ValueRef::Int64(flags))) =
            (row.get(VALUE_SLOT), row.get(FLAGS_SLOT))
        else {
            unreachable!("a document has a value and flags");
        };
        let expires_at = match row.get(EXPIRES_AT_SLOT) {
            Some(ValueRef::Timestamp(at)) => Some(at),
            _ => None,
        };
        Document {
            value,
            flags: flags as u32,
            cas: version.ts.0,
            expires_at,
            written_at: version.ts.micros(),
            stale: flags & STALE != 0,
            promised: flags & PROMISED != 0,
        }
    }

    /// Appends the encoded row. Columns that a key-value table was given later are null.
    pub fn write(&self, document: &NewDocument<'_>, row: &mut Vec<u8>) {
        let mut flags = i64::from(document.flags);
        flags |= if document.stale { STALE } else { 0 };
        flags |= if document.promised { PROMISED } else { 0 };
        let own = [ValueRef::Binary(document.value), ValueRef::Int64(flags), document.expiry.as_value()];
        let layout = self.schema.layout();
        if layout.slots().len() == own.len() {
            layout.encode(&own, row);
        } else {
            let mut slots = own.to_vec();
            slots.resize(layout.slots().len(), ValueRef::Null);
            layout.encode(&slots, row);
        }
    }
}
