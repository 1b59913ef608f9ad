//! One client: startup, then message by message until it leaves or the server does.

use super::codec::{self, Message, Part, Startup};
use super::door::Shared;
use super::encode::Format;
use super::error::{self, Fault};
use super::extended::{Bound, Portals, Statements};
use super::kept::Shelf;
use super::point;
use super::statement;
use super::wire::Wire;
use bytes::Bytes;
use metrics::{counter, gauge};
use oribi_session::sql::{POSTGRES_VERSION, Prepared, SqlEngine, SqlError, SqlSession, TransactionStatus};
use oribi_types::{ColumnType, ErrorKind, Value};
use pgwire::error::{SEVERITY_ERROR, SEVERITY_FATAL, SEVERITY_WARNING};
use pgwire::messages::response::{
    EmptyQueryResponse, ErrorResponse, GssEncResponse, NoticeResponse, ReadyForQuery, SslResponse,
    TransactionStatus as WireStatus,
};
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What a client is told at startup and when `SET` changes it. Results are written accordingly whatever is set; moments in
/// UTC, with its offset.
const REPORTED: [(&str, &str); 10] = [
    ("server_version", POSTGRES_VERSION),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("application_name", ""),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];

/// In PostgreSQL they would be undone.
const APPLIED_HINT: &str = "the last change of partitions in the same message, or since the last Sync, and what came before it stand";

/// A connected client.
pub struct Connection {
    pub wire: Wire,
    pub shared: Arc<Shared>,
    pub session: Arc<SqlSession>,
    pub statements: Statements,
    pub portals: Portals,
    /// For those of them that have names.
    pub shelf: Arc<Shelf>,
    /// What an unnamed portal left, for the next one's values.
    pub spare: Bound,
    /// Clears the cancel request of an earlier statement.
    cancel: watch::Sender<bool>,
    /// After an error in the extended protocol: messages up to the next `Sync` are skipped.
    skip_to_sync: bool,
    /// No statement since the last `ReadyForQuery`.
    idle: bool,
    /// A statement of a series has changed the catalog, which stands, whatever becomes of those behind it.
    pub applied: bool,
    reported: BTreeMap<&'static str, String>,
}

