//! Bits flip and files vanish: a check names the file, and no reader gets an answer that is not right.
#![allow(clippy::unwrap_used)]

mod common;

use common::places::{change, in_files, some};
use common::*;
use oribi_engine::Engine;
use oribi_env::read_file;
use oribi_sim::{SimClock, SimFiles};
use oribi_types::{Durability, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A disk with every kind of file, as a process that ended leaves it, and the rows of its table.
fn disk() -> (SimFiles, Rows) {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    for k in 0..40 {
        put(&engine, &table, k, &format!("first {k}")).unwrap();
    }
    engine.flush(&table).unwrap();
    let snapshot = engine.snapshot();
    for k in (0..40).step_by(3) {
        put(&engine, &table, k, &format!("second {k}")).unwrap();
    }
    delete(&engine, &table, 1).unwrap();
    engine.flush(&table).unwrap();
    drop(snapshot);
    let found = some(&in_files(&engine, &table, &engine.snapshot()).unwrap(), |k| k % 5 == 0);
    assert!(change(&engine, &table, &found, Some(&|v| format!("{v}, patched"))).unwrap());
    for k in 38..45 {
        put(&engine, &table, k, &format!("third {k}")).unwrap();
    }
    let commit = write(&engine, &table, &[(2, None), (50, Some("last"))]).unwrap();
    engine.settle(commit.obligation).unwrap();
    let rows = scan_now(&engine, &table);
    drop((engine, table));
    (files, rows)
}

/// Opens the disk and reads all that is there, by scan and by key.
fn read_all(files: &SimFiles) -> Result<Rows> {
    let engine: Arc<Engine> = open(&sim_env(&files.kill(), &Arc::new(SimClock::new())))?;
    let table = engine.table("public", "t")?;
    let mut by_key = Rows::new();
    for k in -1..60 {
        let view = engine.read_view();
        if let (Some(v), _) = engine.get(&table, &key(k), view, |row| v_of(&table, row.row))? {
            by_key.insert(k, v);
        }
    }
    let rows = try_scan(&engine, &table, &engine.snapshot())?;
    assert_eq!(rows, by_key);
    Ok(rows)
}

/// How damage to a file is called.
fn name_of(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_str().unwrap();
    match name.rsplit('.').next().unwrap() {
        "parquet" | "index" => "sstable ",
        "marks" => "marks file ",
        "log" => "log",
        _ if name.starts_with("MANIFEST-") => "MANIFEST-",
        _ => "CURRENT",
    }
}

fn damageable(files: &SimFiles) -> Vec<PathBuf> {
    files.all_files().into_iter().filter(|path| !path.ends_with("LOCK")).collect()
}

#[test]
fn a_flipped_bit_is_named_in_every_kind_of_file() {
    let (files, rows) = disk();
    assert_eq!(read_all(&files).unwrap(), rows);
    assert_eq!(findings(&files), Vec::<String>::new());
    let mut kinds = std::collections::BTreeSet::new();
    for path in damageable(&files) {
        let bytes = read_file(&files, &path).unwrap();
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1) as u64;
        let is_log = name_of(&path) == "log";
        // A prime step meets every bit of a byte.
        let step = (used * 8 / 70).max(1) | 1;
        for bit in (0..used * 8).step_by(step as usize) {
            let flipped = files.kill();
            assert!(flipped.flip_bit(&path, bit));
            let found = findings(&flipped);
            let at = format!("{}, bit {bit}: {found:?}", path.display());
            match read_all(&flipped) {
                Ok(read) => assert_eq!(read, rows, "{at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {error}");
                    assert!(error.message().contains(name_of(&path)), "{at}: {error}");
                    assert!(!found.is_empty(), "{at}: {error}");
                }
            }
            // A log has bytes that mean nothing: padding, and the space that is not used yet.
            assert!(is_log || found.iter().any(|f| f.contains(name_of(&path))), "{at}");
            if !found.is_empty() {
                kinds.insert(path.extension().map(|e| e.to_owned()).unwrap_or_default());
            }
        }
    }
    // parquet, index, marks, log, and the two without an extension.
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[test]
fn a_missing_file_is_named() {
    let (files, rows) = disk();
    for path in damageable(&files) {
        let without = files.kill();
        oribi_env::Files::remove(&without, &path).unwrap();
        let found = findings(&without);
        match read_all(&without) {
            // A segment that was prepared and not begun.
            Ok(read) => assert!(name_of(&path) == "log" && read == rows, "{} is missed", path.display()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{}: {error}", path.display());
                assert!(error.message().contains(name_of(&path)), "{}: {error}", path.display());
                assert!(found.iter().any(|f| f.contains(name_of(&path))), "{}: {found:?}", path.display());
            }
        }
    }
}

#[test]
fn a_damaged_folder_is_left_as_it_is() {
    let (files, _) = disk();
    let manifest = damageable(&files).into_iter().find(|p| name_of(p) == "MANIFEST-").unwrap();
    files.flip_bit(&manifest, 1000);
    let contents = |files: &SimFiles| -> Vec<(PathBuf, Vec<u8>)> {
        let paths = damageable(files).into_iter();
        paths.map(|path| (path.clone(), read_file(files, &path).unwrap())).collect()
    };
    let before = contents(&files);
    assert!(open(&sim_env(&files, &Arc::new(SimClock::new()))).is_err());
    assert!(contents(&files) == before);
}

#[test]
fn a_second_open_is_refused_by_name() {
    let (files, clock, engine, _) = fresh(1, Durability::Sync);
    let refused = open(&sim_env(&files, &clock)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let holder = format!("process {}", std::process::id());
    assert!(refused.message().contains(&holder) && refused.message().contains(DIR), "{refused}");
    let refused = oribi_engine::check(sim_env(&files, &clock), Path::new(DIR)).err().unwrap();
    assert!(refused.message().contains(&holder), "{refused}");
    drop(engine);
    open(&sim_env(&files, &clock)).unwrap();
}
