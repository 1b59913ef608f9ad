//! Arithmetic, casts and functions of numbers answer as PostgreSQL 15 does, wherever an expression may stand.

use crate::db::Db;
use oribi_session::sql::{Outcome, SqlEngine};
use oribi_types::{ColumnType, Value};

/// Expressions, and what PostgreSQL 15 answers as text; or the SQLSTATE behind `!`.
const ANSWERS: &[(&str, &str)] = &[
    ("2147483647 + 1", "!22003"),
    ("2147483647::bigint + 1", "2147483648"),
    ("9223372036854775807 + 1", "!22003"),
    ("-9223372036854775807 - 2", "!22003"),
    ("9223372036854775808 + 1", "9223372036854775809"),
    ("32767::smallint + 1::smallint", "!22003"),
    ("32767::smallint + 1", "32768"),
    ("-(-2147483648)", "2147483648"),
    ("-((-2147483647 - 1)::integer)", "!22003"),
    ("-(-32768)::smallint", "!22003"),
    ("abs((-2147483647 - 1)::integer)", "!22003"),
    ("46341 * 46341", "!22003"),
    ("(-2147483647 - 1) / -1", "!22003"),
    ("(-2147483647 - 1) % -1", "0"),
    ("1 / 0", "!22012"),
    ("1 % 0", "!22012"),
    ("1.5 / 0", "!22012"),
    ("1.5 % 0", "!22012"),
    ("1::float8 / 0", "!22012"),
    ("0::float8 / 0", "!22012"),
    ("'NaN'::float8 / 0", "NaN"),
    ("-7 / 2", "-3"),
    ("-7 % 3", "-1"),
    ("7.5 % 2", "1.5"),
    ("1e308::float8 * 10", "!22003"),
    ("1e-300::float8 * 1e-300::float8", "!22003"),
    ("1e38::real * 10::real", "!22003"),
    ("'Infinity'::float8 - 'Infinity'::float8", "NaN"),
    ("'Infinity'::float8 + 1", "Infinity"),
    ("0.1::float8 + 0.2::float8", "0.30000000000000004"),
    ("0.1::real + 0.2::float8", "0.30000000149011613"),
    ("1.1::real * 3::real", "3.3000002"),
    ("'5' + 1", "6"),
    ("1 - '5'", "-4"),
    ("'1.5' + 1.25", "2.75"),
    ("'x' + 1", "!22P02"),
    ("'5' + '1'", "!42725"),
    ("'2' ^ '3'", "8"),
    ("pow('1.5', null)", ""),
    ("'x' ^ '3'", "!22P02"),
    ("1.5 + 2", "3.5"),
    ("0.1 + 0.2", "0.3"),
    ("1.10 * 2.50", "2.7500"),
    ("99999999999999999999999999999999999999 + 1", "!22003"),
    ("99999999999999999999 * 9999999999999999999", "!22003"),
    ("2.5::integer", "3"),
    ("3.5::integer", "4"),
    ("(-2.5)::integer", "-3"),
    ("2.5::float8::integer", "2"),
    ("3.5::float8::integer", "4"),
    ("(-2.5)::float8::bigint", "-2"),
    ("1e10::float8::integer", "!22003"),
    ("'NaN'::float8::integer", "!22003"),
    ("32768::smallint", "!22003"),
    ("3000000000::integer", "!22003"),
    ("1e19::numeric::bigint", "!22003"),
    ("123.456::numeric(5,2)", "123.46"),
    ("1234.56::numeric(5,2)", "!22003"),
    ("1e300::float8::real", "!22003"),
    ("true::integer", "1"),
    ("5::boolean", "true"),
    ("'12'::integer", "12"),
    ("'12.5'::integer", "!22P02"),
    ("'1e400'::float8", "!22003"),
    ("99999::text", "99999"),
    ("1e300::float8::text", "1e+300"),
    ("1.5::real::text", "1.5"),
    ("'-0'::float8::text", "-0"),
    ("123456789012345680::float8::text", "1.2345678901234568e+17"),
    ("0.0001::float8::text", "0.0001"),
    ("0.00001::float8::text", "1e-05"),
    ("0.3::float8::numeric(20,18)", "0.300000000000000000"),
    ("2 ^ 3", "8"),
    ("2 ^ 0.5::float8", "1.4142135623730951"),
    ("(-8) ^ (1.0::float8/3)", "!2201F"),
    ("0::float8 ^ -1", "!2201F"),
    ("5 & 3", "1"),
    ("5 | 3", "7"),
    ("5 # 3", "6"),
    ("~5", "-6"),
    ("1 << 4", "16"),
    ("1 << 33", "2"),
    ("-16 >> 2", "-4"),
    ("1.5 & 1", "!42883"),
    ("abs(-5)", "5"),
    ("abs(-1.5)", "1.5"),
    ("abs('-Infinity'::float8)", "Infinity"),
    ("ceil(1.2)", "2"),
    ("ceil(-1.2)", "-1"),
    ("floor(-1.2)", "-2"),
    ("ceil(5)", "5"),
    ("round(2.5)", "3"),
    ("round(-2.5)", "-3"),
    ("round(2.5::float8)", "2"),
    ("round(3.5::float8)", "4"),
    ("round(1234.5678, 2)", "1234.57"),
    ("round(1234.5678, -2)", "1200"),
    ("round(1.5, 4)", "1.5000"),
    ("round(5, 2)", "5.00"),
    ("trunc(-1.7)", "-1"),
    ("trunc(1234.5678, 1)", "1234.5"),
    ("trunc(1.7::float8)", "1"),
    ("round(1.5::float8, 1)", "!42883"),
    ("sign(-1.5)", "-1"),
    ("sign(-5)", "-1"),
    ("mod(7, 3)", "1"),
    ("mod(-7.5, 2)", "-1.5"),
    ("mod(1, 0)", "!22012"),
    ("power(2, 10)", "1024"),
    ("power(2::float8, 0.5)", "1.4142135623730951"),
    ("div(7, 2)", "3"),
    ("div(-7.5, 2)", "-3"),
    ("gcd(12, 18)", "6"),
    ("lcm(4, 6)", "12"),
    ("gcd(-2147483647 - 1, 0)", "!22003"),
    ("factorial(20)", "2432902008176640000"),
    ("factorial(-1)", "!22003"),
    ("sqrt(4)", "2"),
    ("sqrt(-1)", "!2201F"),
    ("exp(1::float8)", "2.718281828459045"),
    ("exp(1000::float8)", "!22003"),
    ("ln(0::float8)", "!2201E"),
    ("ln(-1::float8)", "!2201E"),
    ("log(100::float8)", "2"),
    ("sin(1::float8)", "0.8414709848078965"),
    ("acos(2::float8)", "!22003"),
    ("degrees(1::float8)", "57.29577951308232"),
    ("atan2(1::float8, 2::float8)", "0.4636476090008061"),
    ("@ -5", "5"),
    ("|/ 25.0::float8", "5"),
    ("1 > 0.5", "true"),
    ("'NaN'::float8 = 'NaN'::float8", "true"),
    ("'NaN'::float8 > 'Infinity'::float8", "true"),
    ("1::float8 < 1e300", "true"),
    ("1e300 > 1::float8", "true"),
    ("1e300 + 1::float8", "1e+300"),
    ("-1e300 < 0::float8", "true"),
    ("2147483648", "2147483648"),
    ("9223372036854775808", "9223372036854775808"),
    ("1e5", "100000"),
    ("1e-5", "0.00001"),
    (".5", "0.5"),
    ("5.", "5"),
    ("-5", "-5"),
    ("- 5", "-5"),
    ("+5", "5"),
    ("1.50", "1.50"),
    ("null + 1", ""),
    ("null::integer + 1", ""),
    ("length('abc') + 1", "4"),
    ("1 + 1.5::real", "2.5"),
];

