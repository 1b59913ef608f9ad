//! An SQL engine of a dozen statements, to drive the PostgreSQL door without the real one.

#![allow(dead_code, reason = "each scenario uses its part")]

use arrow::array::{
    ArrayRef, AsArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use oribi_doors::postgres::{PostgresDoor, PostgresLimits};
use oribi_engine::Obligation;
use oribi_session::sql::{
    CopyFormat, CopySink, CopyStatement, Outcome, Point, PointRead, PointWrite, Prepared, Release, SqlEngine,
    SqlError, SqlSession, TransactionStatus,
};
use oribi_types::batch::ColumnBuilder;
use oribi_types::{ColumnType, Error, ErrorKind, Timestamp, Value, ValueRef};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// The rows that were copied in.
type Copied = Arc<Mutex<Vec<(i64, Option<String>)>>>;

/// What happened to the engine.
#[derive(Default)]
pub struct FakeSql {
    /// Streams of `endless` and `sleep` that are alive.
    pub running: Arc<AtomicUsize>,
    /// Rows that a `COPY` committed.
    pub copied: Copied,
    /// What was waited for.
    pub settled: Mutex<Vec<Obligation>>,
    /// Whether the log has stopped.
    pub stopped: AtomicBool,
    /// Whether statements wait for clients of others.
    pub awaits_clients: AtomicBool,
    /// Clients that have come with the setting `newcomer`, each when it could take this.
    pub newcomers: Mutex<usize>,
    /// How many of them there were as each script came.
    pub newcomers_before: Mutex<Vec<usize>>,
}

/// A door on a free port over a fake engine.
pub struct Server {
    pub addr: SocketAddr,
    pub sql: Arc<FakeSql>,
    pub shutdown: watch::Sender<bool>,
    pub door: PostgresDoor,
}

pub fn serve(limits: PostgresLimits) -> Server {
    let sql = Arc::new(FakeSql::default());
    let (shutdown, down) = watch::channel(false);
    let listener = oribi_net::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let door = PostgresDoor::start(listener, sql.clone(), limits, down).unwrap();
    Server { addr: door.local_addr(), sql, shutdown, door }
}

impl Server {
    pub async fn connect(&self) -> tokio_postgres::Client {
        let config =
            format!("host={} port={} user=ada application_name=test", self.addr.ip(), self.addr.port());
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// Polls until `condition` holds.
pub async fn eventually(mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), wait)
        .await
        .expect("the condition comes to hold");
}

#[async_trait]
impl SqlEngine for FakeSql {
    async fn split(&self, script: &str) -> Result<Vec<Range<usize>>, SqlError> {
        self.newcomers_before.lock().unwrap().push(*self.newcomers.lock().unwrap());
        let statements = script.split(';').map(str::trim).filter(|s| !s.is_empty());
        let place = |s: &str| s.as_ptr() as usize - script.as_ptr() as usize;
        Ok(statements.map(|s| place(s)..place(s) + s.len()).collect())
    }

    fn set(&self, session: &SqlSession, name: &str, value: &str) -> Result<(), SqlError> {
        if name == "newcomer" {
            *self.newcomers.lock().unwrap() += 1;
        }
        if name == "bogus" {
            return Err(SqlError::new(ErrorKind::NotFound, "unrecognized configuration parameter")
                .with_sqlstate("42704"));
        }
        session.set(name, value);
        Ok(())
    }

    fn awaits_clients(&self) -> bool {
        self.awaits_clients.load(Ordering::SeqCst)
    }

    fn settled(&self, obligation: Obligation) -> Option<BoxFuture<'static, Result<(), Error>>> {
        match (obligation.durable, obligation.visible) {
            (0, Timestamp::MIN) => return None,
            (0, _) => {}
            _ => self.settled.lock().unwrap().push(obligation),
        }
        let stopped = self.stopped.load(Ordering::SeqCst);
        Some(Box::pin(async move {
            tokio::task::yield_now().await;
            if stopped { Err(Error::unavailable("the log has stopped")) } else { Ok(()) }
        }))
    }

    async fn prepare(
        &self,
        session: &Arc<SqlSession>,
        sql: &str,
        parameter_types: &[Option<ColumnType>],
    ) -> Result<Arc<dyn Prepared>, SqlError> {
        let sql = sql.trim_end_matches(';').to_owned();
        if session.transaction() == TransactionStatus::Failed && sql != "rollback" {
            return Err(
                SqlError::new(ErrorKind::Invalid, "current transaction is aborted").with_sqlstate("25P02")
            );
        }
        let word = sql.split(' ').next().unwrap_or_default();
        let bigint = || Some(schema(&[("n", DataType::Int64)]));
        let mut statement = Statement {
            parameters: vec![],
            columns: None,
            copy: None,
            running: self.running.clone(),
            copied: self.copied.clone(),
            sql: sql.clone(),
            release: sql.strip_prefix("deallocate ").map(|name| match name {
                "all" => Release::Statements,
                name => Release::Statement(name.to_owned()),
            }),
        };
        match word {
            "rows" | "endless" | "sleep" | "breaks" => statement.columns = bigint(),
            "types" => statement.columns = Some(all_types().schema()),
            "echo" => {
                let count = sql.matches('$').count();
                let given = |i| parameter_types.get(i).copied().flatten().unwrap_or(ColumnType::String);
                statement.parameters = (0..count).map(given).collect();
                let columns: Vec<_> =
                    (0..count).map(|i| (format!("p{i}"), statement.parameters[i].arrow())).collect();
                let columns: Vec<_> = columns.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
                statement.columns = Some(schema(&columns));
            }
            "copy_out" => {
                statement.columns = Some(people().schema());
                statement.copy = Some(copy_options(true, &sql));
            }
            "copy_in" => statement.copy = Some(copy_options(false, &sql)),
            "pick" => {
                statement.parameters = vec![ColumnType::Int64, ColumnType::String];
                statement.columns = Some(schema(&[("n", DataType::Int64), ("v", DataType::Utf8View)]));
            }
            "put" => statement.parameters = vec![ColumnType::Int64],
            "done" | "begin" | "rollback" | "warn" | "deallocate" | "plan" => {}
            _ => {
                let error = SqlError::new(ErrorKind::Invalid, format!("syntax error at or near \"{word}\""));
                return Err(error.with_sqlstate("42601").at(1).with_hint("try rows, types or echo"));
            }
        }
        Ok(Arc::new(statement))
    }
}

