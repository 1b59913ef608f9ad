//! CPU time of processes.

use oribi_types::{Error, Result};
use std::ops::Sub;

/// CPU time that a process has used, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    pub user: f64,
    /// In the kernel: of a load, most of it is the sockets.
    pub system: f64,
}

impl CpuTime {
    pub fn of_this_process() -> Self {
        CpuTime::of_process(std::process::id()).unwrap_or_default()
    }

    /// # Errors
    /// `NotFound` if there is no such process.
    pub fn of_process(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(&path).map_err(|e| Error::from(e).context(&path))?;
        parse(&stat).ok_or_else(|| Error::internal(format!("{path} is not understood")))
    }

    pub fn total(&self) -> f64 {
        self.user + self.system
    }
}

impl Sub for CpuTime {
    type Output = CpuTime;

    fn sub(self, before: CpuTime) -> CpuTime {
        CpuTime { user: self.user - before.user, system: self.system - before.system }
    }
}

/// `utime` and `stime`, fields 14 and 15 of proc_pid_stat(5), in clock ticks of 10 ms. The name of the process, field 2,
/// may hold anything but ends with the last parenthesis.
fn parse(stat: &str) -> Option<CpuTime> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some(CpuTime { user: seconds()?, system: seconds()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let stat = "7 (a) b 1 (c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 5";
        assert_eq!(parse(stat), Some(CpuTime { user: 1.5, system: 0.5 }));
    }
}
