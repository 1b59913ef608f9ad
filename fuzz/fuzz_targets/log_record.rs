//! Any bytes as the payload of a log record, and records of requests whose lengths lie: the reader ends, with what it
//! found, all of it within the payload, or with an error.
#![no_main]

mod feed;

use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_engine::CLIENT_ID_BYTES_MAX;
use oribi_engine::record::{Contents, read};

fuzz_target!(|input: &[u8]| {
    walk(input);
    walk(&of_request(Feed::new(input)));
});

fn walk(payload: &[u8]) {
    let Ok(Contents { tracked, changes, .. }) = read(payload) else { return };
    let mut bytes = 0;
    if let Some(tracked) = tracked {
        assert!((1..=CLIENT_ID_BYTES_MAX).contains(&tracked.request.client.len()));
        bytes += tracked.request.client.len() + tracked.result.len();
    }
    let mut ended = false;
    for change in changes {
        assert!(!ended, "a malformed change is the last");
        match change {
            Ok(change) => bytes += change.key.len() + change.row.map_or(0, <[u8]>::len),
            Err(_) => ended = true,
        }
    }
    assert!(bytes <= payload.len());
}

/// A record whose parts follow each other, save for the lengths that the feed says otherwise about.
fn of_request(mut feed: Feed<'_>) -> Vec<u8> {
    let mut payload = vec![2];
    payload.extend_from_slice(&feed.number().to_le_bytes());
    let client = feed.short();
    let client_bytes = if feed.byte() == 0 { feed.byte() } else { client.len() as u8 };
    payload.push(client_bytes);
    payload.extend_from_slice(client);
    payload.extend_from_slice(&feed.number().to_le_bytes());
    payload.extend_from_slice(&feed.number().to_le_bytes());
    let result = feed.bytes();
    let result_bytes = if feed.byte() == 0 { feed.number() as u32 } else { result.len() as u32 };
    payload.extend_from_slice(&result_bytes.to_le_bytes());
    payload.extend_from_slice(result);
    while !feed.is_empty() {
        let (kind, key, row) = (feed.byte() % 4, feed.short(), feed.short());
        payload.extend_from_slice(&feed.number().to_le_bytes());
        payload.push(kind);
        payload.extend_from_slice(&(key.len() as u32).to_le_bytes());
        payload.extend_from_slice(&(row.len() as u32).to_le_bytes());
        payload.extend_from_slice(key);
        payload.extend_from_slice(row);
    }
    payload
}
