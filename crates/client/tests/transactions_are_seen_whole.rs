//! Rows of a transaction are seen by its own scans, and by others when it is committed, all at once.
#![allow(clippy::unwrap_used)]

mod cluster;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type};
use cluster::{with_cluster, with_each_cluster};
use oribi_client::{
    Client, Column, ColumnType, Compare, CreateTable, ErrorKind, FlushMode, OperationType, PartialRow, Scan,
    SessionOptions, Table, Transaction, Value,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

async fn table(client: &Client) -> Table {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("default.txn_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let definition = CreateTable::new(name)
        .column(Column::new("k", ColumnType::Int64).key())
        .column(Column::new("v", ColumnType::Int32))
        .hash(&["k"], 3)
        .replicas(1);
    client.create_table(definition).await.unwrap()
}

/// Writes rows, in a transaction or alone; the first error.
async fn write(
    client: &Client,
    within: Option<&Transaction>,
    table: &Table,
    operation: OperationType,
    rows: impl IntoIterator<Item = (i64, i32)>,
) -> Result<(), oribi_client::Error> {
    let timeout = Some(Duration::from_secs(20));
    let options = SessionOptions { mode: FlushMode::Manual, timeout, ..SessionOptions::default() };
    let mut session = match within {
        Some(transaction) => transaction.session(options),
        None => client.session(options),
    };
    for (k, v) in rows {
        let mut row = session.row(table, operation);
        row.set_i64(0, k)?;
        if !matches!(operation, OperationType::Delete) {
            row.set_i32(1, v)?;
        }
        row.apply().await?;
    }
    session.flush().await
}

/// The rows of a scan, in the order of their keys.
async fn rows(scan: Scan) -> Vec<(i64, i32)> {
    let mut scanner = scan.scanner();
    let mut rows = Vec::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        let (k, v) =
            (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Int32Type>());
        rows.extend(k.values().iter().copied().zip(v.values().iter().copied()));
    }
    rows.sort_unstable();
    rows
}

fn some(n: i64) -> impl Iterator<Item = (i64, i32)> {
    (0..n).map(|k| (k, k as i32))
}

#[test]
fn a_commit_shows_all_rows_and_a_rollback_none() {
    with_each_cluster(async |client| {
        let table = table(&client).await;
        let transaction = client.begin().await.unwrap();
        write(&client, Some(&transaction), &table, OperationType::Insert, some(1000)).await.unwrap();
        assert_eq!(rows(table.scan()).await, []);
        assert!(!transaction.is_committed().await.unwrap());
        transaction.commit().await.unwrap();
        assert!(transaction.is_committed().await.unwrap());
        transaction.commit().await.unwrap();
        assert_eq!(transaction.roll_back().await.unwrap_err().kind(), ErrorKind::Conflict);
        let all: Vec<_> = some(1000).collect();
        assert_eq!(rows(table.scan().read_mode(oribi_client::ReadMode::YourWrites)).await, all);

        let transaction = client.begin().await.unwrap();
        write(&client, Some(&transaction), &table, OperationType::Insert, [(-1, 0)]).await.unwrap();
        transaction.roll_back().await.unwrap();
        let late = write(&client, Some(&transaction), &table, OperationType::Insert, [(-2, 0)]).await;
        assert!(late.is_err());
        assert_eq!(transaction.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(rows(table.scan().read_mode(oribi_client::ReadMode::YourWrites)).await, all);
        client.delete_table(table.name()).await.unwrap();
    });
}

#[test]
fn its_scans_see_what_it_has_written() {
    with_cluster(async |master| {
        let client = Client::connect(&[master]).await.unwrap();
        let table = table(&client).await;
        write(&client, None, &table, OperationType::Insert, some(3000)).await.unwrap();
        let transaction = client.begin().await.unwrap();
        let within = Some(&transaction);
        let all: Vec<_> = some(3000).collect();
        assert_eq!(rows(table.scan().within(&transaction)).await, all, "it has written nothing");
        write(&client, within, &table, OperationType::Update, [(7, -7), (2000, -1)]).await.unwrap();
        write(&client, within, &table, OperationType::Delete, [(8, 0), (2999, 0)]).await.unwrap();
        write(&client, within, &table, OperationType::Insert, [(8, 80), (5000, 1), (-5, 2)]).await.unwrap();
        let mut expected: Vec<_> = all.iter().copied().filter(|(k, _)| ![8, 2999].contains(k)).collect();
        expected.iter_mut().filter(|(k, _)| *k == 7).for_each(|(_, v)| *v = -7);
        expected.iter_mut().filter(|(k, _)| *k == 2000).for_each(|(_, v)| *v = -1);
        expected.extend([(8, 80), (5000, 1), (-5, 2)]);
        expected.sort_unstable();
        let own = || table.scan().within(&transaction).batch_bytes(2000);
        assert_eq!(rows(own()).await, expected);
        assert_eq!(rows(own().columnar(false)).await, expected);
        assert_eq!(rows(own().fault_tolerant()).await, expected);
        let some = own().filter("k", Compare::Less, Value::Int64(10)).unwrap();
        assert_eq!(rows(some).await, expected.iter().copied().filter(|(k, _)| *k < 10).collect::<Vec<_>>());
        let negative = own().filter("v", Compare::Less, Value::Int32(0)).unwrap();
        assert_eq!(rows(negative).await, [(7, -7), (2000, -1)]);
        assert_eq!(rows(table.scan()).await, all, "nobody else sees it");
        transaction.commit().await.unwrap();
        assert_eq!(rows(table.scan()).await, expected);
    });
}

#[test]
fn a_token_is_the_same_transaction_elsewhere() {
    with_each_cluster(async |client| {
        let table = table(&client).await;
        let transaction = client.begin().await.unwrap();
        write(&client, Some(&transaction), &table, OperationType::Insert, [(1, 1)]).await.unwrap();
        let same = client.transaction(&transaction.token(true)).unwrap();
        assert_eq!(same.id(), transaction.id());
        write(&client, Some(&same), &table, OperationType::Insert, [(2, 2)]).await.unwrap();
        same.start_commit().await.unwrap();
        transaction.commit().await.unwrap();
        let scan = table.scan().read_mode(oribi_client::ReadMode::YourWrites);
        assert_eq!(rows(scan).await, [(1, 1), (2, 2)]);
        assert_eq!(client.transaction(b"none").unwrap_err().kind(), ErrorKind::Invalid);
        client.delete_table(table.name()).await.unwrap();
    });
}

#[test]
fn transactions_wait_for_rows_and_not_for_tablets() {
    with_cluster(async |master| {
        let client = Client::connect(&[master]).await.unwrap();
        let table = table(&client).await;
        let [a, b] = [client.begin().await.unwrap(), client.begin().await.unwrap()];
        write(&client, Some(&a), &table, OperationType::Insert, [(1, 1)]).await.unwrap();
        // Other rows of the same tablets are free: for another transaction, and for whoever writes alone.
        write(&client, Some(&b), &table, OperationType::Insert, (10..100).map(|k| (k, 2))).await.unwrap();
        write(&client, None, &table, OperationType::Insert, (100..200).map(|k| (k, 3))).await.unwrap();
        // The same row is waited for.
        let waiting = write(&client, Some(&b), &table, OperationType::Upsert, [(1, 2)]);
        let committing = async {
            tokio::task::yield_now().await;
            a.commit().await
        };
        let (waited, committed) = tokio::join!(waiting, committing);
        committed.unwrap();
        waited.unwrap();
        b.commit().await.unwrap();
        let found = rows(table.scan()).await;
        assert_eq!((found.len(), found[0]), (191, (1, 2)));
    });
}

#[test]
fn of_two_that_wait_for_each_other_one_is_aborted() {
    with_cluster(async |master| {
        let client = Client::connect(&[master]).await.unwrap();
        let table = table(&client).await;
        let [a, b] = [client.begin().await.unwrap(), client.begin().await.unwrap()];
        write(&client, Some(&a), &table, OperationType::Insert, [(1, 1)]).await.unwrap();
        write(&client, Some(&b), &table, OperationType::Insert, [(2, 2)]).await.unwrap();
        let (of_a, of_b) = tokio::join!(
            write(&client, Some(&a), &table, OperationType::Upsert, [(2, 1)]),
            write(&client, Some(&b), &table, OperationType::Upsert, [(1, 2)]),
        );
        assert!(of_a.is_ok() != of_b.is_ok(), "{of_a:?} {of_b:?}");
        let (committed, aborted) = (a.commit().await, b.commit().await);
        assert_eq!((committed.is_ok(), aborted.is_ok()), (of_a.is_ok(), of_b.is_ok()));
        assert_eq!(rows(table.scan()).await.len(), 2);
    });
}
