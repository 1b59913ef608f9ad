//! What is about no document: what client and server agree on, authentication, buckets, the cluster map, collections,
//! statistics.

use super::Shared;
use super::cluster::{ClusterMap, MapVersion};
use super::collection::{self, Missing};
use super::datatype;
use super::feature::{Feature, Features};
use super::opcode;
use super::operation::Refusal;
use super::reply::Answers;
use super::sasl::{self, Step};
use super::state::State;
use super::status::{self, Status};
use crate::binary_frame::{Packet, Response, magic};
use bytes::BufMut;
use oribi_engine::{Catalog, Obligation};
use oribi_net::Link;

/// A request about no document.
pub struct Request<'r, 'p> {
    pub shared: &'r Shared,
    pub link: &'r Link,
    pub catalog: &'r Catalog,
    pub map: &'r ClusterMap,
    pub packet: &'r Packet<'p>,
    pub closing: &'r mut bool,
    pub obligation: &'r mut Obligation,
}

impl Request<'_, '_> {
    pub fn execute(&mut self, state: &mut State, answers: &mut Answers<'_>) {
        if let Err(refusal) = self.dispatch(state, answers) {
            answers.refuse(&self.packet.header, &refusal);
        }
    }

    fn dispatch(&mut self, state: &mut State, answers: &mut Answers<'_>) -> Result<(), Refusal> {
        let header = self.packet.header;
        match header.opcode {
            opcode::NOOP => answers.status(&header, Status::Success),
            opcode::VERSION => answers.value(&header, datatype::RAW, VERSION.as_bytes()),
            opcode::QUIT | opcode::QUIT_QUIET => {
                *self.closing = true;
                if header.opcode == opcode::QUIT {
                    answers.status(&header, Status::Success);
                }
            }
            opcode::HELLO => {
                let accepted = Features::accept(self.packet.value)
                    .ok_or_else(|| Refusal::new(Status::Invalid, "features are a list of 16-bit codes"))?;
                answers.value(&header, datatype::RAW, &accepted.to_bytes());
                state.features = accepted;
            }
            opcode::GET_ERROR_MAP => {
                let version = <[u8; 2]>::try_from(self.packet.value)
                    .map_err(|_| Refusal::new(Status::Invalid, "the version of the error map has 16 bits"))?;
                answers.value(
                    &header,
                    datatype::JSON,
                    status::error_map(u16::from_be_bytes(version)).as_bytes(),
                );
            }
            opcode::SASL_LIST => answers.value(&header, datatype::RAW, sasl::MECHANISMS.as_bytes()),
            opcode::SASL_AUTH | opcode::SASL_STEP => self.authenticate(state, answers),
            opcode::SELECT_BUCKET => self.select_bucket(state, answers)?,
            opcode::GET_CLUSTER_CONFIG => self.cluster_config(state, answers)?,
            opcode::GET_MANIFEST => {
                let bucket = selected(state)?;
                answers.value(&header, datatype::JSON, collection::manifest(self.catalog, bucket).as_bytes());
            }
            opcode::GET_COLLECTION_ID => self.collection_id(state, answers)?,
            opcode::GET_SCOPE_ID => self.scope_id(state, answers)?,
            opcode::OBSERVE_SEQNO => self.observe_seqno(state, answers)?,
            opcode::STAT => self.stat(answers),
            code => {
                return Err(match opcode::refused_name(code) {
                    Some(name) => Refusal::new(Status::NotSupported, format!("not supported: {name}")),
                    None => Refusal::new(Status::UnknownCommand, format!("unknown command {code:#04x}")),
                });
            }
        }
        Ok(())
    }

