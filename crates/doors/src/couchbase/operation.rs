//! Requests about one document, as operations of the session.

use super::collection;
use super::datatype;
use super::feature::Feature;
use super::framing::{self, Durability, Fault, Framing};
use super::opcode;
use super::reply::{Asked, Reply};
use super::state::State;
use super::status::Status;
use super::subdoc::{self, Edit};
use crate::binary_frame::Packet;
use oribi_engine::{Catalog, Table};
use oribi_session::kv::{Action, Change, Expiry, Key, KvLimits, Op, StoreMode};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// How long a lock holds if the client does not say, and at most.
const LOCK_SECONDS: u32 = 15;
const LOCK_SECONDS_MAX: u32 = 30;

/// Why a request is not executed, and what its answer says of it.
#[derive(Debug)]
pub struct Refusal {
    pub status: Status,
    pub message: Cow<'static, str>,
}

impl Refusal {
    pub fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        Refusal { status, message: message.into() }
    }
}

/// What a request is once it has been understood.
pub enum Operation<'a> {
    /// Executed with its neighbours.
    One(Op<'a>, Asked<'a>),
    /// Carries a compressed value: to be inflated and decoded again.
    Compressed,
    /// Several changes of one document's parts.
    Edit(Key<'a>, Edit<'a>, Asked<'a>),
    /// Not about a document.
    Other,
}

/// By what a request is understood: what its client has agreed on, and what there is.
pub struct Context<'c, 'a> {
    state: &'c State,
    catalog: &'a Catalog,
    limits: &'c KvLimits,
    now_micros: u64,
    /// The collection that was asked for last: mostly it is the next one too.
    last: Cell<Option<(u32, &'a Arc<Table>)>>,
}

impl<'c, 'a> Context<'c, 'a> {
    pub fn new(state: &'c State, catalog: &'a Catalog, limits: &'c KvLimits, now_micros: u64) -> Self {
        Context { state, catalog, limits, now_micros, last: Cell::new(None) }
    }

