//! Rows of typed tables by path: read, stored, compared, touched and deleted as JSON objects.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{Action, Change, Expiry, Got, KeyValue, KvLimits, Outcome, Status, StoreMode};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, Partitioning, Schema, TableDefinition, TableOptions, Value};
use std::sync::Arc;

struct Subject {
    kv: Arc<KeyValue>,
    engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

fn column(name: &str, column_type: ColumnType) -> ColumnSpec {
    ColumnSpec::new(name, column_type)
}

fn subject() -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
    let mut status = column("status", ColumnType::String).not_null();
    status.default = Some(Value::String("new".into()));
    let orders = Schema::new(
        vec![
            column("id", ColumnType::Int64),
            column("total", ColumnType::Decimal { precision: 12, scale: 2 }).not_null(),
            status,
            column("expires_at", ColumnType::Timestamp),
        ],
        &["id"],
    );
    let expiring = Some(4);
    let lines = Schema::new(
        vec![
            column("path", ColumnType::String),
            column("raw", ColumnType::Binary),
            column("n", ColumnType::Int32),
        ],
        &["path", "raw"],
    );
    for (name, schema, expires_at) in [("orders", orders.unwrap(), expiring), ("lines", lines.unwrap(), None)]
    {
        let columns = (0..schema.key().len() as u16).collect();
        let definition = TableDefinition {
            schema_name: "public".into(),
            name: name.into(),
            schema,
            partitioning: Partitioning::hash(columns, 2),
            options: TableOptions { expires_at, ..TableOptions::new(Durability::Sync) },
        };
        engine.create_table(definition).unwrap();
    }
    let definition = TableDefinition {
        schema_name: "public".into(),
        name: "keyless".into(),
        schema: Schema::without_key(vec![column("n", ColumnType::Int32)]).unwrap(),
        partitioning: Partitioning::none(),
        options: TableOptions::new(Durability::Sync),
    };
    engine.create_table(definition).unwrap();
    Subject { kv: KeyValue::new(engine.clone(), KvLimits::default()), engine, _dir: dir }
}

impl Subject {
    fn change(&self, key: &str, cas: Option<u64>, action: Action<'_>) -> Outcome {
        let change = Change { key: key.as_bytes().into(), cas, action };
        let mut round = self.kv.round(true);
        let outcome = round.apply(&[change]).unwrap().remove(0);
        self.engine.settle(round.obligation()).unwrap();
        outcome
    }

    fn store(&self, mode: StoreMode, key: &str, json: &str) -> Outcome {
        self.change(key, None, store(mode, json, Expiry::Never))
    }

    fn get(&self, key: &str) -> Option<String> {
        match self
            .kv
            .round(true)
            .get(key.as_bytes(), |d| String::from_utf8(d.value.to_vec()).unwrap())
            .unwrap()
        {
            Got::Found(json) => Some(json),
            Got::Absent => None,
            Got::Pending => panic!("a blocking round never waits"),
        }
    }

