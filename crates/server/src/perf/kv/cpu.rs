//! CPU time of processes.

use oribi_types::{Error, Result};

/// User and system time that a process has used, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime(f64);

impl CpuTime {
    pub fn of_this_process() -> Self {
        CpuTime::of_process(std::process::id()).unwrap_or(CpuTime(0.0))
    }

    /// # Errors
    /// `NotFound` if there is no such process.
    pub fn of_process(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(&path).map_err(|e| Error::from(e).context(&path))?;
        parse(&stat).map(CpuTime).ok_or_else(|| Error::internal(format!("{path} is not understood")))
    }

    pub fn since(&self, before: &CpuTime) -> f64 {
        self.0 - before.0
    }
}

/// `utime` and `stime`, fields 14 and 15 of proc_pid_stat(5), in clock ticks of 10 ms. The name of the process, field 2,
/// may hold anything but ends with the last parenthesis.
fn parse(stat: &str) -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let stat = "7 (a) b 1 (c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 5";
        assert_eq!(super::parse(stat), Some(2.0));
    }
}
