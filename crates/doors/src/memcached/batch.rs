//! The requests of one connection that arrived together: executed together, answered together.
//!
//! A batch owns the connection's buffers, so that it can be executed where it is, without blocking, or be moved to a
//! thread that may block, and carry on from the request where it stopped.

use super::codec::{self, CodecLimits, Frame, Request};
use super::execute::Execution;
use super::stats::Counters;
use bytes::{Buf, BytesMut};
use oribi_engine::Obligation;
use oribi_session::kv::KeyValue;
use std::sync::Arc;

/// What the connections of one thread share.
pub struct Shared {
    pub kv: Arc<KeyValue>,
    pub counters: Arc<Counters>,
    pub stats: Arc<super::stats::Stats>,
}

/// Once the answers exceed this many bytes they are sent before more requests are executed: a client that does not
/// read its answers is not served more.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// What a connection's buffers keep between batches, in bytes.
const IDLE_BUFFER_BYTES: usize = 16 * 1024;

/// What a connection has received and not executed, and answered and not sent.
pub struct Batch {
    /// Bytes received.
    pub input: BytesMut,
    /// Answers to what was executed; to be sent once `obligation` is settled.
    pub output: Vec<u8>,
    pub obligation: Obligation,
    /// The connection ends once `output` is sent.
    pub closing: bool,
    /// How much of `input` was executed.
    executed: usize,
    /// How many keys of the retrieval command that comes next were answered.
    keys_answered: usize,
    /// How many bytes that have not arrived are to be dropped.
    skip: u64,
    /// Whether the client has shown which protocol it speaks.
    is_text: bool,
}

/// Why a batch stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Whatever is whole was executed.
    Done,
    /// The answers must be sent before more is executed.
    OutputFull,
    /// The next request writes, and writers have to be admitted.
    NeedsAdmission,
    /// The next request reads a file.
    NeedsBlocking,
}

/// What the caller of [`Batch::advance`] has made sure of.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    pub to_block: bool,
    pub to_write: bool,
}

impl Batch {
    pub fn new() -> Self {
        Batch {
            input: BytesMut::with_capacity(IDLE_BUFFER_BYTES),
            output: Vec::new(),
            obligation: Obligation::default(),
            closing: false,
            executed: 0,
            keys_answered: 0,
            skip: 0,
            is_text: false,
        }
    }

    /// Executes as many requests as are whole.
    pub fn advance(&mut self, shared: &Shared, leave: Leave) -> Progress {
        if self.skip > 0 {
            let arrived = self.skip.min(self.input.len() as u64);
            self.input.advance(arrived as usize);
            self.skip -= arrived;
        }
        if !self.is_text && !self.input.is_empty() {
            if self.input[0] == codec::binary::MAGIC {
                return self.refuse_binary();
            }
            self.is_text = true;
        }
        let progress = self.execute(shared, leave);
        let executed = std::mem::take(&mut self.executed);
        self.input.advance(executed);
        progress
    }

    /// Room for more bytes to arrive. Grows with what has arrived, not with what was declared.
    pub fn reserve(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 4 * IDLE_BUFFER_BYTES {
            self.input = BytesMut::new();
        }
        self.input.reserve(self.input.len().max(IDLE_BUFFER_BYTES));
    }

    /// Forgets the answers that were sent.
    pub fn sent(&mut self) {
        self.output.clear();
        self.output.shrink_to(4 * IDLE_BUFFER_BYTES);
        self.obligation = Obligation::default();
    }

    fn refuse_binary(&mut self) -> Progress {
        if let Some(refusal) = codec::binary::refusal(&self.input) {
            self.output.extend_from_slice(&refusal);
            self.closing = true;
        }
        Progress::Done
    }

    fn execute(&mut self, shared: &Shared, leave: Leave) -> Progress {
        let limits = shared.kv.limits();
        let limits =
            CodecLimits { key_bytes_max: limits.key_bytes_max, value_bytes_max: limits.value_bytes_max };
        let Batch { input, output, obligation, closing, executed, keys_answered, skip, .. } = self;
        let input = &input[..];
        let mut execution = Execution::new(shared, leave, output, keys_answered);
        let mut end = 0;
        let stopped = loop {
            if execution.output_is_full() {
                break Progress::OutputFull;
            }
            let (len, step) = match codec::decode(&input[end..], &limits) {
                Frame::Incomplete => break Progress::Done,
                Frame::Request { request: Request::Quit, len } => {
                    *closing = true;
                    (len, Ok(()))
                }
                Frame::Request { request, len } => (len, execution.request(request)),
                Frame::Refused { answer, len, skip: absent } => {
                    let here = absent.min((input.len() - end - len) as u64);
                    *skip = absent - here;
                    (len + here as usize, execution.refuse(answer))
                }
                Frame::Fatal { answer } => {
                    *closing = true;
                    (input.len() - end, execution.refuse(answer))
                }
            };
            if step.is_ok() {
                end += len;
            }
            // Changes are collected and made together: what is collected is executed only then.
            if execution.has_answered_all() {
                *executed = end;
            }
            if let Err(progress) = step {
                *closing = false;
                *skip = 0;
                break progress;
            }
            if *closing || *skip > 0 {
                break Progress::Done;
            }
        };
        let last = execution.flush();
        if last.is_ok() {
            *executed = end;
        }
        obligation.merge(execution.finish());
        match last {
            Ok(()) => stopped,
            Err(progress) => progress,
        }
    }
}
