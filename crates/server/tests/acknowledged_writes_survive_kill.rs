//! Twelve connections write through all doors that take writes, and the process is killed. What was acknowledged is there when
//! it comes back, what was deleted stays away, a statement or batch is there as a whole or not at all, and the folder is
//! sound. The budget is so small that a flush is under way nearly always.
//!
//! A key has one writer, so what it may hold after a kill is known: the outcome of its last acknowledged write or that
//! of the one that was under way. `KILL_CYCLES=200` for the long run; `SEED` to repeat one.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use oribi_client::{
    Client, ClientOptions, FlushMode, OperationType, PartialRow, Session, SessionOptions, Table,
};
use process::{Couchbase, Memcached, Server, Sql, oribi_ok};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Rows of a statement through SQL, or of a batch through Kudu's door; they carry the same value.
const GROUP: u64 = 3;
/// Keys (or groups of keys) of a writer.
const KEYS: u64 = 120;
/// Filler, so that memtables fill and flush while the writers run.
const PAD: usize = 1500;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Through {
    /// Documents of the bucket.
    Documents,
    /// Documents of the bucket, acknowledged as persisted.
    Durable,
    /// Rows of a typed table, as JSON.
    Rows,
    Sql,
    /// Batches of a session of the Kudu client.
    Kudu,
}

const WRITERS: [Through; 12] = [
    Through::Documents,
    Through::Documents,
    Through::Durable,
    Through::Durable,
    Through::Rows,
    Through::Rows,
    Through::Sql,
    Through::Sql,
    Through::Sql,
    Through::Sql,
    Through::Kudu,
    Through::Kudu,
];

/// Memory in which flushes and compactions are under way when the process is killed.
const MEMORY: &str = "8MiB";

/// What is known of a key: the value it was last acknowledged to hold, and the one it was about to hold.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    acknowledged: Option<u64>,
    under_way: Option<Option<u64>>,
}

/// One writer's keys.
struct Writer {
    number: usize,
    through: Through,
    keys: Vec<Known>,
    next_value: u64,
    random: Random,
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

impl Writer {
    fn id(&self, key: u64) -> u64 {
        self.number as u64 * 10_000 + key * GROUP
    }

    /// Writes until the server is gone.
    fn run(&mut self, mut door: Door, gone: &AtomicBool) -> u64 {
        let mut acknowledged = 0;
        loop {
            let key = self.random.below(KEYS);
            let value = if self.random.below(4) == 0 {
                None
            } else {
                self.next_value += 1;
                Some(self.next_value)
            };
            self.keys[key as usize].under_way = Some(value);
            let done = match &mut door {
                Door::Cache(cache) => self.through_cache(cache, key, value),
                Door::Durable(durable) => self.through_couchbase(durable, key, value),
                Door::Sql(sql) => self.through_sql(sql, key, value),
                Door::Kudu(kudu) => kudu.write(&self.ids(key), value, gone),
            };
            if !done {
                return acknowledged;
            }
            self.keys[key as usize] = Known { acknowledged: value, under_way: None };
            acknowledged += 1;
        }
    }

    /// The rows of a statement or batch.
    fn ids(&self, key: u64) -> Vec<u64> {
        (0..GROUP).map(|i| self.id(key) + i).collect()
    }

    fn through_cache(&self, cache: &mut Memcached, key: u64, value: Option<u64>) -> bool {
        let id = self.id(key);
        let pad = "p".repeat(PAD);
        let (name, document) = match self.through {
            Through::Documents => (format!("k{id}"), format!("{}:{pad}", value.unwrap_or_default())),
            _ => (
                format!("public/kill/{id}"),
                format!("{{\"id\":{id},\"value\":{},\"pad\":\"{pad}\"}}", value.unwrap_or_default()),
            ),
        };
        let answer = if value.is_some() { cache.set(&name, &document) } else { cache.delete(&name) };
        match answer {
            Ok(line) => {
                assert!(["STORED", "DELETED", "NOT_FOUND"].contains(&line.as_str()), "{name}: {line}");
                true
            }
            Err(_) => false,
        }
    }

    fn through_couchbase(&self, door: &mut Couchbase, key: u64, value: Option<u64>) -> bool {
        let name = format!("k{}", self.id(key));
        let answer = match value {
            Some(value) => door.set(&name, &format!("{value}:{}", "p".repeat(PAD))),
            None => door.delete(&name),
        };
        // Done, or there was nothing to delete.
        answer.inspect(|status| assert!([0, 1].contains(status), "{name}: {status:#x}")).is_ok()
    }

