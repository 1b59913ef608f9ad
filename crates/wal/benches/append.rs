//! What an append costs: into the buffer, handed to the operating system, made durable alone and in a group.
#![allow(clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oribi_env::Env;
use oribi_wal::{LocalLog, Log, LogOptions};
use std::hint::black_box;
use std::time::Instant;

const PAYLOAD: [u8; 200] = [7; 200];

fn append(log: &LocalLog) -> u64 {
    log.append(1, &mut |_, buf| buf.extend_from_slice(black_box(&PAYLOAD))).unwrap()
}

/// Measures on a log of its own; what it writes is trimmed on the way.
fn with_log(c: &mut Criterion, name: &str, run: impl Fn(&LocalLog, u64)) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = LocalLog::open(&Env::real(), dir.path(), LogOptions::default(), &mut |_| Ok(())).unwrap();
    let mut group = c.benchmark_group("log");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|count| {
            log.trim(log.durable()).unwrap();
            let start = Instant::now();
            run(&log, count);
            let elapsed = start.elapsed();
            log.wait_durable(log.appended()).unwrap();
            elapsed
        });
    });
}

fn benches(c: &mut Criterion) {
    with_log(c, "append", |log, count| {
        (0..count).for_each(|_| {
            black_box(append(log));
        })
    });
    with_log(c, "append and write out", |log, count| {
        (0..count).for_each(|_| {
            append(log);
            log.write_out().unwrap();
        });
    });
    with_log(c, "append and wait", |log, count| {
        (0..count).for_each(|_| log.wait_durable(append(log)).unwrap())
    });
    with_log(c, "append and wait, 32 threads", |log, count| {
        std::thread::scope(|scope| {
            for thread in 0..32 {
                let share = count / 32 + u64::from(thread < count % 32);
                scope.spawn(move || (0..share).for_each(|_| log.wait_durable(append(log)).unwrap()));
            }
        });
    });
}

criterion_group!(append_benches, benches);
criterion_main!(append_benches);
