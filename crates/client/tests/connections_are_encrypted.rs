//! A client that is told to encrypt does, and speaks with nobody whom it does not believe.
#![allow(clippy::unwrap_used)]

mod cluster;
mod lossy_proxy;

use cluster::{with_cluster, with_encrypting_cluster};
use lossy_proxy::LossyProxy;
use oribi_client::{
    Client, ClientOptions, Column, ColumnType, CreateTable, OperationType, PartialRow, ReadMode, Result,
    SessionOptions, Tls,
};
use oribi_types::ErrorKind;

const CERTIFICATE: &[u8] = include_bytes!("../../net/tests/tls/certificate.pem");
const OTHER: &[u8] = include_bytes!("../../net/tests/tls/other-certificate.pem");
const ROWS: i64 = 20_000;

async fn connect(master: &str, tls: Tls) -> Result<Client> {
    Client::connect_with(&[master], ClientOptions { tls: Some(tls), ..ClientOptions::default() }).await
}

/// Writes rows and reads them; the table's name is one that can be told among other bytes.
async fn work(client: &Client, name: &str) {
    let definition = CreateTable::new(name)
        .column(Column::new("key", ColumnType::Int64).key())
        .column(Column::new("text", ColumnType::String))
        .hash(&["key"], 3);
    let table = client.create_table(definition).await.unwrap();
    let mut session = client.session(SessionOptions::default());
    let text = "x".repeat(200);
    for key in 0..ROWS {
        let mut row = session.row(&table, OperationType::Insert);
        row.set_i64(0, key).unwrap();
        row.set_str(1, &text).unwrap();
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    let mut scanner = table.scan().read_mode(ReadMode::YourWrites).scanner();
    let mut rows = 0;
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        rows += batch.num_rows() as i64;
    }
    assert_eq!(rows, ROWS);
}

#[test]
fn what_is_said_is_not_overheard() {
    with_encrypting_cluster(async |master| {
        let proxy = LossyProxy::start(&master).await;
        for (i, tls) in [Tls::trusting(CERTIFICATE), Tls::trusting_anybody()].into_iter().enumerate() {
            let client = connect(&proxy.address, tls.unwrap()).await.unwrap();
            let name = format!("a_table_to_whisper_of_{i}");
            work(&client, &name).await;
            assert!(!proxy.saw(&name));
        }
        // By name as well as by address.
        let port = master.rsplit_once(':').unwrap().1;
        connect(&format!("localhost:{port}"), Tls::trusting(CERTIFICATE).unwrap()).await.unwrap();
        // Who does not ask for it is served in plain text.
        let client = Client::connect(&[&proxy.address]).await.unwrap();
        work(&client, "a_table_to_shout_of").await;
        assert!(proxy.saw("a_table_to_shout_of"));
    });
}

#[test]
fn a_server_that_is_not_believed_is_told_nothing() {
    with_encrypting_cluster(async |master| {
        let proxy = LossyProxy::start(&master).await;
        let error = connect(&proxy.address, Tls::trusting(OTHER).unwrap()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
        assert!(error.message().contains("certificate"), "{error}");
        assert!(!proxy.saw("PLAIN\0") && !proxy.saw("oribi"), "it gave its name");
    });
    with_cluster(async |master| {
        let error = connect(&master, Tls::trusting(CERTIFICATE).unwrap()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
        assert!(error.message().ends_with("server does not offer TLS"), "{error}");
    });
    for no_certificate in [&b""[..], b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert_eq!(Tls::trusting(no_certificate).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
