//! A folder that several processes use as a store: each object is what one of them has put, whole, whoever else puts at the time or
//! was killed in the middle of it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use oribi_store::{Body, Bucket, Expected, FolderBucket};
use oribi_types::ErrorKind;
use std::path::Path;

fn bucket(dir: &Path) -> FolderBucket {
    FolderBucket::open(dir).unwrap()
}

fn get(bucket: &FolderBucket, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let tag = bucket.get(name, &mut |part, at| {
        assert_eq!(at as usize, bytes.len());
        bytes.extend_from_slice(part);
        Ok(())
    });
    assert_eq!(tag.unwrap(), bucket.tag(name).unwrap());
    bytes
}

fn hidden(dir: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".new-")).collect()
}

#[test]
fn what_two_put_at_a_time_is_not_mixed() {
    let dir = tempfile::tempdir().unwrap();
    // As in containers, these have the same process number, and each begins anew.
    std::thread::scope(|scope| {
        for who in 0..4u8 {
            let bucket = bucket(dir.path());
            scope.spawn(move || {
                for n in 0..50 {
                    let body = vec![who; 100_000];
                    bucket.put(&format!("a/{who}/{n}"), Body::Bytes(&body), Expected::Nothing).unwrap();
                }
            });
        }
    });
    let bucket = bucket(dir.path());
    for who in 0..4u8 {
        for n in 0..50 {
            assert!(get(&bucket, &format!("a/{who}/{n}")) == vec![who; 100_000], "a/{who}/{n}");
        }
    }
    assert_eq!(bucket.list("a/").unwrap().len(), 200);
    assert_eq!(hidden(dir.path()), Vec::<String>::new());
}

#[test]
fn what_a_process_left_is_removed_and_never_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = bucket(dir.path());
    bucket.put("a/b", Body::Bytes(b"whole"), Expected::Nothing).unwrap();
    // Killed before it had written all; and between the link and the end.
    std::fs::write(dir.path().join(".new-0123"), b"half").unwrap();
    std::fs::hard_link(dir.path().join("a/b"), dir.path().join(".new-4567")).unwrap();
    for n in 0..20 {
        bucket.put(&format!("a/{n}"), Body::Bytes(b"other"), Expected::Nothing).unwrap();
    }
    assert_eq!(bucket.list("a/").unwrap().len(), 21);
    assert_eq!(bucket.list("").unwrap().len(), 21);
    bucket.remove_leftovers().unwrap();
    assert_eq!(hidden(dir.path()), Vec::<String>::new());
    assert_eq!(get(&bucket, "a/b"), b"whole");
}

#[test]
fn a_folder_that_goes_away_is_not_an_empty_one() {
    let dirs = tempfile::tempdir().unwrap();
    let [root, away] = ["store", "away"].map(|name| dirs.path().join(name));
    let bucket = bucket(&root);
    bucket.put("a/b", Body::Bytes(b"whole"), Expected::Nothing).unwrap();
    std::fs::rename(&root, &away).unwrap();
    let is_away = |what: &str| {
        let failures = [
            bucket.get("a/b", &mut |_, _| Ok(())).map(drop),
            bucket.tag("a/b").map(drop),
            bucket.list("a/").map(drop),
            bucket.put("a/c", Body::Bytes(b"new"), Expected::Nothing).map(drop),
            bucket.remove("a/b"),
            bucket.remove_leftovers(),
        ];
        for failure in failures {
            let error = failure.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
            assert!(error.to_string().contains(what), "{what}: {error}");
        }
    };
    is_away("No such file");
    // As the folder is on which something was mounted.
    std::fs::create_dir(&root).unwrap();
    is_away("is another folder than when it was opened");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    assert_eq!(get(&bucket, "a/b"), b"whole");
}

#[test]
fn a_put_whose_file_was_taken_for_left_over_may_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (putting, opening) = (bucket(dir.path()), bucket(dir.path()));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let removing = scope.spawn(|| {
            // With pauses, some of which are longer than a file takes to be synced: else no put would ever come through.
            for pause in (0..20).cycle() {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                opening.remove_leftovers().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(pause));
            }
        });
        for n in 0..100 {
            let name = format!("a/{n}");
            loop {
                match putting.put(&name, Body::Bytes(b"whole"), Expected::Nothing) {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
            }
            assert_eq!(get(&putting, &name), b"whole");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        removing.join().unwrap();
    });
}
