//! Operations on parts of a document, as they go over the wire; `oribi_session::kv::subdoc` does them.

use super::framing::Framing;
use super::opcode;
use super::operation::Refusal;
use super::status::Status;
use crate::binary_frame::Packet;
use bytes::BufMut;
use oribi_session::kv::subdoc::{self, DocumentMeta, Lookup, Mutation, OPERATIONS_MAX, Reader};
use oribi_session::kv::{Document, Edited, Expiry, StoreMode};
use std::borrow::Cow;

/// What a request asks about the document as a whole.
mod flag {
    /// It is made if it is absent.
    pub const UPSERT: u8 = 0x01;
    /// It must be absent.
    pub const INSERT: u8 = 0x02;
    /// What was deleted would do, too; nothing of it is kept here.
    pub const ACCESS_DELETED: u8 = 0x04;
}

fn refuse(status: subdoc::Status) -> Refusal {
    let message = match status {
        subdoc::Status::NotSupported => {
            "extended attributes of documents are not supported, nor what needs them, as transactions of the SDKs do: SQL has transactions"
        }
        _ => "the operations cannot be executed",
    };
    Refusal { status: Status::of_subdoc(status), message: Cow::Borrowed(message) }
}

fn malformed() -> Refusal {
    Refusal::new(Status::Invalid, "malformed operations on parts of a document")
}

/// The lookups of a request.
#[derive(Clone, Debug)]
pub struct Lookups<'a> {
    lookups: Vec<Lookup<'a>>,
    /// The request has one, and its answer is the value.
    single: bool,
}

impl<'a> Lookups<'a> {
    /// `None` if the request looks nothing up.
    pub fn parse(packet: &Packet<'a>) -> Result<Option<Self>, Refusal> {
        let code = packet.header.opcode;
        let (lookups, document_flags, single) = match code {
            opcode::SUBDOC_MULTI_LOOKUP => {
                let document_flags = match packet.extras {
                    [] => 0,
                    [flags] => *flags,
                    _ => return Err(malformed()),
                };
                (many_lookups(packet.value)?, document_flags, false)
            }
            opcode::SUBDOC_GET | opcode::SUBDOC_EXISTS | opcode::SUBDOC_GET_COUNT => {
                let Single { path, value, flags, rest } = Single::parse(packet)?;
                let ([] | [_], []) = (rest, value) else { return Err(malformed()) };
                let lookup = Lookup::new(code, flags, path).map_err(refuse)?;
                (vec![lookup], rest.first().copied().unwrap_or(0), true)
            }
            _ => return Ok(None),
        };
        if document_flags & !flag::ACCESS_DELETED != 0 {
            return Err(Refusal::new(Status::NotSupported, "these flags of a document are not supported"));
        }
        subdoc::check_lookups(&lookups).map_err(refuse)?;
        Ok(Some(Lookups { lookups, single }))
    }

    /// The status of the whole, and its value, which is appended to `out`.
    pub fn answer(&self, document: &Document<'_>, meta: DocumentMeta, out: &mut Vec<u8>) -> Status {
        let reader = Reader::new(document.value, meta);
        let mut whole = Status::Success;
        for lookup in &self.lookups {
            let found = reader.look(lookup);
            let (status, value) = match &found {
                Ok(value) => (Status::Success as u16, &value[..]),
                Err(status) => (status.code(), &[][..]),
            };
            if self.single {
                out.extend_from_slice(value);
                return found.map_or_else(Status::of_subdoc, |_| Status::Success);
            }
            if found.is_err() {
                whole = Status::SubdocMultiFailure;
            }
            out.put_u16(status);
            out.put_u32(value.len() as u32);
            out.extend_from_slice(value);
        }
        whole
    }
}

fn many_lookups(mut rest: &[u8]) -> Result<Vec<Lookup<'_>>, Refusal> {
    let mut lookups = Vec::new();
    while !rest.is_empty() && lookups.len() <= OPERATIONS_MAX {
        let spec = (|| {
            let [opcode, flags, l0, l1] = *rest.split_off(..4)?.as_array()?;
            Some((opcode, flags, rest.split_off(..usize::from(u16::from_be_bytes([l0, l1])))?))
        })();
        let (opcode, flags, path) = spec.ok_or_else(malformed)?;
        lookups.push(Lookup::new(opcode, flags, path).map_err(refuse)?);
    }
    Ok(lookups)
}

/// The mutations of a request.
#[derive(Clone, Debug)]
pub struct Edit<'a> {
    pub mutations: Vec<Mutation<'a>>,
    pub mode: StoreMode,
    pub expiry: Expiry,
    /// The request has one, and its answer is the value.
    single: bool,
}

