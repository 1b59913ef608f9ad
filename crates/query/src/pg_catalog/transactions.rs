//! `system.transactions`: the open transactions of all doors, and what became of the last ones of Kudu's clients. It is found by its
//! name and listed nowhere, as tools that list tables know which schemas are PostgreSQL's, and not this one.

use super::picture::Picture;
use super::table::{Cell, Declaration, Row, row};
use oribi_engine::{EndedTransaction, Engine, OpenTransaction};

/// The schema of what is Oribi's own.
pub const SCHEMA: &str = "system";

pub const TABLES: &[Declaration] = &[(
    SCHEMA,
    "transactions",
    "id int8, door text, owner text, state text, age_ms int8, tables text, rows int8, locked_rows int8, bytes int8, \
     waits_for oid[], why text",
    rows,
)];

fn rows(picture: &Picture) -> Vec<Row> {
    let Some(engine) = &picture.engine else { return Vec::new() };
    let now_micros = engine.read_view().now_micros;
    let (open, ended) = engine.transactions();
    let open = open.iter().map(|open| row_of_open(engine, open, now_micros));
    let ended = ended.iter().map(|ended| row_of_ended(ended, now_micros));
    open.chain(ended).collect()
}

/// A number says when its transaction began.
fn age_ms(id: u64, now_micros: u64) -> i64 {
    (now_micros.saturating_sub(id) / 1000) as i64
}

fn row_of_open(engine: &Engine, open: &OpenTransaction, now_micros: u64) -> Row {
    let name = |(id, _): &(u64, usize)| {
        let table = engine.latest(*id)?;
        Some(format!("{}.{}", table.schema_name(), table.name()))
    };
    let mut tables: Vec<String> = open.tables.iter().filter_map(name).collect();
    tables.sort_unstable();
    let rows: usize = open.tables.iter().map(|(_, rows)| rows).sum();
    let waits_for = open.waits_for.iter().map(|id| *id as i64).collect();
    row! {
        id: open.id as i64,
        door: if open.owner.is_some() { "kudu" } else { "postgres" },
        owner: open.owner.as_deref().map_or(Cell::Null, Cell::from),
        state: if open.is_committing { "committing" } else { "open" },
        age_ms: age_ms(open.id, now_micros),
        tables: tables.join(", "),
        rows: rows as i64,
        locked_rows: open.locked_rows as i64,
        bytes: open.bytes as i64,
        waits_for: Cell::Ints(waits_for)
    }
}

fn row_of_ended(ended: &EndedTransaction, now_micros: u64) -> Row {
    row! {
        id: ended.id as i64,
        door: "kudu",
        owner: &*ended.owner,
        state: if ended.rows.is_some() { "committed" } else { "aborted" },
        age_ms: age_ms(ended.id, now_micros),
        rows: ended.rows.map_or(Cell::Null, |rows| Cell::Int(rows as i64)),
        why: ended.why.as_deref().map_or(Cell::Null, Cell::from)
    }
}