    fn authenticate(&mut self, state: &mut State, answers: &mut Answers<'_>) {
        let Packet { header, key: mechanism, value: message, .. } = *self.packet;
        let plain_is_safe = self.link.peer.ip().is_loopback();
        let step = match header.opcode {
            opcode::SASL_AUTH => {
                state.is_authenticated = false;
                state.authentication.start(&self.shared.users, mechanism, message, plain_is_safe)
            }
            _ => state.authentication.step(&self.shared.users, mechanism, message),
        };
        match step {
            Step::Continue(challenge) => {
                let response = Response::new(&header, Status::AuthContinue as u16);
                answers.write(Response { value: challenge.as_bytes(), ..response });
            }
            Step::Done { user, last } => {
                tracing::debug!(user, peer = %self.link.peer, "couchbase client authenticated");
                (state.is_authenticated, state.failed_attempts) = (true, 0);
                answers.value(&header, datatype::RAW, last.as_bytes());
            }
            Step::Failed => {
                tracing::warn!(peer = %self.link.peer, "couchbase client failed to authenticate");
                state.failed_attempts += 1;
                if state.failed_attempts < ATTEMPTS_MAX {
                    return answers.status(&header, Status::AuthError);
                }
                *self.closing = true;
                let message = format!(
                    "{ATTEMPTS_MAX} attempts to authenticate failed, which is the limit: the connection is closed"
                );
                answers.refuse(&header, &Refusal::new(Status::AuthError, message));
            }
        }
    }

    fn select_bucket(&self, state: &mut State, answers: &mut Answers<'_>) -> Result<(), Refusal> {
        let name = String::from_utf8_lossy(self.packet.key);
        if !self.catalog.schemas().any(|schema| schema == name) {
            return Err(Refusal::new(Status::NoAccess, format!("there is no bucket {name}")));
        }
        state.bucket = Some(name.into_owned());
        // What the client knows of the cluster belongs to the bucket.
        state.sent_map = None;
        answers.status(&self.packet.header, Status::Success);
        Ok(())
    }

    /// The cluster map, unless the client says that it has it.
    fn cluster_config(&self, state: &mut State, answers: &mut Answers<'_>) -> Result<(), Refusal> {
        let known = match self.packet.extras {
            [] => None,
            extras => {
                let (epoch, revision) = extras.split_first_chunk::<8>().ok_or_else(malformed)?;
                let revision = revision.try_into().map_err(|_| malformed())?;
                Some(MapVersion { epoch: i64::from_be_bytes(*epoch), revision: i64::from_be_bytes(revision) })
            }
        };
        let header = &self.packet.header;
        if known.is_some_and(|known| known >= self.map.version) {
            answers.status(header, Status::Success);
        } else {
            state.sent_map = Some(self.map.version);
            answers.value(header, datatype::JSON, config(self.map, state).as_bytes());
        }
        Ok(())
    }

    fn path(&self) -> Result<&str, Refusal> {
        // Older clients put it into the key.
        let path = if self.packet.value.is_empty() { self.packet.key } else { self.packet.value };
        std::str::from_utf8(path).map_err(|_| Refusal::new(Status::Invalid, "the path is not UTF-8"))
    }

    fn collection_id(&self, state: &State, answers: &mut Answers<'_>) -> Result<(), Refusal> {
        let (bucket, path) = (selected(state)?, self.path()?);
        let found = collection::find(self.catalog, bucket, path);
        let id = found
            .map(|table| collection::id(table))
            .map_err(|missing| missing_refusal(missing, bucket, path))?;
        let id = id.ok_or_else(|| Refusal::new(Status::NotSupported, "the table has too large an id"))?;
        self.ids(id, answers);
        Ok(())
    }

    fn scope_id(&self, state: &State, answers: &mut Answers<'_>) -> Result<(), Refusal> {
        let (bucket, scope) = (selected(state)?, self.path()?);
        if !collection::has_scope(self.catalog, bucket, scope) {
            return Err(missing_refusal(Missing::Scope, bucket, scope));
        }
        self.ids(collection::scope_id(scope), answers);
        Ok(())
    }

    /// Answers the version of the manifest and an id of it.
    fn ids(&self, id: u32, answers: &mut Answers<'_>) {
        let mut extras = Vec::with_capacity(12);
        extras.put_u64(self.catalog.version());
        extras.put_u32(id);
        let response = Response::new(&self.packet.header, Status::Success as u16);
        answers.write(Response { extras: &extras, ..response });
    }

