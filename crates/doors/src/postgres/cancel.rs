//! Cancel requests: a second connection names the first by process id and secret.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The connections whose statements can be cancelled.
#[derive(Default)]
pub struct Cancels {
    state: Mutex<State>,
    /// Keyed by the operating system's randomness, so that secrets cannot be guessed from process ids.
    secrets: RandomState,
}

#[derive(Default)]
struct State {
    next_pid: i32,
    connections: HashMap<i32, watch::Sender<bool>>,
}

/// Keeps a connection known for as long as it lives.
pub struct Registration {
    pub pid: i32,
    pub secret: i32,
    cancels: Arc<Cancels>,
}

impl Cancels {
    pub fn register(self: &Arc<Self>, cancel: watch::Sender<bool>) -> Registration {
        let mut state = self.lock();
        loop {
            state.next_pid = state.next_pid.checked_add(1).unwrap_or(1);
            let pid = state.next_pid;
            if let Entry::Vacant(slot) = state.connections.entry(pid) {
                slot.insert(cancel);
                return Registration { pid, secret: self.secret(pid), cancels: self.clone() };
            }
        }
    }

    /// Cancels what runs on the connection; without effect for a wrong secret or an idle connection.
    pub fn cancel(&self, pid: i32, secret: i32) {
        if secret != self.secret(pid) {
            return;
        }
        if let Some(cancel) = self.lock().connections.get(&pid) {
            cancel.send_replace(true);
        }
    }

    fn secret(&self, pid: i32) -> i32 {
        self.secrets.hash_one(pid) as i32
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.cancels.lock().connections.remove(&self.pid);
    }
}
