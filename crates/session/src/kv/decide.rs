//! What a change becomes, given what is there.

use super::change::{Action, Change, Fetched, Outcome, Status, Step, StoreMode};
use super::document::NewDocument;
use super::{Document, Expiry, KvLimits, row};
use oribi_engine::{Decision, RowVersion};
use oribi_types::Error;

/// What a change is answered without being made, or what it makes.
pub(super) type Decided = Result<(Decision, Outcome), Status>;

fn done(decision: Decision) -> Decided {
    Ok((decision, Outcome::new(Status::Done)))
}

/// What a `cas` says about what is there.
fn check_cas(expected: Option<u64>, current: u64) -> Result<(), Status> {
    if expected.is_some_and(|cas| cas != current) { Err(Status::Exists) } else { Ok(()) }
}

/// What a mode says about storing over `current`, the `cas` of what is there.
fn check_store(mode: StoreMode, expected: Option<u64>, current: Option<u64>) -> Result<(), Status> {
    match (mode, current) {
        (StoreMode::Add, Some(_)) | (StoreMode::Replace, None)
            if mode == StoreMode::Add || expected.is_none() =>
        {
            Err(Status::NotStored)
        }
        (StoreMode::Add, _) => Ok(()),
        (_, Some(current)) => check_cas(expected, current),
        (_, None) if expected.is_some() => Err(Status::NotFound),
        (_, None) => Ok(()),
    }
}

pub(super) fn decide_document(
    change: &Change<'_>,
    current: Option<Document<'_>>,
    limits: &KvLimits,
    now_micros: u64,
    write: impl FnOnce(&NewDocument<'_>),
) -> Decided {
    // A document that has expired when it is written is not written.
    let put = |document: NewDocument<'_>| {
        if document.value.len() > limits.value_bytes_max {
            return Err(Status::TooLarge);
        }
        if document.expiry.has_passed(now_micros) {
            return Ok(Decision::Delete);
        }
        write(&document);
        Ok(Decision::Put)
    };
    let fresh = |value, flags, expiry| NewDocument { value, flags, expiry, stale: false, promised: false };
    match change.action {
        Action::Store { mode, value, flags, expiry, or_stale } => {
            let outdated = |document: &Document<'_>| change.cas.is_some_and(|cas| cas < document.cas);
            if let Some(document) = current.filter(|d| or_stale && mode != StoreMode::Add && outdated(d)) {
                let (expiry, promised) = (Expiry::from_column(document.expires_at), document.promised);
                return done(put(NewDocument { value, flags, expiry, stale: true, promised })?);
            }
            check_store(mode, change.cas, current.map(|d| d.cas))?;
            done(put(fresh(value, flags, expiry))?)
        }
        Action::Extend { front, value, vivify } => {
            let Some(document) = current else {
                let expiry = vivify.filter(|_| change.cas.is_none()).ok_or(Status::NotStored)?;
                return done(put(fresh(value, 0, expiry))?);
            };
            check_cas(change.cas, document.cas)?;
            let joined = if front { [value, document.value] } else { [document.value, value] }.concat();
            done(put(fresh(&joined, document.flags, Expiry::from_column(document.expires_at)))?)
        }
        Action::Count { down, delta, initial, expiry } => {
            let Some(document) = current else {
                let (number, expiry) = initial.ok_or(Status::NotFound)?;
                let made = Fetched::made(expiry, now_micros);
                return counted(number, fresh(&[], 0, expiry), made, put);
            };
            check_cas(change.cas, document.cas)?;
            let number = parse_number(document.value).ok_or(Status::NotNumeric)?;
            let number = if down { number.saturating_sub(delta) } else { number.wrapping_add(delta) };
            let before = Fetched::new(&Document { value: &[], ..document }, expiry);
            counted(number, document.with_expiry(expiry), before, put)
        }
        Action::Touch { expiry } => {
            let document = current.ok_or(Status::NotFound)?;
            done(put(document.with_expiry(Some(expiry)))?)
        }
        Action::Fetch { expiry, vivify, refresh_before } => {
            let Some(document) = current else {
                let expiry = vivify.ok_or(Status::NotFound)?;
                let empty = NewDocument { promised: true, ..fresh(&[], 0, expiry) };
                let made = Fetched::made(expiry, now_micros);
                let decision = put(empty)?;
                return Ok((decision, Outcome { fetched: Some(made), ..Outcome::new(Status::Done) }));
            };
            let mut fetched = Fetched::new(&document, expiry);
            let refresh = match refresh_before {
                Some(Expiry::At(limit)) => fetched.expires_at.is_some_and(|at| at < limit),
                _ => false,
            };
            fetched.won = !document.promised && (document.stale || refresh);
            let decision = if fetched.won || expiry.is_some() {
                let promised = document.promised || fetched.won;
                put(NewDocument { promised, ..document.with_expiry(expiry) })?
            } else {
                Decision::Keep
            };
            Ok((decision, Outcome { fetched: Some(fetched), ..Outcome::new(Status::Done) }))
        }
        Action::MarkStale { expiry } => {
            let document = current.ok_or(Status::NotFound)?;
            check_cas(change.cas, document.cas)?;
            done(put(NewDocument { stale: true, promised: false, ..document.with_expiry(expiry) })?)
        }
        Action::Delete => {
            check_cas(change.cas, current.ok_or(Status::NotFound)?.cas)?;
            done(Decision::Delete)
        }
    }
}

