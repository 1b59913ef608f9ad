//! A server whose tables are kept in a store is killed again and again while it writes, flushes and compacts: what was
//! acknowledged is there, whatever of the folder's files is lost but for its log and manifest. Another folder is refused the
//! store, until the tables are restored to it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod process;

use process::{Server, Sql, oribi, oribi_ok};
use std::path::Path;
use std::sync::Mutex;

/// Memory in which a flush is under way nearly always.
const FLAGS: [&str; 4] = ["--memory", "8MiB", "--store-cache", "1MiB"];

fn start(data: &Path, store: &str) -> Server {
    Server::start(data, &[&FLAGS[..], &["--store", store][..]].concat())
}

fn count(sql: &Sql) -> (u64, u64) {
    let row = &sql.rows("select count(*), coalesce(max(id), 0) from t where length(v) = 1500")[0];
    let number = |i: usize| row[i].as_ref().unwrap().parse().unwrap();
    (number(0), number(1))
}

#[test]
fn what_was_acknowledged_is_there_after_kills() {
    let dirs = tempfile::tempdir().unwrap();
    let (data, bucket) = (dirs.path().join("data"), dirs.path().join("bucket"));
    let store = format!("file://{}", bucket.display());
    let cycles = std::env::var("KILL_CYCLES").map_or(4, |cycles| cycles.parse().unwrap());
    let acknowledged = Mutex::new(0_u64);
    for cycle in 0..cycles {
        let mut server = start(&data, &store);
        let sql = Sql::connect(server.address("postgres"));
        if cycle == 0 {
            sql.execute("create table t (id bigint primary key, v text)").unwrap();
        }
        let (rows, last) = count(&sql);
        let told = *acknowledged.lock().unwrap();
        assert!(rows == last && last >= told && last <= told + 100, "{rows} rows to {last}, told of {told}");
        std::thread::scope(|scope| {
            let (acknowledged, sql) = (&acknowledged, &sql);
            let writer = scope.spawn(move || {
                for first in (last + 1..).step_by(100) {
                    let upto = first + 99;
                    let insert = format!("insert into t select i, repeat('v', 1500) from generate_series({first}, {upto}) as g(i)");
                    if sql.execute(&insert).is_err() {
                        return;
                    }
                    *acknowledged.lock().unwrap() = upto;
                }
            });
            let enough = told + 20_000;
            while *acknowledged.lock().unwrap() < enough && !writer.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            server.kill();
        });
        if cycle % 2 == 1 {
            // The log and the manifest are elsewhere.
            std::fs::remove_dir_all(data.join("tables")).unwrap();
        }
    }
    let server = start(&data, &store);
    let (rows, last) = count(&Sql::connect(server.address("postgres")));
    assert!(rows == last && last >= *acknowledged.lock().unwrap() && last > 0);
    assert!(std::fs::read_dir(bucket.join("tables")).unwrap().count() > 0);

    let other = dirs.path().join("other");
    let mut second = Server::command(&other);
    let said = second.args(["--store", &store]).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success() && text.contains("belongs to another owner"), "{text}");

    assert!(server.terminate().success());
    let said = oribi_ok(&["check", "--data", data.to_str().unwrap()]);
    assert!(said.contains("clean"), "{said}");
    std::fs::remove_dir_all(&data).unwrap();
    let found = dirs.path().join("found");
    oribi_ok(&["restore", "--store", &store, "--data", found.to_str().unwrap()]);
    // The folder knows its store.
    let server = Server::start(&found, &FLAGS);
    assert_eq!(count(&Sql::connect(server.address("postgres"))), (rows, last));
    assert!(server.terminate().success());
    let again = oribi(&["restore", "--store", &store, "--data", found.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("has tables"));
    oribi_ok(&["doctor", "--store", &store]);
}
