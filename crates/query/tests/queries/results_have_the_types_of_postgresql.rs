//! What a client is told of a result's columns is what PostgreSQL would tell it.

use crate::db::Db;
use arrow::datatypes::{DataType, Field};
use oribi_types::schema::{JSONB_METADATA, TYPE_METADATA};

/// What a column is: of JSON, which kind of it.
fn shown(field: &Field) -> String {
    let json = match field.metadata().get(TYPE_METADATA).map(String::as_str) {
        Some("json") if field.metadata().contains_key(JSONB_METADATA) => Some("jsonb"),
        Some("json") => Some("json"),
        _ => None,
    };
    match field.data_type() {
        DataType::Utf8 | DataType::Utf8View => json.unwrap_or("text").to_owned(),
        DataType::List(_) if json.is_some() => format!("{}[]", json.unwrap()),
        DataType::Decimal128(..) => "numeric".to_owned(),
        other => other.to_string(),
    }
}

#[tokio::test]
async fn columns_are_of_the_type_that_their_values_come_to() {
    let db = Db::new();
    db.run("create table t (id int primary key, doc json, r real)").await;
    db.run("insert into t values (1, '{\"a\": 1}', 1.5)").await;
    for (expression, wanted) in [
        ("doc::jsonb", "jsonb"),
        ("coalesce(doc, '{}')", "json"),
        ("coalesce(doc::jsonb, '{}')", "jsonb"),
        ("case when id = 1 then doc::jsonb end", "jsonb"),
        ("case when id = 1 then null else doc end", "json"),
        ("array[doc, null]", "json[]"),
        ("array[doc::jsonb]", "jsonb[]"),
        ("array(select doc::jsonb from t)", "jsonb[]"),
        ("(select array_agg(doc) from t)", "json[]"),
        ("(select x from (select null as x union all select '1'::jsonb) u limit 1)", "jsonb"),
        ("(select x from (select '1' as x union all select 2) u limit 1)", "Int32"),
        ("nullif(r, 1)", "Float32"),
        ("nullif(r, 1.5::float8)", "Float32"),
        ("nullif(id, r)", "Float64"),
        ("coalesce(null, null)", "text"),
        ("case when id = 1 then null end", "text"),
        ("(select max(x) from generate_series(1, 3) x)", "Int32"),
        ("(select max(x) from generate_series(1, 3::bigint) x)", "Int64"),
        (
            "(select max(x) from (values (case when true then 1 else 2.5 end), (9223372036854775807)) v(x))",
            "numeric",
        ),
    ] {
        let prepared = db.prepare(&format!("select {expression} from t")).await;
        assert_eq!(shown(prepared.columns().unwrap().field(0)), wanted, "{expression}");
        db.rows(&format!("select {expression} from t")).await;
    }
    assert_eq!(db.rows("values (case when false then 1 else 2.5 end), (9223372036854775807)").await.len(), 2);
    assert_eq!(db.state("select case when true then null else null end / 2").await, "42883");
}
