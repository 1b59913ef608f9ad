//! Answers to requests about documents.

use super::Shared;
use super::datatype;
use super::feature::{Feature, Features};
use super::framing::{Durability, Level};
use super::operation::Refusal;
use super::status::{self, Status};
use super::subdoc::{Edit, Lookups};
use crate::binary_frame::{Header, Packet, Response};
use bytes::BufMut;
use oribi_session::kv::subdoc::DocumentMeta;
use oribi_session::kv::{self, Document, Outcome};
use oribi_types::Error;
use std::time::{Duration, Instant};

/// How a request about a document is answered.
#[derive(Clone, Debug)]
pub enum Reply<'a> {
    /// The document, perhaps with its key as it was asked for.
    Get {
        with_key: Option<&'a [u8]>,
    },
    /// What is known of the document.
    Meta {
        with_datatype: bool,
    },
    Lookup(Lookups<'a>),
    /// What a change is called whose condition on presence is not met.
    Change {
        not_stored: Status,
    },
    Count,
    Touch,
    /// The document, which was changed.
    Fetch,
    Unlock,
    Edit,
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    pub header: Header,
    pub reply: Reply<'a>,
    quiet: bool,
    pub durability: Option<Durability>,
}

impl<'a> Asked<'a> {
    pub fn new(packet: &Packet<'a>, reply: Reply<'a>, quiet: bool, durability: Option<Durability>) -> Self {
        Asked { header: packet.header, reply, quiet, durability }
    }

    /// Whether it is answered only once it is on the disk.
    pub fn must_be_durable(&self) -> bool {
        self.durability.is_some_and(|durability| durability.level == Level::Persisted)
    }
}

/// Appends the answers of one connection.
pub struct Answers<'o> {
    pub output: &'o mut Vec<u8>,
    features: Features,
    shared: &'o Shared,
    started: Instant,
    /// How long the requests took that are answered now: measured once for what is executed together.
    duration: Option<u16>,
}

impl<'o> Answers<'o> {
    pub fn new(output: &'o mut Vec<u8>, features: Features, shared: &'o Shared, started: Instant) -> Self {
        Answers { output, features, shared, started, duration: None }
    }

    /// Answers one request.
    pub fn answer(&mut self, asked: &Asked<'_>, answer: &kv::Answer<'_>) {
        match answer {
            kv::Answer::Found(document) => self.found(asked, document),
            kv::Answer::Absent if asked.quiet => {}
            kv::Answer::Absent => self.status(&asked.header, Status::NotFound),
            kv::Answer::Refused(error) => self.error(&asked.header, error),
            kv::Answer::Changed(outcome) => self.changed(asked, outcome),
        }
    }

    /// Answers a request that was not executed.
    pub fn refuse(&mut self, header: &Header, refusal: &Refusal) {
        self.explain(header, refusal.status, &refusal.message);
    }

    pub fn error(&mut self, header: &Header, error: &Error) {
        self.explain(header, status::of_error(error), error.message());
    }

    /// Answers with a status alone.
    pub fn status(&mut self, header: &Header, status: Status) {
        self.write(Response::new(header, self.known(status) as u16));
    }

    /// Answers with a value.
    pub fn value(&mut self, header: &Header, datatype: u8, value: &[u8]) {
        let datatype = self.datatype(datatype);
        self.write(Response { datatype, value, ..Response::new(header, Status::Success as u16) });
    }

    fn explain(&mut self, header: &Header, status: Status, message: &str) {
        if !self.features.has(Feature::Json) {
            return self.status(header, status);
        }
        let value = status::context(message);
        let response = Response::new(header, self.known(status) as u16);
        self.write(Response { datatype: datatype::JSON, value: value.as_bytes(), ..response });
    }

    /// The status as a client knows it that does not know the error map.
    fn known(&self, status: Status) -> Status {
        match status {
            Status::Locked | Status::NotLocked if !self.features.has(Feature::ExtendedErrors) => {
                Status::TemporaryFailure
            }
            status => status,
        }
    }

    /// The bits that the client understands.
    fn datatype(&self, datatype: u8) -> u8 {
        if self.features.has(Feature::Json) { datatype } else { datatype::RAW }
    }

    pub fn write(&mut self, response: Response<'_>) {
        // The form with framing extras has room for short keys only: a longer one goes without its duration.
        if !self.features.has(Feature::Durations) || response.key.len() > usize::from(u8::MAX) {
            return response.write(self.output);
        }
        let duration = *self.duration.get_or_insert_with(|| server_duration(self.started.elapsed()));
        let [high, low] = duration.to_be_bytes();
        Response { framing: &[0x02, high, low], ..response }.write(self.output);
    }

    fn found(&mut self, asked: &Asked<'_>, document: &Document<'_>) {
        let response = Response { cas: document.cas, ..Response::new(&asked.header, Status::Success as u16) };
        match &asked.reply {
            Reply::Meta { with_datatype } => {
                let extras = meta(document, *with_datatype);
                self.write(Response { extras: &extras, ..response });
            }
            Reply::Lookup(lookups) => {
                let mut value = Vec::new();
                let status = lookups.answer(document, self.document_meta(document), &mut value) as u16;
                self.write(Response { status, value: &value, ..response });
            }
            reply => {
                let key = if let Reply::Get { with_key: Some(key) } = reply { key } else { &[][..] };
                let extras = &document.flags.to_be_bytes();
                let datatype = self.datatype_of(document.value);
                self.write(Response { datatype, extras, key, value: document.value, ..response });
            }
        }
    }

