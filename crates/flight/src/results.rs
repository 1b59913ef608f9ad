//! Results from when they are made until their client has taken them.
//!
//! A statement is executed when its `FlightInfo` is asked for, so that it sees what was there then, and its errors come then; its rows are
//! made as they are taken, through a ticket that holds once. Whoever waits for them has a plan and rows that count in the memory of queries.
//! A client that takes nothing while others wait for such room, or for that of answers, is seen off with its connection; a result that
//! nobody asks for ends after a time.

use crate::call::Call;
use crate::handles::Handles;
use crate::lengths::{value_bytes, width};
use crate::shared::FlightLimits;
use crate::status::{invalid, status, too_many};
use crate::types::sent_batch;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use oribi_net::{FrameRoom, Load, UNCOUNTED_ANSWER_BYTES};
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
    /// Its statement is being executed.
    Awaited,
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

    /// A place for a result that is to come.
    ///
    /// # Errors
    /// 53300 if there are too many.
    pub fn place(&self) -> Result<Place, SqlError> {
        let ticket = self.known.insert(Known::Awaited);
        let ticket = ticket.ok_or_else(|| too_many("results", self.known.limit()))?;
        Ok(Place { known: self.known.clone(), ticket })
    }

    /// Keeps a result in its place until it is asked for; its ticket.
    pub fn keep(&self, mut place: Place, made: Made) -> Bytes {
        let ticket = std::mem::take(&mut place.ticket);
        let waiting = Known::Waiting(Arc::new(Mutex::new(Some(made))));
        self.known.exchange(&ticket, |_| Some(waiting));
        ticket
    }

    /// The result that has the ticket, as messages.
    ///
    /// # Errors
    /// 34000 if there is none: it was taken before, or has waited for too long.
    pub fn take(&self, ticket: &[u8], connection: &Arc<Connection>) -> Result<Sent, SqlError> {
        let cancelled = Arc::new(Notify::new());
        let taken =
            |known: &Known| matches!(known, Known::Waiting(_)).then(|| Known::Taken(cancelled.clone()));
        let made = match self.known.exchange(ticket, taken) {
            Some(Known::Waiting(made)) => made.lock().unwrap_or_else(PoisonError::into_inner).take(),
            _ => None,
        };
        let made = made.ok_or_else(|| {
            let message =
                "there is no such result: it was taken, was cancelled, or nobody asked for it for too long";
            SqlError::new(ErrorKind::NotFound, message).with_sqlstate("34000")
        })?;
        let place = Place { known: self.known.clone(), ticket: Bytes::copy_from_slice(ticket) };
        Ok(self.send(made, connection, place, cancelled))
    }

    /// Cancels the result that has the ticket; false if there is none.
    pub fn cancel(&self, ticket: &[u8]) -> bool {
        match self.known.remove(ticket) {
            Some(Known::Taken(cancelled)) => cancelled.notify_one(),
            Some(Known::Waiting(_) | Known::Awaited) => {}
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
    fn send(&self, made: Made, connection: &Arc<Connection>, place: Place, cancelled: Arc<Notify>) -> Sent {
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
            _place: place,
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
}

/// The place of a result; not known any more once this is dropped.
pub struct Place {
    known: Arc<Handles<Known>>,
    ticket: Bytes,
}

impl Drop for Place {
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
    _place: Place,
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
                    Some(batch) => break batch,
                    None => return Ok(None),
                }
            },
        };
        let (rows, bytes) = rows_of_message(&batch);
        if bytes > UNCOUNTED_ANSWER_BYTES {
            self.make_room().await?;
        }
        if rows < batch.num_rows() {
            rest.batch = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        // What is brought to another form is no more than what is sent: rows may share what each of them then has.
        sent_batch(&batch.slice(0, rows), &self.schema).map(Some)
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

/// The rows of a batch that one message has, and their bytes, about.
fn rows_of_message(batch: &RecordBatch) -> (usize, usize) {
    let widths = batch.columns().iter().map(|array| width(array.data_type()));
    let fixed: usize = widths.flatten().sum();
    let others: Vec<_> = batch.columns().iter().filter(|array| width(array.data_type()).is_none()).collect();
    let mut bytes = 0_usize;
    for row in 0..batch.num_rows() {
        let of_row = others.iter().map(|array| value_bytes(array, row)).fold(fixed, usize::saturating_add);
        if row > 0 && bytes.saturating_add(of_row) > MESSAGE_BYTES {
            return (row, bytes);
        }
        bytes = bytes.saturating_add(of_row);
    }
    (batch.num_rows(), bytes)
}

fn ended() -> SqlError {
    let message = "the result was ended: it had rows that nobody took, and others needed their memory";
    SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("53200")
}

fn canceled() -> SqlError {
    SqlError::new(ErrorKind::Unavailable, "canceling statement due to user request").with_sqlstate("57014")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};

    #[test]
    fn a_message_has_what_its_rows_are_when_they_are_sent() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 100_000]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        assert_eq!(rows_of_message(&batch), (MESSAGE_BYTES / 8, MESSAGE_BYTES));
        assert_eq!(rows_of_message(&batch.slice(0, 10)), (10, 80));
        let long = StringViewArray::from(vec!["a".repeat(1 << 20)]);
        let shared =
            arrow::compute::take(&long, &arrow::array::UInt32Array::from(vec![0; 8192]), None).unwrap();
        let batch = RecordBatch::try_from_iter([("t", shared)]).unwrap();
        assert_eq!(rows_of_message(&batch).0, 1);
    }
}