    fn refusal(&self, key: &str, json: &str) -> String {
        match self.store(StoreMode::Set, key, json).status {
            Status::Refused(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

fn store(mode: StoreMode, json: &str, expiry: Expiry) -> Action<'_> {
    Action::Store { mode, value: json.as_bytes(), flags: 5, expiry, or_stale: false }
}

fn done(outcome: &Outcome) -> bool {
    matches!(outcome.status, Status::Done)
}

#[test]
fn a_row_is_upserted_and_read_back() {
    let subject = subject();
    assert_eq!(subject.get("public/orders/42"), None);
    assert!(done(&subject.store(StoreMode::Set, "public/orders/42", r#"{"total": 1.5}"#)));
    let row = r#"{"id":42,"total":1.50,"status":"new","expires_at":null}"#;
    assert_eq!(subject.get("public/orders/42").as_deref(), Some(row));
    // What get answers, set takes.
    assert!(done(&subject.store(StoreMode::Set, "public/orders/42", row)));
    assert!(done(&subject.store(StoreMode::Replace, "public/orders/42", r#"{"total":2,"status":"paid"}"#)));
    assert_eq!(
        subject.get("public/orders/42").as_deref(),
        Some(r#"{"id":42,"total":2.00,"status":"paid","expires_at":null}"#)
    );
}

#[test]
fn conditions_hold_for_rows_too() {
    let subject = subject();
    let key = "public/orders/-7";
    let json = r#"{"total":1}"#;
    assert!(matches!(subject.store(StoreMode::Replace, key, json).status, Status::NotStored));
    let added = subject.store(StoreMode::Add, key, json);
    assert!(done(&added));
    assert!(matches!(subject.store(StoreMode::Add, key, json).status, Status::NotStored));
    let set = store(StoreMode::Set, json, Expiry::Never);
    assert!(matches!(subject.change(key, Some(added.cas + 1), set.clone()).status, Status::Exists));
    assert!(done(&subject.change(key, Some(added.cas), set)));
    assert!(matches!(subject.change(key, Some(added.cas), Action::Delete).status, Status::Exists));
    assert!(done(&subject.change(key, None, Action::Delete)));
    assert!(matches!(subject.change(key, None, Action::Delete).status, Status::NotFound));
    assert_eq!(subject.get(key), None);
}

#[test]
fn key_components_are_percent_decoded() {
    let subject = subject();
    assert!(done(&subject.store(StoreMode::Set, "public/lines/a%2Fb%20c/%00%ff", r#"{"n":1}"#)));
    let row = r#"{"path":"a/b c","raw":"AP8=","n":1}"#;
    assert_eq!(subject.get("public/lines/a%2fb%20c/%00%FF").as_deref(), Some(row));
    assert_eq!(subject.get("public/lines/a%2fb%20c/"), None);
}

#[test]
fn an_expiry_goes_into_the_expiry_column() {
    let subject = subject();
    let key = "public/orders/1";
    let later = 4_000_000_000_000_000;
    assert!(done(&subject.change(key, None, store(StoreMode::Set, r#"{"total":1}"#, Expiry::At(later)))));
    assert!(subject.get(key).unwrap().contains(r#""expires_at":"2096-10-02T07:06:40""#));
    assert!(done(&subject.change(key, None, Action::Touch { expiry: Expiry::Never })));
    assert!(subject.get(key).unwrap().contains(r#""expires_at":null"#));
    assert!(done(&subject.change(key, None, Action::Touch { expiry: Expiry::At(1) })));
    assert_eq!(subject.get(key), None);
    assert!(done(&subject.store(StoreMode::Set, "public/lines/a/b", "{}")));
    let touched = subject.change("public/lines/a/b", None, Action::Touch { expiry: Expiry::Never });
    let Status::Refused(error) = touched.status else { panic!("{touched:?}") };
    assert_eq!(error.message(), "table public.lines has no expiry column");
}

#[test]
fn faults_name_table_and_column() {
    let subject = subject();
    let orders = "table public.orders: ";
    let key = "public/orders/42";
    assert_eq!(
        subject.refusal(key, r#"{"total":"many"}"#),
        format!("{orders}column \"total\": invalid input syntax for type numeric(12,2): \"many\"")
    );
    assert_eq!(
        subject.refusal(key, r#"{"total":1,"id":43}"#),
        format!("{orders}column \"id\" differs from the key")
    );
    assert_eq!(subject.refusal(key, r#"{"total":1,"x":43}"#), format!("{orders}column \"x\" does not exist"));
    assert!(subject.refusal(key, "{").starts_with(&format!("{orders}invalid json")));
    assert_eq!(
        subject.refusal("public/orders/many", r#"{"total":1}"#),
        format!("{orders}column \"id\": invalid input syntax for type bigint: \"many\"")
    );
    assert_eq!(
        subject.refusal("public/orders/1/2", r#"{"total":1}"#),
        format!("{orders}the primary key has 1 columns, not 2")
    );
    let counted =
        subject.change(key, None, Action::Count { down: false, delta: 1, initial: None, expiry: None });
    assert!(matches!(counted.status, Status::Refused(_)));
    assert!(subject.kv.round(true).get(b"public/orders/x", |_| ()).is_err());
    assert_eq!(subject.get(key), None);
}

#[test]
fn a_refused_change_leaves_its_neighbours_alone() {
    let subject = subject();
    let set = |key: &'static str, json: &'static str| Change {
        key: key.as_bytes().into(),
        cas: None,
        action: store(StoreMode::Set, json, Expiry::Never),
    };
    let changes =
        [set("a", "1"), set("public/orders/1", "no json"), set("public/orders/2", r#"{"total":2}"#)];
    let outcomes = subject.kv.round(true).apply(&changes).unwrap();
    assert!(done(&outcomes[0]) && done(&outcomes[2]));
    assert!(matches!(outcomes[1].status, Status::Refused(_)));
    assert_eq!(subject.get("a").as_deref(), Some("1"));
    assert!(subject.get("public/orders/2").is_some());
}

#[test]
fn other_keys_with_slashes_are_plain() {
    let subject = subject();
    for key in ["user/42/profile", "public/nothing/1", "public/orders", "/", "//", "public//1"] {
        assert!(done(&subject.store(StoreMode::Set, key, key)), "{key}");
        assert_eq!(subject.get(key).as_deref(), Some(key));
        // The long name of the same document.
        assert_eq!(subject.get(&format!("default/kv/{key}")).as_deref(), Some(key));
    }
}

#[test]
fn keys_have_a_length() {
    let subject = subject();
    for key in ["".to_owned(), "k".repeat(251)] {
        assert!(matches!(subject.store(StoreMode::Set, &key, "x").status, Status::Refused(_)));
        assert!(subject.kv.round(true).get(key.as_bytes(), |_| ()).is_err());
    }
}

/// A round knows the tables as they were when it began.
#[test]
fn a_change_that_an_alter_table_overtakes_is_planned_again() {
    let subject = subject();
    let key = "public/orders/1";
    let change = |json: &'static str| Change {
        key: key.as_bytes().into(),
        cas: None,
        action: store(StoreMode::Set, json, Expiry::Never),
    };
    let mut before = subject.kv.round(true);
    let note =
        ColumnSpec { default: Some(Value::String("none".into())), ..column("note", ColumnType::String) };
    let alter = |change| subject.engine.alter_table("public", "orders", &change).unwrap();
    alter(oribi_engine::Alteration::AddColumn(note));
    let stored = subject.store(StoreMode::Set, key, r#"{"total": 1, "note": "new"}"#);
    assert!(matches!(stored.status, Status::Done), "{stored:?}");
    let note = || {
        let value = |document: oribi_session::kv::Document<'_>| {
            serde_json::from_slice::<serde_json::Value>(document.value).unwrap()
        };
        match subject.kv.round(true).get(key.as_bytes(), value).unwrap() {
            Got::Found(row) => row["note"].as_str().unwrap().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    // What it does not know of stays, and what it replaces it replaces as a row of today.
    let touch = Action::Touch { expiry: Expiry::Never };
    let touch = Change { key: key.as_bytes().into(), cas: None, action: touch };
    assert!(matches!(before.apply(&[touch]).unwrap()[0].status, Status::Done));
    assert_eq!(note(), "new");
    let other = Change { key: b"document".as_slice().into(), ..change("{}") };
    let outcomes = before.apply(&[change(r#"{"total": 2}"#), other]).unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome.status, Status::Done)), "{outcomes:?}");
    assert_eq!(note(), "none");
    let mut before = subject.kv.round(true);
    alter(oribi_engine::Alteration::DropColumn("note".into()));
    let outcomes = before.apply(&[change(r#"{"total": 3, "note": "gone"}"#)]).unwrap();
    assert!(matches!(&outcomes[0].status, Status::Refused(error) if error.message().contains("note")));
    assert!(matches!(before.apply(&[change(r#"{"total": 4}"#)]).unwrap()[0].status, Status::Done));
}

#[test]
fn rows_without_a_primary_key_have_no_path() {
    let refusal = subject().refusal("public/keyless/1", r#"{"n":1}"#);
    assert!(refusal.contains("has no primary key"), "{refusal}");
}
