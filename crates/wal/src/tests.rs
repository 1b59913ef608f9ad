//! The log on the operating system's files.

use crate::{LocalLog, Log, LogOptions, Lsn, format};
use oribi_env::Env;
use oribi_types::ErrorKind;
use std::path::Path;

/// (lsn, group, sequence, payload)
type Replayed = (Lsn, u32, u64, Vec<u8>);

/// Opens the log and returns what was replayed.
fn open(dir: &Path, options: LogOptions) -> (LocalLog, Vec<Replayed>) {
    let mut replayed = Vec::new();
    let log = LocalLog::open(&Env::real(), dir, options, &mut |record| {
        replayed.push((record.lsn, record.group, record.sequence, record.payload.to_vec()));
        Ok(())
    })
    .unwrap();
    (log, replayed)
}

fn small() -> LogOptions {
    LogOptions { segment_bytes: 4096, buffer_bytes_max: 1024, ..LogOptions::default() }
}

fn append(log: &LocalLog, group: u32, payload: &[u8]) -> Lsn {
    log.append(group, &mut |_, buf| buf.extend_from_slice(payload)).unwrap()
}

#[test]
fn what_was_appended_is_replayed_over_many_segments() {
    let dir = tempfile::tempdir().unwrap();
    let payloads: Vec<Vec<u8>> = (0..200_usize).map(|i| vec![i as u8; i * 7 % 500]).collect();
    let (log, _) = open(dir.path(), small());
    for (i, payload) in payloads.iter().enumerate() {
        assert_eq!(append(&log, (i % 3) as u32, payload), i as Lsn + 1);
        if i % 10 == 0 {
            log.wait_durable(i as Lsn + 1).unwrap();
        }
    }
    drop(log);
    let (log, replayed) = open(dir.path(), small());
    let expected: Vec<_> = payloads
        .iter()
        .enumerate()
        .map(|(i, p)| (i as Lsn + 1, (i % 3) as u32, i as u64 / 3 + 1, p.clone()))
        .collect();
    assert_eq!(replayed, expected);
    assert_eq!(log.term(), 2);
    assert_eq!((log.appended(), log.durable(), log.oldest()), (200, 200, 1));
}

#[test]
fn a_record_larger_than_a_segment_gets_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), small());
    append(&log, 0, b"small");
    append(&log, 0, &vec![7; 100_000]);
    append(&log, 0, b"small again");
    drop(log);
    let (_, replayed) = open(dir.path(), small());
    let lengths: Vec<usize> = replayed.iter().map(|record| record.3.len()).collect();
    assert_eq!(lengths, [5, 100_000, 11]);
}

#[test]
fn a_record_that_is_too_large_uses_no_lsn() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), LogOptions::default());
    let error =
        log.append(0, &mut |_, buf| buf.resize(buf.len() + format::PAYLOAD_BYTES_MAX + 1, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(append(&log, 0, b"next"), 1);
}

#[test]
fn the_next_lsn_jumps_to_the_ceiling_and_old_records_are_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), small());
    for _ in 0..5 {
        append(&log, 0, b"x");
    }
    drop(log);
    for round in 1..4_u64 {
        let options = LogOptions { from: 4, min_next_lsn: round * 100, ..small() };
        let (log, replayed) = open(dir.path(), options);
        assert_eq!(replayed[..2].iter().map(|record| record.0).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(replayed.len() as u64, 1 + round);
        assert_eq!(append(&log, 0, b"y"), round * 100);
        assert_eq!(log.term(), round + 1);
    }
}

#[test]
fn trim_removes_whole_segments_below() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), small());
    for _ in 0..100 {
        append(&log, 0, &[1; 300]);
    }
    let before = log.size_bytes();
    log.trim(50).unwrap();
    assert_eq!(log.oldest(), 1, "nothing is durable, so nothing that the log needs may go");
    log.wait_durable(100).unwrap();
    log.trim(50).unwrap();
    assert!(log.oldest() > 40 && log.oldest() <= 50, "{}", log.oldest());
    assert!(log.size_bytes() < before);
    let oldest = log.oldest();
    drop(log);
    let (_log, replayed) = open(dir.path(), LogOptions { from: 50, ..small() });
    assert_eq!(replayed.iter().map(|record| record.0).collect::<Vec<_>>(), (50..=100).collect::<Vec<_>>());
    drop(_log);
    let options = LogOptions { from: oldest - 1, ..small() };
    let error = LocalLog::open(&Env::real(), dir.path(), options, &mut |_| Ok(())).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn appenders_on_many_threads_leave_no_gap_and_keep_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), small());
    let clock = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (log, clock) = (&log, &clock);
            scope.spawn(move || {
                for i in 0..300 {
                    let lsn = log
                        .append(thread, &mut |_, buf| {
                            let time = clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            buf.extend_from_slice(&time.to_le_bytes());
                            buf.resize(buf.len() + i % 90, 9);
                        })
                        .unwrap();
                    match i % 7 {
                        0 => log.wait_durable(lsn).unwrap(),
                        1 => log.write_out().unwrap(),
                        _ => {}
                    }
                    assert!(i % 7 != 0 || log.durable() >= lsn);
                    assert!(i % 7 != 1 || log.written() >= lsn);
                }
            });
        }
    });
    drop(log);
    let (_, replayed) = open(dir.path(), small());
    assert_eq!(replayed.iter().map(|record| record.0).collect::<Vec<_>>(), (1..=1200).collect::<Vec<_>>());
    let times: Vec<_> =
        replayed.iter().map(|record| u64::from_le_bytes(record.3[..8].try_into().unwrap())).collect();
    assert!(times.is_sorted(), "log order is timestamp order");
}

