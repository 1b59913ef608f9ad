//! What a store, and a folder of it, had in each version of their formats, as it was written then. Never regenerate one: add the next
//! version's.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::*;
use oribi_env::Env;
use oribi_store::MANIFEST;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The store of a folder `/tmp/.tmphBGM96`: twenty rows in four files of a table of two tablets, some of them marked.
const STORE_1: &str = "store-1";
/// And the folder's `STORE`.
const FOLDER_1: &str = "folder-1-STORE";

/// In the folder of the package, where Cargo runs its tests.
fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

fn fill(bucket: &Memory, dir: &Path, prefix: &str) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        let name = format!("{prefix}{}", name.to_str().unwrap());
        match path.is_dir() {
            true => fill(bucket, &path, &format!("{name}/")),
            false => bucket.set(&name, &std::fs::read(path).unwrap()),
        }
    }
}

fn rows_of_1() -> Rows {
    (0..20).map(|k| (k, if k % 5 == 0 { "again".to_owned() } else { format!("v{k}") })).collect()
}

/// The names of what an object of JSON has, and what that is.
fn members(json: &[u8]) -> Vec<(String, std::mem::Discriminant<Value>)> {
    let Value::Object(object) = serde_json::from_slice(json).unwrap() else { panic!("it is an object") };
    object.into_iter().map(|(name, value)| (name, std::mem::discriminant(&value))).collect()
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == b'\n').next().unwrap()
}

#[test]
fn a_store_of_version_1_is_restored() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    fill(&bucket, &fixture(STORE_1), "");
    restore(&bucket, dir.path()).unwrap();
    let engine = open(&bucket, dir.path()).unwrap().engine;
    assert_eq!(rows(&engine).unwrap(), rows_of_1());
    // After the owner of the fixture, whose term is 1: the restore, and this opening.
    let header: Value = serde_json::from_slice(first_line(&bucket.bytes_of(MANIFEST))).unwrap();
    assert_eq!((&header["format"], &header["term"]), (&Value::from(1), &Value::from(3)));
}

#[test]
fn a_folder_of_version_1_goes_on_with_its_store() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    fill(&bucket, &fixture(STORE_1), "");
    let of_fixture = bucket.bytes_of(MANIFEST);
    restore(&bucket, dir.path()).unwrap();
    // As if nothing had happened since.
    bucket.set(MANIFEST, &of_fixture);
    std::fs::copy(fixture(FOLDER_1), dir.path().join("STORE")).unwrap();
    assert_eq!(oribi_store::store_of(&Env::real(), dir.path()).unwrap().as_deref(), Some("memory"));
    let engine = open(&bucket, dir.path()).unwrap().engine;
    assert_eq!(rows(&engine).unwrap(), rows_of_1());
}

#[test]
fn what_is_written_has_the_members_that_version_1_has() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let engine = open(&bucket, dir.path()).unwrap().engine;
    create(&engine);
    put(&engine, 1, "v1");
    flush(&engine).unwrap();
    let (now, then) = (bucket.bytes_of(MANIFEST), std::fs::read(fixture(STORE_1).join(MANIFEST)).unwrap());
    assert_eq!(members(first_line(&now)), members(first_line(&then)));
    let bond = |path: PathBuf| members(&std::fs::read(path).unwrap());
    assert_eq!(bond(dir.path().join("STORE")), bond(fixture(FOLDER_1)));
}
