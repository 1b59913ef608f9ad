//! Rows that were made for clients which have not taken them yet.
//!
//! A client may ask for much and read nothing. What is made for it counts in the memory of queries until it asks for what
//! comes next. Once clients have left so much that there is no [room](Unread::bytes_max), no more is made for any of them
//! but for one statement at a time, whose turn it is, until others have taken theirs. Doors see off those that take nothing while others
//! [wait](Unread::is_awaited). Those come in in order of arrival, and who has waited for longer than that takes is refused.
//!
//! A statement that is executed for such a client has a plan, tasks and what these fetch, which takes memory that nobody counts. So it is
//! [admitted](Unread::admit) before it is planned, once there is room for its rows, and counts with what it takes until it has ended. Who waits for
//! that has nothing but its text and what was made of it.
//!
//! How large rows are is known once they are made. So what is made at the same moment comes on top of the room: one batch on each
//! thread, one for each partition of the statement whose turn it is, and one for each of the [few](LOOKUPS_MAX) places for plans that read [aside](Made::Aside). Results of
//! [few bytes](is_short) neither wait nor count.

use crate::runtime::LOOKUPS_MAX;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use oribi_engine::MemoryBudget;
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// One part in so many of the engine's memory is room for what clients have not taken.
const MEMORY_SHARE: u64 = 8;
/// A batch of fewer is not counted.
pub(crate) const SHORT_BATCH_BYTES: u64 = 64 << 10;
/// How long a statement waits for room: longer than a client may take nothing of its rows while others wait.
const PATIENCE: Duration = Duration::from_secs(15);
/// What a statement that is executed takes besides its rows, about: a plan with few nodes, its tasks, and the buffers of a reader.
const STATEMENT_BYTES: u64 = 128 << 10;
/// A row of fixed width that has no more makes short batches.
const SHORT_ROW_BYTES: usize = 128;
/// The rows of a batch are encoded one by one, and the longest may be all of it.
const BYTES_PER_BYTE: u64 = 2;

/// How a plan comes by the rows that it hands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// On the thread that polls it, or ahead by few.
    WhenPolled,
    /// On threads for look-ups: all plans that were polled once would have theirs before any is counted. So they take turns, as
    /// many at a time as there are such threads. Only for what takes no longer than some look-ups.
    Aside,
}

pub(crate) struct Unread {
    budget: Arc<MemoryBudget>,
    bytes: AtomicU64,
    bytes_max: u64,
    patience: Duration,
    /// Statements that wait for room.
    awaited: AtomicUsize,
    /// The first of them: the others wait for its place.
    first: Semaphore,
    room: Notify,
    turn: Arc<Semaphore>,
    aside: Arc<Semaphore>,
}

/// Leave to make a batch: as long as there is room, with the turn, or aside.
pub(crate) struct Place {
    unread: Arc<Unread>,
    turn: Option<Arc<OwnedSemaphorePermit>>,
    aside: Option<OwnedSemaphorePermit>,
}

/// A batch that counts, and has the turn if it was made with it, until this is dropped.
pub(crate) struct Counted {
    unread: Arc<Unread>,
    bytes: u64,
    turn: Option<Arc<OwnedSemaphorePermit>>,
}

/// The turn, of who does not hold it.
#[derive(Clone)]
pub(crate) struct Turn(Weak<OwnedSemaphorePermit>);

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// A statement that may be executed for a client; it counts until this is dropped.
pub(crate) struct Admitted {
    /// Leave to make its first batch, if there was no room for it.
    turn: Option<Place>,
    statement: Counted,
}

impl Admitted {
    pub(crate) fn unread(&self) -> &Arc<Unread> {
        &self.statement.unread
    }

    /// The turn, to make the first batch with.
    pub(crate) fn take_turn(&mut self) -> Option<Place> {
        self.turn.take()
    }
}

impl Counted {
    /// Whether it was made with the turn. Who then waited for a place for more would wait for themselves.
    pub(crate) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }
}

