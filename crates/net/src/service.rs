//! What a key-value door adds to the loops: what it stores in, how it greets a client, and how it turns bytes into answers.

use crate::exchange::OUTPUT_BYTES_MAX;
use crate::{Exchange, Link, Loads, Traffic};
use oribi_types::Result;
use std::sync::Arc;
use tokio::sync::watch;

/// A key-value door: what it knows of all its clients, and how it greets one.
pub trait Service: Send + Sync + 'static {
    type Store: Store;
    type Protocol: Protocol<Obligation = <Self::Store as Store>::Obligation>;
    /// The door's name, in the names of threads and metrics.
    const NAME: &'static str;
    /// What a client hears that is one too many.
    const TOO_MANY: &'static [u8];

    fn store(&self) -> &Self::Store;

    fn traffic(&self) -> &Arc<Traffic>;

    /// For what its clients send and are sent.
    fn loads(&self) -> &Loads;

    /// Tells that clients may have to be told something: [`Protocol::push`] is asked then.
    fn pushes(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// The state of a client that has just connected, to be served by the door's thread of this number.
    fn open(&self, thread: usize, link: Link) -> Self::Protocol;
}

/// What is behind a key-value door, as far as its clients have to wait for it.
pub trait Store: Send + Sync + 'static {
    /// What must be so before an answer is sent; by default, nothing.
    type Obligation: Copy + Default + Send + 'static;

    /// What both ask for.
    fn both(one: Self::Obligation, other: Self::Obligation) -> Self::Obligation;

    /// Whether an answer with this obligation may be sent at once.
    fn is_settled(&self, obligation: Self::Obligation) -> bool;

    /// Once it may be. What can be done about it without waiting is done when this returns.
    ///
    /// # Errors
    /// Those of a store that cannot keep what it was told: then nothing is answered.
    fn settled(&self, obligation: Self::Obligation) -> impl Future<Output = Result<()>> + Send;

    /// Whether there is room for what clients write.
    fn admits(&self) -> bool;

    /// Once there is.
    fn admission(&self) -> impl Future<Output = ()> + Send;

    /// Once a request that others kept from being executed should be tried again, for the `tries`th time.
    fn turn(&self, tries: u32) -> impl Future<Output = ()> + Send;
}

/// One client's protocol state.
///
/// It is moved to a thread that may block, and back, when it asks for that.
pub trait Protocol: Send + 'static {
    /// What its answers rest on.
    type Obligation: Copy + Default + Send + 'static;

    /// Executes what is whole at the start of `exchange.input` and takes it away, and appends the answers to
    /// `exchange.output`.
    ///
    /// What was not executed, because the answer is not [`Progress::Done`], stays in the input: it is given again, with
    /// the leave that it needs, or once the answers so far are sent.
    fn advance(&mut self, exchange: &mut Exchange<Self::Obligation>, leave: Leave) -> Progress;

    /// Called when all that the answers rest on is settled, and just before they are sent.
    fn settled(&mut self, _exchange: &mut Exchange<Self::Obligation>) {}

    /// Appends what the client is told without having asked: when [`Service::pushes`] has changed and the client is not being
    /// served.
    fn push(&mut self, _exchange: &mut Exchange<Self::Obligation>) {}
}

/// What the caller of [`Protocol::advance`] has made sure of.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    /// This thread may wait for files.
    pub to_block: bool,
    /// There is room in memory for what is written.
    pub to_write: bool,
    /// This thread may compute for milliseconds, as for one request with a password.
    pub to_compute: bool,
    /// There is room for the answer to one request with a value of so many bytes.
    pub to_answer: usize,
}

impl Leave {
    /// Whether answers of so many bytes are sent before more are made.
    #[inline]
    pub fn is_full(self, output_bytes: usize) -> bool {
        output_bytes > OUTPUT_BYTES_MAX.min(self.to_answer)
    }
}

/// Why [`Protocol::advance`] stopped.
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
    /// The next request computes for milliseconds.
    NeedsProcessor,
    /// The next request writes what others do now, or would have to wait for something else.
    NeedsTurn,
    /// The next request is answered with a value of so many bytes, about: more than there is room for.
    NeedsRoom(usize),
}
