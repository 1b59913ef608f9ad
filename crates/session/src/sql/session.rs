//! One client's SQL state: its settings, its block, and what is left to tell it.

use super::{AdvisoryHolder, AdvisoryLocks, Cursors, SqlError, TimeZone};
use futures::future::BoxFuture;
use oribi_engine::{Blocked, Catalog, Engine, Obligation, Snapshot, Transaction};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The setting that limits how long a statement may take.
pub const STATEMENT_TIMEOUT: &str = "statement_timeout";

/// The settings that limit how long it may wait for rows that others have locked, and how long a client may leave a block alone.
pub const LOCK_TIMEOUT: &str = "lock_timeout";
pub const IDLE_IN_TRANSACTION_TIMEOUT: &str = "idle_in_transaction_session_timeout";

/// The settings that planning looks at: a plan holds while they are what they were.
const PLANNED_FOR: [&str; 2] = ["search_path", "timezone"];

/// The values of [`PLANNED_FOR`]; `None` for one that was not made.
type PlannedFor = [Option<String>; PLANNED_FOR.len()];

/// Where a session stands between `BEGIN` and `COMMIT`. The PostgreSQL door reports it with `ReadyForQuery`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Outside of a block.
    #[default]
    Idle,
    /// Inside a block.
    Open,
    /// A statement of the block failed; only `ROLLBACK` and `COMMIT` are accepted, and both roll back.
    Failed,
}

/// How a block was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockModes {
    /// All of its statements see one snapshot.
    pub repeatable_read: bool,
    /// And it is committed only if what they have read is still the same.
    pub serializable: bool,
    pub read_only: bool,
    /// No `BEGIN` began it, but a message of several statements, which ends it.
    pub implicit: bool,
}

impl BlockModes {
    /// The names of the isolation levels that there are.
    pub const LEVELS: [&str; 4] = ["read committed", "read uncommitted", "repeatable read", "serializable"];

    pub fn level(&self) -> &'static str {
        match (self.repeatable_read, self.serializable) {
            (false, _) => "read committed",
            (true, false) => "repeatable read",
            (true, true) => "serializable",
        }
    }

    /// The same at the level of this name.
    pub fn at_level(self, level: &str) -> Self {
        let is = |name: &str| level.eq_ignore_ascii_case(name);
        let serializable = is("serializable");
        BlockModes { repeatable_read: serializable || is("repeatable read"), serializable, ..self }
    }
}

/// What `COMMIT` does beside committing the block's transaction: a statement that is not decided before.
pub struct Staged {
    /// Makes the change, and waits until that may be told.
    pub apply: Box<dyn FnOnce() -> BoxFuture<'static, Result<(), SqlError>> + Send>,
}

/// One client's SQL state.
pub struct SqlSession {
    pub user: String,
    /// The name the client connected to; there is one database, so it only shows in `current_database()`.
    pub database: String,
    settings: Mutex<Settings>,
    /// What [`planning`](Self::planning) answers. Each statement asks.
    planning: AtomicU64,
    /// What `settings` says of [`STATEMENT_TIMEOUT`], in milliseconds; 0 without a limit. Each statement asks.
    statement_timeout_ms: AtomicU32,
    before_block: Mutex<BeforeBlock>,
    /// A [`TransactionStatus`]. Each statement asks several times.
    status: AtomicU8,
    /// What [`now_micros`](Self::now_micros) answers.
    now_micros: AtomicI64,
    block: Mutex<Block>,
    cursors: Cursors,
    /// Of advisory locks, once it has asked for one.
    advisory: Mutex<Option<Arc<AdvisoryHolder>>>,
    /// Numbers of sequences that it was given.
    drawn: Mutex<DrawnNumbers>,
    /// The row that kept the last statement from writing.
    blocked: Mutex<Option<Blocked>>,
    warnings: Mutex<Vec<String>>,
}

/// The last number of each sequence, by the id of its table, and of which it was given one last.
#[derive(Default)]
struct DrawnNumbers {
    /// Each with what has to be settled before it is told.
    numbers: BTreeMap<u64, (i64, Obligation)>,
    last: Option<u64>,
}

