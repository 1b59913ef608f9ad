//! Damage to either file: `verify` names it, and no reader ever answers from it.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "damages files as only the outside does")]

mod common;

use common::{TestRow, get, row_of, scan, write};
use oribi_env::Env;
use oribi_sstable::{Compression, Sstable, SstableMeta, SstableOptions};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Error, ErrorKind, Result, Schema, Timestamp, Value};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn schema() -> Schema {
    let columns = vec![
        ColumnSpec::new("k", ColumnType::Int32).not_null(),
        ColumnSpec::new("v", ColumnType::String),
        ColumnSpec::new("w", ColumnType::Double),
    ];
    Schema::new(columns, &["k"]).unwrap()
}

fn rows(schema: &Schema) -> Vec<TestRow> {
    let row = |n: i32| {
        let v = if n % 5 == 0 { Value::Null } else { Value::String(format!("{}", n % 7)) };
        row_of(schema, vec![Value::Int32(n), v, Value::Double(f64::from(n) / 3.0)], n as u64 + 1)
    };
    (0..36).map(|n| row(n * 2)).collect()
}

fn options() -> SstableOptions {
    SstableOptions {
        row_group_rows: 40,
        page_rows: 16,
        page_bytes_max: 1 << 10,
        compression: Compression::Lz4,
    }
}

struct Files {
    dir: tempfile::TempDir,
    env: Env,
    meta: SstableMeta,
    schema: Schema,
    rows: Vec<TestRow>,
}

impl Files {
    fn new() -> Self {
        let (dir, env, schema) = (tempfile::tempdir().unwrap(), Env::real(), schema());
        let rows = rows(&schema);
        let meta = write(&env, dir.path(), 17, &schema, &options(), &rows);
        Files { dir, env, meta, schema, rows }
    }

    fn open(&self) -> Result<Sstable> {
        Sstable::open(&self.env, self.dir.path(), &self.meta, &self.schema)
    }

    fn names(&self) -> [std::path::PathBuf; 2] {
        ["parquet", "index"].map(|suffix| self.dir.path().join(format!("{:016x}.{suffix}", 17)))
    }

    /// Asks everything; each answer must be right or `Corrupt`.
    fn never_wrong(&self) {
        let Some(sstable) = right_or_corrupt(self.open()) else { return };
        for (i, row) in self.rows.iter().enumerate() {
            if let Some(found) = right_or_corrupt(get(&sstable, &self.schema, &row.key)) {
                assert_eq!(found, Some((i as u32, row.ts, row.row.clone())));
            }
        }
        let keys: Vec<&[u8]> = self.rows.iter().map(|r| r.key.as_slice()).collect();
        if let Some(places) = right_or_corrupt(sstable.locate(&keys)) {
            let expected = self.rows.iter().enumerate().map(|(i, r)| Some((i as u32, r.ts)));
            assert_eq!(places, expected.collect::<Vec<_>>());
        }
        if let Some(scanned) = right_or_corrupt(scan(&sstable, &self.schema)) {
            let expected: Vec<(Vec<Value>, Timestamp)> =
                self.rows.iter().map(|r| (r.values.clone(), r.ts)).collect();
            assert_eq!(scanned, expected);
        }
    }
}

fn right_or_corrupt<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(e) => {
            assert_named(&e);
            None
        }
    }
}

fn assert_named(e: &Error) {
    assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
    assert!(e.message().starts_with("sstable 17: "), "{e}");
}

fn with_file(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// In place: some file systems sync a file that is truncated and written anew, which takes a hundred times as long.
fn flip(path: &Path, at: usize, bit: u8) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ bit], at as u64).unwrap();
}

