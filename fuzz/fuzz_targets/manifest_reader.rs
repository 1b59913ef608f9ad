//! Any bytes as a manifest, and any records in frames whose checksums fit: the reader ends, with a state or with an
//! error.
#![no_main]

mod feed;

use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_engine::validate_manifest;
use oribi_sim::{SimFiles, env};
use oribi_wal::frames::FrameWriter;
use std::path::Path;

fuzz_target!(|input: &[u8]| {
    let _ = validate_manifest(input);
    let _ = validate_manifest(&framed(Feed::new(input)));
});

/// The feed's records, each in a frame.
fn framed(mut feed: Feed<'_>) -> Vec<u8> {
    let env = env(&SimFiles::new());
    let path = Path::new("manifest");
    let mut writer = FrameWriter::create(&*env.files, path).expect("an empty disk has room");
    while !feed.is_empty() {
        writer.append(feed.bytes()).expect("a disk without faults takes a frame");
    }
    oribi_env::read_file(&*env.files, path).expect("the file is there")
}
