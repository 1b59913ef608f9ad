//! What a change becomes, given what is there.

use super::change::{Action, Change, Fetched, Outcome, Status, Step, StoreMode};
use super::document::NewDocument;
use super::subdoc::{self, Mutation};
use super::{Document, Edited, Expiry, KvLimits, row};
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

/// Writes what a change makes of a document.
struct Writer<'l, W> {
    limits: &'l KvLimits,
    now_micros: u64,
    write: W,
}

impl<W: FnOnce(&NewDocument<'_>)> Writer<'_, W> {
    /// A document that has expired when it is written is not written.
    fn put(self, document: NewDocument<'_>) -> Decision {
        if document.expiry.has_passed(self.now_micros) {
            return Decision::Delete;
        }
        (self.write)(&document);
        Decision::Put
    }

    /// Puts a document whose value is new. A value that is there may exceed the limit, since SQL does not know it.
    fn put_value(self, document: NewDocument<'_>) -> Result<Decision, Status> {
        if document.value.len() > self.limits.value_bytes_max {
            return Err(Status::TooLarge);
        }
        Ok(self.put(document))
    }
}

pub(super) fn decide_document(
    change: &Change<'_>,
    current: Option<Document<'_>>,
    limits: &KvLimits,
    now_micros: u64,
    write: impl FnOnce(&NewDocument<'_>),
) -> Decided {
    let writer = Writer { limits, now_micros, write };
    let cas = change.cas;
    match change.action {
        Action::Store { mode, value, flags, expiry, or_stale } => {
            store(mode, or_stale, NewDocument::new(value, flags, expiry), cas, current, writer)
        }
        Action::Extend { front, value, vivify } => extend(front, value, vivify, cas, current, writer),
        Action::Count { down, delta, initial, expiry } => {
            let add = |n: u64| if down { n.saturating_sub(delta) } else { n.wrapping_add(delta) };
            count(add, initial, expiry, cas, current, writer)
        }
        Action::Touch { expiry } => {
            let document = current.ok_or(Status::NotFound)?;
            done(writer.put(document.with_expiry(Some(expiry))))
        }
        Action::Fetch { expiry, vivify, refresh_before } => {
            fetch(expiry, vivify, refresh_before, current, writer)
        }
        Action::MarkStale { expiry } => {
            let document = current.ok_or(Status::NotFound)?;
            check_cas(cas, document.cas)?;
            done(writer.put(NewDocument { stale: true, promised: false, ..document.with_expiry(expiry) }))
        }
        Action::Delete => {
            check_cas(cas, current.ok_or(Status::NotFound)?.cas)?;
            done(Decision::Delete)
        }
        Action::Edit { mutations, mode, expiry } => edit(mutations, mode, expiry, cas, current, writer),
        Action::Lock { .. } | Action::Unlock => unreachable!("locks are no part of a document"),
    }
}

fn edit(
    mutations: &[Mutation<'_>],
    mode: StoreMode,
    expiry: Expiry,
    cas: Option<u64>,
    current: Option<Document<'_>>,
    writer: Writer<'_, impl FnOnce(&NewDocument<'_>)>,
) -> Decided {
    check_store(mode, cas, current.map(|document| document.cas))?;
    let mutated =
        subdoc::mutate(current.map(|document| document.value), mutations).map_err(Status::EditFailed)?;
    let decision = match &mutated.document {
        None => Decision::Delete,
        Some(value) => {
            let (flags, expires_at) =
                current.map_or((0, None), |document| (document.flags, document.expires_at));
            writer.put_value(NewDocument::new(value, flags, expiry.instead_of(expires_at)))?
        }
    };
    Ok((decision, edited(mutated.counters)))
}

fn edited(counters: Vec<(usize, i64)>) -> Outcome {
    Outcome { edited: Some(Edited { counters }), ..Outcome::new(Status::Done) }
}

fn store(
    mode: StoreMode,
    or_stale: bool,
    new: NewDocument<'_>,
    cas: Option<u64>,
    current: Option<Document<'_>>,
    writer: Writer<'_, impl FnOnce(&NewDocument<'_>)>,
) -> Decided {
    let outdated = |document: &Document<'_>| cas.is_some_and(|cas| cas < document.cas);
    if let Some(document) = current.filter(|d| or_stale && mode != StoreMode::Add && outdated(d)) {
        let expiry = Expiry::from_column(document.expires_at);
        return done(writer.put_value(NewDocument {
            expiry,
            stale: true,
            promised: document.promised,
            ..new
        })?);
    }
    check_store(mode, cas, current.map(|d| d.cas))?;
    let expiry = new.expiry.instead_of(current.and_then(|d| d.expires_at));
    done(writer.put_value(NewDocument { expiry, ..new })?)
}

fn extend(
    front: bool,
    value: &[u8],
    vivify: Option<Expiry>,
    cas: Option<u64>,
    current: Option<Document<'_>>,
    writer: Writer<'_, impl FnOnce(&NewDocument<'_>)>,
) -> Decided {
    let Some(document) = current else {
        let expiry = vivify.filter(|_| cas.is_none()).ok_or(Status::NotStored)?;
        return done(writer.put_value(NewDocument::new(value, 0, expiry))?);
    };
    check_cas(cas, document.cas)?;
    let joined = if front { [value, document.value] } else { [document.value, value] }.concat();
    let expiry = Expiry::from_column(document.expires_at);
    done(writer.put_value(NewDocument::new(&joined, document.flags, expiry))?)
}

