//! Any operation on any document does what the same operation does to a tree, and leaves the rest of the text alone.

use super::super::json::json_text;
use super::tests::change;
use super::*;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

/// As the tests know them: what the key means.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
    Last,
}

const KEYS: [&str; 12] = ["a", "b", "c", "b.c", "d`e", "`", "ü", "q\"x", "x[1]", "\\", "tab\t", "\u{1f600}"];

/// Keys that paths can name. Documents also have the empty one.
fn key() -> impl Strategy<Value = String> {
    prop::sample::select(KEYS.to_vec()).prop_map(String::from)
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3i64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::from(0.5)),
        key().prop_map(Value::from),
        Just(Value::from("],}{[,:")),
    ];
    scalar.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(prop_oneof![9 => key(), 1 => Just(String::new())], inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Follows `choices` down from `value`, at each level mostly to something that is there.
fn walk(mut value: &Value, choices: &[(u8, Index, String)]) -> Vec<Step> {
    let mut path = Vec::new();
    for (choice, index, key) in choices {
        let step = match (choice % 8, value) {
            (0..6, Value::Array(array)) if !array.is_empty() => Step::Index(index.index(array.len())),
            (0..6, Value::Object(map)) => {
                let keys: Vec<_> = map.keys().filter(|key| !key.is_empty()).collect();
                let found = (!keys.is_empty()).then(|| keys[index.index(keys.len())]);
                Step::Key(found.unwrap_or(key).clone())
            }
            (6, _) => Step::Last,
            (7, Value::Array(array)) => Step::Index(array.len()),
            (7, _) => Step::Index(index.index(3)),
            _ => Step::Key(key.clone()),
        };
        value = child(value, &step).unwrap_or(&Value::Null);
        path.push(step);
    }
    path
}

fn child<'v>(value: &'v Value, step: &Step) -> Option<&'v Value> {
    match step {
        Step::Key(key) => value.as_object()?.get(key),
        Step::Index(index) => value.as_array()?.get(*index),
        Step::Last => value.as_array()?.last(),
    }
}

/// As a request would write it.
fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) => {
                let escaped = serde_json::to_string(key).expect("a string").replace('`', "``");
                text.push_str(if text.is_empty() { "`" } else { ".`" });
                text.push_str(&escaped[1..escaped.len() - 1]);
                text.push('`');
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Last => text.push_str("[-1]"),
        }
    }
    text
}

/// What `path` leads to, made if `make` says so: it is given what is missing at the end of the path.
fn resolve<'v>(
    mut value: &'v mut Value,
    path: &[Step],
    make: impl Fn(&mut Value, &[Step]) -> Result<(), Status>,
) -> Result<&'v mut Value, Status> {
    for (depth, step) in path.iter().enumerate() {
        let fits = if matches!(step, Step::Key(_)) { value.is_object() } else { value.is_array() };
        if !fits {
            return Err(Status::PathMismatch);
        }
        if child(value, step).is_none() {
            make(value, &path[depth..])?;
        }
        value = match step {
            Step::Key(key) => &mut value[key.as_str()],
            Step::Index(index) => &mut value[*index],
            Step::Last => {
                value.as_array_mut().and_then(|array| array.last_mut()).expect("it was found or made")
            }
        };
    }
    Ok(value)
}

/// Adds `missing` to the object `parent`, with `end` at its end.
fn grow(parent: &mut Value, missing: &[Step], end: Value, create_path: bool) -> Result<(), Status> {
    let is_keys = missing.iter().all(|step| matches!(step, Step::Key(_)));
    if !is_keys || (missing.len() > 1 && !create_path) {
        return Err(Status::PathNotFound);
    }
    let mut place = parent;
    for step in missing {
        let Step::Key(key) = step else { unreachable!("all are keys") };
        place = &mut place[key.as_str()];
    }
    *place = end;
    Ok(())
}

fn absent(_: &mut Value, _: &[Step]) -> Result<(), Status> {
    Err(Status::PathNotFound)
}