/// What a session's block has come to.
#[derive(Default)]
struct Block {
    modes: BlockModes,
    /// Begun by the first statement that needs it.
    transaction: Option<Arc<Transaction>>,
    /// Taken by the first statement, if all see one.
    snapshot: Option<Arc<Snapshot>>,
    staged: Option<Staged>,
}

/// A block that has ended.
pub struct EndedBlock {
    pub status: TransactionStatus,
    pub modes: BlockModes,
    pub transaction: Option<Arc<Transaction>>,
    pub staged: Option<Staged>,
}

/// The settings that a session made.
#[derive(Default)]
struct Settings {
    made: BTreeMap<String, String>,
    /// Those that the client made when it connected: `RESET` brings them back.
    at_start: BTreeMap<String, String>,
}

/// Sessions whose plans may be each other's: of the same user and database, and with the same settings that planning looks at.
type Alike = (String, String, PlannedFor);

/// The numbers of those that were met. When there are many, they are forgotten, and those of long names at once.
static PLANNINGS: Mutex<BTreeMap<Alike, u64>> = Mutex::new(BTreeMap::new());
const PLANNINGS_MAX: usize = 4096;
const PLANNING_BYTES_MAX: usize = 1024;

/// The number of sessions that are alike.
fn planning_of(alike: Alike) -> u64 {
    /// A number that was forgotten never comes back.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = || NEXT.fetch_add(1, Ordering::Relaxed);
    let (user, database, settings) = &alike;
    let bytes = settings.iter().flatten().map(String::len).sum::<usize>() + user.len() + database.len();
    if bytes > PLANNING_BYTES_MAX {
        return next();
    }
    let mut known = lock(&PLANNINGS);
    if known.len() >= PLANNINGS_MAX {
        known.clear();
    }
    *known.entry(alike).or_insert_with(next)
}

impl Settings {
    /// The number of the values that the settings of [`PLANNED_FOR`] have.
    fn planning(&self, user: &str, database: &str) -> u64 {
        planning_of((
            user.to_owned(),
            database.to_owned(),
            PLANNED_FOR.map(|name| self.made.get(name).cloned()),
        ))
    }
}

/// What settings are to be again when the block ends, by name; `None` for one that was not made.
#[derive(Default)]
struct BeforeBlock {
    /// When it is committed: those of `SET LOCAL`.
    at_commit: BTreeMap<String, Option<String>>,
    /// When it is rolled back: all that were changed.
    at_rollback: BTreeMap<String, Option<String>>,
}

impl SqlSession {
    pub fn new(user: impl Into<String>, database: impl Into<String>) -> Arc<Self> {
        let (user, database, settings): (String, String, _) =
            (user.into(), database.into(), Settings::default());
        let planning = AtomicU64::new(settings.planning(&user, &database));
        Arc::new(SqlSession {
            user,
            database,
            settings: Mutex::new(settings),
            planning,
            statement_timeout_ms: AtomicU32::new(0),
            before_block: Mutex::default(),
            status: AtomicU8::new(TransactionStatus::Idle as u8),
            now_micros: AtomicI64::new(0),
            block: Mutex::default(),
            cursors: Cursors::default(),
            advisory: Mutex::default(),
            drawn: Mutex::default(),
            blocked: Mutex::default(),
            warnings: Mutex::default(),
        })
    }

    /// A setting made by `SET name = value`, lowercase.
    pub fn setting(&self, name: &str) -> Option<String> {
        lock(&self.settings).made.get(name).cloned()
    }

    pub fn set(&self, name: &str, value: impl Into<String>) {
        self.change(name, Some(value.into()));
    }

    /// Takes a setting back: what it is then is what the client asked for when it connected, if it did.
    pub fn reset(&self, name: &str) {
        let at_start = lock(&self.settings).at_start.get(name).cloned();
        self.change(name, at_start);
    }

    /// The settings made so far are those that the client connected with.
    pub fn start(&self) {
        let mut settings = lock(&self.settings);
        settings.at_start = settings.made.clone();
    }