    fn through_sql(&self, sql: &Sql, key: u64, value: Option<u64>) -> bool {
        let ids = self.ids(key);
        let statement = match value {
            Some(value) => {
                let row = |id: &u64| format!("({id}, {value}, '{}')", "p".repeat(PAD));
                let rows: Vec<String> = ids.iter().map(row).collect();
                format!(
                    "insert into kill values {} on conflict (id) do update set value = excluded.value, \
                     pad = excluded.pad",
                    rows.join(", ")
                )
            }
            None => format!("delete from kill where id in ({}, {}, {})", ids[0], ids[1], ids[2]),
        };
        let state = |error: &tokio_postgres::Error| error.as_db_error().map(|db| db.code().code().to_owned());
        loop {
            match sql.execute(&statement) {
                Ok(()) => return true,
                // With so little memory the rows that wait for a flush may leave none for the statement.
                Err(error) if state(&error).is_some_and(|state| state == "53200") => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => {
                    assert!(state(&error).is_none_or(|state| state.starts_with("57")), "{error:?}");
                    return false;
                }
            }
        }
    }

    /// Checks what the server holds against what is known, and takes it as the truth from here on.
    fn verify(&mut self, rows: &BTreeMap<u64, u64>, documents: &BTreeMap<String, u64>) {
        for key in 0..KEYS {
            let id = self.id(key);
            let found: Vec<Option<u64>> = match self.through {
                Through::Documents | Through::Durable => vec![documents.get(&format!("k{id}")).copied()],
                Through::Rows => vec![rows.get(&id).copied()],
                Through::Sql | Through::Kudu => (0..GROUP).map(|i| rows.get(&(id + i)).copied()).collect(),
            };
            let known = &mut self.keys[key as usize];
            assert!(
                found.iter().all(|value| *value == found[0]),
                "statement torn at {id}: {found:?}, {known:?}"
            );
            let allowed = found[0] == known.acknowledged || known.under_way == Some(found[0]);
            assert!(
                allowed,
                "writer {} ({:?}), row {id}: {:?}, but {known:?}",
                self.number, self.through, found[0]
            );
            *known = Known { acknowledged: found[0], under_way: None };
        }
    }
}

/// A writer's connection.
enum Door {
    Cache(Memcached),
    Durable(Couchbase),
    Sql(Sql),
    Kudu(Kudu),
}

impl Door {
    fn open(through: Through, server: &Server) -> Self {
        match through {
            Through::Documents | Through::Rows => Door::Cache(server.memcached()),
            Through::Durable => Door::Durable(Couchbase::connect(server.address("couchbase"))),
            Through::Sql => Door::Sql(Sql::connect(server.address("postgres"))),
            Through::Kudu => Door::Kudu(Kudu::connect(server.address("kudu-master"))),
        }
    }
}

/// A session of the Kudu client, with a runtime of its own.
struct Kudu {
    // Before the runtime in which it ends.
    session: Session,
    table: Table,
    runtime: Runtime,
}

impl Kudu {
    fn connect(master: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options =
            ClientOptions { operation_timeout: Duration::from_secs(60), ..ClientOptions::default() };
        let client = runtime.block_on(Client::connect_with(&[master], options)).unwrap();
        let table = runtime.block_on(client.open_table("kill")).unwrap();
        let session = client.session(SessionOptions { mode: FlushMode::Manual, ..SessionOptions::default() });
        Kudu { session, table, runtime }
    }

    /// Writes one batch; false if the server has gone.
    fn write(&mut self, ids: &[u64], value: Option<u64>, gone: &AtomicBool) -> bool {
        let Kudu { session, table, runtime } = self;
        let pad = "p".repeat(PAD);
        let write = async {
            for id in ids {
                let operation =
                    if value.is_some() { OperationType::Upsert } else { OperationType::DeleteIgnore };
                let mut row = session.row(table, operation);
                row.set_i64(0, *id as i64).unwrap();
                if let Some(value) = value {
                    row.set_i64(1, value as i64).unwrap();
                    row.set_str(2, &pad).unwrap();
                }
                row.apply().await.unwrap();
            }
            session.flush().await.is_ok()
        };
        let until_gone = async {
            // The client would try again for longer than this test lasts.
            while !gone.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                done = write => done,
                () = until_gone => false,
            }
        })
    }
}