    /// How far a vbucket is on the disk. The answer waits until all of it is, and says so.
    fn observe_seqno(&mut self, state: &State, answers: &mut Answers<'_>) -> Result<(), Refusal> {
        selected(state)?;
        let uuid = <[u8; 8]>::try_from(self.packet.value).map_err(|_| malformed())?;
        if u64::from_be_bytes(uuid) != self.shared.vbucket_uuid {
            return Err(Refusal::new(Status::NotFound, "the vbucket's history begins anew with each start"));
        }
        let (seqno, obligation) = self.shared.kv.engine().everything();
        self.obligation.merge(obligation.must_be_durable());
        let mut value = vec![0];
        value.put_u16(self.packet.header.vbucket);
        value.put_slice(&uuid);
        value.put_u64(seqno.0);
        value.put_u64(seqno.0);
        answers.value(&self.packet.header, datatype::RAW, &value);
        Ok(())
    }

    fn stat(&self, answers: &mut Answers<'_>) {
        let header = &self.packet.header;
        let response = Response::new(header, Status::Success as u16);
        if !self.packet.key.is_empty() {
            return answers.status(header, Status::NotFound);
        }
        for (name, value) in self.shared.stats() {
            answers.write(Response { key: name.as_bytes(), value: value.as_bytes(), ..response });
        }
        answers.write(response);
    }
}

/// Attempts to authenticate that may fail in a row: one with each mechanism, and one more.
const ATTEMPTS_MAX: u32 = 5;

/// Whether a request has a password hashed.
pub fn computes(shared: &Shared, packet: &Packet<'_>) -> bool {
    packet.header.opcode == opcode::SASL_AUTH && packet.key == sasl::PLAIN && !shared.users.is_open()
}

/// The version of the protocol and of the server.
const VERSION: &str = concat!("7.6.0-oribi-", env!("CARGO_PKG_VERSION"));

fn malformed() -> Refusal {
    Refusal::new(Status::Invalid, "malformed request")
}

fn selected(state: &State) -> Result<&str, Refusal> {
    state.bucket.as_deref().ok_or_else(|| Refusal::new(Status::NoBucket, "no bucket was selected"))
}

fn missing_refusal(missing: Missing, bucket: &str, path: &str) -> Refusal {
    match missing {
        Missing::Scope => {
            Refusal::new(Status::UnknownScope, format!("bucket {bucket} has no scope of {path}"))
        }
        Missing::Collection => {
            Refusal::new(Status::UnknownCollection, format!("bucket {bucket} has no collection {path}"))
        }
        Missing::Path => Refusal::new(Status::Invalid, format!("{path} is not scope.collection")),
    }
}

/// The map as the client of `state` sees it.
pub fn config(map: &ClusterMap, state: &State) -> String {
    let uuid = state.bucket.as_deref().map(bucket_uuid);
    map.to_json(state.bucket.as_deref().zip(uuid.as_deref()))
}

/// Tells buckets apart: a hash of the name.
fn bucket_uuid(name: &str) -> String {
    format!("{:032x}", collection::scope_id(name))
}

/// Tells the client that there is another map: the map itself, or its version, as was agreed.
pub fn push_map(shared: &Shared, state: &mut State, output: &mut Vec<u8>) {
    let (whole, version) =
        (state.features.has(Feature::PushedMap), state.features.has(Feature::PushedMapVersion));
    let map = shared.cluster.map();
    if !(whole || version) || !shared.lets_in(state) || state.sent_map == Some(map.version) {
        return;
    }
    let mut extras = Vec::with_capacity(16);
    extras.put_i64(map.version.epoch);
    extras.put_i64(map.version.revision);
    let value = if version { String::new() } else { config(&map, state) };
    if !version {
        state.sent_map = Some(map.version);
    }
    let push = Response {
        magic: magic::PUSH,
        opcode: opcode::PUSH_CLUSTER_CONFIG,
        status: 0,
        datatype: if version { datatype::RAW } else { datatype::JSON },
        opaque: [0; 4],
        cas: 0,
        framing: &[],
        extras: &extras,
        key: state.bucket.as_deref().unwrap_or_default().as_bytes(),
        value: value.as_bytes(),
    };
    push.write(output);
}
