use super::functions::Scope;
use super::picture::Picture;
use super::*;
use crate::carried::Carried;
use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, Partitioning, Schema, TableDefinition, TableOptions, Value};

fn definition(schema: &str, name: &str) -> Arc<TableDefinition> {
    let mut status = ColumnSpec::new("status", ColumnType::String);
    status.default = Some(Value::String("it's new".into()));
    let columns = vec![
        ColumnSpec::new("id", ColumnType::Int64).not_null(),
        ColumnSpec::new("Line No", ColumnType::Int32).not_null(),
        ColumnSpec::new("price", ColumnType::Decimal { precision: 15, scale: 2 }),
        status,
    ];
    Arc::new(TableDefinition {
        schema_name: schema.to_owned(),
        name: name.to_owned(),
        schema: Schema::new(columns, &["id", "Line No"]).unwrap(),
        partitioning: Partitioning::none(),
        options: TableOptions::new(Durability::Sync),
    })
}

fn context() -> SessionContext {
    let mut picture = Picture::of_schemas(["public", "default", "shop"].into_iter());
    picture.user = "ada".to_owned();
    picture.add(1, definition("public", "orders"), 42);
    picture.add(2, definition("shop", "orders"), 7);
    let scope = Scope::of(picture);
    let mut config = SessionConfig::new().with_default_catalog_and_schema("oribi", SCHEMA);
    config.options_mut().sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
    config.options_mut().extensions.insert(Carried(scope));
    let context = SessionContext::new_with_config(config);
    let mut state = context.state();
    let catalog = MemoryCatalogProvider::new();
    for name in [SCHEMA, "information_schema", transactions::SCHEMA] {
        catalog.register_schema(name, Arc::new(SystemSchema { name })).unwrap();
    }
    state.catalog_list().register_catalog("oribi".to_owned(), Arc::new(catalog));
    register(&mut state).unwrap();
    crate::functions::register(&mut state).unwrap();
    SessionContext::new_with_state(state)
}

async fn run(context: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
    rewrite(&mut parsed[0]);
    let statement = Statement::Statement(Box::new(parsed.remove(0)));
    let plan = context.state().statement_to_plan(statement).await?;
    context.execute_logical_plan(plan).await?.collect().await
}

