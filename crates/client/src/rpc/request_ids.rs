//! Names for writes, by which a server executes each once, however often it is sent.

use bytes::Bytes;
use oribi_kudu::rpc::RequestId;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The sequence of one client's writes. Servers may forget all answers before the first write that is not complete.
#[derive(Debug)]
pub(crate) struct RequestIds {
    /// 32 hexadecimal digits.
    client_id: Bytes,
    window: Mutex<Window>,
}

/// The writes from the first that is not complete on.
#[derive(Debug, Default)]
struct Window {
    first: i64,
    complete: VecDeque<bool>,
}

/// One write's number. It is complete when this is dropped: then nobody will ask for its answer again.
#[derive(Debug)]
pub(crate) struct Sequence {
    ids: Arc<RequestIds>,
    number: i64,
    attempts: i64,
}

impl RequestIds {
    pub(crate) fn new() -> Arc<Self> {
        let mut client_id = String::with_capacity(32);
        for _ in 0..2 {
            // Each state is seeded by the system; the two halves of an id need not be told apart from random by anybody.
            write!(client_id, "{:016x}", RandomState::new().hash_one(0)).expect("a string grows");
        }
        Arc::new(RequestIds { client_id: Bytes::from(client_id), window: Mutex::default() })
    }

    pub(crate) fn begin(self: &Arc<Self>) -> Sequence {
        let mut window = self.window.lock();
        let number = window.first + window.complete.len() as i64;
        window.complete.push_back(false);
        Sequence { ids: self.clone(), number, attempts: 0 }
    }
}

impl Sequence {
    /// The id of the next attempt.
    pub(crate) fn attempt(&mut self) -> RequestId {
        let attempt_no = self.attempts;
        self.attempts += 1;
        RequestId {
            client_id: self.ids.client_id.clone(),
            seq_no: self.number,
            first_incomplete_seq_no: self.ids.window.lock().first,
            attempt_no,
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let mut window = self.ids.window.lock();
        let place = (self.number - window.first) as usize;
        window.complete[place] = true;
        while window.complete.front() == Some(&true) {
            window.complete.pop_front();
            window.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_tells_what_is_complete() {
        let ids = RequestIds::new();
        let (mut a, mut b, mut c) = (ids.begin(), ids.begin(), ids.begin());
        let key = |id: RequestId| (id.seq_no, id.first_incomplete_seq_no, id.attempt_no);
        assert_eq!((key(a.attempt()), key(a.attempt()), key(c.attempt())), ((0, 0, 0), (0, 0, 1), (2, 0, 0)));
        drop(b.attempt());
        drop(b);
        assert_eq!(key(c.attempt()), (2, 0, 1));
        drop(a);
        assert_eq!((key(c.attempt()), key(ids.begin().attempt())), ((2, 2, 2), (3, 2, 0)));
        assert_eq!(c.attempt().client_id.len(), 32);
        assert_ne!(RequestIds::new().client_id, c.attempt().client_id);
    }
}