/// The same operation on a tree.
fn model(op: MutateOp, create: bool, root: &mut Value, path: &[Step], value: &Value) -> Result<(), Status> {
    let is_scalar = |value: &Value| !value.is_array() && !value.is_object();
    let ends_in_key = matches!(path.last(), Some(Step::Key(_)));
    match op {
        MutateOp::DictAdd | MutateOp::DictUpsert => {
            let add = std::cell::Cell::new(false);
            let place = resolve(root, path, |parent, missing| {
                if !ends_in_key {
                    return Err(Status::PathInvalid);
                }
                add.set(true);
                grow(parent, missing, value.clone(), create)
            })?;
            match (ends_in_key, add.get(), op) {
                (false, ..) => return Err(Status::PathInvalid),
                (true, false, MutateOp::DictAdd) => return Err(Status::PathExists),
                _ => *place = value.clone(),
            }
        }
        MutateOp::Replace => *resolve(root, path, absent)? = value.clone(),
        MutateOp::Delete => {
            resolve(root, path, absent)?;
            let (last, parent) = path.split_last().expect("not the root");
            match (resolve(root, parent, absent)?, last) {
                (Value::Object(map), Step::Key(key)) => drop(map.remove(key)),
                (Value::Array(array), Step::Index(index)) => drop(array.remove(*index)),
                (Value::Array(array), _) => drop(array.pop()),
                _ => unreachable!("it was found"),
            }
        }
        MutateOp::ArrayInsert => {
            let Some((Step::Index(index), parent)) = path.split_last() else {
                return Err(Status::PathInvalid);
            };
            match resolve(root, parent, absent)? {
                Value::Array(array) if *index <= array.len() => array.insert(*index, value.clone()),
                Value::Array(_) => return Err(Status::PathNotFound),
                _ => return Err(Status::PathMismatch),
            }
        }
        MutateOp::ArrayPushLast | MutateOp::ArrayPushFirst | MutateOp::ArrayAddUnique => {
            let unique = op == MutateOp::ArrayAddUnique;
            if unique && !is_scalar(value) {
                return Err(Status::ValueCannotInsert);
            }
            let place = resolve(root, path, |parent, missing| match create {
                true => grow(parent, missing, Value::Array(Vec::new()), true),
                false => Err(Status::PathNotFound),
            })?;
            let array = place.as_array_mut().ok_or(Status::PathMismatch)?;
            if unique
                && let Some(found) = array.iter().find(|element| !is_scalar(element) || *element == value)
            {
                return Err(if is_scalar(found) { Status::PathExists } else { Status::PathMismatch });
            }
            array.insert(if op == MutateOp::ArrayPushFirst { 0 } else { array.len() }, value.clone());
        }
        MutateOp::Counter => {
            let delta = value.as_i64().filter(|delta| *delta != 0).ok_or(Status::DeltaInvalid)?;
            let place = resolve(root, path, |parent, missing| grow(parent, missing, 0.into(), create))?;
            let sum = place.as_i64().ok_or(Status::PathMismatch)?.checked_add(delta);
            *place = sum.ok_or(Status::ValueCannotInsert)?.into();
        }
        MutateOp::SetDocument | MutateOp::DeleteDocument => unreachable!("not generated"),
    }
    Ok(())
}

/// The text of `value` in one of several styles, all of which mean the same.
fn text(value: &Value, style: u8) -> String {
    let compact = serde_json::to_string(value).expect("a value");
    match style % 3 {
        0 => compact,
        1 => serde_json::to_string_pretty(value).expect("a value"),
        _ => compact.replace('a', "\\u0061").replace("f\\u0061lse", "false").replace('ü', "\\u00FC"),
    }
}

/// How much of `old` is at the beginning or the end of `new`.
fn kept(old: &str, new: &str) -> usize {
    let prefix = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - prefix;
    prefix + old.bytes().rev().zip(new.bytes().rev()).take(rest).take_while(|(a, b)| a == b).count()
}

const OPS: [MutateOp; 9] = [
    MutateOp::DictAdd,
    MutateOp::DictUpsert,
    MutateOp::Delete,
    MutateOp::Replace,
    MutateOp::ArrayPushLast,
    MutateOp::ArrayPushFirst,
    MutateOp::ArrayInsert,
    MutateOp::ArrayAddUnique,
    MutateOp::Counter,
];