/// Ends the session however its connection ends: what a cursor holds may hold the session.
struct Ending(Arc<SqlSession>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Serves a socket until it is closed.
pub async fn serve(socket: TcpStream, shared: Arc<Shared>, shutdown: watch::Receiver<bool>) {
    let _ = socket.set_nodelay(true);
    let (cancel, cancelled) = watch::channel(false);
    let mut wire =
        Wire::new(socket, shared.sql.clone(), &shared.limits, shared.load.clone(), cancelled, shutdown);
    let startup = tokio::time::timeout(shared.limits.startup_timeout, start(&mut wire, &shared));
    let parameters = match startup.await {
        Ok(Ok(Some(parameters))) => parameters,
        Ok(Ok(None) | Err(Fault::Gone)) => return,
        Ok(Err(Fault::Statement(error) | Fault::Fatal(error))) => return refuse(wire, &error).await,
        Err(_) => return,
    };
    wire.newcomer = shared.enter().await;
    let Some(_slot) = shared.take_slot() else {
        return refuse(wire, &error::too_many_connections(shared.limits.connections_max)).await;
    };
    let session = match open_session(shared.sql.as_ref(), parameters) {
        Ok(session) => session,
        Err(error) => return refuse(wire, &error).await,
    };
    gauge!("oribi_postgres_sessions_count").increment(1.0);
    let _ending = Ending(session.clone());
    let registration = shared.cancels.register(cancel.clone());
    let mut connection = Connection::new(wire, shared.clone(), session, cancel);
    connection.greet(registration.pid, registration.secret);
    let ended = connection.run().await;
    gauge!("oribi_postgres_sessions_count").decrement(1.0);
    if let Err(Fault::Fatal(error) | Fault::Statement(error)) = ended {
        connection.put_error(SEVERITY_FATAL, &error);
    }
    connection.wire.close().await;
}

async fn refuse(mut wire: Wire, error: &SqlError) {
    wire.put(&ErrorResponse::from(error::info(SEVERITY_FATAL, error)));
    wire.close().await;
}

/// The startup parameters of a client that wants a session; `None` for one that only wanted another's statement
/// cancelled.
async fn start(wire: &mut Wire, shared: &Shared) -> Result<Option<BTreeMap<String, String>>, Fault> {
    loop {
        match wire.startup().await? {
            Startup::Ssl => wire.put(&SslResponse::Refuse),
            Startup::GssEncryption => wire.put(&GssEncResponse::Refuse),
            Startup::Cancel { pid, secret } => {
                shared.cancels.cancel(pid, secret);
                return Ok(None);
            }
            Startup::Session { major: 3, minor, parameters } => {
                let (options, parameters): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    parameters.into_iter().partition(|(name, _)| name.starts_with("_pq_."));
                if minor > 0 || !options.is_empty() {
                    // Protocol 3.0 and none of its options is what we speak.
                    wire.put(&NegotiateProtocolVersion::new(3 << 16, options.into_keys().collect()));
                }
                return Ok(Some(parameters));
            }
            Startup::Session { major, minor, .. } => {
                let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
                return Err(Fault::Fatal(SqlError::new(ErrorKind::Unsupported, message)));
            }
        }
        wire.flush().await?;
    }
}

/// A session with the settings that the client asks for.
fn open_session(
    sql: &dyn SqlEngine,
    mut parameters: BTreeMap<String, String>,
) -> Result<Arc<SqlSession>, SqlError> {
    let user = parameters.remove("user").unwrap_or_default();
    let database = parameters.remove("database").filter(|d| !d.is_empty()).unwrap_or_else(|| user.clone());
    let options = parameters.remove("options").unwrap_or_default();
    // Whether it wants to replicate: those that do fail at their first command.
    parameters.remove("replication");
    let session = SqlSession::new(user, database);
    for (name, value) in parameters.into_iter().chain(option_settings(&options)) {
        // Some clients quote a value as SQL would.
        sql.set(&session, &name.to_ascii_lowercase(), value.trim_matches('\''))?;
    }
    session.start();
    Ok(session)
}

/// The settings in the startup parameter `options`: `-c name=value` and `--name=value`.
fn option_settings(options: &str) -> Vec<(String, String)> {
    let words = option_words(options);
    let words = words.iter().map(|w| w.strip_prefix("--").or(w.strip_prefix("-c")).unwrap_or(w));
    let settings = words.filter_map(|w| w.split_once('='));
    settings.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect()
}

/// Words separated by spaces; a backslash keeps the character behind it.
fn option_words(options: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => words.last_mut().expect("never empty").extend(characters.next()),
            c if c.is_ascii_whitespace() => words.push(String::new()),
            c => words.last_mut().expect("never empty").push(c),
        }
    }
    words
}

impl Connection {
    fn new(wire: Wire, shared: Arc<Shared>, session: Arc<SqlSession>, cancel: watch::Sender<bool>) -> Self {
        let statements = Statements::new(shared.limits.statements_max);
        let portals = Portals::new(shared.limits.statements_max);
        let shelf = Shelf::of_connection(&shared.shelf, shared.limits.kept_bytes_max);
        let reported = BTreeMap::new();
        Connection {
            wire,
            shared,
            session,
            statements,
            portals,
            shelf,
            spare: Bound::default(),
            cancel,
            skip_to_sync: false,
            idle: true,
            applied: false,
            reported,
        }
    }

    /// Any user is welcome: the door listens on loopback only.
    fn greet(&mut self, pid: i32, secret: i32) {
        self.wire.put(&Authentication::Ok);
        self.wire.put(&BackendKeyData::new(pid, SecretKey::I32(secret)));
        self.put_parameters();
        self.put_ready();
    }

    /// States the reported parameters that have changed since they were last stated.
    pub fn put_parameters(&mut self) {
        for (name, default) in REPORTED {
            let setting = match name {
                "application_name" => self.session.setting(name),
                "TimeZone" => self.session.setting("timezone"),
                _ => None,
            };
            let value = setting.map_or(Cow::Borrowed(default), Cow::Owned);
            if self.reported.get(name).is_none_or(|reported| *reported != value) {
                // The client sent it, at a length that may be more than it would take back.
                let shown = &value[..value.floor_char_boundary(1024)];
                self.wire.put(&ParameterStatus::new(name.to_owned(), shown.replace('\0', "")));
                self.reported.insert(name, value.into_owned());
            }
        }
    }

