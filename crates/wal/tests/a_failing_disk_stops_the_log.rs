//! Failed writes, failed syncs and a full disk.
#![allow(clippy::unwrap_used)]

use oribi_sim::{Operation, SimFiles, env};
use oribi_types::{ErrorKind, Result};
use oribi_wal::{LocalLog, Log, LogOptions, Lsn};
use std::path::Path;

const DIR: &str = "/log";

fn open(files: &SimFiles, options: LogOptions) -> LocalLog {
    LocalLog::open(&env(files), Path::new(DIR), options, &mut |_| Ok(())).unwrap()
}

fn append(log: &LocalLog, length: usize) -> Result<Lsn> {
    log.append(0, &mut |_, buf| buf.resize(buf.len() + length, 1))
}

#[test]
fn after_a_failed_write_or_sync_nothing_is_taken_or_acknowledged() {
    for operation in [Operation::Write, Operation::Sync] {
        let files = SimFiles::new();
        let log = open(&files, LogOptions::default());
        // So that the failure meets a record, not the next segment being prepared.
        append(&log, 10).unwrap();
        log.wait_durable(1).unwrap();
        let lsn = append(&log, 10).unwrap();
        files.fail(operation, 1, "0001.log");
        let first = log.wait_durable(lsn).unwrap_err();
        assert_eq!(first.kind(), ErrorKind::Unavailable);
        assert!(first.message().starts_with("log stopped: log segment 1: "), "{first}");
        for error in [
            append(&log, 1).unwrap_err(),
            log.write_out().unwrap_err(),
            log.wait_durable(lsn).unwrap_err(),
            log.request_durable(lsn).unwrap_err(),
            log.check().unwrap_err(),
        ] {
            assert_eq!(error.message(), first.message(), "the first failure is told");
        }
        assert!(log.durable() < lsn);
        let progress = log.progress();
        assert_eq!(
            log.wait_durable(1).map_err(|error| error.to_string()),
            Ok(()),
            "what was durable stays so"
        );
        drop(log);
        assert!(progress.borrow().stopped);
    }
}

/// The folder is synced when a file has lost the name that it was kept under, and again when it has its new one.
#[test]
fn a_failed_sync_of_the_folder_stops_the_log_whose_file_is_used_again() {
    for nth in [1, 2] {
        let files = SimFiles::new();
        let log = open(
            &files,
            LogOptions { segment_bytes: 1024, spare_bytes_max: 4 * 1024, ..LogOptions::default() },
        );
        let write = || append(&log, 200).and_then(|lsn| log.wait_durable(lsn).map(|()| lsn));
        let last = (0..20).fold(0, |_, _| write().unwrap());
        log.trim(last).unwrap();
        files.fail(Operation::SyncDir, nth, DIR);
        let written: Vec<Lsn> = std::iter::from_fn(|| write().ok()).take(100).collect();
        assert!(written.len() < 100, "it goes on although nobody knows which name a file has");
        let error = log.check().unwrap_err();
        assert!(error.message().starts_with("log stopped: log segment "), "{error}");
        // Everything acknowledged is there, whatever of the folder reached the disk.
        let acknowledged = written.last().copied().unwrap_or(last);
        for seed in 0..20 {
            let mut replayed = last - 1;
            let options = LogOptions { from: last, segment_bytes: 1024, ..LogOptions::default() };
            let crashed = files.crash(seed);
            crashed.forgive();
            LocalLog::open(&env(&crashed), Path::new(DIR), options, &mut |record| {
                replayed = record.lsn;
                Ok(())
            })
            .unwrap();
            assert!(replayed >= acknowledged, "seed {seed}: {replayed} of {acknowledged}");
        }
    }
}

/// Many writers are at the file when one of them fails. What the log has said is written or durable is replayed: nobody wrote
/// behind the hole. (Where somebody may, this finds it in most runs.)
#[test]
fn nobody_writes_behind_a_failed_write() {
    let options = LogOptions { segment_bytes: 1 << 16, ..LogOptions::default() };
    for round in 0..2000 {
        let files = SimFiles::new();
        let log = open(&files, options.clone());
        append(&log, 10).unwrap();
        log.wait_durable(1).unwrap();
        files.fail(Operation::Write, 1 + round % 7, "0001.log");
        std::thread::scope(|scope| {
            for writer in 0..6 {
                let log = &log;
                scope.spawn(move || {
                    while let Ok(lsn) = append(log, 10) {
                        let told = if writer == 0 { log.wait_durable(lsn) } else { log.write_out() };
                        if told.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        let (written, durable) = (log.written(), log.durable());
        let mut replayed = 0;
        let killed = files.kill();
        LocalLog::open(&env(&killed), Path::new(DIR), options.clone(), &mut |record| {
            replayed = record.lsn;
            Ok(())
        })
        .unwrap();
        assert!(written.max(durable) <= replayed, "round {round}: {written}, {durable}, {replayed}");
    }
}

#[test]
fn a_stopped_log_wakes_everybody_who_waits() {
    let files = SimFiles::new();
    let log = open(&files, LogOptions::default());
    append(&log, 10).unwrap();
    log.wait_durable(1).unwrap();
    files.fail(Operation::Sync, 1, "0001.log");
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| append(&log, 10).and_then(|lsn| log.wait_durable(lsn)).unwrap_err()))
            .collect();
        waiters
            .into_iter()
            .for_each(|waiter| assert_eq!(waiter.join().unwrap().kind(), ErrorKind::Unavailable));
    });
}

#[test]
fn a_full_disk_refuses_records_before_they_are_taken_and_takes_them_once_there_is_room() {
    let files = SimFiles::new();
    let options = LogOptions { segment_bytes: 4096, ..LogOptions::default() };
    let log = open(&files, options.clone());
    files.set_capacity(Some(3 * 4096));
    let refused = loop {
        if let Err(error) = append(&log, 500) {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::DiskFull);
    assert!(refused.message().contains("simulated disk is full"), "{refused}");
    let last = log.appended();
    assert!(last >= 21, "three segments hold more than {last}");
    log.wait_durable(last).unwrap();
    assert_eq!(append(&log, 5000).unwrap_err().kind(), ErrorKind::DiskFull);
    assert_eq!(log.room().unwrap_err().kind(), ErrorKind::DiskFull);
    log.trim(last / 2).unwrap();
    // Asked for often enough, room is found without an append.
    while log.room().is_err() {
        std::thread::yield_now();
    }
    assert_eq!(append(&log, 500).unwrap(), last + 1, "the refused records used no lsn");
    files.set_capacity(None);
    log.wait_durable(last + 1).unwrap();
    drop(log);
    let mut count = 0;
    let options = LogOptions { from: last / 2, ..options };
    LocalLog::open(&env(&files), Path::new(DIR), options, &mut |_| {
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(count, last + 2 - last / 2);
}

#[test]
fn a_log_does_not_open_on_a_full_disk() {
    let files = SimFiles::new();
    files.set_capacity(Some(1000));
    let opened = LocalLog::open(&env(&files), Path::new(DIR), LogOptions::default(), &mut |_| Ok(()));
    assert_eq!(opened.err().unwrap().kind(), ErrorKind::DiskFull);
    files.set_capacity(None);
    open(&files, LogOptions::default());
}
