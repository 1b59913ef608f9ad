//! What recovery makes of logs whose bytes are not what was written.
#![allow(clippy::unwrap_used)]

use oribi_env::{Env, Files, read_file};
use oribi_sim::{SimFiles, env};
use oribi_types::{Error, ErrorKind};
use oribi_wal::{LocalLog, Log, LogOptions, Lsn, verify};
use std::path::{Path, PathBuf};

const DIR: &str = "/log";

fn options() -> LogOptions {
    LogOptions { segment_bytes: 1024, ..LogOptions::default() }
}

fn payload(lsn: Lsn) -> Vec<u8> {
    vec![lsn as u8; 40 + lsn as usize % 30]
}

/// A log of several segments with each record synced by itself, as a kill leaves it; and its newest segment with records.
fn synced_one_by_one(records: u64) -> (SimFiles, PathBuf) {
    let files = SimFiles::new();
    let log = LocalLog::open(&env(&files), Path::new(DIR), options(), &mut |_| Ok(())).unwrap();
    for _ in 0..records {
        let lsn = log.append(0, &mut |lsn, buf| buf.extend_from_slice(&payload(lsn))).unwrap();
        log.wait_durable(lsn).unwrap();
    }
    // Taken before the idle log states what is durable, in most runs; both are fine.
    let killed = files.kill();
    let segments: Vec<PathBuf> =
        killed.all_files().into_iter().filter(|path| is_used(&killed, path)).collect();
    let last = segments.last().unwrap().clone();
    (killed, last)
}

fn is_used(files: &SimFiles, path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "log")
        && read_file(files, path).unwrap()[64..].iter().any(|&b| b != 0)
}

/// Opens a log and returns the last LSN replayed, after checking that records are what they were.
fn replay(env: &Env) -> Result<Lsn, Error> {
    replay_from(env, 1)
}

fn replay_from(env: &Env, from: Lsn) -> Result<Lsn, Error> {
    let mut last = from - 1;
    LocalLog::open(env, Path::new(DIR), LogOptions { from, ..options() }, &mut |record| {
        assert_eq!((record.lsn, record.payload), (last + 1, &payload(last + 1)[..]));
        last = record.lsn;
        Ok(())
    })?;
    Ok(last)
}

fn contents(files: &SimFiles) -> Vec<(PathBuf, Vec<u8>)> {
    files.all_files().into_iter().map(|path| (path.clone(), read_file(files, &path).unwrap())).collect()
}

#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let files = SimFiles::new();
    let log = LocalLog::open(&env(&files), Path::new(DIR), options(), &mut |_| Ok(())).unwrap();
    let append = || log.append(0, &mut |lsn, buf| buf.extend_from_slice(&payload(lsn))).unwrap();
    let path = Path::new(DIR).join("0000000000000001.log");
    let _: Vec<Lsn> = (0..3).map(|_| append()).collect();
    log.wait_durable(3).unwrap();
    let before = read_file(&files, &path).unwrap();
    let _: Vec<Lsn> = (0..3).map(|_| append()).collect();
    log.write_out().unwrap();
    let after = read_file(&files, &path).unwrap();
    let written: Vec<usize> = (0..after.len()).filter(|&at| before[at] != after[at]).collect();
    let (start, end) = (written[0], written[written.len() - 1] + 1);
    assert!(end - start > 200);
    for cut in start..end {
        // Zeros from there on, and a file that ends there.
        for whole in [true, false] {
            let torn = files.kill();
            let file = torn.open(&path, true).unwrap();
            file.set_len(cut as u64).unwrap();
            if whole {
                file.set_len(after.len() as u64).unwrap();
            }
            assert_eq!(verify(&torn, Path::new(DIR), 1, &mut |_| Ok(())).unwrap().next_lsn, 4);
            assert_eq!(replay(&env(&torn)).unwrap(), 3, "cut at {cut}");
            assert!(
                torn.open(&path, false).unwrap().len().unwrap() <= start as u64,
                "the space is given back"
            );
            assert_eq!(replay(&env(&torn.crash(cut as u64))).unwrap(), 3, "the cut is durable");
        }
    }
    assert_eq!(replay(&env(&files.kill())).unwrap(), 6);
}

#[test]
fn a_flipped_bit_is_named_or_was_in_the_last_block() {
    let (files, last_segment) = synced_one_by_one(20);
    let mut named = 0;
    for (path, bytes) in contents(&files).into_iter().filter(|(path, _)| is_used(&files, path)) {
        for bit in (0..bytes.len() as u64 * 8).filter(|bit| bit % 8 == (bit / 8) % 8) {
            let flipped = files.kill();
            assert!(flipped.flip_bit(&path, bit));
            let before = contents(&flipped);
            match replay(&env(&flipped)) {
                // In space that no block uses, or in a block that only states what is durable.
                Ok(20) => {}
                Ok(last) => {
                    assert!(last == 19 && path == last_segment, "{}: bit {bit}: {last}", path.display())
                }
                Err(error) => {
                    named += 1;
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    let number: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
                    assert!(
                        error.message().starts_with(&format!("log segment {number}: ")),
                        "bit {bit}: {error}"
                    );
                    assert!(error.message().contains(" at offset "), "{error}");
                    assert_eq!(contents(&flipped), before, "nothing is modified");
                    let verified = verify(&flipped, Path::new(DIR), 1, &mut |_| Ok(())).unwrap_err();
                    assert_eq!(verified.message(), error.message());
                }
            }
        }
    }
    assert!(named > 2000, "{named}");
}

