//! What the processor counts: instructions and cycles, where the machine lets us see them.

use std::ops::AddAssign;

/// Counts of user space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub instructions: u64,
    pub cycles: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.instructions += other.instructions;
        self.cycles += other.cycles;
    }
}

/// Runs `work` and counts what the calling thread does meanwhile; `None` on a machine without such counters, as most
/// virtual ones are, or where `kernel.perf_event_paranoid` forbids it.
#[cfg(target_os = "linux")]
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Option<Counts>) {
    use perf_event::Builder;
    use perf_event::events::Hardware;
    let counter = |event| Builder::new(event).build().ok();
    let (Some(mut instructions), Some(mut cycles)) =
        (counter(Hardware::INSTRUCTIONS), counter(Hardware::CPU_CYCLES))
    else {
        return (work(), None);
    };
    let enabled = instructions.enable().and_then(|()| cycles.enable());
    let result = work();
    let counted = enabled.and_then(|()| {
        cycles.disable()?;
        instructions.disable()?;
        Ok(Counts { instructions: instructions.read()?, cycles: cycles.read()? })
    });
    (result, counted.ok())
}

#[cfg(not(target_os = "linux"))]
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Option<Counts>) {
    (work(), None)
}