/// Stores a number as a document like `template`.
fn counted(
    number: u64,
    template: NewDocument<'_>,
    fetched: Fetched,
    put: impl FnOnce(NewDocument<'_>) -> Result<Decision, Status>,
) -> Decided {
    let mut digits = itoa::Buffer::new();
    let decision = put(NewDocument { value: digits.format(number).as_bytes(), ..template })?;
    Ok((decision, Outcome { number, fetched: Some(fetched), ..Outcome::new(Status::Done) }))
}

/// A decimal number, with space around it, as counters of other servers are padded.
fn parse_number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.split_ascii_whitespace().next().filter(|word| !word.starts_with('+'))?.parse().ok()
}

impl<'a> Document<'a> {
    pub(super) fn with_expiry(&self, expiry: Option<Expiry>) -> NewDocument<'a> {
        NewDocument {
            value: self.value,
            flags: self.flags,
            expiry: expiry.unwrap_or(Expiry::from_column(self.expires_at)),
            stale: self.stale,
            promised: self.promised,
        }
    }
}

pub(super) fn decide_row(
    step: &Step<'_>,
    change: &Change<'_>,
    current: Option<RowVersion<'_>>,
    now_micros: u64,
    out: &mut Vec<u8>,
) -> Decided {
    let refused = |error: Error| Status::Refused(error);
    match change.action {
        Action::Store { mode, .. } => {
            check_store(mode, change.cas, current.map(|version| version.ts.0))?;
            out.extend_from_slice(&step.row);
            done(Decision::Put)
        }
        Action::Delete => {
            check_cas(change.cas, current.ok_or(Status::NotFound)?.ts.0)?;
            done(Decision::Delete)
        }
        Action::Touch { expiry } => {
            let version = current.ok_or(Status::NotFound)?;
            row::with_expiry(step.table, &step.schema, version.row, expiry, out).map_err(refused)?;
            done(if expiry.has_passed(now_micros) { Decision::Delete } else { Decision::Put })
        }
        Action::Fetch { expiry, vivify: None, refresh_before: None } => {
            let version = current.ok_or(Status::NotFound)?;
            let mut json = Vec::new();
            let document = row::read(&step.schema, &version, &mut json).map_err(refused)?;
            let fetched = Some(Fetched::new(&document, expiry));
            let decision = match expiry {
                None => Decision::Keep,
                Some(expiry) => {
                    row::with_expiry(step.table, &step.schema, version.row, expiry, out).map_err(refused)?;
                    if expiry.has_passed(now_micros) { Decision::Delete } else { Decision::Put }
                }
            };
            Ok((decision, Outcome { fetched, ..Outcome::new(Status::Done) }))
        }
        Action::Extend { .. } | Action::Count { .. } | Action::Fetch { .. } | Action::MarkStale { .. } => {
            let (schema, name) = (step.table.schema_name(), step.table.name());
            Err(refused(Error::unsupported(format!(
                "table {schema}.{name} has typed rows, which can be read, set, added, replaced, touched and deleted"
            ))))
        }
    }
}