/// How many flushes and compactions the server has made.
fn jobs(server: &Server) -> (u64, u64) {
    let mut socket = TcpStream::connect(server.address("http")).unwrap();
    write!(socket, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    socket.read_to_string(&mut metrics).unwrap();
    let count = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (count("oribi_engine_flushes_total "), count("oribi_engine_compactions_total "))
}

#[test]
fn acknowledged_writes_survive_kill() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let cycles = number("KILL_CYCLES", 3);
    let seed = number("SEED", u64::from(std::process::id()) * 7919 + 1);
    println!("SEED={seed} KILL_CYCLES={cycles}");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut random = Random(seed);
    let mut writers: Vec<Writer> = WRITERS
        .iter()
        .enumerate()
        .map(|(number, &through)| {
            let random = Random(seed + number as u64 + 1);
            Writer { number, through, keys: vec![Known::default(); KEYS as usize], next_value: 0, random }
        })
        .collect();
    let flags = ["--memory", MEMORY];
    let mut server = Server::start(&data, &flags);
    let setup = "create table kill (id bigint primary key, value bigint not null, pad text) with (durability = 'sync'); \
                 alter table default.kv set (durability = 'sync')";
    Sql::connect(server.address("postgres")).execute(setup).unwrap();
    for cycle in 1..=cycles {
        let lifetime = Duration::from_millis(200 + random.below(1800));
        let doors: Vec<Door> = WRITERS.iter().map(|through| Door::open(*through, &server)).collect();
        let gone = AtomicBool::new(false);
        let (acknowledged, jobs): (u64, _) = std::thread::scope(|scope| {
            let run = |(writer, door): (_, Door)| {
                let (writer, gone): (&mut Writer, _) = (writer, &gone);
                scope.spawn(move || writer.run(door, gone))
            };
            let running: Vec<_> = writers.iter_mut().zip(doors).map(run).collect();
            std::thread::sleep(lifetime);
            // A failure is told behind the kill: the writers end by it.
            let jobs = catch_unwind(AssertUnwindSafe(|| jobs(&server)));
            server.kill();
            gone.store(true, Ordering::Release);
            (running.into_iter().map(|thread| thread.join().unwrap()).sum(), jobs.unwrap())
        });
        check_is_clean(&data);
        server = Server::start(&data, &flags);
        let (rows, documents) = contents(&server);
        writers.iter_mut().for_each(|writer| writer.verify(&rows, &documents));
        let kept = rows.len() + documents.len();
        let (flushes, compactions) = jobs;
        println!(
            "cycle {cycle}: {acknowledged} writes acknowledged in {lifetime:?}, {flushes} flushes, \
             {compactions} compactions, {kept} rows kept"
        );
    }
    assert!(server.terminate().success());
    check_is_clean(&data);
}

fn check_is_clean(data: &Path) {
    let said = oribi_ok(&["check", "--data", data.to_str().unwrap()]);
    assert!(said.trim_end().ends_with("clean"), "{said}");
}

/// Rows and documents, by SQL; the memcached door must agree on them.
fn contents(server: &Server) -> (BTreeMap<u64, u64>, BTreeMap<String, u64>) {
    let sql = Sql::connect(server.address("postgres"));
    let text = |value: &Option<String>| value.clone().unwrap();
    let rows: BTreeMap<u64, u64> = sql
        .rows("select id, value from kill")
        .iter()
        .map(|row| (text(&row[0]).parse().unwrap(), text(&row[1]).parse().unwrap()))
        .collect();
    let mut cache = server.memcached();
    let document = |value: String| value.split(':').next().unwrap().parse().unwrap();
    let mut documents = BTreeMap::new();
    for row in sql.rows("select convert_from(key, 'UTF8') from default.kv") {
        let key = text(&row[0]);
        let value = cache.get(&key).unwrap().expect("what SQL sees, memcached sees");
        documents.insert(key, document(value));
    }
    for (id, value) in &rows {
        let row = cache.get(&format!("public/kill/{id}")).unwrap().expect("what SQL sees, memcached sees");
        assert!(row.contains(&format!("\"value\":{value},")), "{row}");
    }
    // And what SQL does not see, memcached does not see.
    for id in (0..WRITERS.len() as u64 * 10_000).filter(|id| id % 10_000 < KEYS * GROUP).step_by(7) {
        let found = cache.get(&format!("public/kill/{id}")).unwrap();
        assert_eq!(found.is_some(), rows.contains_key(&id), "row {id}");
    }
    (rows, documents)
}