impl Unread {
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        Unread::with_patience(budget, PATIENCE)
    }

    fn with_patience(budget: Arc<MemoryBudget>, patience: Duration) -> Arc<Self> {
        let bytes_max = budget.limit() / MEMORY_SHARE;
        Arc::new(Unread {
            budget,
            bytes: AtomicU64::new(0),
            bytes_max,
            patience,
            awaited: AtomicUsize::new(0),
            first: Semaphore::new(1),
            room: Notify::new(),
            turn: Arc::new(Semaphore::new(1)),
            aside: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        })
    }

    /// Bytes that count, and for how many there is room.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.bytes.load(SeqCst), self.bytes_max)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.bytes.load(SeqCst) < self.bytes_max
    }

    /// Whether there are statements that wait for what clients of others have not taken.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(SeqCst) > 0 && !self.has_room()
    }

    /// Leave to make a batch, if nobody has to be waited for.
    pub(crate) fn try_place(self: &Arc<Self>, made: Made) -> Option<Place> {
        let aside = match made {
            Made::WhenPolled => None,
            Made::Aside => Some(Arc::clone(&self.aside).try_acquire_owned().ok()?),
        };
        self.has_room().then(|| Place { unread: Arc::clone(self), turn: None, aside })
    }

    /// Once there is room, or it is the caller's turn.
    ///
    /// # Errors
    /// 53200 if that takes too long.
    pub(crate) async fn place(self: &Arc<Self>, made: Made) -> Result<Place, SqlError> {
        if let Some(place) = self.try_place(made) {
            return Ok(place);
        }
        let _awaited = Awaited::new(self);
        let mut place = pin!(self.wait_for_place(made));
        loop {
            match tokio::time::timeout(self.patience, &mut place).await {
                Ok(place) => return Ok(place),
                // It waits for those before it.
                Err(_) if self.has_room() => {}
                Err(_) => return Err(self.no_room()),
            }
        }
    }

    /// Leave to execute a statement for a client, once there is room, or it is its turn.
    ///
    /// # Errors
    /// 53200 if that takes too long.
    pub(crate) async fn admit(self: &Arc<Self>) -> Result<Admitted, SqlError> {
        let place = self.place(Made::WhenPolled).await?;
        let turn = Some(place).filter(|place| place.turn.is_some());
        Ok(Admitted { turn, statement: self.count_bytes(STATEMENT_BYTES, None) })
    }

    async fn wait_for_place(self: &Arc<Self>, made: Made) -> Place {
        let _first = self.first.acquire().await;
        let mut turn = pin!(Arc::clone(&self.turn).acquire_owned());
        loop {
            let mut freed = pin!(self.room.notified());
            // From now on it is heard.
            freed.as_mut().enable();
            if self.has_room() {
                let aside = self.aside(made).await;
                // What was made meanwhile may have taken it.
                if self.has_room() {
                    return Place { unread: Arc::clone(self), turn: None, aside };
                }
                continue;
            }
            tokio::select! {
                () = freed => {}
                Ok(turn) = &mut turn => return Place { unread: Arc::clone(self), turn: Some(Arc::new(turn)), aside: None },
            }
        }
    }

    async fn aside(&self, made: Made) -> Option<OwnedSemaphorePermit> {
        match made {
            Made::WhenPolled => None,
            Made::Aside => Arc::clone(&self.aside).acquire_owned().await.ok(),
        }
    }

    fn no_room(&self) -> SqlError {
        let message = format!(
            "there was no room for the rows of the statement for {} seconds: rows that clients have not taken may have {} bytes",
            self.patience.as_secs(),
            self.bytes_max
        );
        SqlError::new(ErrorKind::Unavailable, message)
            .with_sqlstate("53200")
            .with_hint("try again, or raise --memory, of which they have an eighth")
    }

    /// Counts a batch that was made whether or not there is room; not one that is short.
    pub(crate) fn count(self: &Arc<Self>, batch: &RecordBatch) -> Option<Counted> {
        self.count_with(batch, None)
    }

    /// As [`count`](Self::count), of one that was made while another was made with the turn: that is over when both were taken.
    pub(crate) fn count_beside(self: &Arc<Self>, batch: &RecordBatch, turn: &Turn) -> Option<Counted> {
        self.count_with(batch, turn.0.upgrade())
    }

    fn count_with(
        self: &Arc<Self>,
        batch: &RecordBatch,
        turn: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Option<Counted> {
        let bytes = batch_bytes(batch);
        if bytes < SHORT_BATCH_BYTES {
            return None;
        }
        Some(self.count_bytes(BYTES_PER_BYTE * bytes, turn))
    }

    fn count_bytes(self: &Arc<Self>, bytes: u64, turn: Option<Arc<OwnedSemaphorePermit>>) -> Counted {
        self.bytes.fetch_add(bytes, SeqCst);
        self.budget.reserve(bytes);
        Counted { unread: self.clone(), bytes, turn }
    }
}

impl Place {
    pub(crate) fn holds(&self) -> bool {
        self.turn.is_some() || self.aside.is_some() || self.unread.has_room()
    }

