//! How long the clients of a loop have been silent, where they may not be so for ever: the time is asked once a round, and it is looked for
//! those who were silent for too long a few times within what they may be.

use std::time::{Duration, Instant};

/// How far apart it is looked for them, at least and at most.
const LOOKS_APART: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

pub(crate) struct Silence {
    max: Option<Duration>,
    now: Instant,
    looked: Instant,
}

impl Silence {
    /// Where clients may be silent for `max`; `None`: for ever.
    pub fn new(max: Option<Duration>, now: Instant) -> Self {
        Silence { max, now, looked: now }
    }

    /// How long the loop may wait for clients of which it has some.
    pub fn wait_max(&self) -> Option<Duration> {
        self.max.map(looks_apart)
    }

    /// A wait has ended.
    pub fn after_wait(&mut self) {
        if self.max.is_some() {
            self.now = Instant::now();
        }
    }

    /// When the last wait ended, as far as that matters.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// If it is time to look: those who were heard last at this moment or before have been silent for too long.
    pub fn look(&mut self) -> Option<Instant> {
        let max = self.max?;
        if self.now.duration_since(self.looked) < looks_apart(max) {
            return None;
        }
        self.looked = self.now;
        self.now.checked_sub(max)
    }
}

fn looks_apart(max: Duration) -> Duration {
    let [least, most] = LOOKS_APART;
    (max / 4).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_for_too_long_is_looked_for_a_few_times_in_that_time() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut silence = Silence::new(Some(Duration::from_millis(400)), start);
        assert_eq!(silence.wait_max(), Some(Duration::from_millis(100)));
        let mut looked_at = |millis| {
            silence.now = after(millis);
            silence.look()
        };
        assert_eq!([99, 500, 599].map(&mut looked_at), [None, Some(after(100)), None]);
        assert_eq!(looked_at(700), Some(after(300)));
        let mut never = Silence::new(None, start);
        assert_eq!((never.wait_max(), never.look()), (None, None));
        assert_eq!(looks_apart(Duration::from_secs(3600)), Duration::from_secs(1));
    }
}
