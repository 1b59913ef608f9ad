//! A connection: calls from any task, answers in any order.
//!
//! One task owns the socket. It writes what is queued, and reads; when either ends, all calls under way fail, and whoever
//! wants the server next opens another connection. A call that is dropped before its answer came is forgotten.

use super::corrupt;
use super::negotiate::{Introduction, Opened, connect};
use super::stream::{Receiver, Sender};
use bytes::BytesMut;
use oribi_kudu::frame::{self, Body, FRAME_BYTES_MAX, Frame};
use oribi_kudu::messages::common::HostPort;
use oribi_kudu::rpc::{ErrorStatus, RequestHeader, ResponseHeader};
use oribi_types::{Error, Result};
use parking_lot::Mutex;
use prost::Message;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// The end of a request, sent from where it lies.
pub(crate) trait Payload: Send + Sync {
    /// In the order in which they are sent.
    fn slices(&self) -> [&[u8]; 4];
}

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Whether it was executed is not known.
    Broken(Error),
    /// Whether it was executed is not known.
    TimedOut(Duration),
    /// The server's refusal; it was not executed.
    Refused(ErrorStatus),
    /// It fits no frame, and was not sent.
    TooLarge(Error),
}

pub(crate) struct Connection {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    address: String,
    next_call_id: AtomicI32,
    calls: Mutex<Calls>,
    queued: Notify,
}

#[derive(Default)]
struct Calls {
    queue: Vec<Request>,
    under_way: HashMap<i32, oneshot::Sender<Result<Body, CallError>>>,
    /// Why there are no calls any more.
    closed: Option<Error>,
}

/// A request on its way out.
struct Request {
    head: BytesMut,
    payload: Option<Arc<dyn Payload>>,
}

/// A call under way.
pub(crate) struct Call {
    shared: Arc<Shared>,
    id: i32,
    answer: oneshot::Receiver<Result<Body, CallError>>,
}

/// How many slices one writev(2) takes: Linux has a limit of 1024, and calls of a few slices each come in tens at most.
const SLICES_MAX: usize = 64;

/// Room for a read: when there is less than `ROOM_BYTES_MIN`, more is made, for several reads; and for a frame that announces
/// its length, up to `ROOM_BYTES_MAX` before any of it is there.
const ROOM_BYTES_MIN: usize = 4 << 10;
const ROOM_BYTES: usize = 64 << 10;
const ROOM_BYTES_MAX: usize = 16 << 20;

impl Connection {
    /// Connects and negotiates.
    ///
    /// # Errors
    /// `Unavailable` if there is nobody, `Forbidden` if the server refuses the client.
    pub(crate) async fn open(
        address: &HostPort,
        introduction: &Introduction,
        timeout: Duration,
    ) -> Result<Self> {
        let name = format!("{}:{}", address.host, address.port);
        let opened = tokio::time::timeout(timeout, connect(address, introduction)).await;
        let opened = opened
            .unwrap_or_else(|_| Err(Error::unavailable(format!("no answer within {timeout:?}"))))
            .map_err(|error| error.context(format_args!("connecting to {name}")))?;
        let shared = Arc::new(Shared {
            address: name,
            next_call_id: AtomicI32::new(0),
            calls: Mutex::default(),
            queued: Notify::new(),
        });
        let task = tokio::spawn(run(shared.clone(), opened)).abort_handle();
        Ok(Connection { shared, task })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.calls.lock().closed.is_some()
    }

