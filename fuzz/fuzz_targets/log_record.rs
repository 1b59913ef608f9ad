//! Any bytes as the payload of a log record, and writes, fragments and commits whose lengths lie: the reader ends, with what it
//! found, all of it within the payload, or with an error.
#![no_main]

mod feed;

use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_engine::CLIENT_ID_BYTES_MAX;
use oribi_engine::record::{Changes, Record, Tracked, read};

fuzz_target!(|input: &[u8]| {
    walk(input);
    for version in [2, 3, 4, 7] {
        walk(&of_version(version, Feed::new(input)));
    }
});

fn walk(payload: &[u8]) {
    let bytes = match read(payload) {
        Err(_) | Ok(Record::GivenUp { .. }) => 0,
        Ok(Record::Write(write)) => bytes_of_request(write.tracked) + bytes_of(write.changes),
        Ok(Record::Fragment { changes, .. }) => bytes_of(changes),
        Ok(Record::Commit(commit)) => bytes_of_request(commit.tracked),
        Ok(Record::Files(commit)) => bytes_of_request(commit.tracked),
    };
    assert!(bytes <= payload.len());
}

fn bytes_of_request(tracked: Option<Tracked<'_>>) -> usize {
    let Some(Tracked { request, result }) = tracked else { return 0 };
    assert!((1..=CLIENT_ID_BYTES_MAX).contains(&request.client.len()));
    request.client.len() + result.len()
}

fn bytes_of(changes: Changes<'_>) -> usize {
    let (mut bytes, mut ended) = (0, false);
    for change in changes {
        assert!(!ended, "a malformed change is the last");
        match change {
            Ok(change) => bytes += change.key.len() + change.row.map_or(0, <[u8]>::len),
            Err(_) => ended = true,
        }
    }
    bytes
}

/// A record whose parts follow each other, save for the lengths that the feed says otherwise about.
fn of_version(version: u8, mut feed: Feed<'_>) -> Vec<u8> {
    let mut payload = vec![version];
    payload.extend_from_slice(&feed.number().to_le_bytes());
    if version == 3 {
        push_changes(&mut payload, feed);
        return payload;
    }
    if version == 4 || version == 7 {
        payload.extend_from_slice(&feed.number().to_le_bytes());
        if version == 4 {
            payload.extend_from_slice(&(feed.number() as u32).to_le_bytes());
        }
        payload.push(feed.byte() % 3);
    }
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
    // Behind a commit there is nothing, as a rule.
    if version == 2 || feed.byte() == 0 {
        push_changes(&mut payload, feed);
    }
    payload
}

fn push_changes(payload: &mut Vec<u8>, mut feed: Feed<'_>) {
    while !feed.is_empty() {
        let (kind, key, row) = (feed.byte() % 4, feed.short(), feed.short());
        payload.extend_from_slice(&feed.number().to_le_bytes());
        payload.push(kind);
        payload.extend_from_slice(&(key.len() as u32).to_le_bytes());
        payload.extend_from_slice(&(row.len() as u32).to_le_bytes());
        payload.extend_from_slice(key);
        payload.extend_from_slice(row);
    }
}