    async fn run(&mut self) -> Result<(), Fault> {
        self.wire.flush().await?;
        loop {
            let (tag, body) = self.frame().await?;
            if std::mem::take(&mut self.idle) {
                // A cancel request that came while nothing ran is void.
                self.cancel.send_replace(false);
            }
            let part = Part::of(tag);
            match part {
                Part::Terminate => return Ok(()),
                Part::OfCopy => continue,
                Part::Whole | Part::OfSeries if self.skip_to_sync => continue,
                Part::Sync => self.skip_to_sync = false,
                Part::Whole | Part::OfSeries => {}
            }
            let done = match codec::decode(tag, &body) {
                Ok(message) => self.handle(message).await,
                Err(malformed) => Err(malformed.into()),
            };
            match done {
                Ok(()) => {}
                Err(Fault::Statement(error)) => self.fail(&error, part).await?,
                Err(fatal) => return Err(fatal),
            }
        }
    }

    /// The next message, of a client that leaves its block alone no longer than it may.
    async fn frame(&mut self) -> Result<(u8, Bytes), Fault> {
        let limit = if self.idle { self.session.idle_timeout() } else { None };
        let Some(limit) = limit else { return self.wire.frame(false).await };
        let frame = tokio::time::timeout(limit, self.wire.frame(false)).await;
        frame.unwrap_or_else(|_| Err(Fault::Fatal(error::idle_in_transaction())))
    }

    async fn handle(&mut self, message: Message<'_>) -> Result<(), Fault> {
        match message {
            Message::Query(script) => {
                self.simple(script).await?;
                self.ready().await
            }
            Message::Parse { name, sql, types } => self.parse(name, sql, types).await,
            Message::Bind(bind) => self.bind(&bind),
            Message::Describe(target) => self.describe(target),
            Message::Execute { portal, rows_max } => self.execute(portal, rows_max).await,
            Message::Close(target) => {
                self.close(target);
                Ok(())
            }
            Message::Flush => self.wire.answer().await,
            Message::Sync => self.ready().await,
            Message::FunctionCall => {
                self.check_block(None)?;
                Err(SqlError::new(ErrorKind::Unsupported, "function calls are not supported").into())
            }
        }
    }

    /// Runs a script of the simple protocol: statement by statement, up to the first that fails.
    async fn simple(&mut self, script: &str) -> Result<(), Fault> {
        self.statements.remove("");
        self.portals.remove("");
        if self.simple_recalled(script).await? {
            return Ok(());
        }
        let statements = self.wire.run(self.shared.sql.split(script)).await?;
        if statements.is_empty() {
            self.wire.put(&EmptyQueryResponse::new());
        }
        let is_series = statements.len() > 1;
        for place in statements {
            if is_series {
                // Again behind a `COMMIT` among them.
                self.shared.sql.begin_series(&self.session);
            }
            let start = place.start;
            let sql = &script[place];
            let ran = match is_series && self.simple_recalled(sql).await? {
                true => Ok(()),
                false => self.simple_statement(sql).await,
            };
            match ran {
                Err(Fault::Statement(mut error)) => {
                    // Positions count from the start of the script.
                    error.position = error.position.map(|p| p + script[..start].chars().count());
                    return Err(Fault::Statement(error));
                }
                ran => ran?,
            }
        }
        Ok(())
    }