    /// Queues a call. `header` gets its id here. `payload` is the end of the message, `payload_len` bytes.
    ///
    /// # Errors
    /// [`CallError::Broken`] on a closed connection, [`CallError::TooLarge`].
    pub(crate) fn call(
        &self,
        mut header: RequestHeader,
        message: &impl Message,
        payload: Option<(Arc<dyn Payload>, usize)>,
    ) -> Result<Call, CallError> {
        header.call_id = self.shared.next_call_id.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let (payload, payload_len) = payload.map_or((None, 0), |(payload, len)| (Some(payload), len));
        let mut head = BytesMut::new();
        frame::encode_request(&header, message, payload_len, &mut head)
            .map_err(|error| CallError::TooLarge(Error::too_large(error.to_string())))?;
        let (sender, answer) = oneshot::channel();
        let mut calls = self.shared.calls.lock();
        if let Some(why) = &calls.closed {
            return Err(CallError::Broken(why.clone()));
        }
        calls.under_way.insert(header.call_id, sender);
        calls.queue.push(Request { head, payload });
        drop(calls);
        self.shared.queued.notify_one();
        Ok(Call { shared: self.shared.clone(), id: header.call_id, answer })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Call {
    /// Waits for the answer.
    pub(crate) async fn answer(mut self, timeout: Duration) -> Result<Body, CallError> {
        match tokio::time::timeout(timeout, &mut self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(CallError::Broken(Error::unavailable("the connection is gone"))),
            Err(_) => Err(CallError::TimedOut(timeout)),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.shared.calls.lock().under_way.remove(&self.id);
    }
}

impl Request {
    fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let payload = self.payload.as_ref().map_or([&[][..]; 4], |payload| payload.slices());
        let slices = std::iter::once(&self.head[..]).chain(payload);
        slices.filter(|slice| !slice.is_empty()).map(IoSlice::new)
    }
}

impl Shared {
    /// Gives an answer to whom it belongs, if that still waits.
    fn hand_out(&self, frame: Frame) -> Result<()> {
        let (header, body) = frame.open::<ResponseHeader>().map_err(corrupt)?;
        let Some(sender) = self.calls.lock().under_way.remove(&header.call_id) else { return Ok(()) };
        let answer = match header.is_error() {
            false => Ok(body),
            true => Err(CallError::Refused(body.decode(oribi_kudu::STEPS_MAX).map_err(corrupt)?)),
        };
        let is_fatal = matches!(&answer, Err(CallError::Refused(status)) if status.code().is_fatal());
        let why = answer.as_ref().err().filter(|_| is_fatal).map(CallError::error);
        // Whoever does not wait any more does not want it.
        let _ = sender.send(answer);
        why.map_or(Ok(()), Err)
    }

    fn close(&self, why: &Error) {
        let why = why.clone().context(format_args!("connection to {}", self.address));
        let under_way = {
            let mut calls = self.calls.lock();
            calls.closed = Some(why.clone());
            calls.queue.clear();
            std::mem::take(&mut calls.under_way)
        };
        for sender in under_way.into_values() {
            let _ = sender.send(Err(CallError::Broken(why.clone())));
        }
    }
}

impl CallError {
    pub(crate) fn error(&self) -> Error {
        match self {
            CallError::Broken(error) | CallError::TooLarge(error) => error.clone(),
            CallError::TimedOut(timeout) => Error::unavailable(format!("no answer within {timeout:?}")),
            CallError::Refused(status) => crate::status::of_call(status),
        }
    }
}

/// Owns the socket until it breaks.
async fn run(shared: Arc<Shared>, opened: Opened) {
    let Opened { sender, receiver, input } = opened;
    let ended = tokio::select! {
        ended = write_requests(&shared, sender) => ended,
        ended = read_answers(&shared, receiver, input) => ended,
    };
    shared.close(&ended.err().unwrap_or_else(|| Error::unavailable("closed")));
}

async fn write_requests(shared: &Shared, mut sender: Sender) -> Result<()> {
    let mut requests = Vec::new();
    loop {
        shared.queued.notified().await;
        std::mem::swap(&mut requests, &mut shared.calls.lock().queue);
        for group in requests.chunks(SLICES_MAX / 4) {
            let mut slices: SmallVec<[IoSlice<'_>; SLICES_MAX]> =
                group.iter().flat_map(Request::slices).collect();
            sender.send(&mut slices).await?;
        }
        requests.clear();
    }
}

async fn read_answers(shared: &Shared, mut receiver: Receiver, mut input: BytesMut) -> Result<()> {
    loop {
        while let Some(frame) = frame::decode(&mut input, FRAME_BYTES_MAX).map_err(corrupt)? {
            shared.hand_out(frame)?;
        }
        // A long frame is read into one piece of memory, from which its sidecars become columns.
        let announced = input.first_chunk().map_or(0, |len| u32::from_be_bytes(*len) as usize + 4);
        let missing = announced.saturating_sub(input.len()).min(ROOM_BYTES_MAX);
        if input.capacity() - input.len() < missing.max(ROOM_BYTES_MIN) {
            input.reserve(missing.max(ROOM_BYTES));
        }
        receiver.receive(&mut input).await?;
    }
}