    fn change(&self, name: &str, value: Option<String>) {
        let mut settings = lock(&self.settings);
        if name == STATEMENT_TIMEOUT {
            self.note_timeout(value.as_deref().unwrap_or("0"));
        }
        let is_another = settings.made.get(name) != value.as_ref();
        match value {
            Some(value) => settings.made.insert(name.to_owned(), value),
            None => settings.made.remove(name),
        };
        if is_another && PLANNED_FOR.contains(&name) {
            self.planning.store(settings.planning(&self.user, &self.database), Ordering::Relaxed);
        }
    }

    /// A number for the settings that planning looks at, of this session and those that are alike: as long as it is the same, they are.
    /// Values that come back have their number again, unless there were many others meanwhile, in all sessions.
    #[inline]
    pub fn planning(&self) -> u64 {
        self.planning.load(Ordering::Relaxed)
    }

    fn note_timeout(&self, value: &str) {
        let limit = parse_timeout(value).unwrap_or_default();
        self.statement_timeout_ms.store(limit.as_millis() as u32, Ordering::Relaxed);
    }

    /// The time that a statement may take, if it is limited.
    pub fn statement_timeout(&self) -> Option<Duration> {
        match self.statement_timeout_ms.load(Ordering::Relaxed) {
            0 => None,
            limit => Some(Duration::from_millis(limit.into())),
        }
    }

    /// The zone of the session's wall clock, if it is not UTC.
    pub fn time_zone(&self) -> Option<TimeZone> {
        self.setting("timezone").and_then(|name| TimeZone::parse(&name)).filter(|zone| !zone.is_utc())
    }

    /// Notes what a setting is before a block changes it, for the block alone (`local`) or beyond its `COMMIT`.
    pub fn note_before_change(&self, name: &str, local: bool) {
        let mut before = lock(&self.before_block);
        let value = self.setting(name);
        if local {
            before.at_commit.entry(name.to_owned()).or_insert_with(|| value.clone());
        } else {
            before.at_commit.remove(name);
        }
        before.at_rollback.entry(name.to_owned()).or_insert(value);
    }

    /// Brings back the settings that the block changed: all of them, or if it was committed those that it changed for
    /// itself alone.
    pub fn end_block_settings(&self, committed: bool) {
        self.end_what_ends_with_blocks(committed);
        let BeforeBlock { at_commit, at_rollback } = std::mem::take(&mut *lock(&self.before_block));
        for (name, value) in if committed { at_commit } else { at_rollback } {
            self.change(&name, value);
        }
    }

    /// All settings made, by name.
    pub fn settings(&self) -> BTreeMap<String, String> {
        lock(&self.settings).made.clone()
    }

    #[inline]
    pub fn transaction(&self) -> TransactionStatus {
        match self.status.load(Ordering::Relaxed) {
            status if status == TransactionStatus::Idle as u8 => TransactionStatus::Idle,
            status if status == TransactionStatus::Open as u8 => TransactionStatus::Open,
            _ => TransactionStatus::Failed,
        }
    }

    /// The SQL engine's to call. Whatever the session's block has come to is undone.
    pub fn set_transaction(&self, status: TransactionStatus) {
        let block = std::mem::take(&mut *lock(&self.block));
        self.status.store(status as u8, Ordering::Relaxed);
        self.end_what_ends_with_blocks(false);
        if let Some(transaction) = block.transaction {
            transaction.roll_back();
        }
    }

    /// The client has gone: whoever else holds the session, nobody waits for what it had.
    pub fn end(&self) {
        self.set_transaction(TransactionStatus::Idle);
        self.cursors.close_all();
        let holder = lock(&self.advisory).take();
        if let Some(holder) = holder {
            holder.end();
        }
    }

    /// Begins a block, at a time in microseconds since 1970. The SQL engine's to call.
    pub fn begin_block(&self, modes: BlockModes, now_micros: i64) {
        self.set_transaction(TransactionStatus::Open);
        lock(&self.block).modes = modes;
        self.now_micros.store(now_micros, Ordering::Relaxed);
    }

    /// Begins a statement, which in a block has the time of that. The SQL engine's to call.
    pub fn begin_statement(&self, now_micros: impl FnOnce() -> i64) {
        if self.transaction() == TransactionStatus::Idle {
            self.now_micros.store(now_micros(), Ordering::Relaxed);
        }
    }

