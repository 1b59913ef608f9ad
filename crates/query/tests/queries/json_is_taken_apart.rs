//! JSON: its parts are JSON again, whatever column or client they go to.

use crate::db::{Db, text};
use oribi_types::schema::TYPE_METADATA;

async fn documents() -> Db {
    let db = Db::new();
    db.run("create table j (id int primary key, doc json)").await;
    db.run(
        r#"insert into j values
           (1, '{"a": {"b": 5, "c": [10, 20, {"d": null}]}, "n": 12345678901234567890, "s": "x\ny", "f": 1.50, "t": true}'),
           (2, '[1, "two"]'), (3, null)"#,
    )
    .await;
    db
}

#[tokio::test]
async fn parts_are_shown_as_they_were_written() {
    let db = documents().await;
    for (expression, expected) in [
        ("doc->'a'", r#"{"b": 5, "c": [10, 20, {"d": null}]}"#),
        ("doc->'a'->'c'->2->'d'", "null"),
        ("doc->'a'->'c'->> -2", "20"),
        ("doc->'a'->'c'->2->>'d'", ""),
        ("doc->'n'", "12345678901234567890"),
        ("doc->'s'", r#""x\ny""#),
        ("length(doc->>'s')", "3"),
        ("doc->'f'", "1.50"),
        ("doc->'none'", ""),
        ("doc #> '{a,c,0}'", "10"),
        ("doc #>> array['a', 'c', '1']", "20"),
        ("doc ? 'a'", "true"),
        ("doc ? 'z'", "false"),
        ("coalesce(doc->'none', doc->'a', '{}') -> 'b'", "5"),
        ("(case when id = 1 then doc->'a' end) ->> 'b'", "5"),
        ("'[1, 2]'::json -> '0'", ""),
        ("'{\"a\": 1, \"a\": 2}'::json -> 'a'", "2"),
        ("'5'::jsonb -> 0", "5"),
        ("'5'::json -> 0", ""),
        ("json_get(doc, 'a', 'b')", "5"),
        ("json_length(doc->'a'->'c')", "3"),
        ("(doc->'a'->>'b')::int + 1", "6"),
        ("(doc->>'f')::numeric(4,2)", "1.50"),
        ("json_get_int(doc, 'a', 'b') + 1", "6"),
        ("json_get_str(doc, 'n')", ""),
        ("json_get_array(doc, 'a', 'c')", r#"[10, 20, {"d": null}]"#),
        ("json_get_keys(doc, 'a')", "[b, c]"),
        ("jsonb_array_length(doc->'a'->'c')", "3"),
        ("doc->'a' ? 'b'", "true"),
        ("'[5, 6]'::json -> id", "6"),
        ("'{\"z\": [7]}'::json #>> '{z,0}'", "7"),
        ("(doc->'a'->'c')::jsonb", r#"[10, 20, {"d": null}]"#),
        ("'{\"b\" :1,\"a\":[1e2,2.50]}'::jsonb", r#"{"a": [100, 2.50], "b": 1}"#),
        ("'{\"b\" :1,\"a\":[1e2]}'::jsonb -> 'a'", "[100]"),
        ("lower('{\"A\" :1}')::jsonb", r#"{"a": 1}"#),
        ("coalesce('{\"b\" :1}'::jsonb, '[]')", r#"{"b": 1}"#),
    ] {
        assert_eq!(
            db.rows(&format!("select {expression} from j where id = 1")).await,
            [expected],
            "{expression}"
        );
    }
    assert_eq!(
        db.rows("select doc->1, doc->>1, doc->'a' from j where id > 1 order by id").await,
        [r#""two"|two|"#, "||"]
    );
    assert_eq!(db.rows_with("select doc->>$1 from j where id < 2", &[text("t")]).await, ["true"]);
    assert_eq!(db.rows("select id from j where doc->'a'->>'b' = '5'").await, ["1"]);
    assert_eq!(db.state("select doc #> 'a' from j").await, "22P02");
    for (sql, state) in [
        ("select '{}' -> 'a'", "42725"),
        ("select lower('{}') -> 'a'", "42883"),
        ("select doc -> 1::bigint from j", "42883"),
        ("select json_array_length('[]'::jsonb)", "42883"),
        ("select distinct doc from j", "42883"),
        ("select doc from j order by doc", "42883"),
        ("select doc::jsonb from j group by 1", "0A000"),
        (r#"select '"\u0000"'::jsonb"#, "22P05"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    let prepared = db.prepare("select doc->'a' as a, doc->>'a', json_length(doc) as l from j").await;
    let columns = prepared.columns().unwrap();
    assert_eq!(columns.field(0).metadata().get(TYPE_METADATA).unwrap(), "json");
    assert!(columns.field(1).metadata().is_empty());
    assert_eq!(columns.field(2).data_type(), &arrow::datatypes::DataType::Int64);
}

#[tokio::test]
async fn parts_are_stored_as_json() {
    let db = documents().await;
    db.run("create table copy (primary key (id)) as select id, doc->'a' as part from j").await;
    assert_eq!(db.rows("select part->'b' from copy where part is not null").await, ["5"]);
    let sql = "insert into j select 10 + id, doc->'s' from j where id = 1 returning doc->'x', doc";
    assert_eq!(db.rows(sql).await, [r#"|"x\ny""#]);
    assert_eq!(db.rows("update j set doc = doc->'a' where id = 1 returning doc->'b'").await, ["5"]);
    assert_eq!(db.rows("select doc->'c'->0 from j where id = 1").await, ["10"]);
    // As it was written, unless a cast writes it anew.
    db.run(r#"insert into j values (20, '{"b" :1,"a":2}'), (21, '{"b" :1,"a":2}'::jsonb)"#).await;
    db.run("insert into j select 22, doc::jsonb from j where id = 20").await;
    let written = [r#"{"b" :1,"a":2}"#, r#"{"a": 2, "b": 1}"#, r#"{"a": 2, "b": 1}"#];
    assert_eq!(db.rows("select doc from j where id >= 20 order by id").await, written);
    let error = db.error("update j set doc = array[1, 2]").await;
    assert!(error.to_string().ends_with("is of type json but the expression is of type list"), "{error}");
}

#[tokio::test]
async fn bytes_are_read_as_the_json_that_they_are() {
    let db = Db::new();
    db.run("create table kv (key bytea primary key, value bytea)").await;
    db.run(r#"insert into kv values ('k', '{"a": {"b": [7]}}'), ('l', 'plain text'), ('m', '\xff7b')"#).await;
    let sql = "select json_get(value, 'a'), json_get(value, 'a') -> 'b' ->> 0 from kv order by key";
    assert_eq!(db.rows(sql).await, [r#"{"b": [7]}|7"#, "|", "|"]);
    let sql = "select json_length(value) from kv where json_get(value, 'a') is not null";
    assert_eq!(db.rows(sql).await, ["1"]);
    assert_eq!(db.rows(r"select json_as_text('\x7b7d'::bytea, 'a') is null").await, ["true"]);
    assert_eq!(db.state("select value -> 'a' from kv").await, "42883");
}

#[tokio::test]
async fn a_path_is_written_out_or_refused() {
    let db = Db::new();
    db.run("create table p (id int primary key, doc json, path text)").await;
    db.run(r#"insert into p values (1, '{"a":[{"b":7}]}', '{a,0,b}')"#).await;
    for path in ["'{a,0,b}'", "'{a,0,b}'::text[]", "array['a', '0', 'b']"] {
        assert_eq!(db.rows(&format!("select doc #>> {path} from p")).await, ["7"], "{path}");
    }
    assert_eq!(db.state("select doc #>> path from p").await, "42883");
    assert_eq!(db.state("select doc #>> array_append('{a}'::text[], path)::text[] from p").await, "0A000");
}