async fn answer(db: &Db, sql: &str) -> String {
    match db.try_rows(sql, &[]).await {
        Ok(_) => db.rows(sql).await.join(" "),
        Err(error) => format!("!{}", error.sqlstate.unwrap_or("?")),
    }
}

#[tokio::test]
async fn each_answers_as_there() {
    let db = Db::new();
    let mut differ = Vec::new();
    for (expression, expected) in ANSWERS {
        let got = answer(&db, &format!("select ({expression})::text")).await;
        if got != *expected {
            differ.push(format!("{expression}: {got} instead of {expected}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[tokio::test]
async fn nothing_wraps_around_wherever_it_stands() {
    let db = Db::new();
    db.run(
        "create table t (id bigint primary key, i integer, b bigint, n numeric(38,0), f double precision)",
    )
    .await;
    let most = "99999999999999999999999999999999999999";
    db.run(&format!("insert into t values (1, 2147483647, 9223372036854775807, {most}, 1e308)")).await;
    db.run(&format!("insert into t values (2, 2147483647, 9223372036854775807, {most}, 1e308)")).await;
    for sql in [
        "select i + 1 from t",
        "select id from t where i + 1 > 0",
        "select sum(i + 1) from t",
        "select sum(id) filter (where i + 1 > 0) from t",
        "select count(*) from t group by i + 1",
        "select id from t order by i * 2",
        "select a.id from t a join t b on a.i + 1 = b.i + b.id",
        "select b.id from t a left join t b on a.id = b.id and a.i + b.i > 0",
        "select row_number() over (order by b + 1) from t",
        "select sum(b * 2) over (partition by i) from t",
        "select sum(id) over (partition by i + 1) from t",
        "select id from t where exists (select 1 from t u where u.b + t.b > 0)",
        "select (select max(b + 1) from t)",
        "select id from t group by id, b having b + 1 > 0",
        "select case when id > 0 then b + 1 end from t",
        "select distinct b + 1 from t",
        "select b + 1 from t union all select 1",
        "select 9223372036854775807 + 1",
        "values (2147483647 + 1)",
        "with recursive r(n) as (select 9223372036854775807 union all select n + 1 from r) select n from r limit 3",
        "select sum(n) from t",
        "select sum(f) from t",
        "select sum(f) over (order by id) from t",
        "select sum(n) from t group by i",
        "select sum(n) over () from t",
        "select n * 2 from t",
        "update t set i = i + 1",
        "update t set b = b + 1 where id = 1",
        "delete from t where i + 1 = 0",
        "insert into t (id, i) select 3, i + 1 from t where id = 1",
        "insert into t values (1, 1) on conflict (id) do update set i = t.i + excluded.i",
        "update t set id = id where id = 1 returning i + 1",
    ] {
        assert_eq!(db.state(sql).await, "22003", "{sql}");
    }
    assert_eq!(db.state("select f / 0 from t").await, "22012");
    assert_eq!(
        db.rows("select sum(b), sum(i), avg(i) from t").await,
        ["18446744073709551614|4294967294|2147483647.0000000000000000"]
    );
}

#[tokio::test]
async fn aggregates_have_postgresqls_types() {
    let db = Db::new();
    db.run("create table t (id integer primary key, g integer, s smallint, i integer, b bigint, n numeric(10,2), r real, d double precision)").await;
    db.run("insert into t values (1, 1, 1, 1, 1, 1.10, 1.5, 1.5), (2, 1, 2, 2, 2, 2.20, 2.5, 2.5), (3, 2, null, null, null, null, null, null)").await;
    let all =
        "sum(s), sum(i), sum(b), sum(n), sum(r), sum(d), avg(s), avg(i), avg(b), avg(n), avg(r), avg(d)";
    let types = |sql: &str| {
        let sql = sql.to_owned();
        let db = &db;
        async move {
            let prepared = db.prepare(&sql).await;
            let fields = prepared.columns().unwrap().fields().clone();
            let names = fields.iter().map(|f| ColumnType::from_arrow(f.data_type()).unwrap().to_string());
            names.map(|name| name.split('(').next().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        }
    };
    let (bigint, numeric, double) = ("bigint", "numeric", "double precision");
    let expected = [
        bigint, bigint, numeric, numeric, "real", double, numeric, numeric, numeric, numeric, double, double,
    ];
    assert_eq!(types(&format!("select {all} from t")).await, expected.join(" "));
    let averages = "1.5000000000000000|1.5000000000000000|1.5000000000000000|1.6500000000000000|2.0|2.0";
    let one = format!("3|3|3|3.30|4.0|4.0|{averages}");
    assert_eq!(db.rows(&format!("select {all} from t")).await, std::slice::from_ref(&one));
    let nothing = ["", "", "", "", "", "", "", "", "", "", "", ""].join("|");
    assert_eq!(
        db.rows(&format!("select {all} from t group by g order by g")).await,
        [one.clone(), nothing.clone()]
    );
    assert_eq!(db.rows(&format!("select {all} from t where false")).await, [nothing]);
    let distinct = all.replace('(', "(distinct ");
    assert_eq!(db.rows(&format!("select {distinct} from t")).await, [one]);
    let sums = "sum(s), sum(i), sum(b), sum(n), sum(r), sum(d)";
    let beside = |groups: &str| format!("select count(distinct i), {sums}, max(i) from t {groups}");
    assert_eq!(
        types(&beside("")).await,
        format!("bigint bigint bigint {numeric} {numeric} real {double} integer")
    );
    assert_eq!(db.rows(&beside("")).await, ["2|3|3|3|3.30|4.0|4.0|2"]);
    assert_eq!(
        db.rows(&beside("group by g + 1 order by g + 1")).await,
        ["2|3|3|3|3.30|4.0|4.0|2", "0|||||||"]
    );
    let grouped_twice = "select count(distinct i), sum(b), sum(n), sum(r), sum(d), max(i) from t";
    for groups in [
        "",
        "group by g order by g",
        "group by t.g order by t.g",
        "group by g + 1 order by g + 1",
        "having sum(n) > 1",
    ] {
        let sql = format!("{grouped_twice} {groups}");
        assert!(db.explain(&format!("explain {sql}")).await.contains("as alias1"), "{sql}");
        assert_eq!(db.rows(&sql).await[0], "2|3|3.30|4.0|4.0|2", "{sql}");
        let told = db.prepare(&sql).await.columns().unwrap().clone();
        for batch in db.try_rows(&sql, &[]).await.unwrap() {
            let types =
                batch.schema().fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
            assert!(types.iter().eq(told.fields().iter().map(|field| field.data_type())), "{sql}: {types:?}");
        }
    }
    db.run("create table named (alias1 integer primary key, b integer)").await;
    db.run("insert into named values (1, 1), (2, 1)").await;
    assert_eq!(
        db.rows("select alias1, count(distinct b) from named group by alias1 order by 1").await,
        ["1|1", "2|1"]
    );
    let filtered = "sum(i) filter (where id > 1), avg(n) filter (where id > 1), sum(b) filter (where false)";
    assert_eq!(db.rows(&format!("select {filtered} from t")).await, ["2|2.2000000000000000|"]);
    let sliding = "select sum(i) over w, sum(d) over w, avg(n) over w from t window w as (order by id rows 1 preceding) order by id";
    assert_eq!(
        db.rows(sliding).await,
        ["1|1.5|1.1000000000000000", "3|4.0|1.6500000000000000", "2|2.5|2.2000000000000000"]
    );
    assert_eq!(types("select 1, 2147483648, 1 + 1, 1 + 1::bigint, 1::smallint + 1::smallint, 1.5, i + 1, b + 1, abs(i), 2 ^ 3 from t").await,
        "integer bigint integer bigint smallint numeric integer bigint integer double precision");
    assert_eq!(db.state("select sum('x'::text)").await, "42883");
}

#[tokio::test]
async fn parameters_beside_numbers_take_their_types() {
    let db = Db::new();
    db.run("create table t (id bigint primary key, i integer, f double precision)").await;
    db.run("insert into t values (1, 5, 0.5)").await;
    for (sql, expected) in [
        ("select $1 + 1", ColumnType::Int32),
        ("select i * $1 from t", ColumnType::Int32),
        ("select id from t where id + $1 = 2", ColumnType::Int64),
        ("select id from t where f > $1", ColumnType::Double),
    ] {
        assert_eq!(db.prepare(sql).await.parameters(), [expected], "{sql}");
    }
    assert_eq!(db.rows_with("select $1 + 1", &[oribi_types::Value::Int32(2)]).await, ["3"]);
}

#[tokio::test]
async fn literals_beside_keys_are_still_keys() {
    let db = Db::new();
    db.run("create table t (id bigint primary key, s smallint)").await;
    db.run("insert into t values (1, 1), (2, 2), (3, 3)").await;
    let plan = db.explain("explain select * from t where id > 1 and id < 3").await;
    assert!(plan.contains("key range"), "{plan}");
    assert_eq!(db.rows("select id from t where s = 2 and id between 1 and 3 and id in (1, 2)").await, ["2"]);
}

#[tokio::test]
async fn floats_have_one_zero_wherever_rows_meet_by_them() {
    let db = Db::new();
    db.run("create table t (id int primary key, f double precision, n int)").await;
    db.run("insert into t values (1, '0', 1), (2, '-0', 2), (3, 'NaN', 3), (4, '1.5', 4)").await;
    assert_eq!(db.rows("select f, sum(n) from t group by f order by f").await, ["0.0|3", "1.5|4", "NaN|3"]);
    assert_eq!(
        db.rows("select t.f + 1 from t group by t.f + 1, t.f order by 1").await,
        ["1.0", "2.5", "NaN"]
    );
    assert_eq!(db.rows("select distinct f from t order by f").await, ["0.0", "1.5", "NaN"]);
    assert_eq!(db.rows("select id from t order by f, id desc").await, ["2", "1", "4", "3"]);
    assert_eq!(db.rows("select count(*) from t a join t b using (f)").await, ["6"]);
    assert_eq!(db.rows("select count(*) from t a join t b on a.f = b.f").await, ["6"]);
    let ranked = "select id, rank() over (order by f), count(*) over (partition by f) from t order by id";
    assert_eq!(db.rows(ranked).await, ["1|1|2", "2|1|2", "3|4|1", "4|3|1"]);
    assert_eq!(db.rows("select id from t where f in (0, 7) order by id").await, ["1", "2"]);
    assert_eq!(db.rows("select id from t where f between 0 and 0 order by id").await, ["1", "2"]);
    assert_eq!(db.rows("select id from t where f is not distinct from '-0' order by id").await, ["1", "2"]);
}

#[tokio::test]
async fn numbers_that_come_together_are_compared_as_floats() {
    let db = Db::new();
    let asked = [
        ("1e20::float8 = 1.5::numeric(5,2)", "f"),
        ("1e20::float8 in (1.5, 2)", "f"),
        ("1e20::float8 between 1.5 and 2", "f"),
        ("0.1::real = 0.1", "f"),
        ("16777217 = 16777217::real", "f"),
        ("coalesce(null::float8, 1.5::numeric(5,2))", "1.5"),
        ("greatest(1e20::float8, 1.5)", "1e+20"),
        ("case when true then 1.5 else 2::float8 end", "1.5"),
        ("nullif('-0'::float8, 0)", ""),
        ("greatest('-0'::float8, 0)", "-0"),
        ("regr_slope(1::float8, 'NaN'::float8)", "NaN"),
        ("stddev_pop('Infinity'::float8)", "NaN"),
        ("-(-2147483648)", "2147483648"),
    ];
    for (expression, expected) in asked {
        let expected = match expected {
            "f" => "false",
            other => other,
        };
        assert_eq!(answer(&db, &format!("select ({expression})::text")).await, expected, "{expression}");
    }
    for rows in ["select 1.5 union select 1e20::float8", "values (1.5), (1e20::float8)"] {
        assert_eq!(answer(&db, &format!("select max(x)::text from ({rows}) u(x)")).await, "1e+20");
    }
    let error = db.error("select 1 where 1::float8 in (select 1.5)").await;
    assert!(error.to_string().contains("is not supported"), "{error}");
    assert_eq!(answer(&db, "select sum(null)").await, "!42725");
    assert_eq!(answer(&db, "select - 2147483648 - 1").await, "!22003");
}

#[tokio::test]
async fn nothing_is_computed_for_rows_that_a_condition_leaves_out() {
    let db = Db::new();
    db.run("create table t (id int primary key, i int, x text)").await;
    db.run("insert into t values (1, 0, 'a'), (2, 1, '1'), (3, 2, '2')").await;
    for (sql, rows) in [
        (
            "select id from t where case when i = 0 then false else 100 / i > 1 end order by id",
            vec!["2", "3"],
        ),
        ("select sum(100 / i) filter (where i <> 0) from t", vec!["150"]),
        ("select count(*), sum(100 / i) filter (where i <> 0) from t", vec!["3|150"]),
        ("select id from t where i <> 0 and 100 / i > 1 order by id", vec!["2", "3"]),
        ("select id from t where i = 0 or 100 / i > 60 order by id", vec!["1", "2"]),
        ("select id from t where x ~ '^[0-9]+$' and x::int = 2", vec!["3"]),
        ("select case when false then 3000000000::int else 1 end", vec!["1"]),
    ] {
        assert_eq!(db.rows(sql).await, rows, "{sql}");
    }
    assert_eq!(db.state("select id from t where 100 / i > 1").await, "22012");
    assert_eq!(db.state("select sum(100 / i) from t").await, "22012");
}

#[tokio::test]
async fn what_is_stored_or_framed_fits_its_type() {
    let db = Db::new();
    db.run("create table r (id int primary key, v real, d double precision)").await;
    for sql in [
        "insert into r values (1, 1e300::float8)",
        "insert into r select 1, 1e300::float8",
        "insert into r values (1, 1e-300::float8)",
        "insert into r (id, d) values (1, '1e-400')",
    ] {
        assert_eq!(db.state(sql).await, "22003", "{sql}");
    }
    db.run("insert into r values (1, 1, 1e300)").await;
    assert_eq!(db.state("update r set v = d").await, "22003");
    let frame = "select sum(id) over (order by i range between current row and 2147483647 following) \
                 from (values (1, 1), (2, 2), (3, null)) as t(id, i) order by 1";
    assert_eq!(db.rows(frame).await, ["2", "3", "3"]);
    let wide = "select sum(id) over (order by i range 1 preceding) from (values (1, 1::bigint)) as t(id, i)";
    assert!(db.error(wide).await.to_string().contains("is not supported"));
}

#[tokio::test]
async fn numeric_without_a_precision_has_the_digits_of_its_value() {
    let db = Db::new();
    for (expression, expected) in [
        ("'123456789012345678901234567890'::numeric", "123456789012345678901234567890"),
        ("'0.1234567890123456789012345'::numeric", "0.1234567890123456789012345"),
        ("1::numeric", "1"),
        ("9223372036854775807::numeric", "9223372036854775807"),
        ("1.50::numeric", "1.50"),
        ("'1.50'::numeric + 1", "2.50"),
        ("0.25::float8::numeric = 0.25", "true"),
    ] {
        assert_eq!(answer(&db, &format!("select ({expression})::text")).await, expected, "{expression}");
    }
}

#[tokio::test]
async fn columns_of_a_result_may_be_planned_alike() {
    let db = Db::new();
    let sql = "select round(2.5), round(2.5::float8), sqrt(4), |/ 4, power(2, 3), 2 ^ 3, mod(5, 3), 2, 1 + 1";
    assert_eq!(db.rows(sql).await, ["3|2.0|2.0|2.0|8.0|8.0|2|2|2"]);
}

#[tokio::test]
async fn a_parameter_is_compared_with_all_its_digits() {
    let db = Db::new();
    db.run("create table t (id int primary key, price numeric(10,2))").await;
    db.run("insert into t values (1, 2.50)").await;
    for (column_type, value) in [
        (ColumnType::Decimal { precision: 38, scale: 3 }, Value::Decimal(2501)),
        (ColumnType::Double, Value::Double(2.501)),
    ] {
        let prepared = db
            .query
            .prepare(&db.session, "select id from t where price < $1", &[Some(column_type)])
            .await
            .unwrap();
        let Outcome::Rows(rows) = prepared.execute(&db.session, &[value]).await.unwrap() else {
            panic!("no rows")
        };
        let batches: Vec<arrow::array::RecordBatch> = futures::TryStreamExt::try_collect(rows).await.unwrap();
        assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1, "{column_type}");
    }
    let narrow = db.query.prepare(&db.session, "select 0 + $1", &[Some(ColumnType::Int16)]).await.unwrap();
    assert!(narrow.execute(&db.session, &[Value::Int16(7)]).await.is_ok());
}

#[tokio::test]
async fn what_counts_rows_and_elements_has_a_sign() {
    use arrow::datatypes::{DataType, Field};
    let db = Db::new();
    let list = DataType::List(std::sync::Arc::new(Field::new_list_field(DataType::Int32, true)));
    for (expression, data_type, expected) in [
        ("row_number() over (order by x desc)", DataType::Int64, "1"),
        ("rank() over (order by x)", DataType::Int64, "1"),
        ("dense_rank() over (order by x)", DataType::Int64, "1"),
        ("ntile(2) over (order by x)", DataType::Int32, "1"),
        ("array_length(array[x, 2], 1)", DataType::Int32, "2"),
        ("array_length(array[x, 2], 1) + 1", DataType::Int32, "3"),
        ("cardinality(array[x, 2])", DataType::Int32, "2"),
        ("array_position(array[x, 2], 2)", DataType::Int32, "2"),
        ("array_positions(array[x, 2], 2)", list, "[2]"),
    ] {
        let sql = format!("select {expression} from (values (1)) t(x)");
        let batches = db.try_rows(&sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert_eq!(batches[0].schema().field(0).data_type(), &data_type, "{sql}");
        assert_eq!(db.rows(&sql).await, [expected], "{sql}");
    }
}