struct Statement {
    sql: String,
    release: Option<Release>,
    parameters: Vec<ColumnType>,
    columns: Option<SchemaRef>,
    copy: Option<CopyStatement>,
    running: Arc<AtomicUsize>,
    copied: Copied,
}

struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Prepared for Statement {
    fn parameters(&self) -> &[ColumnType] {
        &self.parameters
    }
    /// Of `plan N` N, of others nothing.
    fn plan_bytes(&self) -> usize {
        self.sql.strip_prefix("plan ").map_or(0, |bytes| bytes.parse().unwrap())
    }
    fn columns(&self) -> Option<&SchemaRef> {
        self.columns.as_ref()
    }
    fn ends_block(&self) -> bool {
        self.sql == "rollback"
    }
    fn releases(&self) -> Option<&Release> {
        self.release.as_ref()
    }
    fn copy(&self) -> Option<&CopyStatement> {
        self.copy.as_ref()
    }

    fn verb(&self) -> &'static str {
        if self.sql.starts_with("put") { "INSERT 0" } else { "SELECT" }
    }
    fn point(&self, session: &SqlSession) -> Option<Point<'_>> {
        match self.sql.split(' ').next() {
            Some("pick") if session.transaction() == TransactionStatus::Idle => Some(Point::Read(self)),
            Some("put") => Some(Point::Write(self)),
            _ => None,
        }
    }

    async fn execute(&self, session: &Arc<SqlSession>, parameters: &[Value]) -> Result<Outcome, SqlError> {
        let (word, rest) = self.sql.split_once(' ').unwrap_or((&self.sql, ""));
        let alive = || {
            self.running.fetch_add(1, Ordering::SeqCst);
            Alive(self.running.clone())
        };
        Ok(match word {
            "rows" => {
                let count: i64 = rest.parse().unwrap();
                let starts = (0..count).step_by(1000);
                let batches: Vec<_> = starts.map(move |s| Ok(numbers(s..count.min(s + 1000)))).collect();
                Outcome::Rows(futures::stream::iter(batches).boxed())
            }
            "breaks" => {
                let error = SqlError::new(ErrorKind::Corrupt, "sstable 7: checksum mismatch");
                Outcome::Rows(futures::stream::iter([Ok(numbers(0..3)), Err(error)]).boxed())
            }
            "endless" => {
                let alive = alive();
                let batches = futures::stream::repeat_with(move || {
                    let _ = &alive;
                    Ok(numbers(0..1000))
                });
                Outcome::Rows(batches.boxed())
            }
            "sleep" => {
                let _alive = alive();
                std::future::pending::<()>().await;
                unreachable!("nothing wakes it");
            }
            "types" => Outcome::Rows(futures::stream::iter([Ok(all_types())]).boxed()),
            "echo" => {
                let arrays = parameters.iter().zip(&self.parameters).map(|(value, column_type)| {
                    let mut builder = ColumnBuilder::new(*column_type);
                    builder.push(value.as_ref());
                    builder.finish(*column_type).unwrap()
                });
                let batch = RecordBatch::try_new(self.columns.clone().unwrap(), arrays.collect());
                Outcome::Rows(futures::stream::iter([Ok(batch.unwrap())]).boxed())
            }
            "pick" => {
                let columns: Vec<ArrayRef> = vec![
                    Arc::new(Int64Array::from(vec![0])),
                    Arc::new(StringViewArray::from(vec!["planned"])),
                ];
                let batch = RecordBatch::try_new(self.columns.clone().unwrap(), columns).unwrap();
                Outcome::Rows(futures::stream::iter([Ok(batch)]).boxed())
            }
            "put" => {
                let error = SqlError::new(ErrorKind::AlreadyExists, "it is there");
                return Err(error.with_sqlstate("23505"));
            }
            "copy_out" => Outcome::Rows(futures::stream::iter([Ok(people())]).boxed()),
            "copy_in" => Outcome::CopyIn(Box::new(Sink {
                schema: people().schema(),
                rows: vec![],
                copied: self.copied.clone(),
            })),
            "begin" => {
                session.set_transaction(TransactionStatus::Open);
                Outcome::Done { tag: "BEGIN".into() }
            }
            "rollback" => {
                session.set_transaction(TransactionStatus::Idle);
                Outcome::Done { tag: "ROLLBACK".into() }
            }
            "warn" => {
                session.warn("mind the gap");
                Outcome::Done { tag: "WARN".into() }
            }
            _ => Outcome::Done { tag: "INSERT 0 3".into() },
        })
    }
}

