//! One client of the door: its requests that arrived together are executed together.

use super::Shared;
use super::codec::{self, CodecLimits, Frame, Request};
use super::execute::Execution;
use crate::runtime::{Exchange, Leave, Progress, Protocol};
use bytes::Buf;
use std::sync::Arc;

pub struct Client {
    shared: Arc<Shared>,
    /// How many keys of the retrieval command that comes next were answered.
    keys_answered: usize,
    /// Whether the client has shown which protocol it speaks.
    is_text: bool,
}

/// What remains to be done with the input once nothing borrows from it.
#[derive(Default)]
struct Consumed {
    bytes: usize,
    skip: u64,
    closing: bool,
}

impl Client {
    pub fn new(shared: Arc<Shared>) -> Self {
        Client { shared, keys_answered: 0, is_text: false }
    }

    fn refuse_binary(&mut self, exchange: &mut Exchange) -> Progress {
        if let Some(refusal) = codec::binary::refusal(&exchange.input) {
            exchange.output.extend_from_slice(&refusal);
            exchange.closing = true;
        }
        Progress::Done
    }

    fn execute(&mut self, exchange: &mut Exchange, leave: Leave) -> (Progress, Consumed) {
        let limits = self.shared.kv.limits();
        let limits =
            CodecLimits { key_bytes_max: limits.key_bytes_max, value_bytes_max: limits.value_bytes_max };
        let Exchange { input, output, obligation, .. } = exchange;
        let input = &input[..];
        let mut execution = Execution::new(&self.shared, leave, output, &mut self.keys_answered);
        let mut consumed = Consumed::default();
        let mut end = 0;
        let stopped = loop {
            if execution.output_is_full() {
                break Progress::OutputFull;
            }
            let (mut closing, mut skip) = (false, 0);
            let (len, step) = match codec::decode(&input[end..], &limits) {
                Frame::Incomplete => break Progress::Done,
                Frame::Request { request: Request::Quit, len } => {
                    closing = true;
                    (len, Ok(()))
                }
                Frame::Request { request, len } => (len, execution.request(request)),
                Frame::Refused { answer, len, skip: absent } => {
                    skip = absent;
                    (len, execution.refuse(answer))
                }
                Frame::Fatal { answer } => {
                    closing = true;
                    (input.len() - end, execution.refuse(answer))
                }
            };
            if step.is_ok() {
                end += len;
            }
            // Changes are collected and made together: what is collected is executed only then.
            if execution.has_answered_all() {
                consumed.bytes = end;
            }
            if let Err(progress) = step {
                break progress;
            }
            let here = skip.min((input.len() - end) as u64);
            end += here as usize;
            (consumed.skip, consumed.closing) = (skip - here, closing);
            if closing || consumed.skip > 0 {
                break Progress::Done;
            }
        };
        let last = execution.flush();
        if last.is_ok() {
            consumed.bytes = end;
        }
        obligation.merge(execution.finish());
        (last.err().unwrap_or(stopped), consumed)
    }
}

impl Protocol for Client {
    fn advance(&mut self, exchange: &mut Exchange, leave: Leave) -> Progress {
        if !self.is_text && !exchange.input.is_empty() {
            if exchange.input[0] == codec::binary::MAGIC {
                return self.refuse_binary(exchange);
            }
            self.is_text = true;
        }
        let (progress, consumed) = self.execute(exchange, leave);
        exchange.input.advance(consumed.bytes);
        exchange.skip(consumed.skip);
        exchange.closing = consumed.closing;
        progress
    }
}
