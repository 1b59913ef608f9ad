//! A framed file under a power cut at every operation and a flipped bit.
#![allow(clippy::unwrap_used)]

use oribi_env::Files;
use oribi_sim::{Operation, SimFiles};
use oribi_types::ErrorKind;
use oribi_wal::frames::{FrameWriter, read_frames};
use proptest::prelude::*;
use std::path::Path;

const PATH: &str = "/MANIFEST";

fn read(files: &SimFiles) -> (FrameWriter, Vec<String>) {
    let mut seen = Vec::new();
    let writer = FrameWriter::open(files, Path::new(PATH), &mut |payload| {
        seen.push(String::from_utf8(payload.to_vec()).unwrap());
        Ok(())
    });
    (writer.unwrap(), seen)
}

#[test]
fn frames_survive_power_cuts() {
    let edits: Vec<String> = (0..8).map(|i| format!("edit {i} {}", "x".repeat(i * 300))).collect();
    oribi_sim::seeds(100, |seed| {
        for stop in 1..40 {
            let mut files = SimFiles::new();
            drop(FrameWriter::create(&files, Path::new(PATH)).unwrap());
            files.sync_dir(Path::new("/")).unwrap();
            let mut acknowledged = 0;
            // Two lives, the second of which begins with the tail of the first.
            for life in 0..2 {
                files.stop_at(files.changes() + stop);
                let opened = FrameWriter::open(&files, Path::new(PATH), &mut |_| Ok(()));
                if let Ok(mut writer) = opened {
                    let appended = edits[acknowledged..]
                        .iter()
                        .take_while(|edit| writer.append(edit.as_bytes()).is_ok());
                    acknowledged += appended.count();
                }
                files = files.crash(seed * 2 + life);
                let seen = read(&files).1;
                assert!(
                    seen.len() >= acknowledged && seen.len() <= acknowledged + 1,
                    "{} {acknowledged}",
                    seen.len()
                );
                assert_eq!(seen, edits[..seen.len()]);
                acknowledged = seen.len();
            }
        }
    });
}

#[test]
fn what_was_read_once_is_not_lost_later() {
    let files = SimFiles::new();
    let mut writer = FrameWriter::create(&files, Path::new(PATH)).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    // The process is killed between the write and its sync.
    files.stop_at(files.changes() + 1);
    assert!(writer.append(b"never promised").is_err());
    let killed = files.kill();
    assert_eq!(read(&killed).1, ["never promised"]);
    oribi_sim::seeds(20, |seed| assert_eq!(read(&killed.crash(seed)).1, ["never promised"]));
}

#[test]
fn a_failed_append_ends_the_writer() {
    for operation in [Operation::Write, Operation::Sync] {
        let files = SimFiles::new();
        let mut writer = FrameWriter::create(&files, Path::new(PATH)).unwrap();
        writer.append(b"one").unwrap();
        files.fail(operation, 1, PATH);
        assert_eq!(writer.append(b"two").unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(writer.append(b"three").unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(read(&files.kill()).1[..1], ["one"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..2000)) {
        if let Ok(frames) = read_frames(&bytes) {
            prop_assert!(frames.end <= bytes.len());
        }
        let _ = oribi_wal::read_segment(&bytes, &mut |_| {});
    }
}
