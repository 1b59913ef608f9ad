//! Results from when they are made until their client has taken them.
//!
//! A statement is executed when its `FlightInfo` is asked for, so that it sees what was there then, and its errors come then; its rows are
//! made as they are taken, through a ticket that holds once. Whoever waits for them has a plan and rows that count in the memory of queries.
//! A client that takes nothing while others wait for such room, or for that of answers, is seen off with its connection; a result that
//! nobody asks for ends after a time.

use crate::call::Call;
use crate::handles::Handles;
use crate::shared::FlightLimits;
use crate::status::{invalid, status, too_many};
use crate::types::sent_batch;
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use oribi_net::{FrameRoom, Load, UNCOUNTED_BYTES};
use oribi_session::sql::{RowStream, SqlError, Suspended, Suspension};
use oribi_types::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tonic::Status;

/// A message has so many bytes of rows, about; a longer row has one of its own.
const MESSAGE_BYTES: usize = 512 << 10;
/// What a result that is long takes on its way besides what counts in the memory of queries: a message that is encoded, and one that waits in
/// the connection.
const ON_ITS_WAY_BYTES: usize = 2 * MESSAGE_BYTES;
/// How long a result waits for that.
const PATIENCE: Duration = Duration::from_secs(15);

/// A client's connection, as far as its results have to know it.
#[derive(Default)]
pub struct Connection {
    /// Told when the client is to be seen off.
    pub ends: Notify,
}

/// What a statement has given, before it is sent.
pub struct Made {
    pub call: Call,
    pub rows: RowStream,
    pub schema: SchemaRef,
}

/// A result that clients know by a ticket.
#[derive(Clone)]
enum Known {
    Waiting(Arc<Mutex<Option<Made>>>),
    /// Somebody takes it; told when it is cancelled.
    Taken(Arc<Notify>),
}

pub struct Results {
    known: Arc<Handles<Known>>,
    untaken: Arc<Suspended<Untaken>>,
    answers: Arc<Load>,
    /// Those that wait for room for answers.
    waiting: Arc<AtomicUsize>,
}

/// What a client has of a result that it does not take at the moment. If others end it, the client is seen off.
struct Untaken {
    rest: Option<Rest>,
    connection: Arc<Connection>,
}

impl Drop for Untaken {
    fn drop(&mut self) {
        if self.rest.is_some() {
            tracing::info!("a client takes nothing of its rows while others wait for room");
            self.connection.ends.notify_one();
        }
    }
}

/// What is left of a result.
struct Rest {
    rows: RowStream,
    /// Of a batch, what was not sent.
    batch: Option<RecordBatch>,
}

impl Results {
    pub fn new(limits: &FlightLimits) -> Self {
        Results {
            known: Arc::new(Handles::new(limits.results_max)),
            untaken: Suspended::new(),
            answers: Arc::new(Load::new(&limits.network.answers, ON_ITS_WAY_BYTES)),
            waiting: Arc::default(),
        }
    }

    /// Keeps a result until it is asked for; its ticket.
    ///
    /// # Errors
    /// 53300 if there are too many.
    pub fn keep(&self, made: Made) -> Result<Bytes, SqlError> {
        let ticket = self.known.insert(Known::Waiting(Arc::new(Mutex::new(Some(made)))));
        ticket.ok_or_else(|| too_many("results", self.known.limit()))
    }

    /// The result that has the ticket, as messages.
    ///
    /// # Errors
    /// 34000 if there is none: it was taken before, or has waited for too long.
    pub fn take(&self, ticket: &[u8], connection: &Arc<Connection>) -> Result<Sent, SqlError> {
        let made = match self.known.remove(ticket) {
            Some(Known::Waiting(made)) => made.lock().unwrap_or_else(PoisonError::into_inner).take(),
            _ => None,
        };
        let made = made.ok_or_else(|| {
            let message =
                "there is no such result: it was taken, was cancelled, or nobody asked for it for too long";
            SqlError::new(ErrorKind::NotFound, message).with_sqlstate("34000")
        })?;
        Ok(self.send(made, connection, Some(ticket)))
    }

    /// Cancels the result that has the ticket; false if there is none.
    pub fn cancel(&self, ticket: &[u8]) -> bool {
        match self.known.remove(ticket) {
            Some(Known::Taken(cancelled)) => cancelled.notify_one(),
            Some(Known::Waiting(_)) => {}
            None => return false,
        }
        true
    }

    /// Ends those that nobody has asked for in so long.
    pub fn end_silent(&self, silence_max: Duration) {
        let until = Instant::now().checked_sub(silence_max);
        until
            .into_iter()
            .for_each(|until| drop(self.known.take_until(until, |known| matches!(known, Known::Waiting(_)))));
    }

    /// Sees off clients that have taken nothing for so long, if others wait for room.
    pub fn end_untaken(&self, silence_max: Duration, others_wait: bool) {
        let others_wait = others_wait || self.waiting.load(SeqCst) > 0;
        let until = Instant::now().checked_sub(silence_max).filter(|_| others_wait);
        until.into_iter().for_each(|until| self.untaken.end_until(until));
    }