#[test]
fn a_fill_that_panics_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), small());
    append(&log, 0, b"a");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        log.append(0, &mut |_, buf| {
            buf.extend_from_slice(b"half a rec");
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    log.write_out().unwrap();
    assert_eq!(append(&log, 0, b"b"), 2);
    drop(log);
    let (_, replayed) = open(dir.path(), small());
    assert_eq!(replayed.iter().map(|record| &record.3[..]).collect::<Vec<_>>(), [b"a", b"b"]);
}

#[test]
fn a_future_waits_for_durability() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path(), small());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let lsn = append(&log, 0, b"a");
    runtime.block_on(crate::durable(&log, lsn)).unwrap();
    assert!(log.durable() >= lsn);
    assert_eq!(runtime.block_on(crate::durable(&log, lsn + 1)).unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn a_log_of_another_id_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), small()));
    let error =
        LocalLog::open(&Env::real(), dir.path(), LogOptions { log_id: 9, ..small() }, &mut |_| Ok(()));
    assert_eq!(error.err().unwrap().message(), "log segment 1: belongs to log 0, not 9");
}

#[test]
fn unsynced_records_are_synced_in_their_interval_though_nobody_waits() {
    let dir = tempfile::tempdir().unwrap();
    let interval = Some(std::time::Duration::from_millis(30));
    let (log, _) = open(dir.path(), LogOptions { sync_interval: interval, ..small() });
    for _ in 0..3 {
        let lsn = append(&log, 0, b"x");
        while log.durable() < lsn {
            std::thread::yield_now();
        }
    }
}

#[test]
fn files_of_trimmed_segments_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions { spare_bytes_max: 2 * 4096, ..small() };
    let (log, _) = open(dir.path(), options.clone());
    let names = |suffix: &str| {
        let names = Env::real().files.list(dir.path()).unwrap();
        names.iter().filter(|name| name.ends_with(suffix)).count()
    };
    let mut appended = Vec::new();
    for round in 0..5_u8 {
        for i in 0..40 {
            let payload = vec![round * 40 + i; 500];
            appended.push((append(&log, 0, &payload), payload));
        }
        let last = log.appended();
        log.wait_durable(last).unwrap();
        assert!(names(".spare") <= 1, "they were used");
        log.trim(last - 10).unwrap();
        assert_eq!(names(".spare"), 2, "no more than may be kept");
    }
    let oldest = log.oldest();
    drop(log);
    let (log, replayed) = open(dir.path(), LogOptions { from: oldest, ..options });
    let replayed: Vec<_> = replayed.into_iter().map(|record| (record.0, record.3)).collect();
    assert_eq!(replayed, appended.split_off(oldest as usize - 1));
    assert_eq!(names(".spare"), 0);
    drop(log);
}

#[test]
fn room_is_kept_for_a_record_whatever_others_append() {
    for next_bytes in [0, 100, 1000] {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = open(dir.path(), small());
        let mut kept = 0;
        for i in 0..200_usize {
            let before = |_: Lsn, buf: &mut Vec<u8>| buf.resize(buf.len() + i * 7 % 500, 1);
            if i % 5 == 0 && kept < 3 {
                while let Err(needed) = log.try_append_before(0, next_bytes, &mut { before }).unwrap() {
                    log.make_room(needed).unwrap();
                }
                kept += 1;
            } else if i % 7 == 0 && kept > 0 {
                // Nobody has to be waited for, wherever in a segment it is.
                let mut calls = 0;
                let filled = log.append_promised(0, next_bytes, &mut |_, buf| {
                    calls += 1;
                    buf.resize(buf.len() + next_bytes, 2);
                });
                assert_eq!((filled.unwrap(), calls), (log.appended(), 1));
                kept -= 1;
            } else {
                append(&log, 0, &vec![0; i * 13 % 700]);
            }
            if i % 11 == 0 {
                log.write_out().unwrap();
            }
        }
        (0..kept).for_each(|_| log.give_back(next_bytes));
        drop(log);
        let (_, replayed) = open(dir.path(), small());
        assert_eq!(replayed.len(), 200);
        assert!(replayed.iter().all(|record| record.3.first() != Some(&2) || record.3.len() == next_bytes));
    }
}
