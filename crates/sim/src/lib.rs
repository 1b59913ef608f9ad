//! A simulated machine for tests: a disk that forgets what was not synced and fails on demand, and a clock that stands
//! still.
//!
//! A test runs the engine on [`SimFiles`], takes what a [`crash`](SimFiles::crash) or a [`kill`](SimFiles::kill) would
//! leave as another disk, and opens that. What a crash leaves is drawn from a seed; [`seeds`] runs a test over many and
//! prints the one that failed.

mod clock;
mod disk;
mod files;
mod hooked;
mod pages;
mod rng;

pub use clock::SimClock;
pub use files::{Operation, SimFiles};
pub use hooked::Hooked;
pub use rng::Rng;

use oribi_env::Env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// An environment on `files` with a clock of its own.
pub fn env(files: &SimFiles) -> Env {
    Env { files: Arc::new(files.clone()), clock: Arc::new(SimClock::new()) }
}

/// How many cases a random test tries: `count`, unless the variable `PROPTEST_CASES` says otherwise.
pub fn cases(count: u64) -> u64 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(count)
}

/// Runs `test` with the seeds from 0 to `count`, or to what [`cases`] says, or only with the one in the variable
/// `ORIBI_SEED`. Before a panic goes on, the seed is printed.
pub fn seeds(count: u64, test: impl Fn(u64)) {
    let only = std::env::var("ORIBI_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in only.map_or(0..cases(count), |seed: u64| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("failed with seed {seed}; run again with ORIBI_SEED={seed}");
            resume_unwind(panic);
        }
    }
}