    /// A result as messages, which are made as they are asked for.
    pub fn send(&self, made: Made, connection: &Arc<Connection>, ticket: Option<&[u8]>) -> Sent {
        let cancelled = Arc::new(Notify::new());
        let Made { call, rows, schema } = made;
        let rest = Rest { rows, batch: None };
        let sending = Sending {
            call,
            schema: schema.clone(),
            untaken: self.untaken.clone(),
            suspension: None,
            connection: connection.clone(),
            load: self.answers.clone(),
            room: FrameRoom::default(),
            waiting: self.waiting.clone(),
            _under_way: ticket.and_then(|ticket| self.note_taken(ticket, &cancelled)),
            cancelled,
        };
        let first = Some((sending, Some(rest)));
        let batches = futures::stream::unfold(first, |state| async move {
            let (mut sending, rest) = state?;
            match sending.next(rest).await {
                Ok(Some(batch)) => Some((Ok(batch), Some((sending, None)))),
                Ok(None) => None,
                Err(error) => {
                    sending.call.session.fail();
                    Some((Err(FlightError::Tonic(Box::new(status(&error)))), None))
                }
            }
        });
        encoded(batches.boxed(), schema)
    }

    /// Makes it known that a result is being taken, under its ticket.
    fn note_taken(&self, ticket: &[u8], cancelled: &Arc<Notify>) -> Option<UnderWay> {
        let ticket = Bytes::copy_from_slice(ticket);
        self.known
            .put(&ticket, Known::Taken(cancelled.clone()))
            .then(|| UnderWay { known: self.known.clone(), ticket })
    }
}

/// A result that is being taken; not known any more once this is dropped.
struct UnderWay {
    known: Arc<Handles<Known>>,
    ticket: Bytes,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        drop(self.known.remove(&self.ticket));
    }
}

pub type Sent = BoxStream<'static, Result<FlightData, Status>>;

/// Batches as messages, the columns first.
pub fn encoded(batches: BoxStream<'static, Result<RecordBatch, FlightError>>, schema: SchemaRef) -> Sent {
    let messages =
        FlightDataEncoderBuilder::new().with_schema(schema).with_max_flight_data_size(2 * MESSAGE_BYTES);
    let messages = messages.build(batches);
    messages
        .map_err(|error| match error {
            FlightError::Tonic(status) => *status,
            error => Status::internal(format!("XX000: {error}")),
        })
        .boxed()
}

/// A result on its way.
struct Sending {
    call: Call,
    schema: SchemaRef,
    untaken: Arc<Suspended<Untaken>>,
    suspension: Option<Suspension<Untaken>>,
    connection: Arc<Connection>,
    load: Arc<Load>,
    room: FrameRoom,
    waiting: Arc<AtomicUsize>,
    cancelled: Arc<Notify>,
    _under_way: Option<UnderWay>,
}

impl Drop for Sending {
    fn drop(&mut self) {
        drop(self.resume());
    }
}

impl Sending {
    /// What is left, if nobody has ended it.
    fn resume(&mut self) -> Option<Rest> {
        self.suspension.take()?.take()?.rest.take()
    }

    /// Rows for the next message. `rest` is what is left, the first time.
    async fn next(&mut self, rest: Option<Rest>) -> Result<Option<RecordBatch>, SqlError> {
        let mut rest = rest.or_else(|| self.resume()).ok_or_else(ended)?;
        if self.call.transaction().is_some_and(|open| open.has_ended()) {
            let message = "the result ended with its transaction before all of it was taken";
            return Err(invalid(message).with_sqlstate("34000"));
        }
        let cancelled = self.cancelled.clone();
        let sent = tokio::select! {
            biased;
            () = cancelled.notified() => return Err(canceled()),
            sent = self.make(&mut rest) => sent?,
        };
        if sent.is_some() {
            let untaken = Untaken { rest: Some(rest), connection: self.connection.clone() };
            self.suspension = Some(self.untaken.keep(untaken, Instant::now()));
        }
        Ok(sent)
    }

    async fn make(&mut self, rest: &mut Rest) -> Result<Option<RecordBatch>, SqlError> {
        let batch = match rest.batch.take() {
            Some(batch) => batch,
            None => loop {
                match rest.rows.next().await.transpose()? {
                    // A message without rows is no use to anybody.
                    Some(batch) if batch.num_rows() == 0 => {}
                    Some(batch) => break sent_batch(&batch, &self.schema)?,
                    None => return Ok(None),
                }
            },
        };
        let bytes = bytes_of(&batch);
        let rows = rows_of_message(bytes, batch.num_rows());
        if bytes > UNCOUNTED_BYTES {
            self.make_room().await?;
        }
        if rows < batch.num_rows() {
            rest.batch = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        Ok(Some(batch.slice(0, rows)))
    }

    /// Takes room for what is on its way, if it has none yet.
    async fn make_room(&mut self) -> Result<(), SqlError> {
        let (room, load) = (&mut self.room, &self.load);
        if room.has(load, ON_ITS_WAY_BYTES) {
            return Ok(());
        }
        self.waiting.fetch_add(1, SeqCst);
        let _waiting = Waiting(&self.waiting);
        let wait = async {
            while !room.has(load, ON_ITS_WAY_BYTES) {
                room.wait(false).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.map_err(|_| {
            let message = "clients have left too many answers: there is no room for another";
            SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("53200")
        })
    }
}

struct Waiting<'w>(&'w AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// The rows of a batch, about so many bytes long, that one message has.
fn rows_of_message(bytes: usize, rows: usize) -> usize {
    match bytes <= MESSAGE_BYTES {
        true => rows,
        false => (rows * MESSAGE_BYTES / bytes).max(1),
    }
}

/// Bytes that the rows of a batch take, about: of a slice, its part.
fn bytes_of(batch: &RecordBatch) -> usize {
    let bytes = |array: &dyn Array| array.to_data().get_slice_memory_size().unwrap_or_default();
    batch.columns().iter().map(|array| bytes(array)).sum()
}

fn ended() -> SqlError {
    let message = "the result was ended: it had rows that nobody took, and others needed their memory";
    SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("53200")
}

fn canceled() -> SqlError {
    SqlError::new(ErrorKind::Unavailable, "canceling statement due to user request").with_sqlstate("57014")
}
