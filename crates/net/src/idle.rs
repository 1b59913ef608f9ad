//! The time that a client may be silent.

use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Over if nothing came between two of its ends, so that a call costs no timer.
pub struct Idle {
    max: Option<Duration>,
    end: Pin<Box<Sleep>>,
    touched: bool,
}

impl Idle {
    pub fn new(max: Option<Duration>) -> Self {
        Idle { max, end: Box::pin(tokio::time::sleep(max.unwrap_or_default())), touched: false }
    }

    pub fn touch(mut self: Pin<&mut Self>) {
        self.touched = true;
    }

    pub async fn over(mut self: Pin<&mut Self>) {
        let Some(max) = self.max else { return std::future::pending().await };
        loop {
            self.end.as_mut().await;
            self.end.as_mut().reset(Instant::now() + max);
            if !std::mem::take(&mut self.touched) {
                return;
            }
        }
    }
}