    pub(crate) fn turn(&self) -> Option<Turn> {
        self.turn.as_ref().map(|turn| Turn(Arc::downgrade(turn)))
    }

    /// Counts the batch that was made. The turn goes with it, or is over.
    pub(crate) fn count(self, batch: &RecordBatch) -> Option<Counted> {
        self.unread.count_with(batch, self.turn)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.unread.budget.release(self.bytes);
        self.unread.bytes.fetch_sub(self.bytes, SeqCst);
        if self.unread.has_room() {
            self.unread.room.notify_waiters();
        }
    }
}

/// Counts as waiting until this is dropped.
struct Awaited<'u>(&'u Unread);

impl<'u> Awaited<'u> {
    fn new(unread: &'u Unread) -> Self {
        unread.awaited.fetch_add(1, SeqCst);
        Awaited(unread)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, SeqCst);
    }
}

/// Whether batches of such columns are small, whatever they hold.
pub(crate) fn is_short(columns: &Schema) -> bool {
    let width = |data_type: &DataType| match data_type {
        DataType::Null | DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        other => other.primitive_width(),
    };
    let widths: Option<usize> = columns.fields().iter().map(|field| width(field.data_type())).sum();
    widths.is_some_and(|bytes| bytes <= SHORT_ROW_BYTES)
}