/// `pick n v` finds the row (n, v); none below 0, and 0 only by its plan.
impl PointRead for Statement {
    fn try_get(
        &self,
        _: &SqlSession,
        parameters: &[Value],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<Option<(bool, Obligation)>, Error> {
        match parameters {
            [Value::Int64(0), _] => return Ok(None),
            [Value::Int64(..0), _] => return Ok(Some((false, Obligation::default()))),
            [n, v] => visit(&[n.as_ref(), v.as_ref()]),
            _ => return Err(Error::internal("two parameters")),
        }
        Ok(Some((true, Obligation::default())))
    }

    fn get(&self, _: &[Value], _: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<(bool, Obligation), Error> {
        unreachable!("a door does not block")
    }
}

/// `put n` must wait for LSN n, and above 1000 until others see it; 0 is refused.
impl PointWrite for Statement {
    fn write(&self, _: &SqlSession, parameters: &[Value]) -> Option<(u64, Obligation)> {
        match parameters {
            [Value::Int64(n @ 1..)] => {
                let visible = if *n > 1000 { Timestamp(*n as u64) } else { Timestamp::MIN };
                Some((1, Obligation { durable: *n as u64, visible, ..Obligation::default() }))
            }
            _ => None,
        }
    }
}

struct Sink {
    schema: SchemaRef,
    rows: Vec<(i64, Option<String>)>,
    copied: Copied,
}

#[async_trait]
impl CopySink for Sink {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }
    async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let (ids, names) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string_view());
        self.rows.extend(ids.values().iter().copied().zip(names.iter().map(|n| n.map(str::to_owned))));
        Ok(())
    }
    async fn finish(self: Box<Self>) -> Result<u64, SqlError> {
        self.copied.lock().unwrap().extend(self.rows.clone());
        Ok(self.rows.len() as u64)
    }
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}

fn copy_options(to_stdout: bool, sql: &str) -> CopyStatement {
    let csv = sql.ends_with("csv");
    CopyStatement {
        to_stdout,
        format: if csv { CopyFormat::Csv } else { CopyFormat::Text },
        header: csv,
        delimiter: if csv { b',' } else { b'\t' },
        null: if csv { String::new() } else { "\\N".to_owned() },
        quote: b'"',
        escape: b'"',
    }
}

fn numbers(range: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
    RecordBatch::try_new(schema(&[("n", DataType::Int64)]), vec![column]).unwrap()
}

fn people() -> RecordBatch {
    let names = StringViewArray::from(vec![Some("Ada, \"Countess\"\tof\nLovelace"), None, Some("")]);
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![1, 2, 3])), Arc::new(names)];
    RecordBatch::try_new(schema(&[("id", DataType::Int64), ("name", DataType::Utf8View)]), columns).unwrap()
}

/// A row with a value of each type, and one of nulls.
fn all_types() -> RecordBatch {
    let uuid = FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some([7_u8; 16]), None].into_iter(), 16)
        .unwrap();
    let decimal =
        Decimal128Array::from(vec![Some(-1_234_567), None]).with_precision_and_scale(15, 2).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("bool", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("int2", Arc::new(Int16Array::from(vec![Some(-2), None]))),
        ("int4", Arc::new(Int32Array::from(vec![Some(4), None]))),
        ("int8", Arc::new(Int64Array::from(vec![Some(i64::MIN), None]))),
        ("float4", Arc::new(Float32Array::from(vec![Some(0.5), None]))),
        ("float8", Arc::new(Float64Array::from(vec![Some(f64::NEG_INFINITY), None]))),
        ("numeric", Arc::new(decimal)),
        ("text", Arc::new(StringViewArray::from(vec![Some("naïve"), None]))),
        ("bytea", Arc::new(BinaryViewArray::from(vec![Some(&b"\x00\xff"[..]), None]))),
        ("date", Arc::new(Date32Array::from(vec![Some(-1), None]))),
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(vec![Some(1_500_000), None]))),
        ("uuid", Arc::new(uuid)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}
