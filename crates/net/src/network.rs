//! Memory that all doors together have for what clients send and are sent, as far as it is long: one budget, whichever door a client
//! comes to. What a door does with its part, see [`Load`](crate::Load).

use oribi_types::{Error, Result};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Room for a number of bytes.
#[derive(Debug)]
pub struct Room {
    pub(crate) bytes: Arc<Semaphore>,
    pub(crate) bytes_max: usize,
}

impl Room {
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Room { bytes: Arc::new(Semaphore::new(bytes_max)), bytes_max })
    }

    /// Bytes that are taken, without those of turns.
    #[inline]
    pub fn used(&self) -> usize {
        self.bytes_max - self.bytes.available_permits()
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

/// Room for requests that are being received, and for answers that clients have not taken. The Kudu door, whose calls are answered in
/// any order, counts both as requests.
#[derive(Clone, Debug)]
pub struct Network {
    pub requests: Arc<Room>,
    pub answers: Arc<Room>,
}

impl Network {
    /// The least that is of use: below it, nearly all that is long takes turns.
    const BYTES_MIN: usize = 16 << 20;

    /// Half of the bytes is for requests, half for answers.
    ///
    /// # Errors
    /// `Invalid` for less than 16 MiB, or more than can be counted.
    pub fn new(bytes_max: usize) -> Result<Self> {
        if !(Network::BYTES_MIN..=Semaphore::MAX_PERMITS).contains(&bytes_max) {
            return Err(Error::invalid(format!(
                "network memory of {bytes_max} bytes: it must be 16 MiB at least"
            )));
        }
        let half = || Room::new(bytes_max / 2);
        Ok(Network { requests: half(), answers: half() })
    }
}

impl Default for Network {
    /// That of a server with 1 GiB of memory.
    fn default() -> Self {
        Network::new(256 << 20).expect("it is enough")
    }
}
