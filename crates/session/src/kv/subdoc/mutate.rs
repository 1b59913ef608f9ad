//! Changing parts of a document. Each mutation is planned as one [`Edit`] of the text, and then carried out.

use super::super::json::json_text;
use super::locate::{Container, Entries, Entry, Place, WHITESPACE, check_levels, locate};
use super::path::{self, Component, same_string};
use super::{LEVELS_MAX, MutateOp, Mutation, Status};
use std::ops::Range;

/// What mutations made of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// `None`: it is to be removed.
    pub document: Option<Vec<u8>>,
    pub is_json: bool,
    /// For each counter, its position among the mutations and its new value.
    pub counters: Vec<(usize, i64)>,
}

/// The first mutation that failed, which is why none was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub index: usize,
    pub status: Status,
}

/// Applies `mutations`, which [`super::check_mutations`] has let pass, in order. Without a document they begin with an
/// empty object or array, as the first path asks for; whether it may be created is the caller's to decide.
///
/// # Errors
/// The first mutation that fails.
pub fn mutate(document: Option<&[u8]>, mutations: &[Mutation<'_>]) -> Result<Mutated, Failure> {
    let mut body = Body::new(document.unwrap_or_else(|| template(mutations)));
    let mut counters = Vec::new();
    for (index, mutation) in mutations.iter().enumerate() {
        match mutation.op {
            MutateOp::SetDocument => body = Body::new(mutation.value),
            MutateOp::DeleteDocument => body = Body::Removed,
            _ => {
                let counted = body.edit(mutation).map_err(|status| Failure { index, status })?;
                counters.extend(counted.map(|value| (index, value)));
            }
        }
    }
    let (document, is_json) = match body {
        Body::Json(text) => (Some(text.into_bytes()), true),
        Body::Other(bytes) => (Some(bytes), false),
        Body::Removed => (None, false),
    };
    Ok(Mutated { document, is_json, counters })
}

/// What a document that does not exist is taken for.
fn template(mutations: &[Mutation<'_>]) -> &'static [u8] {
    let mut of_parts = mutations.iter().filter(|mutation| mutation.op != MutateOp::SetDocument);
    match of_parts.next().map(|mutation| mutation.path) {
        Some([] | [b'[', ..]) => b"[]",
        Some(_) => b"{}",
        None => b"",
    }
}

enum Body {
    Json(String),
    Other(Vec<u8>),
    Removed,
}

impl Body {
    fn new(value: &[u8]) -> Self {
        match json_text(value) {
            Some(text) => Body::Json(text.to_owned()),
            None => Body::Other(value.to_vec()),
        }
    }

    /// The new value of a counter.
    fn edit(&mut self, mutation: &Mutation<'_>) -> Result<Option<i64>, Status> {
        let Body::Json(text) = self else { return Err(Status::DocumentNotJson) };
        let (edit, counted) = plan(text, mutation)?;
        text.replace_range(edit.range, &edit.text);
        Ok(counted)
    }
}

/// Text to be put in the place of some of the document.
struct Edit {
    range: Range<usize>,
    text: String,
}

impl Edit {
    fn replace(range: Range<usize>, text: impl Into<String>) -> Self {
        Edit { range, text: text.into() }
    }

    fn insert(at: usize, text: String) -> Self {
        Edit { range: at..at, text }
    }
}

fn plan(text: &str, mutation: &Mutation<'_>) -> Result<(Edit, Option<i64>), Status> {
    let path = &path::parse(mutation.path)?;
    let value = mutation.value;
    let edit = match mutation.op {
        MutateOp::Counter => {
            let (edit, counted) = count(text, path, value, mutation.create_path)?;
            return Ok((edit, Some(counted)));
        }
        MutateOp::DictAdd | MutateOp::DictUpsert => store(text, path, mutation)?,
        MutateOp::Replace => {
            let value = one_value(value, LEVELS_MAX - path.len())?;
            Edit::replace(found(text, path)?.value, value)
        }
        MutateOp::Delete => delete(text, &found(text, path)?),
        MutateOp::ArrayInsert => insert(text, path, value)?,
        MutateOp::ArrayPushLast | MutateOp::ArrayPushFirst | MutateOp::ArrayAddUnique => {
            push(text, path, mutation)?
        }
        MutateOp::SetDocument | MutateOp::DeleteDocument => return Err(Status::InvalidCombination),
    };
    Ok((edit, None))
}

fn found(text: &str, path: &[Component<'_>]) -> Result<Entry, Status> {
    match locate(text, path)? {
        Place::Found(entry) => Ok(entry),
        Place::Absent { .. } => Err(Status::PathNotFound),
    }
}

fn store(text: &str, path: &[Component<'_>], mutation: &Mutation<'_>) -> Result<Edit, Status> {
    let value = one_value(mutation.value, LEVELS_MAX - path.len())?;
    let place = locate(text, path)?;
    if !matches!(path.last(), Some(Component::Key(_))) {
        return Err(Status::PathInvalid);
    }
    match place {
        Place::Found(_) if mutation.op == MutateOp::DictAdd => Err(Status::PathExists),
        Place::Found(old) => Ok(Edit::replace(old.value, value)),
        Place::Absent { depth, parent } => create(&path[depth..], &parent, value, mutation.create_path),
    }
}

/// Adds to `parent` the member that the first of `missing` names, which holds the next, and so on, down to `value`.
/// More than one is added only if `create_path`.
fn create(
    missing: &[Component<'_>],
    parent: &Container,
    value: &str,
    create_path: bool,
) -> Result<Edit, Status> {
    if missing.len() > 1 && !create_path {
        return Err(Status::PathNotFound);
    }
    let mut text = String::new();
    for (i, component) in missing.iter().enumerate() {
        let Component::Key(key) = component else { return Err(Status::PathNotFound) };
        let before = match i {
            0 if parent.len == 0 => "",
            0 => ",",
            _ => "{",
        };
        text.extend([before, "\"", key, "\":"]);
    }
    text.push_str(value);
    text.extend(std::iter::repeat_n('}', missing.len() - 1));
    Ok(Edit::insert(parent.close, text))
}

/// Removes an entry and the comma after it, or else the one before it.
fn delete(text: &str, entry: &Entry) -> Edit {
    let (start, end) = (entry.start, entry.value.end);
    let after = text[end..].trim_start_matches(WHITESPACE);
    let before = text[..start].trim_end_matches(WHITESPACE);
    let range = match (after.strip_prefix(','), before.strip_suffix(',')) {
        (Some(after), _) => start..text.len() - after.len(),
        (None, Some(before)) => before.len()..end,
        (None, None) => start..end,
    };
    Edit::replace(range, "")
}

fn insert(text: &str, path: &[Component<'_>], value: &[u8]) -> Result<Edit, Status> {
    let values = some_values(value, LEVELS_MAX - path.len())?;
    let Some(Component::Index(index)) = path.last() else { return Err(Status::PathInvalid) };
    match locate(text, path)? {
        Place::Found(next) => Ok(Edit::insert(next.start, format!("{values},"))),
        Place::Absent { depth, parent } if depth + 1 == path.len() && parent.len == *index => {
            let comma = if parent.len == 0 { "" } else { "," };
            Ok(Edit::insert(parent.close, format!("{comma}{values}")))
        }
        Place::Absent { .. } => Err(Status::PathNotFound),
    }
}

fn push(text: &str, path: &[Component<'_>], mutation: &Mutation<'_>) -> Result<Edit, Status> {
    // The path has fewer components than there are levels.
    let levels = LEVELS_MAX - path.len() - 1;
    let is_unique = mutation.op == MutateOp::ArrayAddUnique;
    let values = match is_unique {
        true => scalar(mutation.value, levels)?,
        false => some_values(mutation.value, levels)?,
    };
    let array = match locate(text, path)? {
        Place::Found(array) => array.value,
        Place::Absent { .. } if !mutation.create_path => return Err(Status::PathNotFound),
        Place::Absent { depth, parent } => {
            return create(&path[depth..], &parent, &format!("[{values}]"), true);
        }
    };
    if !text[array.clone()].starts_with('[') {
        return Err(Status::PathMismatch);
    }
    let elements = Entries::open(text, array.start, path.len() + 1)?;
    if is_unique && contains(elements, values)? {
        return Err(Status::PathExists);
    }
    let (first, close) = (array.start + 1, array.end - 1);
    let is_empty = text[first..close].trim_matches(WHITESPACE).is_empty();
    Ok(match mutation.op {
        _ if is_empty => Edit::insert(close, values.to_owned()),
        MutateOp::ArrayPushFirst => Edit::insert(first, format!("{values},")),
        _ => Edit::insert(close, format!(",{values}")),
    })
}

/// Whether one of `elements`, all of which must be scalars up to there, equals `value`. Numbers equal if they are
/// written alike.
fn contains(mut elements: Entries<'_>, value: &str) -> Result<bool, Status> {
    fn string(text: &str) -> Option<&str> {
        text.strip_prefix('"')?.strip_suffix('"')
    }
    let value = value.trim_matches(WHITESPACE);
    while let Some(element) = elements.next_value()? {
        if element.starts_with(['{', '[']) {
            return Err(Status::PathMismatch);
        }
        let equals = match (string(element), string(value)) {
            (Some(a), Some(b)) => same_string(a, b),
            _ => element == value,
        };
        if equals {
            return Ok(true);
        }
    }
    Ok(false)
}

fn count(text: &str, path: &[Component<'_>], delta: &[u8], create_path: bool) -> Result<(Edit, i64), Status> {
    let delta = parse_delta(delta)?;
    match locate(text, path)? {
        Place::Found(number) => {
            let sum =
                integer(&text[number.value.clone()])?.checked_add(delta).ok_or(Status::ValueCannotInsert)?;
            Ok((Edit::replace(number.value, sum.to_string()), sum))
        }
        Place::Absent { depth, parent } => {
            Ok((create(&path[depth..], &parent, &delta.to_string(), create_path)?, delta))
        }
    }
}

/// Decimal digits that do not begin with 0, perhaps after a minus.
fn parse_delta(delta: &[u8]) -> Result<i64, Status> {
    let digits = delta.strip_prefix(b"-").unwrap_or(delta);
    let text = std::str::from_utf8(delta).map_err(|_| Status::DeltaInvalid)?;
    match digits.first() {
        Some(b'1'..=b'9') => text.parse().map_err(|_| Status::DeltaInvalid),
        _ => Err(Status::DeltaInvalid),
    }
}

/// The integer that a JSON value is.
fn integer(value: &str) -> Result<i64, Status> {
    let is_integer = value.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if !is_integer {
        return Err(Status::PathMismatch);
    }
    value.parse().map_err(|_| Status::NumberRange)
}

/// `value` as text, if it is one JSON value of at most `levels` levels.
fn one_value(value: &[u8], levels: usize) -> Result<&str, Status> {
    let text = json_text(value).ok_or(Status::ValueCannotInsert)?;
    check_levels(text, levels).map_err(|_| Status::ValueTooDeep)?;
    Ok(text)
}

fn scalar(value: &[u8], levels: usize) -> Result<&str, Status> {
    let is_container = matches!(value.trim_ascii_start().first(), Some(b'{' | b'['));
    if is_container { Err(Status::ValueCannotInsert) } else { one_value(value, levels) }
}

/// `value` as text, if it is one or more JSON values, separated by commas, of at most `levels` levels each.
fn some_values(value: &[u8], levels: usize) -> Result<&str, Status> {
    let array = [b"[", value, b"]"].concat();
    let array = json_text(&array).ok_or(Status::ValueCannotInsert)?;
    let is_empty = array[1..array.len() - 1].trim_matches(WHITESPACE).is_empty();
    if is_empty {
        return Err(Status::ValueCannotInsert);
    }
    check_levels(array, levels + 1).map_err(|_| Status::ValueTooDeep)?;
    std::str::from_utf8(value).map_err(|_| Status::ValueCannotInsert)
}