    /// Found out only for a client that is told.
    fn datatype_of(&self, value: &[u8]) -> u8 {
        if self.features.has(Feature::Json) { datatype::of(value) } else { datatype::RAW }
    }

    fn document_meta(&self, document: &Document<'_>) -> DocumentMeta {
        DocumentMeta {
            cas: document.cas,
            // A document has no number of its writes of its own: that of the last one grows as well.
            seqno: document.cas,
            revid: document.cas,
            vbucket_uuid: self.shared.vbucket_uuid,
            flags: document.flags,
            expires_at_seconds: u64::from(unix_seconds(document.expires_at)),
            last_modified_seconds: document.written_at / 1_000_000,
            hlc_now_nanos: self.shared.kv.now_micros() * 1000,
        }
    }

    fn changed(&mut self, asked: &Asked<'_>, outcome: &Outcome) {
        let not_stored = match asked.reply {
            Reply::Change { not_stored } => not_stored,
            _ => Status::NotFound,
        };
        match &outcome.status {
            _ if outcome.is_locked => self.status(&asked.header, Status::Locked),
            kv::Status::Done => self.done(asked, outcome),
            kv::Status::Refused(error) => self.error(&asked.header, error),
            kv::Status::NotFound if asked.quiet && matches!(asked.reply, Reply::Fetch) => {}
            status => self.status(&asked.header, status::of_outcome(status, not_stored)),
        }
    }

    fn done(&mut self, asked: &Asked<'_>, outcome: &Outcome) {
        let response = Response { cas: outcome.cas, ..Response::new(&asked.header, Status::Success as u16) };
        match &asked.reply {
            Reply::Fetch => {
                let Some(found) = &outcome.fetched else {
                    return self.status(&asked.header, Status::Internal);
                };
                let datatype = self.datatype_of(&found.value);
                let extras = &found.flags.to_be_bytes();
                self.write(Response { datatype, cas: found.cas, extras, value: &found.value, ..response });
            }
            _ if asked.quiet => {}
            Reply::Touch | Reply::Unlock => self.write(response),
            Reply::Count => self.mutated(response, &outcome.number.to_be_bytes()),
            _ => self.mutated(response, &[]),
        }
    }

    /// Answers a mutation, with its token.
    fn mutated(&mut self, response: Response<'_>, value: &[u8]) {
        let mut token = [0; 16];
        token[..8].copy_from_slice(&self.shared.vbucket_uuid.to_be_bytes());
        token[8..].copy_from_slice(&response.cas.to_be_bytes());
        let extras = if self.features.has(Feature::MutationToken) { &token[..] } else { &[] };
        self.write(Response { extras, value, ..response });
    }

    /// Answers mutations of a document's parts.
    pub fn edited(&mut self, asked: &Asked<'_>, edit: &Edit<'_>, outcome: &Outcome) {
        let header = &asked.header;
        match (&outcome.status, &outcome.edited) {
            (kv::Status::Done, Some(edited)) => {
                let response = Response { cas: outcome.cas, ..Response::new(header, Status::Success as u16) };
                self.mutated(response, &edit.value(edited));
            }
            (kv::Status::EditFailed(failure), _) => {
                let (status, value) = edit.failure(failure);
                self.write(Response { value: &value, ..Response::new(header, status as u16) });
            }
            _ if outcome.is_locked => self.status(header, Status::Locked),
            (kv::Status::Refused(error), _) => self.error(header, error),
            (status, _) => self.status(header, status::of_outcome(status, edit.not_stored())),
        }
    }
}

/// Deleted or not, flags, expiry, sequence number, and the type of the value.
fn meta(document: &Document<'_>, with_datatype: bool) -> Vec<u8> {
    let mut extras = Vec::with_capacity(21);
    extras.put_u32(0);
    extras.put_u32(document.flags);
    extras.put_u32(unix_seconds(document.expires_at));
    extras.put_u64(document.cas);
    if with_datatype {
        extras.put_u8(datatype::of(document.value));
    }
    extras
}

/// Of microseconds, as the protocol's 32 bits have it; 0 stands for never.
fn unix_seconds(micros: Option<i64>) -> u32 {
    micros.map_or(0, |micros| u32::try_from(micros.max(0) / 1_000_000).unwrap_or(u32::MAX))
}

/// The encoding of a duration that fits 16 bits: precise when it is short, up to two minutes when it is long.
fn server_duration(duration: Duration) -> u16 {
    let micros = duration.as_micros() as f64;
    (micros * 2.0).powf(1.0 / 1.74).round().min(f64::from(u16::MAX)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_span_two_minutes() {
        assert_eq!(server_duration(Duration::ZERO), 0);
        let decoded = |encoded: u16| f64::from(encoded).powf(1.74) / 2.0;
        for micros in [100.0, 1000.0, 1_000_000.0, 100_000_000.0f64] {
            let encoded = server_duration(Duration::from_micros(micros as u64));
            assert!((decoded(encoded) - micros).abs() <= micros * 0.1, "{micros}: {encoded}");
        }
        assert_eq!(server_duration(Duration::from_secs(1 << 20)), u16::MAX);
    }
}
