//! A framed file under a power cut at every operation and a flipped bit.
#![allow(clippy::unwrap_used)]

use oribi_env::Files;
use oribi_sim::{Operation, SimFiles};
use oribi_types::ErrorKind;
use oribi_wal::frames::{FrameWriter, read_frames};
use proptest::prelude::*;
use std::path::Path;

const PATH: &str = "/MANIFEST";

fn read(files: &SimFiles) -> Vec<String> {
    let bytes = oribi_env::read_file(files, Path::new(PATH)).unwrap();
    let payloads = read_frames(&bytes).unwrap().payloads;
    payloads.into_iter().map(|at| String::from_utf8(bytes[at].to_vec()).unwrap()).collect()
}

#[test]
fn frames_survive_power_cuts() {
    let edits: Vec<String> = (0..8).map(|i| format!("edit {i} {}", "x".repeat(i * 300))).collect();
    oribi_sim::seeds(100, |seed| {
        for stop in 1..20 {
            let files = SimFiles::new();
            let mut writer = FrameWriter::create(&files, Path::new(PATH)).unwrap();
            files.sync_dir(Path::new("/")).unwrap();
            files.stop_at(files.changes() + stop);
            let appended = edits.iter().take_while(|edit| writer.append(edit.as_bytes()).is_ok()).count();
            let seen = read(&files.crash(seed));
            assert!((appended..=appended + 1).contains(&seen.len()), "{} {appended}", seen.len());
            assert_eq!(seen, edits[..seen.len()]);
        }
    });
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
        assert_eq!(read(&files.kill())[..1], ["one"]);
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
