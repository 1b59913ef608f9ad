//! A client's buffers: what it has sent that was not executed, and what it was answered that was not sent.
//!
//! Buffers belong to the thread and are lent to the client that is being served. A client that is not keeps the
//! beginning of a request, if it has sent one, and nothing else.

use crate::UNCOUNTED_REQUEST_BYTES;
use crate::input::{Input, RECEIVE_BYTES_MAX};
use std::cell::RefCell;

/// Once the answers exceed this many bytes they are sent before more requests are executed: a client that does not
/// read its answers is not served more.
pub(crate) const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// The most that is received at once while there is little room for long requests: it is counted once it is there.
pub(crate) const RECEIVE_BYTES_MAX_IF_SCARCE: usize = 8 * 1024;
/// The beginning of a request is copied out of a thread's buffer up to this many bytes; a longer one keeps it, and is counted.
const COPIED_BYTES_MAX: usize = UNCOUNTED_REQUEST_BYTES;
/// How many buffers of each kind a thread keeps.
const IDLE_BUFFERS_MAX: usize = 8;

thread_local! {
    /// The thread's buffers that nobody uses, for input and for output.
    static IDLE_BUFFERS: RefCell<(Vec<Input>, Vec<Vec<u8>>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// What a client has sent and what it is answered, which rests on an obligation of this type (see [`Store`](crate::Store)).
#[derive(Default)]
pub struct Exchange<O> {
    /// Bytes received and not executed.
    pub input: Input,
    /// Answers to what was executed; sent once `obligation` is settled.
    pub output: Vec<u8>,
    pub obligation: O,
    /// The connection ends once `output` is sent.
    pub closing: bool,
    /// How many bytes that have not arrived are to be dropped.
    skip: u64,
    /// The input is a buffer of a thread's.
    borrowed: bool,
}

impl<O: Default> Exchange<O> {
    /// Whether the input is a request's beginning that is counted.
    pub(crate) fn is_long(&self) -> bool {
        self.input.len() > COPIED_BYTES_MAX
    }

    /// How many bytes the buffer for input will have when more is received, at most.
    pub(crate) fn input_bytes(&self) -> usize {
        self.input.capacity_for_more()
    }

    /// Drops the next `bytes` of the input, and those of them that have not arrived when they do: they take no memory.
    pub fn skip(&mut self, bytes: u64) {
        self.skip += bytes;
        self.drop_skipped();
    }

    /// Takes buffers of the thread's, unless it has some. Room for input grows with what has arrived, not with what was
    /// declared.
    pub(crate) fn borrow_buffers(&mut self) {
        if self.borrowed && self.output.capacity() > 0 {
            return;
        }
        IDLE_BUFFERS.with_borrow_mut(|(inputs, outputs)| {
            if !self.borrowed {
                let mut input = inputs.pop().unwrap_or_default();
                input.extend_from_slice(&self.input);
                (self.input, self.borrowed) = (input, true);
            }
            if self.output.capacity() == 0 {
                self.output = outputs.pop().unwrap_or_default();
            }
        });
    }

    /// Gives them back: that of the input as soon as what it holds was executed, and that of the output once it is sent.
    pub(crate) fn return_buffers(&mut self) {
        self.give_back(!self.is_long());
    }

    /// Gives them back though requests are left that have to wait: these are kept in as much memory as they take.
    pub(crate) fn park(&mut self) {
        self.give_back(true);
    }

    /// Gives back that of the output once it is sent, and, if asked to, that of the input.
    fn give_back(&mut self, gives_input: bool) {
        let returns_input = self.borrowed && gives_input;
        let returns_output = self.output.is_empty() && self.output.capacity() > 0;
        if !returns_input && !returns_output {
            return;
        }
        IDLE_BUFFERS.with_borrow_mut(|(inputs, outputs)| {
            if returns_input {
                let kept = if self.input.is_empty() { Input::default() } else { self.input.to_kept() };
                let mut input = std::mem::replace(&mut self.input, kept);
                self.borrowed = false;
                // A buffer that had to grow for a long value would keep its size for ever.
                if input.capacity() <= 2 * RECEIVE_BYTES_MAX && inputs.len() < IDLE_BUFFERS_MAX {
                    input.clear();
                    inputs.push(input);
                }
            }
            if returns_output {
                let output = std::mem::take(&mut self.output);
                if output.capacity() <= 4 * OUTPUT_BYTES_MAX && outputs.len() < IDLE_BUFFERS_MAX {
                    outputs.push(output);
                }
            }
        });
    }

    /// Where to receive more, `most` bytes of it.
    pub(crate) fn space(&mut self, most: usize) -> &mut [u8] {
        let space = self.input.space();
        let most = most.min(space.len());
        &mut space[..most]
    }

    /// Notes that so many bytes of the space were filled.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.input.filled(bytes);
        if self.skip > 0 {
            self.drop_skipped();
        }
    }

    /// Forgets the answers that were sent, and the memory of long ones, for which there is room no more.
    pub(crate) fn sent(&mut self) {
        if self.output.capacity() > 4 * OUTPUT_BYTES_MAX {
            self.output = Vec::new();
        }
        self.output.clear();
        self.obligation = O::default();
    }

    fn drop_skipped(&mut self) {
        let arrived = self.skip.min(self.input.len() as u64);
        self.input.advance(arrived as usize);
        self.skip -= arrived;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_takes_no_memory() {
        let mut exchange = Exchange::<()>::default();
        exchange.borrow_buffers();
        exchange.input.extend_from_slice(b"abcdef");
        exchange.skip(1 << 28);
        assert!(exchange.input.is_empty());
        for _ in 0..(1u64 << 28) / (1 << 18) {
            exchange.borrow_buffers();
            let received = exchange.space(usize::MAX).len();
            assert_eq!(received, 1 << 18);
            exchange.received(received);
            assert!(exchange.input.capacity() < 1 << 20);
        }
        assert_eq!(exchange.input.len(), 6);
    }

    #[test]
    fn a_client_that_has_to_wait_keeps_its_requests_and_no_more() {
        const BYTES: usize = 100 << 10;
        let mut exchange = Exchange::<()>::default();
        exchange.borrow_buffers();
        exchange.space(BYTES).fill(7);
        exchange.received(BYTES);
        exchange.return_buffers();
        assert!(exchange.input.capacity() >= RECEIVE_BYTES_MAX, "more of a long request may come");
        exchange.park();
        assert_eq!((exchange.input.capacity(), exchange.output.capacity()), (BYTES, 0));
        assert!(exchange.input.iter().all(|byte| *byte == 7));
        // What has answers that were not sent keeps these.
        exchange.output.push(1);
        exchange.park();
        assert_eq!((exchange.input.len(), &exchange.output[..]), (BYTES, &[1][..]));
    }

    #[test]
    fn a_client_that_waits_keeps_the_beginning_of_its_request_and_nothing_else() {
        let mut exchange = Exchange::<()>::default();
        exchange.borrow_buffers();
        exchange.input.extend_from_slice(b"get ");
        exchange.return_buffers();
        assert_eq!(&exchange.input[..], b"get ");
        assert!(exchange.input.capacity() < 100);
        exchange.borrow_buffers();
        exchange.input.extend_from_slice(b"a\r\n");
        assert_eq!(&exchange.input[..], b"get a\r\n");
        exchange.input.clear();
        exchange.return_buffers();
        assert_eq!(exchange.input.capacity() + exchange.output.capacity(), 0);
    }
}