fn choices() -> impl Strategy<Value = Vec<(u8, Index, String)>> {
    prop::collection::vec((any::<u8>(), any::<Index>(), key()), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn mutations_do_to_text_what_they_do_to_a_tree(
        root in value(), choices in choices(), op in prop::sample::select(OPS.to_vec()), create: bool,
        new in value(), small in prop_oneof![Just(0i64), -3..3i64, any::<i64>()], style: u8,
    ) {
        let path = walk(&root, &choices);
        let new = if op == MutateOp::Counter { Value::from(small) } else { new };
        let takes_create = !matches!(op, MutateOp::Delete | MutateOp::Replace | MutateOp::ArrayInsert);
        let create = create && takes_create;

        let mut expected = root.clone();
        let outcome = model(op, create, &mut expected, &path, &new);
        let (old, path) = (text(&root, style), path_text(&path));
        let value = if op == MutateOp::Delete { String::new() } else { text(&new, style / 3) };
        match (change(op, create.into(), &old, &path, &value), outcome) {
            (Ok(made), Ok(())) => {
                let parsed: Value = serde_json::from_str(&made).expect("still JSON");
                prop_assert_eq!(parsed, expected);
                let reader = Reader::new(old.as_bytes(), DocumentMeta::default());
                let found = Lookup::new(0xc5, 0, path.as_bytes()).and_then(|lookup| reader.look(&lookup));
                let found = found.map_or(0, |value| value.len());
                let replaced = match op {
                    MutateOp::Replace | MutateOp::DictUpsert | MutateOp::Counter => found,
                    // A key, a colon, a comma and the white space about them.
                    MutateOp::Delete => found + 64,
                    _ => 0,
                };
                prop_assert!(kept(&old, &made) + replaced >= old.len(), "{} became {}", old, made);
            }
            (made, outcome) => prop_assert_eq!(made.map(|_| ()), outcome, "{:?} {} on {}", op, path, old),
        }
    }

    #[test]
    fn lookups_find_in_text_what_is_in_a_tree(root in value(), choices in choices(), style: u8) {
        let path = walk(&root, &choices);
        let (document, text) = (text(&root, style), path_text(&path));
        let reader = Reader::new(document.as_bytes(), DocumentMeta::default());
        let get = reader.look(&Lookup::new(0xc5, 0, text.as_bytes()).unwrap());
        let count = reader.look(&Lookup::new(0xd2, 0, text.as_bytes()).unwrap());
        let mut copy = root.clone();
        let expected = resolve(&mut copy, &path, absent).map(|value| value.clone());
        prop_assert_eq!(
            get.map(|value| serde_json::from_slice::<Value>(&value).expect("JSON")),
            expected.clone()
        );
        let expected = expected.and_then(|value| match value {
            Value::Array(array) => Ok(array.len().to_string()),
            Value::Object(map) => Ok(map.len().to_string()),
            _ => Err(Status::PathMismatch),
        });
        prop_assert_eq!(count.map(|value| String::from_utf8(value.into_owned()).unwrap()), expected);
    }

    #[test]
    fn any_text_is_answered(
        document in "[\\[\\]{}\",:1a\\\\ ]{0,12}", path in "[\\[\\]0.a`\\\\\"-]{0,6}", value in "[\\[\\]{},\"1a]{0,4}",
        opcode in 0xc5u8..=0xd2, flags: u8,
    ) {
        let (document, path, value) = (document.as_bytes(), path.as_bytes(), value.as_bytes());
        let reader = Reader::new(document, DocumentMeta::default());
        if let Ok(lookup) = Lookup::new(opcode, flags & 0x25, path) {
            let _ = reader.look(&lookup);
        }
        if let Ok(mutation) = Mutation::new(opcode, flags & 1, path, value)
            && let Ok(mutated) = mutate(Some(document), &[mutation])
        {
            let made = mutated.document.unwrap_or_default();
            prop_assert!(reader.is_json() && json_text(&made).is_some());
        }
    }
}