#[test]
fn a_flipped_bit_at_every_byte() {
    let files = Files::new();
    files.open().unwrap().verify(&files.schema).unwrap();
    for path in files.names() {
        let len = std::fs::read(&path).unwrap().len();
        for at in 0..len {
            let bit = 1 << (at % 8);
            flip(&path, at, bit);
            let verified = files.open().and_then(|sstable| sstable.verify(&files.schema));
            assert_named(&verified.expect_err("a flipped bit passes"));
            files.never_wrong();
            flip(&path, at, bit);
        }
    }
    files.open().unwrap().verify(&files.schema).unwrap();
}

#[test]
fn truncated_and_extended_files() {
    let files = Files::new();
    for path in files.names() {
        let whole = std::fs::read(&path).unwrap();
        for len in (0..whole.len()).step_by(13).chain([whole.len() - 1]) {
            with_file(&path, |bytes| bytes.truncate(len));
            assert_named(&files.open().expect_err("a truncated file opens"));
            std::fs::write(&path, &whole).unwrap();
        }
        with_file(&path, |bytes| bytes.push(0));
        assert_named(&files.open().expect_err("an extended file opens"));
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn a_data_file_cut_while_it_is_open() {
    let files = Files::new();
    let sstable = files.open().unwrap();
    with_file(&files.names()[0], |bytes| bytes.truncate(10));
    assert_named(&sstable.verify(&files.schema).unwrap_err());
    assert_named(&get(&sstable, &files.schema, &files.rows[35].key).unwrap_err());
}

#[test]
fn a_page_that_rots_after_it_was_read() {
    let files = Files::new();
    let sstable = files.open().unwrap();
    let tail = {
        let metadata = sstable.metadata().unwrap();
        let ends =
            metadata.offset_index().unwrap().iter().flatten().flat_map(|column| column.page_locations());
        ends.map(|page| page.offset as usize + page.compressed_page_size as usize).max().unwrap()
    };
    let all = || -> Vec<Result<()>> {
        let gets = files.rows.iter().map(|row| {
            get(&sstable, &files.schema, &row.key).map(|found| {
                assert_eq!(found.unwrap().2, row.row);
            })
        });
        let scanned = scan(&sstable, &files.schema).map(|rows| assert_eq!(rows.len(), files.rows.len()));
        gets.chain([scanned]).collect()
    };
    assert!(all().iter().all(Result::is_ok));
    for at in 4..tail {
        flip(&files.names()[0], at, 1);
        let answers = all();
        let [gets @ .., scanned] = answers.as_slice() else { unreachable!() };
        assert!(gets.iter().any(Result::is_err), "byte {at}: a point read");
        for answer in gets.iter().chain([scanned]).filter_map(|answer| answer.as_ref().err()) {
            assert_named(answer);
        }
        assert!(scanned.is_err(), "byte {at}: a scan");
        flip(&files.names()[0], at, 1);
    }
    assert!(all().iter().all(Result::is_ok));
}

#[test]
fn the_damaged_page_is_named() {
    let files = Files::new();
    let sstable = files.open().unwrap();
    let metadata = sstable.metadata().unwrap();
    let page = &metadata.offset_index().unwrap()[0][1].page_locations()[1];
    let offset = page.offset as usize;
    with_file(&files.names()[0], |bytes| bytes[offset + 3] ^= 4);
    let error = files.open().unwrap().verify(&files.schema).unwrap_err();
    let expected =
        format!("sstable 17: page 1 of column \"v\" in row group 0: checksum mismatch at offset {offset}");
    assert_eq!(error.message(), expected);
}

#[test]
fn the_files_of_another_sstable() {
    let files = Files::new();
    let other = Files::new();
    let mut rows = other.rows.clone();
    rows.truncate(35);
    let dir = tempfile::tempdir().unwrap();
    write(&other.env, dir.path(), 17, &other.schema, &options(), &rows);
    for name in files.names() {
        let whole = std::fs::read(&name).unwrap();
        std::fs::copy(dir.path().join(name.file_name().unwrap()), &name).unwrap();
        assert_named(&files.open().expect_err("another file opens"));
        std::fs::write(&name, whole).unwrap();
    }
}