    async fn simple_statement(&mut self, sql: &str) -> Result<(), Fault> {
        let prepared = self.plan(sql, &[]).await?;
        if !prepared.parameters().is_empty() {
            let message = "there is no parameter $1: the simple protocol carries none";
            return Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("42P02").into());
        }
        self.simple_prepared(&prepared, &[]).await
    }

    /// Runs a statement that differs in its literals, if at all, from one that was prepared before; false if there is none.
    async fn simple_recalled(&mut self, sql: &str) -> Result<bool, Fault> {
        let Some((prepared, values)) = self.shared.sql.recall_with_literals(&self.session, sql) else {
            return Ok(false);
        };
        self.simple_prepared(&prepared, &values).await.map(|()| true)
    }

    async fn simple_prepared(&mut self, prepared: &Arc<dyn Prepared>, values: &[Value]) -> Result<(), Fault> {
        let formats = vec![Format::Text; prepared.columns().map_or(0, |c| c.fields().len())];
        if point::run(self, prepared.as_ref(), values, &formats, true).is_some() {
            return Ok(());
        }
        let mut running = statement::start(self, prepared, values, formats).await?;
        running.put_description(self);
        running.advance(self, 0).await.map(|_| ())
    }

    /// Plans a statement whose result fits the protocol.
    pub async fn plan(
        &mut self,
        sql: &str,
        types: &[Option<ColumnType>],
    ) -> Result<Arc<dyn Prepared>, Fault> {
        let prepared = self.wire.run(self.shared.sql.prepare(&self.session, sql, types)).await?;
        error::column_count(prepared.columns().map_or(0, |columns| columns.fields().len()))?;
        Ok(prepared)
    }

    /// # Errors
    /// 25P02 in a block that failed, unless `prepared` ends it.
    pub fn check_block(&self, prepared: Option<&dyn Prepared>) -> Result<(), SqlError> {
        match self.session.transaction() {
            TransactionStatus::Failed if !prepared.is_some_and(|prepared| prepared.ends_block()) => {
                Err(error::aborted_block())
            }
            _ => Ok(()),
        }
    }

    /// Ends a series of messages: all that was made for it goes, and the client may send the next.
    ///
    /// # Errors
    /// Those of applying what the series was, if it was one; it has ended then too.
    async fn ready(&mut self) -> Result<(), Fault> {
        if self.session.modes().implicit {
            let commit = self.session.transaction() == TransactionStatus::Open;
            let (sql, session) = (self.shared.sql.clone(), self.session.clone());
            self.wire.run(async move { sql.end_series(&session, commit).await }).await?;
        }
        if self.session.transaction() == TransactionStatus::Idle {
            self.end_portals();
        }
        self.put_ready();
        self.wire.answer().await
    }

    fn put_ready(&mut self) {
        let status = match self.session.transaction() {
            TransactionStatus::Idle => WireStatus::Idle,
            TransactionStatus::Open => WireStatus::Transaction,
            TransactionStatus::Failed => WireStatus::Error,
        };
        self.wire.put(&ReadyForQuery::new(status));
        self.idle = true;
        self.applied = false;
    }

    /// Tells the client that a message failed, before it has to send another.
    async fn fail(&mut self, error: &SqlError, part: Part) -> Result<(), Fault> {
        counter!("oribi_postgres_errors_total", "sqlstate" => error.sqlstate()).increment(1);
        // A cancel request ends what runs, and not what this makes of it.
        self.cancel.send_replace(false);
        self.session.fail();
        self.put_warnings();
        let mut error = Cow::Borrowed(error);
        if self.applied && error.hint.is_none() {
            error.to_mut().hint = Some(APPLIED_HINT.to_owned());
        }
        self.put_error(SEVERITY_ERROR, &error);
        match part {
            Part::OfSeries => {
                self.skip_to_sync = true;
                self.wire.answer().await
            }
            _ => self.ready().await,
        }
    }

    fn put_error(&mut self, severity: &str, error: &SqlError) {
        self.wire.put(&ErrorResponse::from(error::info(severity, error)));
    }

    /// Passes on what the statement left to say, unless the client wants errors only.
    pub fn put_warnings(&mut self) {
        let warnings = self.session.take_warnings();
        if warnings.is_empty() {
            return;
        }
        if self
            .session
            .setting("client_min_messages")
            .is_some_and(|level| level.eq_ignore_ascii_case("error"))
        {
            return;
        }
        for warning in warnings {
            let warning = SqlError::new(ErrorKind::Invalid, warning).with_sqlstate("01000");
            self.wire.put(&NoticeResponse::from(error::info(SEVERITY_WARNING, &warning)));
        }
    }
}