    /// What `now()` is, in microseconds since 1970: when the block began, outside of one the statement.
    #[inline]
    pub fn now_micros(&self) -> i64 {
        self.now_micros.load(Ordering::Relaxed)
    }

    /// How the block was begun; outside of one, the defaults.
    pub fn modes(&self) -> BlockModes {
        match self.transaction() {
            TransactionStatus::Idle => BlockModes::default(),
            _ => lock(&self.block).modes,
        }
    }

    pub fn set_modes(&self, modes: BlockModes) {
        lock(&self.block).modes = modes;
    }

    /// The transaction of the block, if a statement needed one.
    pub fn open_transaction(&self) -> Option<Arc<Transaction>> {
        match self.transaction() {
            TransactionStatus::Idle => None,
            _ => lock(&self.block).transaction.clone(),
        }
    }

    /// Whether a statement about one row may be run on the spot, one that `writes` or one that reads: outside of a block, and in one
    /// each statement of which sees the newest rows and its tables as everybody does.
    #[inline]
    pub fn admits_point(&self, writes: bool) -> bool {
        self.transaction() == TransactionStatus::Idle || self.block_admits_point(writes)
    }

    fn block_admits_point(&self, writes: bool) -> bool {
        let block = lock(&self.block);
        let sees_the_newest = !block.modes.repeatable_read && block.staged.is_none();
        let of_all = !block.transaction.as_ref().is_some_and(|transaction| transaction.changes_catalog());
        let may = sees_the_newest && of_all && !(writes && block.modes.read_only);
        may && self.transaction() == TransactionStatus::Open
    }

    /// The transaction of the block, in which the session is.
    pub fn begin_transaction(&self, engine: &Arc<Engine>) -> Arc<Transaction> {
        lock(&self.block).transaction.get_or_insert_with(|| engine.begin()).clone()
    }

    /// The catalog as the session sees it: with what its block has changed.
    pub fn catalog(&self, engine: &Engine) -> Arc<Catalog> {
        match self.open_transaction() {
            Some(transaction) => transaction.catalog(),
            None => engine.catalog(),
        }
    }

    /// The version of that, at the least.
    pub fn catalog_version(&self, engine: &Engine) -> u64 {
        match self.open_transaction().filter(|transaction| transaction.changes_catalog()) {
            Some(transaction) => transaction.catalog().version(),
            None => engine.catalog_version(),
        }
    }

    /// What all statements of the block see, if that is one snapshot.
    pub fn block_snapshot(&self, engine: &Arc<Engine>) -> Option<Arc<Snapshot>> {
        if self.transaction() == TransactionStatus::Idle {
            return None;
        }
        let block = &mut *lock(&self.block);
        let (modes, transaction) = (block.modes, &mut block.transaction);
        let take = || match modes.serializable {
            true => transaction.get_or_insert_with(|| engine.begin()).serialize(),
            false => Arc::new(engine.snapshot()),
        };
        modes.repeatable_read.then(|| block.snapshot.get_or_insert_with(take).clone())
    }

    /// The transaction of the block, if that is to know what its statements read.
    pub fn serializable_transaction(&self) -> Option<Arc<Transaction>> {
        match self.transaction() {
            TransactionStatus::Idle => None,
            _ => Some(lock(&self.block)).filter(|block| block.modes.serializable)?.transaction.clone(),
        }
    }

    /// Whether a statement of the block has taken that snapshot.
    pub fn has_block_snapshot(&self) -> bool {
        lock(&self.block).snapshot.is_some()
    }

    /// A statement failed, and with it the block that the session is in, if any: what it changed since its last savepoint is undone,
    /// and nothing runs but `ROLLBACK TO` that, or what ends the block. The SQL engine's to call, and the door's when it fails a
    /// statement itself.
    pub fn fail(&self) {
        if self.transaction() == TransactionStatus::Open {
            let mut block = lock(&self.block);
            let (transaction, staged) = (block.transaction.clone(), block.staged.take());
            self.status.store(TransactionStatus::Failed as u8, Ordering::Relaxed);
            drop((block, staged));
            if transaction.is_none_or(|transaction| transaction.fail()) {
                self.end_what_ends_with_blocks(false);
            }
        }
    }