    /// # Errors
    /// Why the request is refused. That its vbucket is another node's is found out before.
    pub fn understand(&self, packet: &Packet<'a>) -> Result<Operation<'a>, Refusal> {
        if !is_about_a_document(packet.header.opcode) {
            return Ok(Operation::Other);
        }
        if packet.header.datatype & datatype::SNAPPY != 0 {
            return Ok(Operation::Compressed);
        }
        let framing = framing::decode(packet.framing).map_err(refuse_framing)?;
        let key = self.key(packet.key)?;
        let quiet = is_quiet(packet.header.opcode);
        let asked = |reply| Asked::new(packet, reply, quiet, framing.durability);
        if let Some(lookup) = subdoc::Lookups::parse(packet)? {
            refuse_durability(framing.durability)?;
            return Ok(Operation::One(Op::Get(key), asked(Reply::Lookup(lookup))));
        }
        if let Some(edit) = Edit::parse(packet, &framing, |seconds| self.expiry(seconds))? {
            return Ok(Operation::Edit(key, edit, asked(Reply::Edit)));
        }
        if let Some(reply) = get(packet)? {
            refuse_durability(framing.durability)?;
            return Ok(Operation::One(Op::Get(key), asked(reply)));
        }
        let (action, reply) = self.action(packet, &framing)?;
        let change = Change { key, cas: cas(packet), action };
        Ok(Operation::One(Op::Change(change), asked(reply)))
    }

    /// The document that `key` names, in its collection.
    fn key(&self, key: &'a [u8]) -> Result<Key<'a>, Refusal> {
        let Some(bucket) = &self.state.bucket else {
            return Err(Refusal::new(Status::NoBucket, "no bucket was selected"));
        };
        let (id, name) = match self.state.features.has(Feature::Collections) {
            false => (0, key),
            true => collection::split_id(key).ok_or_else(|| {
                Refusal::new(Status::Invalid, "the key does not begin with a collection's id")
            })?,
        };
        if name.is_empty() {
            return Err(Refusal::new(Status::Invalid, "the key is empty"));
        }
        let last = self.last.get().filter(|(last, _)| *last == id).map(|(_, table)| table);
        let Some(table) = last.or_else(|| collection::table(self.catalog, bucket, id)) else {
            return Err(Refusal::new(
                Status::UnknownCollection,
                format!("bucket {bucket} has no collection {id:#x}"),
            ));
        };
        self.last.set(Some((id, table)));
        Ok(Key { table: Some(table), name })
    }

    fn expiry(&self, seconds: u32) -> Expiry {
        self.limits.expiry(i64::from(seconds), self.now_micros)
    }

    fn action(&self, packet: &Packet<'a>, framing: &Framing) -> Result<(Action<'a>, Reply<'a>), Refusal> {
        use opcode as op;
        let code = packet.header.opcode;
        let kept = |expiry| if framing.preserve_expiry { Expiry::Keep } else { expiry };
        let store = |mode, not_stored| -> Result<_, Refusal> {
            let (flags, expiry) = fields::<8>(packet)?.split_at(4);
            let expiry = kept(self.expiry(number(expiry)));
            let (value, flags) = (packet.value, number(flags));
            let action = Action::Store { mode, value, flags, expiry, or_stale: false };
            Ok((action, Reply::Change { not_stored }))
        };
        let extend = |front| -> Result<_, Refusal> {
            fields::<0>(packet)?;
            let action = Action::Extend { front, value: packet.value, vivify: None };
            Ok((action, Reply::Change { not_stored: Status::NotStored }))
        };
        let plain = Reply::Change { not_stored: Status::NotFound };
        Ok(match code {
            op::SET | op::SET_QUIET => store(StoreMode::Set, Status::NotFound)?,
            op::ADD | op::ADD_QUIET => {
                if packet.header.cas != 0 {
                    return Err(Refusal::new(Status::Invalid, "what is to be added has no cas yet"));
                }
                store(StoreMode::Add, Status::Exists)?
            }
            op::REPLACE | op::REPLACE_QUIET => store(StoreMode::Replace, Status::NotFound)?,
            op::APPEND | op::APPEND_QUIET => extend(false)?,
            op::PREPEND | op::PREPEND_QUIET => extend(true)?,
            op::DELETE | op::DELETE_QUIET => {
                fields::<0>(packet)?;
                (Action::Delete, plain)
            }
            op::INCREMENT | op::INCREMENT_QUIET => (self.count(packet, false)?, Reply::Count),
            op::DECREMENT | op::DECREMENT_QUIET => (self.count(packet, true)?, Reply::Count),
            op::TOUCH => {
                refuse_durability(framing.durability)?;
                (Action::Touch { expiry: self.expiry(number(fields::<4>(packet)?)) }, Reply::Touch)
            }
            op::GET_AND_TOUCH | op::GET_AND_TOUCH_QUIET => {
                refuse_durability(framing.durability)?;
                let expiry = Some(self.expiry(number(fields::<4>(packet)?)));
                (Action::Fetch { expiry, vivify: None, refresh_before: None }, Reply::Fetch)
            }
            op::GET_AND_LOCK => {
                refuse_durability(framing.durability)?;
                (Action::Lock { until_micros: self.lock_until(packet)? }, Reply::Fetch)
            }
            op::UNLOCK => {
                refuse_durability(framing.durability)?;
                fields::<0>(packet)?;
                if packet.header.cas == 0 {
                    return Err(Refusal::new(Status::Invalid, "to unlock takes the cas of the lock"));
                }
                (Action::Unlock, Reply::Unlock)
            }
            _ => return Err(Refusal::new(Status::UnknownCommand, "unknown command")),
        })
    }

    fn count(&self, packet: &Packet<'_>, down: bool) -> Result<Action<'a>, Refusal> {
        /// Stands for: an absent counter is not made.
        const NEVER: u32 = u32::MAX;
        let fields = fields::<20>(packet)?;
        let number64 = |at: usize| fields[at..at + 8].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let expiry = number(&fields[16..]);
        let initial = (expiry != NEVER).then(|| (number64(8), self.expiry(expiry)));
        Ok(Action::Count { down, delta: number64(0), initial, expiry: None })
    }

    fn lock_until(&self, packet: &Packet<'_>) -> Result<u64, Refusal> {
        let seconds = if packet.extras.is_empty() { 0 } else { number(fields::<4>(packet)?) };
        let seconds = if (1..=LOCK_SECONDS_MAX).contains(&seconds) { seconds } else { LOCK_SECONDS };
        Ok(self.now_micros + u64::from(seconds) * 1_000_000)
    }
}

/// How a request that only reads a whole document is answered, if it is one.
fn get<'a>(packet: &Packet<'a>) -> Result<Option<Reply<'a>>, Refusal> {
    let with_key = match packet.header.opcode {
        opcode::GET | opcode::GET_QUIET => None,
        opcode::GET_KEY | opcode::GET_KEY_QUIET => Some(packet.key),
        opcode::GET_META => {
            let with_datatype = match packet.extras {
                [] | [1] => false,
                [2] => true,
                _ => return Err(Refusal::new(Status::Invalid, "get meta has version 1 or 2")),
            };
            return Ok(Some(Reply::Meta { with_datatype }));
        }
        _ => return Ok(None),
    };
    fields::<0>(packet)?;
    Ok(Some(Reply::Get { with_key }))
}

pub fn is_about_a_document(code: u8) -> bool {
    use opcode as op;
    matches!(
        code,
        op::GET..=op::DECREMENT
            | op::GET_QUIET
            | op::GET_KEY..=op::PREPEND
            | op::SET_QUIET..=op::DECREMENT_QUIET
            | op::APPEND_QUIET..=op::PREPEND_QUIET
            | op::TOUCH..=op::GET_AND_TOUCH_QUIET
            | op::GET_AND_LOCK
            | op::UNLOCK
            | op::GET_META
            | op::SUBDOC_GET..=op::SUBDOC_GET_COUNT
    )
}

/// Whether the answer that the client expects is left out: a miss of a get, a success of a change.
fn is_quiet(code: u8) -> bool {
    use opcode as op;
    matches!(
        code,
        op::GET_QUIET
            | op::GET_KEY_QUIET
            | op::SET_QUIET..=op::DECREMENT_QUIET
            | op::APPEND_QUIET..=op::PREPEND_QUIET
            | op::GET_AND_TOUCH_QUIET
    )
}

pub fn cas(packet: &Packet<'_>) -> Option<u64> {
    (packet.header.cas != 0).then_some(packet.header.cas)
}

/// The extras, which must have `N` bytes.
fn fields<'a, const N: usize>(packet: &Packet<'a>) -> Result<&'a [u8; N], Refusal> {
    let len = packet.extras.len();
    packet
        .extras
        .try_into()
        .map_err(|_| Refusal::new(Status::Invalid, format!("extras have {N} bytes, not {len}")))
}

/// The number that four bytes stand for.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

fn refuse_durability(durability: Option<Durability>) -> Result<(), Refusal> {
    match durability {
        None => Ok(()),
        Some(_) => Err(Refusal::new(Status::Invalid, "the operation writes no value that could be durable")),
    }
}

fn refuse_framing(fault: Fault) -> Refusal {
    match fault {
        Fault::Malformed => Refusal::new(Status::Invalid, "malformed framing extras"),
        Fault::UnknownFrame => Refusal::new(Status::UnknownFrame, "unknown framing extra"),
        Fault::UnknownLevel => Refusal::new(Status::DurabilityInvalidLevel, "unknown level of durability"),
        Fault::Impersonation => Refusal::new(Status::NotSupported, "impersonation is not supported"),
    }
}
