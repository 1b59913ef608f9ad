//! A change of a table whose answer is lost is asked for again, and is not taken for one that was refused.
#![allow(clippy::unwrap_used)]

mod cluster;
mod lossy_proxy;

use cluster::with_each_master;
use lossy_proxy::LossyProxy;
use oribi_client::{AlterTable, Client, Column, ColumnType, CreateTable, Result, Table};
use oribi_types::{ErrorKind, Value};
use parking_lot::Mutex;
use std::time::Duration;

/// All tests name their tables alike, which a cluster that outlives a test would notice.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a test with a client of each cluster, whose answers from the master may be lost.
fn with_losses(test: impl AsyncFn(Client, &LossyProxy)) {
    let _turn = TURN.lock();
    with_each_master(async |master| {
        let proxy = LossyProxy::start(&master).await;
        let client = Client::connect(&[&proxy.address]).await.unwrap();
        for name in ["t", "t2"] {
            match client.delete_table(name).await {
                Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
                _ => {}
            }
        }
        test(client, &proxy).await;
    });
}

fn int(v: i64) -> [Value; 1] {
    [Value::Int64(v)]
}

fn definition() -> CreateTable {
    hashed(2)
}

fn hashed(buckets: u32) -> CreateTable {
    CreateTable::new("t")
        .column(Column::new("key", ColumnType::Int64).key())
        .column(Column::new("v", ColumnType::Int32).with_default(Value::Int32(7)))
        .hash(&["key"], buckets)
        .range(&["key"])
        .range_partition(&int(0), &int(10))
}

async fn names(client: &Client, table: &str) -> Result<Vec<String>> {
    let table: Table = client.open_table(table).await?;
    Ok(table.columns().iter().map(|column| column.name.clone()).collect())
}

#[test]
fn a_table_that_was_made_is_not_there_already() {
    with_losses(async |client, proxy| {
        proxy.lose("CreateTable");
        let ranges = |upper| definition().range_partition(&int(20), &int(upper)).split(&int(25));
        let table = client.create_table(ranges(30)).await.unwrap();
        assert_eq!((table.name(), table.columns().len()), ("t", 2));
        assert_eq!(proxy.lost(), 1);
        // One that others made is.
        for other in [
            definition(),
            ranges(40),
            ranges(30).split(&int(5)),
            definition().range_partition(&int(20), &int(30)),
            ranges(30).range_partition(&int(30), &[]),
            ranges(30).column(Column::new("w", ColumnType::Int64)),
            hashed(3).range_partition(&int(20), &int(30)).split(&int(25)),
            CreateTable::new("t").column(Column::new("key", ColumnType::Int64).key()),
        ] {
            proxy.lose("CreateTable");
            let error = client.create_table(other).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        }
        let error = client.create_table(ranges(30)).await.err().unwrap();
        assert_eq!((error.kind(), proxy.lost()), (ErrorKind::AlreadyExists, 9));
        proxy.lose("DeleteTable");
        client.delete_table("t").await.unwrap();
        assert_eq!(client.delete_table("t").await.err().unwrap().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn unbounded_tables_that_were_made_are_not_there_already() {
    with_losses(async |client, proxy| {
        let key = || CreateTable::new("t").column(Column::new("key", ColumnType::Int64).key());
        let definitions = [
            key(),
            key().hash(&["key"], 2),
            key().range(&["key"]),
            key().hash(&["key"], 2).range(&["key"]).split(&int(5)),
            key().range(&["key"]).range_partition(&[], &int(0)).range_partition(&int(10), &[]),
        ];
        for definition in definitions {
            proxy.lose("CreateTable");
            client.create_table(definition).await.unwrap();
            client.delete_table("t").await.unwrap();
        }
        assert_eq!(proxy.lost(), 5);
    });
}

#[test]
fn a_table_that_was_deleted_is_not_deleted_again_under_its_name() {
    with_losses(async |client, proxy| {
        let deleted = client.create_table(definition()).await.unwrap();
        let other = Client::connect(&[&proxy.address]).await.unwrap();
        let shut = proxy.gate.lock().await;
        proxy.lose("DeleteTable");
        let make_again = async {
            while proxy.lost() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let made = other.create_table(definition()).await.unwrap();
            drop(shut);
            made
        };
        let (done, made) = tokio::join!(client.delete_table("t"), make_again);
        done.unwrap();
        assert_ne!(made.id(), deleted.id());
        assert_eq!(client.open_table("t").await.unwrap().id(), made.id());
    });
}

#[test]
fn steps_that_were_taken_are_not_refused() {
    with_losses(async |client, proxy| {
        client.create_table(definition()).await.unwrap();
        let text = Column::new("text", ColumnType::String);
        let changes = [
            AlterTable::new().add_column(&text),
            AlterTable::new().rename_column("v", "u").drop_column("text"),
            AlterTable::new().add_range_partition(&int(10), &int(20)),
            AlterTable::new()
                .drop_range_partition(&int(0), &int(10))
                .add_range_partition(&int(20), &[])
                .add_column(&text)
                .rename("t2"),
        ];
        let expected =
            [vec!["key", "v", "text"], vec!["key", "u"], vec!["key", "u"], vec!["key", "u", "text"]];
        for (i, (change, expected)) in changes.into_iter().zip(expected).enumerate() {
            proxy.lose("AlterTable");
            client.alter_table("t", change).await.unwrap();
            assert_eq!(proxy.lost(), i + 1);
            assert_eq!(names(&client, if i == 3 { "t2" } else { "t" }).await.unwrap(), expected);
        }
        let refused = [
            AlterTable::new().add_column(&text),
            AlterTable::new().drop_column("v"),
            AlterTable::new().drop_range_partition(&int(5), &int(10)),
            AlterTable::new().add_range_partition(&int(15), &int(25)),
            AlterTable::new().add_range_partition(&int(0), &int(10)).drop_column("v"),
        ];
        for change in refused {
            proxy.lose("AlterTable");
            assert!(client.alter_table("t2", change.clone()).await.is_err(), "{change:?}");
        }
        assert_eq!(names(&client, "t2").await.unwrap(), ["key", "u", "text"]);
    });
}