    /// What came after a savepoint is undone, and the block goes on; false if there is no savepoint of the name.
    pub fn roll_back_to(&self, savepoint: &str) -> bool {
        let Some(transaction) = self.open_transaction() else { return false };
        if !transaction.roll_back_to(savepoint) {
            return false;
        }
        lock(&self.block).staged = None;
        self.status.store(TransactionStatus::Open as u8, Ordering::Relaxed);
        true
    }

    /// Leaves what the block is to do when it is committed.
    pub fn stage(&self, staged: Staged) {
        lock(&self.block).staged = Some(staged);
    }

    /// Whether the block has staged something.
    pub fn has_staged(&self) -> bool {
        self.transaction() != TransactionStatus::Idle && lock(&self.block).staged.is_some()
    }

    /// Ends the block; returns where it stood, and what it has come to.
    pub fn end_block(&self) -> EndedBlock {
        let status = self.transaction();
        let Block { modes, transaction, staged, .. } = std::mem::take(&mut *lock(&self.block));
        self.status.store(TransactionStatus::Idle as u8, Ordering::Relaxed);
        EndedBlock { status, modes, transaction, staged }
    }

    fn end_what_ends_with_blocks(&self, committed: bool) {
        self.cursors.end_block(committed);
        let holder = lock(&self.advisory).clone();
        if let Some(holder) = holder {
            holder.end_block();
        }
    }

    /// What holds the session's advisory locks.
    pub fn advisory(&self, locks: &Arc<AdvisoryLocks>) -> Arc<AdvisoryHolder> {
        lock(&self.advisory).get_or_insert_with(|| Arc::new(AdvisoryHolder::new(locks))).clone()
    }

    /// Whether it has advisory locks.
    pub fn has_advisory_locks(&self) -> bool {
        lock(&self.advisory).as_ref().is_some_and(|holder| holder.has_any())
    }

    /// It was given this number of the sequence whose table has this id; what is to be settled before it is told comes with it.
    pub fn note_drawn(&self, sequence: u64, number: i64, obligation: Obligation) {
        let mut drawn = lock(&self.drawn);
        drawn.numbers.insert(sequence, (number, obligation));
        drawn.last = Some(sequence);
    }

    /// The last number of a sequence that it was given.
    pub fn drawn(&self, sequence: u64) -> Option<(i64, Obligation)> {
        lock(&self.drawn).numbers.get(&sequence).copied()
    }

    /// The last number that it was given of any.
    pub fn last_drawn(&self) -> Option<(i64, Obligation)> {
        let drawn = lock(&self.drawn);
        drawn.last.and_then(|last| drawn.numbers.get(&last).copied())
    }

    /// Forgets what number it was given of a sequence that is gone.
    pub fn forget_drawn_of(&self, sequence: u64) {
        lock(&self.drawn).numbers.remove(&sequence);
    }

    /// Forgets what numbers it was given.
    pub fn forget_drawn(&self) {
        *lock(&self.drawn) = DrawnNumbers::default();
    }

    /// Gives back all advisory locks that the session has taken for itself.
    pub fn unlock_advisory(&self) {
        let holder = lock(&self.advisory).clone();
        if let Some(holder) = holder {
            holder.unlock_all();
        }
    }

    pub fn cursors(&self) -> &Cursors {
        &self.cursors
    }

    /// Notes that a transaction has locked a row which a statement would write.
    pub fn note_blocked(&self, by: Blocked) {
        *lock(&self.blocked) = Some(by);
    }

    pub fn take_blocked(&self) -> Option<Blocked> {
        lock(&self.blocked).take()
    }

    /// How long a statement may wait for locked rows, if that is limited.
    pub fn lock_timeout(&self) -> Option<Duration> {
        self.limit(LOCK_TIMEOUT)
    }

    /// How long the client may leave the block alone that the session is in, if that is limited.
    pub fn idle_timeout(&self) -> Option<Duration> {
        match self.transaction() {
            TransactionStatus::Idle => None,
            _ => self.limit(IDLE_IN_TRANSACTION_TIMEOUT),
        }
    }

    fn limit(&self, name: &str) -> Option<Duration> {
        self.setting(name).and_then(|value| parse_timeout(&value)).filter(|limit| !limit.is_zero())
    }

