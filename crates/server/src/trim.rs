//! Memory that was freed goes back to the system on a thread of its own.
//!
//! By itself mimalloc gives back what has been free for a second on whichever thread next frees a page: 200 MiB take hundreds of calls of
//! madvise(2), at each of which a thread that serves clients may lose its processor to others for milliseconds. So it is told to keep
//! what is free for longer than this thread does, which therefore comes first.

use crate::alloc;
use oribi_env::Priority;
use oribi_types::Result;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// For so long what is free is kept for whoever wants it next, who would pay for a page fault each 4 KiB.
const KEPT: Duration = Duration::from_secs(1);
/// While more is resident than may be, it is kept for no longer than this.
const KEPT_BEYOND: Duration = Duration::from_millis(50);

/// Begins with it; it ends with the process. `bytes_max` is what the engine and the network may take, of all that
/// is resident.
///
/// # Errors
/// If the system refuses a thread.
pub fn begin(bytes_max: u64) -> Result<()> {
    alloc::keep_what_is_free();
    oribi_env::spawn("trim", Priority::Normal, move || {
        for turn in 1.. {
            sleep(KEPT_BEYOND);
            if turn % (KEPT.as_millis() / KEPT_BEYOND.as_millis()) == 0 || resident_bytes() > bytes_max {
                alloc::give_back();
            }
        }
    })?;
    Ok(())
}

/// What the process has in memory; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB")?.trim().parse().ok());
    resident.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_system_says_what_is_resident() {
        let before = super::resident_bytes();
        let touched = vec![1u8; 64 << 20];
        assert!(super::resident_bytes() >= before + (60 << 20), "{before}");
        drop(touched);
    }
}