impl<'a> Edit<'a> {
    /// `None` if the request mutates nothing.
    pub fn parse(
        packet: &Packet<'a>,
        framing: &Framing,
        expiry_of: impl Fn(u32) -> Expiry,
    ) -> Result<Option<Self>, Refusal> {
        let code = packet.header.opcode;
        let (mut mutations, rest, single) = match code {
            opcode::SUBDOC_MULTI_MUTATION => (many_mutations(packet.value)?, packet.extras, false),
            opcode::SUBDOC_DICT_ADD..=opcode::SUBDOC_COUNTER => {
                let Single { path, value, flags, rest } = Single::parse(packet)?;
                (vec![Mutation::new(code, flags, path, value).map_err(refuse)?], rest, true)
            }
            _ => return Ok(None),
        };
        let (expiry, document_flags) = match *rest {
            [] => (None, 0),
            [flags] => (None, flags),
            [a, b, c, d] => (Some([a, b, c, d]), 0),
            [a, b, c, d, flags] => (Some([a, b, c, d]), flags),
            _ => return Err(malformed()),
        };
        let mode = mode(document_flags)?;
        if mode == StoreMode::Add && packet.header.cas != 0 {
            return Err(Refusal::new(Status::Invalid, "what is to be added has no cas yet"));
        }
        for mutation in &mut mutations {
            mutation.create_path |= mode != StoreMode::Replace;
        }
        subdoc::check_mutations(&mutations).map_err(refuse)?;
        let expiry = match expiry {
            _ if framing.preserve_expiry => Expiry::Keep,
            None => Expiry::Never,
            Some(seconds) => expiry_of(u32::from_be_bytes(seconds)),
        };
        Ok(Some(Edit { mutations, mode, expiry, single }))
    }

    /// What a document that is there, or not, is called where the mode does not allow it.
    pub fn not_stored(&self) -> Status {
        if self.mode == StoreMode::Add { Status::Exists } else { Status::NotFound }
    }

    /// The value of the answer to mutations that were done.
    pub fn value(&self, edited: &Edited) -> Vec<u8> {
        let mut value = Vec::new();
        for (index, number) in &edited.counters {
            let digits = number.to_string();
            if !self.single {
                value.put_u8(*index as u8);
                value.put_u16(Status::Success as u16);
                value.put_u32(digits.len() as u32);
            }
            value.extend_from_slice(digits.as_bytes());
        }
        value
    }

    /// The status and value of the answer to mutations of which one failed.
    pub fn failure(&self, failure: &subdoc::Failure) -> (Status, Vec<u8>) {
        if self.single {
            return (Status::of_subdoc(failure.status), Vec::new());
        }
        let mut value = vec![failure.index as u8];
        value.put_u16(failure.status.code());
        (Status::SubdocMultiFailure, value)
    }
}

fn mode(document_flags: u8) -> Result<StoreMode, Refusal> {
    match document_flags & !flag::ACCESS_DELETED {
        0 => Ok(StoreMode::Replace),
        flag::UPSERT => Ok(StoreMode::Set),
        flag::INSERT => Ok(StoreMode::Add),
        flags if flags == flag::UPSERT | flag::INSERT => {
            Err(Refusal::new(Status::Invalid, "a document cannot be both inserted and upserted"))
        }
        _ => Err(Refusal::new(
            Status::NotSupported,
            "deleted documents are not kept: these flags are not supported",
        )),
    }
}

fn many_mutations(mut rest: &[u8]) -> Result<Vec<Mutation<'_>>, Refusal> {
    let mut mutations = Vec::new();
    while !rest.is_empty() && mutations.len() <= OPERATIONS_MAX {
        let spec = (|| {
            let [opcode, flags, p0, p1, v0, v1, v2, v3] = *rest.split_off(..8)?.as_array()?;
            let path = rest.split_off(..usize::from(u16::from_be_bytes([p0, p1])))?;
            let value = rest.split_off(..u32::from_be_bytes([v0, v1, v2, v3]) as usize)?;
            Some((opcode, flags, path, value))
        })();
        let (opcode, flags, path, value) = spec.ok_or_else(malformed)?;
        mutations.push(Mutation::new(opcode, flags, path, value).map_err(refuse)?);
    }
    Ok(mutations)
}

/// A request of one path.
struct Single<'a> {
    path: &'a [u8],
    value: &'a [u8],
    flags: u8,
    /// What the extras have besides.
    rest: &'a [u8],
}

impl<'a> Single<'a> {
    fn parse(packet: &Packet<'a>) -> Result<Self, Refusal> {
        let [l0, l1, flags, rest @ ..] = packet.extras else { return Err(malformed()) };
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let (path, value) = packet.value.split_at_checked(len).ok_or_else(malformed)?;
        Ok(Single { path, value, flags: *flags, rest })
    }
}