/// Rows, columns separated by `|`; null is `∅`.
async fn rows(sql: &str) -> Vec<String> {
    let batches = run(&context(), sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let row = |batch: &RecordBatch, i| {
        let value = |c: &arrow::array::ArrayRef| {
            if c.logical_nulls().is_some_and(|nulls| nulls.is_null(i)) {
                "∅".to_owned()
            } else {
                array_value_to_string(c, i).unwrap()
            }
        };
        batch.columns().iter().map(value).collect::<Vec<_>>().join("|")
    };
    batches.iter().flat_map(|b| (0..b.num_rows()).map(|i| row(b, i)).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn every_system_table_can_be_scanned() {
    let context = context();
    for table in system_tables() {
        let sql = format!("select * from {}.{}", table.schema, table.name);
        run(&context, &sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
}

#[tokio::test]
async fn tables_columns_and_keys_are_described() {
    let tables = "select n.nspname, c.relname, c.relkind, c.relhasindex from pg_class c
        left join pg_namespace n on n.oid = c.relnamespace
        where c.oid >= 16384 and pg_catalog.pg_table_is_visible(c.oid) order by 1, 2";
    assert_eq!(rows(tables).await, ["public|orders|r|true", "public|orders_pkey|i|false"]);
    let columns = "select attname, format_type(atttypid, atttypmod), attnotnull from pg_attribute
        where attrelid = 'shop.orders'::regclass and attnum > 0 order by attnum";
    assert_eq!(
        rows(columns).await,
        ["id|bigint|true", "Line No|integer|true", "price|numeric(15,2)|false", "status|text|false"]
    );
    let keys =
        "select conname, contype, pg_get_constraintdef(oid), pg_get_indexdef(conindid) from pg_constraint
        where conrelid = 'orders'::regclass";
    assert_eq!(
        rows(keys).await,
        ["orders_pkey|p|PRIMARY KEY (id, \"Line No\")|\
          CREATE UNIQUE INDEX orders_pkey ON public.orders USING btree (id, \"Line No\")"]
    );
    let standard =
        "select column_name, data_type, is_nullable, column_default from information_schema.columns
        where table_schema = 'public' order by ordinal_position desc limit 2";
    assert_eq!(rows(standard).await, ["status|text|YES|'it''s new'::text", "price|numeric|YES|∅"]);
    let key =
        "select column_name from information_schema.key_column_usage where table_schema = 'shop' order by 1";
    assert_eq!(rows(key).await, ["Line No", "id"]);
}

#[tokio::test]
async fn functions_know_the_session() {
    let session = "select current_user, current_schema, current_schema(), current_database(), version()";
    let version = format!("PostgreSQL {}", oribi_session::sql::POSTGRES_VERSION);
    assert_eq!(rows(session).await, [format!("ada|public|public|oribi|{version}")]);
    assert_eq!(rows("select current_schemas(true)").await, ["[pg_catalog, public]"]);
    assert_eq!(rows("select pg_get_userbyid(10), pg_size_pretty(123456789)").await, ["ada|118 MB"]);
}

#[tokio::test]
async fn reg_types_read_names_and_show_numbers() {
    let shown = "select c.oid::pg_catalog.regclass::pg_catalog.text from pg_class c
        where c.oid in ('shop.orders'::regclass, 'orders'::regclass, '\"pg_class\"'::regclass) order by 1";
    assert_eq!(rows(shown).await, ["orders", "pg_class", "shop.orders"]);
    assert_eq!(
        rows("select to_regclass('nowhere'), 'integer'::regtype, 1700::regtype").await,
        ["∅|23|numeric"]
    );
}

#[tokio::test]
async fn operators_and_collations_lose_their_schema() {
    let sql = "select nspname from pg_namespace where nspname OPERATOR(pg_catalog.~) '^(pub.*|shop)$'
        COLLATE pg_catalog.default and nspname operator(pg_catalog.!~) '^s' order by 1";
    assert_eq!(rows(sql).await, ["public"]);
}

#[tokio::test]
async fn correlated_subqueries_over_system_tables_are_planned() {
    let sql = "select a.attname,
            (select pg_get_expr(d.adbin, d.adrelid) from pg_attrdef d
             where d.adrelid = a.attrelid and d.adnum = a.attnum and a.atthasdef),
            (select c.collname from pg_collation c, pg_type t
             where c.oid = a.attcollation and t.oid = a.atttypid and a.attcollation <> t.typcollation)
        from pg_attribute a where a.attrelid = 'orders'::regclass order by a.attnum desc limit 2";
    assert_eq!(rows(sql).await, ["status|'it''s new'::text|∅", "price|∅|∅"]);
    let arrays = "select r.rolname, array(select n.nspname from pg_namespace n where n.nspowner = r.oid
            and n.nspname like 'p%' order by 1),
            array(select b.rolname from pg_auth_members m join pg_roles b on m.roleid = b.oid
            where m.member = r.oid)
        from pg_roles r";
    let row = rows(arrays).await.remove(0);
    assert!(row == "ada|[pg_catalog, public]|∅" || row == "ada|[public, pg_catalog]|∅", "{row}");
    let nothing = "select polname, null, null, array(select rolname from pg_roles where oid = any (polroles))
        from pg_policy where polroles <> '{0}'";
    assert!(rows(nothing).await.is_empty());
}

#[test]
fn statements_about_user_tables_stay_as_they_are() {
    for sql in [
        "SELECT (SELECT max(b) FROM t WHERE t.a = s.a), ARRAY[1] FROM s WHERE c = '{1}' AND d COLLATE \"de_DE\" > 'x'",
        "SELECT (SELECT b FROM t LIMIT 1), a::TEXT FROM s",
        "INSERT INTO t (a) VALUES ('{0}')",
    ] {
        let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        rewrite(&mut parsed[0]);
        assert_eq!(parsed[0].to_string(), sql);
    }
}

#[tokio::test]
async fn columns_are_called_as_in_postgres() {
    let names = async |sql: &str| {
        let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        rewrite(&mut parsed[0]);
        let statement = Statement::Statement(Box::new(parsed[0].clone()));
        let plan =
            context().state().statement_to_plan(statement).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        let schema = output_schema(&parsed[0], plan.schema().as_arrow());
        schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        names("select 1, 1, 'a', count(*), COUNT(*), max(oid) from pg_class").await,
        "?column? ?column? ?column? count count max"
    );
    assert_eq!(
        names("select n.*, oid::text, '1'::int, true, oid as \"Id\", oid as Me from pg_namespace n").await,
        "oid nspname nspowner nspacl oid int4 bool Id me"
    );
    assert_eq!(names("select case when true then 1 end, case when true then 1 else oid end, exists (select 1), (select max(oid) from pg_class), date '2024-01-01', 1 + 1 from pg_am").await,
        "case oid exists max date ?column?");
    assert_eq!(names("select 1 union all select 2").await, "?column?");
    assert_eq!(names("with x as (select count(*) from pg_am) select * from x").await, "count(*)");
}