/// What the values of a batch take; less than what its buffers do where it has a part of these.
fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| array_bytes(column.as_ref()) as u64).sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    let views = size_of::<u128>() * array.len();
    // Where several rows share a value, the buffers are less than the values.
    let values = |bytes: usize| views + bytes.min(array.get_buffer_memory_size());
    match array.data_type() {
        DataType::Utf8View => values(array.as_string_view().total_buffer_bytes_used()),
        DataType::BinaryView => values(array.as_binary_view().total_buffer_bytes_used()),
        _ => array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_buffer_memory_size()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, BinaryArray, BinaryViewArray, StringViewArray};
    use arrow::compute::take;
    use arrow::datatypes::Field;
    use futures::FutureExt;
    use oribi_engine::{Engine, EngineOptions};
    use oribi_env::Env;

    const MIB: usize = 1 << 20;

    /// Of an engine with 64 MiB: room for 8 MiB.
    fn unread(patience: Duration) -> (Arc<Unread>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory_bytes: 64 << 20, ..EngineOptions::default() };
        let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
        (Unread::with_patience(engine.memory().clone(), patience), dir)
    }

    fn batch(bytes: usize) -> RecordBatch {
        let value: ArrayRef = Arc::new(BinaryArray::from(vec![&vec![7u8; bytes][..]]));
        RecordBatch::try_from_iter([("v", value)]).unwrap()
    }

    async fn admitted(unread: &Arc<Unread>) -> Place {
        unread.place(Made::WhenPolled).await.ok().unwrap()
    }

    #[tokio::test]
    async fn those_who_wait_come_in_one_after_the_other() {
        let (unread, _dir) = unread(PATIENCE);
        let four = unread.count(&batch(4 * MIB)).unwrap();
        let turn = admitted(&unread).await.count(&batch(MIB));
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(unread.place(Made::WhenPolled))).collect();
        for place in &mut waiting {
            assert!(place.as_mut().now_or_never().is_none());
        }
        drop(turn);
        // Who came first is first, whoever looks first.
        assert!(waiting[2].as_mut().now_or_never().is_none() && waiting[1].as_mut().now_or_never().is_none());
        let first = waiting.remove(0).await.ok().unwrap();
        assert!(first.turn.is_some());
        assert!(waiting[1].as_mut().now_or_never().is_none());
        drop(four);
        for place in waiting {
            assert!(place.await.ok().unwrap().turn.is_none());
        }
        assert!(!unread.is_awaited());
    }

    #[tokio::test]
    async fn as_many_statements_are_executed_as_there_is_room_for() {
        let (unread, _dir) = unread(PATIENCE);
        let mut admitted = Vec::new();
        while unread.has_room() {
            admitted.push(unread.admit().await.ok().unwrap());
        }
        assert_eq!(admitted.len() as u64, (8 << 20) / STATEMENT_BYTES);
        // One more has the turn, until its first batch is taken; the next waits.
        let mut turn = unread.admit().await.ok().unwrap();
        let place = turn.take_turn().unwrap();
        let mut waiting = Box::pin(unread.admit());
        assert!(waiting.as_mut().now_or_never().is_none() && unread.is_awaited());
        let batch = place.count(&batch(MIB));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop((batch, turn));
        assert!(waiting.await.ok().unwrap().take_turn().is_some());
        drop(admitted);
        assert!(unread.admit().await.ok().unwrap().take_turn().is_none());
        assert_eq!(unread.bytes().0, 0);
    }

    #[tokio::test]
    async fn who_has_waited_for_too_long_is_refused_and_told_the_limit() {
        let (unread, _dir) = unread(Duration::from_millis(1));
        let four = unread.count(&batch(4 * MIB)).unwrap();
        let _turn = admitted(&unread).await;
        let error = unread.place(Made::WhenPolled).await.err().unwrap();
        assert_eq!(error.sqlstate, Some("53200"));
        assert!(error.error.message().ends_with("8388608 bytes"), "{}", error.error);
        assert!(!unread.is_awaited());
        drop(four);
        assert!(unread.place(Made::WhenPolled).await.is_ok());
    }

    #[tokio::test]
    async fn what_is_not_taken_counts_and_holds_up_others_but_one() {
        let (unread, _dir) = unread(PATIENCE);
        let [first, lapsing] = [admitted(&unread).await, admitted(&unread).await];
        let three = admitted(&unread).await.count(&batch(3 * MIB)).unwrap();
        assert!(first.holds() && unread.budget.queries() >= 6 << 20);
        let one = first.count(&batch(MIB));
        assert!(!lapsing.holds() && !unread.is_awaited());
        let turn = admitted(&unread).await;
        assert!(turn.holds());
        // Who gets the turn keeps it until what it made is taken.
        let large = turn.count(&batch(MIB));
        let mut waiting = Box::pin(admitted(&unread));
        assert!(waiting.as_mut().now_or_never().is_none() && unread.is_awaited());
        drop(large);
        let place = waiting.await;
        assert!(place.turn.is_some() && !unread.is_awaited());
        // A short one hands it on at once.
        assert!(place.count(&batch(100)).is_none());
        let turn = admitted(&unread).await;
        assert!(turn.turn.is_some());
        let mut waiting = Box::pin(admitted(&unread));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(three);
        assert!(waiting.await.turn.is_none());
        drop((one, turn));
        assert_eq!((unread.budget.queries(), unread.bytes.load(SeqCst)), (0, 0));
    }

    #[tokio::test]
    async fn what_is_made_aside_is_made_for_a_few_at_a_time() {
        let (unread, _dir) = unread(PATIENCE);
        let mut places = Vec::from_iter((0..LOOKUPS_MAX).map(|_| unread.try_place(Made::Aside).unwrap()));
        assert!(unread.try_place(Made::Aside).is_none());
        let mut waiting = Box::pin(unread.place(Made::Aside));
        assert!(waiting.as_mut().now_or_never().is_none() && !unread.is_awaited());
        // Others do not wait for them.
        admitted(&unread).await;
        assert!(places.pop().unwrap().count(&batch(100)).is_none());
        places.push(waiting.await.ok().unwrap());
        // They keep their leave when there is no more room, but none is given.
        let four = places.pop().unwrap().count(&batch(4 * MIB));
        assert!(four.is_some() && !unread.has_room() && places.iter().all(Place::holds));
        assert!(unread.try_place(Made::Aside).is_none());
        let place = unread.place(Made::Aside).await.ok().unwrap();
        assert!(place.turn.is_some() && place.aside.is_none());
    }

    #[test]
    fn a_batch_has_the_bytes_of_its_values() {
        let long = "x".repeat(MIB);
        let texts = StringViewArray::from(vec!["short", &long, &long]);
        assert_eq!(array_bytes(&texts), 2 * MIB + 48);
        assert_eq!(array_bytes(&texts.slice(0, 2)), MIB + 32);
        let one = BinaryViewArray::from(vec![long.as_bytes()]);
        let many = take(&one, &arrow::array::UInt32Array::from(vec![0; 1000]), None).unwrap();
        assert!(array_bytes(many.as_ref()) < 3 * MIB);
        assert!((MIB..MIB + 100).contains(&(batch_bytes(&batch(MIB)) as usize)));
    }

    #[test]
    fn numbers_make_short_results_and_texts_may_not() {
        let schema = |types: Vec<DataType>| {
            Schema::new(types.into_iter().map(|t| Field::new("c", t, true)).collect::<Vec<_>>())
        };
        assert!(is_short(&schema(vec![])) && is_short(&schema(vec![DataType::Int64, DataType::Boolean])));
        assert!(!is_short(&schema(vec![DataType::Int64, DataType::Utf8View])));
        assert!(!is_short(&schema(vec![DataType::Int64; 17])));
    }
}
