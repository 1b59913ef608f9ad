//! Any document, path and value: lookups answer with JSON, and a mutation makes JSON of JSON, with the value in it.
#![no_main]

#[path = "../../crates/session/src/kv/json.rs"]
mod json;
#[allow(dead_code, unused_imports)]
#[path = "../../crates/session/src/kv/subdoc/mod.rs"]
mod subdoc;

use json::is_json;
use libfuzzer_sys::fuzz_target;
use subdoc::{DocumentMeta, Lookup, MutateOp, Mutation, Reader, mutate};

const GET: u8 = 0xc5;
const SEPARATOR: u8 = 0xff;

fuzz_target!(|input: &[u8]| {
    let [opcode, flags, rest @ ..] = input else { return };
    let mut parts = rest.splitn(3, |b| *b == SEPARATOR).map(|part| part.trim_ascii());
    let mut part = || parts.next().unwrap_or_default();
    let (document, path, value) = (part(), part(), part());
    let opcode = GET + opcode % 14;
    if let Ok(lookup) = Lookup::new(opcode, *flags, path) {
        let _ = look(document, &lookup);
    }
    let Ok(mutation) = Mutation::new(opcode, *flags, path, value) else { return };
    let Ok(mutated) = mutate(Some(document), &[mutation]) else { return };
    assert!(is_json(document) && mutated.is_json);
    let mutated = mutated.document.expect("only its parts were asked for");
    assert!(is_json(&mutated));
    if matches!(mutation.op(), MutateOp::DictAdd | MutateOp::DictUpsert | MutateOp::Replace) {
        let get = Lookup::new(GET, 0, path).expect("the path was taken before");
        assert_eq!(look(&mutated, &get).as_deref(), Ok(value));
    }
});

fn look(document: &[u8], lookup: &Lookup<'_>) -> Result<Vec<u8>, subdoc::Status> {
    let answer = Reader::new(document, DocumentMeta::default()).look(lookup)?.into_owned();
    assert!(is_json(&answer) || lookup.op() == subdoc::LookupOp::Exists);
    Ok(answer)
}