    /// Leaves a warning for the client; the door sends it before the statement's answer.
    pub fn warn(&self, message: impl Into<String>) {
        lock(&self.warnings).push(message.into());
    }

    /// The warnings left since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.warnings))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A time limit as PostgreSQL writes it: a number with a unit (`ms`, `s`, `min`, `h`, `d`), or of milliseconds. At most
/// [`i32::MAX`] milliseconds, PostgreSQL's own bound.
pub fn parse_timeout(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let limit = number.parse::<u64>().ok()?.checked_mul(factor)?;
    (limit <= i32::MAX as u64).then(|| Duration::from_millis(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_is_what_the_settings_say_whichever_way_they_are_changed() {
        let session = SqlSession::new("user", "database");
        let limit = || session.statement_timeout().map(|limit| limit.as_millis());
        assert_eq!(limit(), None);
        session.set(STATEMENT_TIMEOUT, "2s");
        session.set("lock_timeout", "7");
        assert_eq!(limit(), Some(2000));
        session.note_before_change(STATEMENT_TIMEOUT, true);
        session.set(STATEMENT_TIMEOUT, "50");
        assert_eq!(limit(), Some(50));
        session.end_block_settings(true);
        assert_eq!(limit(), Some(2000));
        session.set(STATEMENT_TIMEOUT, "0");
        assert_eq!(limit(), None);
        session.set(STATEMENT_TIMEOUT, "24d");
        assert_eq!(limit(), Some(24 * 86_400_000));
        session.reset(STATEMENT_TIMEOUT);
        assert_eq!(limit(), None);
    }
    #[test]
    fn plans_hold_as_long_as_the_settings_do_that_they_were_made_for() {
        let session = SqlSession::new("user", "database");
        let default = session.planning();
        assert_ne!(default, SqlSession::new("other", "database").planning());
        assert_eq!(default, SqlSession::new("user", "database").planning());
        session.set("application_name", "none of a plan's business");
        assert_eq!(session.planning(), default);
        session.set("search_path", "a");
        let a = session.planning();
        session.set("search_path", "b");
        let b = session.planning();
        assert!(a != default && b != default && a != b);
        session.set("search_path", "a");
        assert_eq!(session.planning(), a, "it is known again");
        session.note_before_change("search_path", true);
        session.set("search_path", "b");
        assert_eq!(session.planning(), b);
        session.end_block_settings(true);
        assert_eq!(session.planning(), a);
        session.reset("search_path");
        assert_eq!(session.planning(), default);
        let long = "a, ".repeat(PLANNING_BYTES_MAX);
        session.set("search_path", &long);
        let planning = session.planning();
        session.set("search_path", "a");
        session.set("search_path", long);
        assert!(session.planning() > planning, "long names are forgotten, and their numbers never come back");
    }

    #[test]
    fn what_a_client_connected_with_comes_back_when_a_setting_is_reset() {
        let session = SqlSession::new("user", "database");
        session.set(STATEMENT_TIMEOUT, "1s");
        session.set("search_path", "a");
        session.start();
        let planning = session.planning();
        for name in [STATEMENT_TIMEOUT, "search_path", "my.own"] {
            session.set(name, "2s");
            session.reset(name);
        }
        assert_eq!(session.statement_timeout(), Some(Duration::from_secs(1)));
        assert_eq!((session.setting("my.own"), session.planning()), (None, planning));
        assert_eq!(session.setting("search_path").as_deref(), Some("a"));
    }

    #[test]
    fn a_block_gives_back_what_it_changed() {
        for (committed, local_last, kept) in [
            (true, true, "session"),
            (true, false, "session"),
            (false, true, "before"),
            (false, false, "before"),
        ] {
            let session = SqlSession::new("user", "database");
            session.set("a.b", "before");
            let steps = [("local", true), ("session", false)];
            for i in if local_last { [1, 0] } else { [0, 1] } {
                let (value, local) = steps[i];
                session.note_before_change("a.b", local);
                session.set("a.b", value);
            }
            session.end_block_settings(committed);
            assert_eq!(session.setting("a.b").as_deref(), Some(kept), "{committed} {local_last}");
        }
    }
}
