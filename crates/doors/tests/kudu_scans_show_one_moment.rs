//! Scans over the Kudu door against a map: whatever is in files, in memory or in both, whatever changes while a scan is open.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]

mod kudu_client;

use bytes::Bytes;
use kudu_client::{Client, Subject, rows_of, scan, write};
use oribi_kudu::column::WireColumn;
use oribi_kudu::key::encode_key;
use oribi_kudu::messages::tserver::{NewScanRequest, ROW_FORMAT_COLUMNAR, ScanRequest};
use oribi_kudu::predicate::{ColumnPredicate, Test, ValueRange};
use oribi_kudu::row_operations::OperationType as Op;
use oribi_types::{ColumnType, Value, ValueRef};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

type Model = BTreeMap<i64, Option<i32>>;
type Rows = Vec<(i64, Option<i32>)>;

#[derive(Clone, Debug)]
enum Step {
    Upsert(Range<i64>, Option<i32>),
    Delete(Range<i64>),
    Flush,
    Scan(Wanted),
    /// Another scan is begun; the one before, if there is one, goes on to its end.
    Open(Wanted),
}

#[derive(Clone, Debug)]
struct Wanted {
    keys: Option<Range<i64>>,
    n: Option<Range<i32>>,
    is_columnar: bool,
    batch_bytes: u32,
}

const KEYS: i64 = 6000;

fn keys() -> impl Strategy<Value = Range<i64>> {
    (0..KEYS, 1..KEYS / 2).prop_map(|(start, len)| start..(start + len).min(KEYS))
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let n = (-50..50, 0..100).prop_map(|(from, len)| from..from + len);
    let parts =
        (prop::option::weighted(0.3, keys()), prop::option::weighted(0.4, n), any::<bool>(), 500..40_000u32);
    parts.prop_map(|(keys, n, is_columnar, batch_bytes)| Wanted { keys, n, is_columnar, batch_bytes })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (keys(), prop::option::weighted(0.8, -50..50)).prop_map(|(keys, n)| Step::Upsert(keys, n)),
        1 => keys().prop_map(Step::Delete),
        2 => Just(Step::Flush),
        3 => wanted().prop_map(Step::Scan),
        3 => wanted().prop_map(Step::Open),
    ]
}

impl Wanted {
    fn request(&self, tablet: &Bytes) -> NewScanRequest {
        let key = |k: i64| {
            let mut key = Vec::new();
            encode_key(&[ColumnType::Int64], [ValueRef::Int64(k)].into_iter(), &mut key).unwrap();
            Bytes::from(key)
        };
        let columns = [
            WireColumn::new("k", ColumnType::Int64, false),
            WireColumn::new("n", ColumnType::Int32, true),
            WireColumn::new("s", ColumnType::String, true),
        ];
        let int = |n: i32| Some(Value::Int32(n));
        let test =
            self.n.as_ref().map(|n| Test::Range(ValueRange { lower: int(n.start), upper: int(n.end) }));
        let predicate = test.map(|test| ColumnPredicate { column: 1, test }.encode(&columns));
        NewScanRequest {
            start_primary_key: self.keys.as_ref().map(|keys| key(keys.start)),
            stop_primary_key: self.keys.as_ref().map(|keys| key(keys.end)),
            column_predicates: predicate.into_iter().collect(),
            row_format_flags: self.is_columnar.then_some(ROW_FORMAT_COLUMNAR),
            ..scan(tablet)
        }
    }

    fn of(&self, model: &Model) -> Rows {
        let passes = |(k, n): &(&i64, &Option<i32>)| {
            let is_within = self.keys.as_ref().is_none_or(|keys| keys.contains(k));
            is_within && self.n.as_ref().is_none_or(|wanted| n.is_some_and(|n| wanted.contains(&n)))
        };
        model.iter().filter(passes).map(|(k, n)| (*k, *n)).collect()
    }
}

/// A scan of which one answer has come, and what it must show in the end.
struct Open {
    scanner_id: Option<Bytes>,
    batch_bytes: u32,
    rows: Rows,
    expected: Rows,
}

impl Open {
    fn new(client: &mut Client, tablet: &Bytes, wanted: &Wanted, model: &Model) -> Self {
        let request = ScanRequest {
            new_scan_request: Some(wanted.request(tablet)),
            batch_size_bytes: Some(wanted.batch_bytes),
            ..ScanRequest::default()
        };
        let (answer, sidecars) = client.scan(&request);
        assert_eq!(answer.error, None);
        Open {
            scanner_id: answer.scanner_id.clone().filter(|_| answer.has_more_results()),
            batch_bytes: wanted.batch_bytes,
            rows: rows_of(&answer, &sidecars),
            expected: wanted.of(model),
        }
    }

    fn finish(mut self, client: &mut Client) {
        for call_seq_id in 1.. {
            let Some(scanner_id) = &self.scanner_id else { break };
            let request = ScanRequest {
                scanner_id: Some(scanner_id.clone()),
                call_seq_id: Some(call_seq_id),
                batch_size_bytes: Some(self.batch_bytes),
                ..ScanRequest::default()
            };
            let (answer, sidecars) = client.scan(&request);
            assert_eq!(answer.error, None);
            self.rows.extend(rows_of(&answer, &sidecars));
            self.scanner_id = self.scanner_id.filter(|_| answer.has_more_results());
        }
        self.rows.sort_unstable();
        assert_eq!(self.rows, self.expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn each_scan_shows_the_rows_of_when_it_began(steps in prop::collection::vec(step(), 1..25)) {
        let subject = Subject::new();
        let mut client = subject.client();
        let tablet = client.create("t", 1).remove(0);
        let table = subject.engine.table("public", "t").unwrap();
        let (mut model, mut open) = (Model::new(), None::<Open>);
        for step in &steps {
            match step {
                Step::Upsert(keys, n) => {
                    let rows: Vec<_> = keys.clone().map(|k| (Op::Upsert, k, *n, Some("some text"))).collect();
                    // A column that is not set keeps its value, if the row is there.
                    prop_assert_eq!(&client.write(&write(&tablet, &rows)).per_row_errors, &[]);
                    for k in keys.clone() {
                        let before = model.get(&k).copied().flatten();
                        model.insert(k, n.or(before));
                    }
                }
                Step::Delete(keys) => {
                    let rows: Vec<_> = keys.clone().filter(|k| model.contains_key(k)).collect();
                    let rows: Vec<_> = rows.into_iter().map(|k| (Op::Delete, k, None, None)).collect();
                    prop_assert_eq!(&client.write(&write(&tablet, &rows)).per_row_errors, &[]);
                    model.retain(|k, _| !keys.contains(k));
                }
                Step::Flush => subject.engine.flush(&table).unwrap(),
                Step::Scan(wanted) => Open::new(&mut client, &tablet, wanted, &model).finish(&mut client),
                Step::Open(wanted) => {
                    let next = Open::new(&mut client, &tablet, wanted, &model);
                    if let Some(open) = open.replace(next) {
                        open.finish(&mut client);
                    }
                }
            }
        }
        if let Some(open) = open {
            open.finish(&mut client);
        }
    }
}
