//! `system.queries`: what is executed, and what was last.

use super::picture::Picture;
use super::table::{Cell, Declaration, Row, row};
use super::transactions::SCHEMA;
use crate::queries::{How, Query};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub const TABLES: &[Declaration] = &[(
    SCHEMA,
    "queries",
    "id int8, username text, state text, age_ms int8, time_ms int8, query text, rows int8, why text, nodes text, \
     exchanged_rows int8, exchanged_batches int8, handed_over_bytes int8, sent_bytes int8, \
     before_compression_bytes int8, encoding_us int8, waiting_for_network_us int8, waiting_for_receiver_us int8, \
     exchange_scan_ratio float4",
    rows,
)];

fn rows(picture: &Picture) -> Vec<Row> {
    picture.queries.iter().flat_map(|queries| queries.list()).map(row_of).collect()
}

fn row_of(query: Query) -> Row {
    let age = query.begun.elapsed();
    let (state, time) = match &query.end {
        None => ("running", age),
        Some(end) => match end.how {
            How::Done => ("done", end.time),
            How::Failed(_) => ("failed", end.time),
            How::Left => ("left", end.time),
        },
    };
    let why = query.end.and_then(|end| match end.how {
        How::Failed(why) => Some(why),
        How::Done | How::Left => None,
    });
    let mut row = row! {
        id: query.id,
        username: query.user,
        state: state,
        age_ms: age.as_millis() as i64,
        time_ms: time.as_millis() as i64,
        query: query.text,
        rows: query.rows.load(Relaxed) as i64,
        why: why,
        nodes: query.executors.map(|executors| executors.to_string())
    };
    if let Some((exchanged, ratio)) = query.exchanged {
        let micros = |time: Duration| time.as_micros() as i64;
        row.extend(row! {
            exchanged_rows: exchanged.rows as i64,
            exchanged_batches: exchanged.batches as i64,
            handed_over_bytes: exchanged.bytes_handed_over as i64,
            sent_bytes: exchanged.bytes_sent as i64,
            before_compression_bytes: exchanged.bytes_before_compression as i64,
            encoding_us: micros(exchanged.encoding),
            waiting_for_network_us: micros(exchanged.waiting_for_network),
            waiting_for_receiver_us: micros(exchanged.waiting_for_receiver),
            exchange_scan_ratio: ratio.map(|ratio| Cell::Real(ratio as f32))
        });
    }
    row
}
