use super::*;
use crate::schema::ColumnSpec;

fn orders() -> Schema {
    let mut status = ColumnSpec::new("status", ColumnType::String).not_null();
    status.default = Some(Value::String("new".into()));
    let columns = vec![
        ColumnSpec::new("note", ColumnType::String),
        ColumnSpec::new("id", ColumnType::Int64),
        ColumnSpec::new("price", ColumnType::Decimal { precision: 20, scale: 2 }).not_null(),
        status,
        ColumnSpec::new("paid", ColumnType::Bool),
        ColumnSpec::new("at", ColumnType::Timestamp),
        ColumnSpec::new("raw", ColumnType::Binary),
        ColumnSpec::new("weight", ColumnType::Double),
        ColumnSpec::new("extra", ColumnType::Json),
    ];
    Schema::new(columns, &["id"]).unwrap()
}

fn written(schema: &Schema, values: &[Value]) -> String {
    let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
    let (mut key, mut row, mut out) = (Vec::new(), Vec::new(), Vec::new());
    schema.encode(&values, &mut key, &mut row).unwrap();
    write_row(schema, &key, &row, Timestamp(7), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn refusal(json: &str) -> String {
    read_row(&orders(), json.as_bytes()).expect_err(json).to_string()
}

#[test]
fn a_row_is_an_object_in_column_order() {
    let json = r#"{"note":"a \"b\"\n","id":9007199254740993,"price":123456789012345678.90,"status":"new","paid":true,"at":"2024-01-02T03:04:05.5","raw":"AP8=","weight":0.1,"extra":{"a":[1, null]}}"#;
    let values = read_row(&orders(), json.as_bytes()).unwrap();
    assert_eq!(values[1], Value::Int64(9_007_199_254_740_993));
    assert_eq!(values[2], Value::Decimal(12_345_678_901_234_567_890));
    assert_eq!(values[6], Value::Binary(vec![0, 255]));
    assert_eq!(written(&orders(), &values), json);
}

#[test]
fn what_is_left_out_takes_its_default() {
    let values = read_row(&orders(), br#" {"price": "1.5", "id": 1, "extra": null} "#).unwrap();
    assert_eq!(values[0], Value::Null);
    assert_eq!(values[2], Value::Decimal(150));
    assert_eq!(values[3], Value::String("new".into()));
    assert_eq!(values[8], Value::Null);
    assert_eq!(
        written(&orders(), &values),
        r#"{"note":null,"id":1,"price":1.50,"status":"new","paid":null,"at":null,"raw":null,"weight":null,"extra":null}"#
    );
}

#[test]
fn faults_name_the_column_and_the_type() {
    assert_eq!(
        refusal(r#"{"id":1}"#),
        "column \"price\" of type numeric(20,2) is missing and has no default"
    );
    assert_eq!(refusal(r#"{"id":1,"prize":2}"#), "column \"prize\" does not exist");
    assert_eq!(refusal(r#"{"id":1,"id":2,"price":1}"#), "column \"id\" is given twice");
    assert_eq!(
        refusal(r#"{"id":"x","price":1}"#),
        "column \"id\": invalid input syntax for type bigint: \"x\""
    );
    assert_eq!(
        refusal(r#"{"id":1,"price":1,"note":5}"#),
        "column \"note\": expected a value of type text, found a number"
    );
    assert_eq!(
        refusal(r#"{"id":1,"price":1,"paid":"true"}"#),
        "column \"paid\": expected a value of type boolean, found a string"
    );
    assert_eq!(
        refusal(r#"{"id":1,"price":[1]}"#),
        "column \"price\": expected a value of type numeric(20,2), found an array"
    );
    assert_eq!(
        refusal(r#"{"id":1,"price":1,"status":null}"#),
        "null value in column \"status\" violates not-null constraint"
    );
    assert!(
        refusal(r#"{"id":1,"price":1,"raw":"AP"}"#)
            .starts_with("column \"raw\": binary is written as base64")
    );
}

#[test]
fn what_is_not_one_object_is_refused() {
    for json in
        ["", "[]", "1", "{", "{\"id\"", "{\"id\":}", "{\"id\":1}x", "{\"id\":1,}", "{\"id\":tru}", "\u{0}"]
    {
        assert!(read_row(&orders(), json.as_bytes()).is_err(), "{json}");
    }
    let deep = format!("{{\"id\":1,\"price\":1,\"extra\":{}}}", "[".repeat(100_000));
    assert!(read_row(&orders(), deep.as_bytes()).is_err());
    assert!(read_row(&orders(), b"{\"id\":1,\"price\":1,\"extra\":\"\xff\"}").is_err());
    assert!(read_row(&orders(), b"{\"id\":1,\"price\":1,\"note\":\"\xff\"}").is_err());
}

#[test]
fn numbers_that_json_lacks_are_strings() {
    let mut out = Vec::new();
    write_value(ValueRef::Double(f64::NEG_INFINITY), ColumnType::Double, &mut out);
    assert_eq!(out, b"\"-Infinity\"");
    let values = read_row(&orders(), br#"{"id":1,"price":1,"weight":"-Infinity"}"#).unwrap();
    assert_eq!(values[7], Value::Double(f64::NEG_INFINITY));
}

#[test]
fn the_commit_timestamp_is_written_and_ignored() {
    let schema = Schema::key_value();
    let values = read_row(&schema, br#"{"key":"aw==","value":"dg==","flags":3,"cas":99}"#).unwrap();
    assert_eq!(
        written(&schema, &values),
        r#"{"key":"aw==","value":"dg==","flags":3,"expires_at":null,"cas":7}"#
    );
}