/// The segments of the blocks in a segment's file, but for the first, which is its own.
fn named_by_blocks(files: &SimFiles, path: &Path) -> Vec<u64> {
    let bytes = read_file(files, path).unwrap();
    let blocks = (128..bytes.len()).step_by(64).filter(|at| bytes[*at..].starts_with(&bytes[64..68]));
    blocks.map(|at| u64::from_le_bytes(bytes[at + 40..at + 48].try_into().unwrap())).collect()
}

fn number(path: &Path) -> u64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn in_files_that_are_used_again_damage_is_named_and_what_they_held_before_is_not_read() {
    let files = SimFiles::new();
    let options = LogOptions { spare_bytes_max: 4 * 1024, ..options() };
    let log = LocalLog::open(&env(&files), Path::new(DIR), options, &mut |_| Ok(())).unwrap();
    let mut from = 1;
    // Until the newest records are followed by what the file held before.
    let (killed, segments, last_segment, end) = (1..1000)
        .find_map(|_| {
            let end = log.append(0, &mut |lsn, buf| buf.extend_from_slice(&payload(lsn))).unwrap();
            log.wait_durable(end).unwrap();
            if end % 10 == 0 {
                from = end - 5;
                log.trim(from).unwrap();
            }
            let killed = files.kill();
            let segments: Vec<PathBuf> =
                killed.all_files().into_iter().filter(|path| is_used(&killed, path)).collect();
            let has_records = |path: &&PathBuf| named_by_blocks(&killed, path).contains(&number(path));
            let last = segments.iter().rfind(has_records)?.clone();
            let again = named_by_blocks(&killed, &last).iter().any(|segment| *segment != number(&last));
            again.then_some((killed, segments, last, end))
        })
        .expect("files are used again");
    assert_eq!(replay_from(&env(&killed.kill()), from).unwrap(), end);

    let mut named = 0;
    for (path, bit) in segments.iter().flat_map(|path| (0..8 * 1024).step_by(7).map(move |bit| (path, bit))) {
        let flipped = killed.kill();
        assert!(flipped.flip_bit(path, bit));
        match replay_from(&env(&flipped), from) {
            Ok(last) => {
                assert!(last == end || (last == end - 1 && *path == last_segment), "bit {bit}: {last}")
            }
            Err(error) => {
                named += 1;
                let segment = format!("log segment {}: ", number(path));
                assert!(error.message().starts_with(&segment), "{}: bit {bit}: {error}", path.display());
            }
        }
    }
    assert!(named > 100, "{named}");
}

#[test]
fn after_a_clean_close_every_flipped_bit_of_a_record_is_named() {
    let files = SimFiles::new();
    let log = LocalLog::open(&env(&files), Path::new(DIR), options(), &mut |_| Ok(())).unwrap();
    log.append(0, &mut |lsn, buf| buf.extend_from_slice(&payload(lsn))).unwrap();
    drop(log);
    let path = Path::new(DIR).join("0000000000000001.log");
    let (first_block, record_end) = (128, 128 + 64 + 48 + payload(1).len());
    for bit in first_block * 8..record_end * 8 {
        let flipped = files.kill();
        flipped.flip_bit(&path, bit as u64);
        let error = replay(&env(&flipped)).expect_err("a damaged record");
        assert!(
            error.message().contains("at offset 128: the log was durable through lsn 1 and reads through 0")
        );
    }
}

#[test]
fn an_idle_log_states_what_is_durable_so_that_its_last_record_is_told_from_a_tail() {
    let files = SimFiles::new();
    let log = LocalLog::open(&env(&files), Path::new(DIR), options(), &mut |_| Ok(())).unwrap();
    let lsn = log.append(0, &mut |lsn, buf| buf.extend_from_slice(&payload(lsn))).unwrap();
    log.wait_durable(lsn).unwrap();
    // The record's block is at 128; nobody asks for the one behind it.
    let path = Path::new(DIR).join("0000000000000001.log");
    let behind = 128 + (64 + 48 + payload(1).len()).next_multiple_of(64);
    while read_file(&files, &path).unwrap()[behind] == 0 {
        std::thread::yield_now();
    }
    let killed = files.kill();
    killed.flip_bit(&path, 200 * 8);
    assert_eq!(replay(&env(&killed)).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_segment_that_is_gone_is_noticed() {
    let (files, _) = synced_one_by_one(40);
    let used: Vec<PathBuf> = files.all_files().into_iter().filter(|path| is_used(&files, path)).collect();
    assert!(used.len() >= 4);
    for path in &used[..used.len() - 1] {
        let without = files.kill();
        without.remove(path).unwrap();
        assert_eq!(replay(&env(&without)).unwrap_err().kind(), ErrorKind::Corrupt, "{}", path.display());
    }
}

#[test]
fn a_log_that_ends_below_what_the_caller_knows_to_be_durable_is_corrupt() {
    let (files, _) = synced_one_by_one(5);
    let open = |from| {
        LocalLog::open(&env(&files.kill()), Path::new(DIR), LogOptions { from, ..options() }, &mut |_| Ok(()))
    };
    assert!(open(6).is_ok());
    assert_eq!(open(7).err().unwrap().kind(), ErrorKind::Corrupt);
    let nothing = SimFiles::new();
    let options = LogOptions { from: 2, ..options() };
    let missing = LocalLog::open(&env(&nothing), Path::new(DIR), options, &mut |_| Ok(()));
    assert_eq!(missing.err().unwrap().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_replay_that_fails_leaves_the_log_as_it_was() {
    let (files, _) = synced_one_by_one(5);
    let before = contents(&files);
    let opened = LocalLog::open(&env(&files), Path::new(DIR), options(), &mut |record| {
        if record.lsn == 3 { Err(Error::internal("no")) } else { Ok(()) }
    });
    assert_eq!(opened.err().unwrap().message(), "no");
    assert_eq!(contents(&files), before);
}
