//! Operators without parentheses between them take the operands that PostgreSQL gives them.

use crate::db::Db;

/// Expressions, and what PostgreSQL 15 answers as text; or the SQLSTATE behind `!`.
const ANSWERS: &[(&str, &str)] = &[
    // A sign binds tighter than `^`, and looser than a cast.
    ("-2^2", "4"),
    ("2 ^ -2", "0.25"),
    ("2 ^ - 2 ^ 2", "0.0625"),
    ("- 2 ^ 2 ^ 3", "64"),
    ("- -2 ^ 2", "4"),
    ("1 - -2^2", "-3"),
    ("2 * (-2 ^ 2)", "8"),
    ("-2 * 3", "-6"),
    ("-32767 :: int2", "-32767"),
    ("-1 IS NULL", "false"),
    ("case -1 ^ 2 when 1 then 'y' else 'n' end", "y"),
    // Other operators before an operand bind looser than arithmetic.
    ("~1 + 1", "-3"),
    ("@ -5 + 3", "2"),
    ("@ -5", "5"),
    ("|/ 16 + 9", "5"),
    ("||/ 27 + 37", "4"),
    ("2 * @ -5 + 3", "4"),
    ("3 & ~ 1 + 1", "1"),
    ("~ 1 & 3", "2"),
    ("1 << ~ -2", "2"),
    ("@ -5 between 1 and 6", "true"),
    ("~5 = -6", "true"),
    // Operators without a place of their own have one place together.
    ("1 | 2 & 4", "0"),
    ("1 << 2 + 1", "8"),
    ("1 # 2 | 4 # 1", "6"),
    ("5 & 3 = 1", "true"),
    ("'a' || 1 + 2", "a3"),
    ("'ab' ~ 'a' = true", "true"),
    ("'a' ~ 'a' || 'b'", "trueb"),
    ("'ab' ~* 'A' and true", "true"),
    ("'ab' ~~ 'a%' = 'b' ~~ 'c'", "false"),
    ("1 operator(pg_catalog.+) 2 * 3", "7"),
    ("2 operator(pg_catalog.+) 1 = 3", "true"),
    // Comparisons and what is looser.
    ("not 1 = 2", "true"),
    ("1 = 2 is null", "false"),
    ("1 is null = true", "false"),
    ("1 = 1 isnull", "false"),
    ("null isnull = true", "true"),
    ("1 between 1 and 2 + 3", "true"),
    ("2 between 1 and 3 = true", "true"),
    ("true = 'a' like 'a'", "true"),
    ("1 in (1) in (true)", "true"),
    ("1 is distinct from 2 and false", "false"),
    ("1 is distinct from 2 or true", "true"),
    ("true is distinct from 2 = 3", "true"),
    ("(1 < 2) = true", "true"),
    ("1 < 2 = true", "!42601"),
    ("1 = 1 = true", "!42601"),
    ("'a' like 'a' like 'b'", "!42601"),
    ("1 between 0 and 2 between true and false", "!42601"),
    ("1 is distinct from 1 is distinct from true", "!42601"),
    ("1 is distinct from 2 is null", "!42601"),
    // Operators of others.
    ("1 not null", "!42601"),
    ("7 div 2", "!42601"),
    ("true xor false", "!42601"),
    ("'a' rlike 'a'", "!42601"),
];

#[tokio::test]
async fn each_answers_as_there() {
    let db = Db::new();
    for (expression, expected) in ANSWERS {
        let answer = match db.try_rows(&format!("select ({expression})::text"), &[]).await {
            Ok(_) => db.rows(&format!("select ({expression})::text")).await.concat(),
            Err(error) => format!("!{}", error.sqlstate.unwrap_or("none")),
        };
        assert_eq!(&answer, expected, "{expression}");
    }
}

#[tokio::test]
async fn they_bind_alike_wherever_an_expression_may_stand() {
    let db = Db::new();
    db.run("create table t (id int primary key, n int, x double precision)").await;
    db.run("insert into t values (1, ~1 + 1, -2 ^ 2)").await;
    assert_eq!(db.rows("select n, x from t where -x ^ 2 = 16 and @ id - 3 = 2").await, ["-3|4.0"]);
    db.run("update t set n = @ id - 5 where ~ id + 1 = -3").await;
    assert_eq!(db.rows("select n from t order by @ n - 9, -n ^ 2").await, ["4"]);
    assert_eq!(db.rows("select array(select x from t order by -x ^ 2 limit 1)").await, ["[4.0]"]);
}

#[tokio::test]
async fn long_chains_are_read() {
    let db = Db::new();
    let chain =
        |operator: &str, operand: &str| format!("select 1{}", format!(" {operator} {operand}").repeat(480));
    assert_eq!(db.rows(&chain("+", "1")).await, ["481"]);
    assert_eq!(db.rows(&chain("#", "1")).await, ["1"]);
    assert_eq!(db.rows(&chain("and 1 =", "1").replace("select 1", "select true")).await, ["true"]);
    assert_eq!(db.state(&chain("=", "1")).await, "42601");
    // These took minutes once, as each operator had all before it looked at again.
    db.run("set statement_timeout = '60s'").await;
    db.run("create table t (id int primary key, s text)").await;
    db.run("insert into t values (1, 'x'), (2, null)").await;
    let texts = format!("s{}", " || '-' || s".repeat(240));
    assert_eq!(
        db.rows(&format!("select {texts} from t where id = 1")).await,
        [format!("x{}", "-x".repeat(240))]
    );
    assert_eq!(db.rows(&format!("select ({texts}) is null from t where id = 2")).await, ["true"]);
    let any = (1..480).map(|id| format!("id = {id}")).collect::<Vec<_>>().join(" or ");
    assert_eq!(db.rows(&format!("select count(*) from t where {any}")).await, ["2"]);
    assert_eq!(db.rows(&format!("select {}1", "- ".repeat(50))).await, ["1"]);
    assert_eq!(db.state(&format!("select {}1", "~ ".repeat(200))).await, "54001");
}
