//! The table `kudu_system.kudu_transactions`, in which `kudu txn list` looks for transactions: with Kudu's columns, and rows that are
//! made when it is scanned. Nothing is stored in it, and nobody can write to it.

use oribi_engine::{Changes, Engine, Table, TransactionState};
use oribi_kudu::column::DataType;
use oribi_kudu::messages::common as message;
use oribi_kudu::messages::transactions::{TxnState, TxnStatusEntry};
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnType, Durability, Partitioning, Result, Schema, TableDefinition, TableOptions, ValueRef,
};
use prost::Message;
use std::sync::Arc;

pub(super) const NAME: &str = "kudu_system.kudu_transactions";

/// Kudu calls this column a string, though it has an encoded message, and no text.
const METADATA: &str = "metadata";

/// Of the column `entry_type`: a transaction. Kudu has rows of tablets that take part, too.
const OF_TRANSACTION: i8 = 1;

pub(super) fn table() -> Arc<Table> {
    let not_null = |name: &str, column_type| ColumnSpec::new(name, column_type).not_null();
    let columns = vec![
        not_null("txn_id", ColumnType::Int64),
        not_null("entry_type", ColumnType::Int8),
        not_null("identifier", ColumnType::String),
        not_null(METADATA, ColumnType::Binary),
    ];
    let schema = Schema::new(columns, &["txn_id", "entry_type", "identifier"]);
    let (schema_name, name) = super::name::parse(NAME);
    Table::outside_catalog(TableDefinition {
        schema_name: schema_name.to_owned(),
        name: name.to_owned(),
        schema: schema.expect("these are columns of a table"),
        partitioning: Partitioning::none(),
        options: TableOptions::new(Durability::Sync),
    })
}

/// The table's columns as clients are told, of those that it has.
pub(super) fn show(schema: &mut message::Schema) {
    let metadata = schema.columns.iter_mut().filter(|column| column.name == METADATA);
    metadata.for_each(|column| column.data_type = DataType::String.into());
}

/// A column of the table, of one that a client names.
pub(super) fn stored(mut column: message::ColumnSchema) -> message::ColumnSchema {
    if column.name == METADATA {
        column.data_type = DataType::Binary.into();
    }
    column
}

/// The transactions of Kudu's clients that are open, and the last that have ended.
pub(super) fn rows(engine: &Engine, table: &Table) -> Result<Changes> {
    let (open, ended) = engine.transactions();
    let seconds = |micros: u64| Some((micros / 1_000_000) as i64);
    let entry = |id: u64, state: TxnState, user: &str| TxnStatusEntry {
        state: Some(state.into()),
        user: Some(user.to_owned()),
        start_timestamp: seconds(id),
        ..TxnStatusEntry::default()
    };
    let open = open.iter().filter_map(|open| {
        let state = if open.is_committing { TxnState::CommitInProgress } else { TxnState::Open };
        let entry = entry(open.id, state, open.owner.as_ref()?);
        Some((open.id, TxnStatusEntry { last_transition_timestamp: entry.start_timestamp, ..entry }))
    });
    let ended = ended.iter().map(|ended| {
        let state = if ended.rows.is_some() { TxnState::Committed } else { TxnState::Aborted };
        let committed = match engine.state_of(ended.id) {
            Ok(TransactionState::Committed(ts, _)) => ts.map(|ts| ts.0),
            _ => None,
        };
        let last_transition_timestamp = seconds(ended.ended_micros);
        let entry = entry(ended.id, state, &ended.owner);
        (ended.id, TxnStatusEntry { commit_timestamp: committed, last_transition_timestamp, ..entry })
    });
    let row = |(id, entry): (u64, TxnStatusEntry)| {
        let metadata = entry.encode_to_vec();
        let (mut key, mut row) = (Vec::new(), Vec::new());
        let values = [
            ValueRef::Int64(id as i64),
            ValueRef::Int8(OF_TRANSACTION),
            ValueRef::String(""),
            ValueRef::Binary(&metadata),
        ];
        table.schema_ref().encode(&values, &mut key, &mut row)?;
        Ok((key.into(), Some(row.into())))
    };
    open.chain(ended).map(row).collect()
}