/// Stores the number that `add` makes of the one that is there, or else the `initial` one.
fn count(
    add: impl FnOnce(u64) -> u64,
    initial: Option<(u64, Expiry)>,
    expiry: Option<Expiry>,
    cas: Option<u64>,
    current: Option<Document<'_>>,
    writer: Writer<'_, impl FnOnce(&NewDocument<'_>)>,
) -> Decided {
    let (number, fetched, template) = match current {
        None => {
            let (number, expiry) = initial.ok_or(Status::NotFound)?;
            (number, Fetched::made(expiry, writer.now_micros), NewDocument::new(&[], 0, expiry))
        }
        Some(document) => {
            check_cas(cas, document.cas)?;
            let number = add(parse_number(document.value).ok_or(Status::NotNumeric)?);
            let before = Fetched::new(&Document { value: &[], ..document }, expiry).into_owned();
            (number, before, document.with_expiry(expiry))
        }
    };
    let mut digits = itoa::Buffer::new();
    let decision = writer.put_value(NewDocument { value: digits.format(number).as_bytes(), ..template })?;
    Ok((decision, Outcome { number, fetched: Some(Box::new(fetched)), ..Outcome::new(Status::Done) }))
}

fn fetch(
    expiry: Option<Expiry>,
    vivify: Option<Expiry>,
    refresh_before: Option<Expiry>,
    current: Option<Document<'_>>,
    writer: Writer<'_, impl FnOnce(&NewDocument<'_>)>,
) -> Decided {
    let (decision, fetched) = match current {
        None => {
            let expiry = vivify.ok_or(Status::NotFound)?;
            let made = Fetched::made(expiry, writer.now_micros);
            (writer.put(NewDocument { promised: true, ..NewDocument::new(&[], 0, expiry) }), made)
        }
        Some(document) => {
            let mut fetched = Fetched::new(&document, expiry).into_owned();
            let refresh = match refresh_before {
                Some(Expiry::At(limit)) => fetched.expires_at.is_some_and(|at| at < limit),
                _ => false,
            };
            fetched.won = !document.promised && (document.stale || refresh);
            let decision = if fetched.won || expiry.is_some() {
                let promised = document.promised || fetched.won;
                writer.put(NewDocument { promised, ..document.with_expiry(expiry) })
            } else {
                Decision::Keep
            };
            (decision, fetched)
        }
    };
    Ok((decision, Outcome { fetched: Some(Box::new(fetched)), ..Outcome::new(Status::Done) }))
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
        Action::Store { mode, expiry, .. } => {
            check_store(mode, change.cas, current.map(|version| version.ts.0))?;
            let kept =
                current.and_then(|version| row::expires_at(step.table, step.table.schema_ref(), version.row));
            let Some(at) = kept.filter(|_| expiry == Expiry::Keep) else { return done(Decision::Proposed) };
            let schema = step.table.schema_ref();
            row::with_expiry(step.table, schema, &step.row, Expiry::At(at), out).map_err(refused)?;
            done(Decision::Put)
        }
        Action::Edit { mutations, mode, expiry } => {
            edit_row(step, mutations, mode, expiry, change.cas, current, out)
        }
        Action::Delete => {
            check_cas(change.cas, current.ok_or(Status::NotFound)?.ts.0)?;
            done(Decision::Delete)
        }
        Action::Touch { expiry } => {
            let version = current.ok_or(Status::NotFound)?;
            row::with_expiry(step.table, step.table.schema_ref(), version.row, expiry, out)
                .map_err(refused)?;
            done(if expiry.has_passed(now_micros) { Decision::Delete } else { Decision::Put })
        }
        Action::Fetch { expiry, vivify: None, refresh_before: None } => {
            let version = current.ok_or(Status::NotFound)?;
            let mut json = Vec::new();
            let document =
                row::read(step.table, step.table.schema_ref(), &version, &mut json).map_err(refused)?;
            let fetched = Some(Fetched::new(&document, expiry).into_owned());
            let decision = match expiry {
                None => Decision::Keep,
                Some(expiry) => {
                    row::with_expiry(step.table, step.table.schema_ref(), version.row, expiry, out)
                        .map_err(refused)?;
                    if expiry.has_passed(now_micros) { Decision::Delete } else { Decision::Put }
                }
            };
            Ok((decision, Outcome { fetched: fetched.map(Box::new), ..Outcome::new(Status::Done) }))
        }
        Action::Lock { .. } | Action::Unlock => unreachable!("locks are no part of a row"),
        Action::Extend { .. } | Action::Count { .. } | Action::Fetch { .. } | Action::MarkStale { .. } => {
            let (schema, name) = (step.table.schema_name(), step.table.name());
            Err(refused(Error::unsupported(format!(
                "table {schema}.{name} has typed rows, which can be read, set, added, replaced, touched and deleted"
            ))))
        }
    }
}

/// Changes members of the JSON object that a row is shown as. An expiry column is one of them.
fn edit_row(
    step: &Step<'_>,
    mutations: &[Mutation<'_>],
    mode: StoreMode,
    expiry: Expiry,
    cas: Option<u64>,
    current: Option<RowVersion<'_>>,
    out: &mut Vec<u8>,
) -> Decided {
    check_store(mode, cas, current.map(|version| version.ts.0))?;
    let (table, schema) = (step.table, step.table.schema_ref());
    let mut json = Vec::new();
    let shown = current.map(|version| row::read(table, schema, &version, &mut json));
    let document = shown.transpose().map_err(Status::Refused)?;
    let mutated =
        subdoc::mutate(document.map(|document| document.value), mutations).map_err(Status::EditFailed)?;
    let Some(value) = &mutated.document else {
        return Ok((Decision::Delete, edited(mutated.counters)));
    };
    let row = row::encode(table, schema, step.key, value, expiry).map_err(Status::Refused)?;
    out.extend_from_slice(&row);
    Ok((Decision::Put, edited(mutated.counters)))
}
