//! `information_schema`: the part of the SQL standard's catalog that tools read.

use super::picture::{Picture, UserTable};
use super::table::{Declaration, Row, none, row};
use super::types::{by_oid, of_column};
use crate::functions;
use oribi_types::schema::Identity;
use oribi_types::{ColumnSource, ColumnType};

pub const TABLES: &[Declaration] = &[
    (
        "information_schema",
        "schemata",
        "catalog_name name, schema_name name, schema_owner name, default_character_set_catalog name, \
         default_character_set_schema name, default_character_set_name name, sql_path text",
        |picture| {
            let schemata = picture.namespaces.iter().map(|n| {
                row! {
                    catalog_name: picture.database.as_str(), schema_name: n.name.as_str(),
                    schema_owner: picture.user.as_str(),
                }
            });
            schemata.collect()
        },
    ),
    (
        "information_schema",
        "tables",
        "table_catalog name, table_schema name, table_name name, table_type text, \
         self_referencing_column_name name, reference_generation text, user_defined_type_catalog name, \
         user_defined_type_schema name, user_defined_type_name name, is_insertable_into text, is_typed text NO, \
         commit_action text",
        tables,
    ),
    (
        "information_schema",
        "columns",
        "table_catalog name, table_schema name, table_name name, column_name name, ordinal_position int4, \
         column_default text, is_nullable text, data_type text, character_maximum_length int4, \
         character_octet_length int4, numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, \
         datetime_precision int4, interval_type text, interval_precision int4, character_set_name name, \
         collation_name name, domain_name name, udt_catalog name, udt_schema name, udt_name name, \
         is_self_referencing text NO, is_identity text NO, identity_generation text, is_generated text NEVER, \
         generation_expression text, is_updatable text",
        columns,
    ),
    (
        "information_schema",
        "table_constraints",
        "constraint_catalog name, constraint_schema name, constraint_name name, table_catalog name, \
         table_schema name, table_name name, constraint_type text, is_deferrable text NO, initially_deferred text NO, \
         enforced text YES",
        |picture| {
            let keys = picture.keyed().map(|t| {
                let mut row = key_row(picture, t);
                row.extend(row! { constraint_type: "PRIMARY KEY" });
                row
            });
            keys.collect()
        },
    ),
    (
        "information_schema",
        "key_column_usage",
        "constraint_catalog name, constraint_schema name, constraint_name name, table_catalog name, \
         table_schema name, table_name name, column_name name, ordinal_position int4, \
         position_in_unique_constraint int4",
        |picture| {
            let key_columns = picture.keyed().flat_map(|t| {
                t.key_columns().enumerate().map(move |(i, name)| {
                    let mut row = key_row(picture, t);
                    row.extend(row! { column_name: name, ordinal_position: i as i64 + 1 });
                    row
                })
            });
            key_columns.collect()
        },
    ),
    (
        "information_schema",
        "referential_constraints",
        "constraint_catalog name, constraint_schema name, constraint_name name, unique_constraint_catalog name, \
         unique_constraint_schema name, unique_constraint_name name, match_option text, update_rule text, \
         delete_rule text",
        none,
    ),
    (
        "information_schema",
        "sequences",
        "sequence_catalog name, sequence_schema name, sequence_name name, data_type text, numeric_precision int4, \
         numeric_precision_radix int4, numeric_scale int4, start_value text, minimum_value text, maximum_value text, \
         increment text, cycle_option text",
        |picture| {
            let sequences = picture.sequences.iter().map(|s| {
                let (precision, radix, scale) = number(s.rules.column_type);
                row! {
                    sequence_catalog: picture.database.as_str(), sequence_schema: s.schema_name.as_str(),
                    sequence_name: s.name.as_str(), data_type: s.rules.column_type.to_string(),
                    numeric_precision: precision, numeric_precision_radix: radix, numeric_scale: scale,
                    start_value: s.rules.start.to_string(), minimum_value: s.rules.min.to_string(),
                    maximum_value: s.rules.max.to_string(), increment: s.rules.increment.to_string(),
                    cycle_option: if s.rules.cycles { "YES" } else { "NO" },
                }
            });
            sequences.collect()
        },
    ),
    (
        "information_schema",
        "views",
        "table_catalog name, table_schema name, table_name name, view_definition text, check_option text, \
         is_updatable text, is_insertable_into text",
        none,
    ),
    (
        "information_schema",
        "routines",
        "specific_catalog name, specific_schema name, specific_name name, routine_catalog name, routine_schema name, \
         routine_name name, routine_type text, data_type text, routine_definition text",
        |picture| {
            let functions = functions::callable().into_iter().map(|name| {
                row! {
                    specific_catalog: picture.database.as_str(), specific_schema: "pg_catalog", specific_name: name,
                    routine_catalog: picture.database.as_str(), routine_schema: "pg_catalog", routine_name: name,
                }
            });
            functions.collect()
        },
    ),
];

fn tables(picture: &Picture) -> Vec<Row> {
    let row = |schema: &str, name: &str, kind: &str, insertable: &str| {
        row! {
            table_catalog: picture.database.as_str(), table_schema: schema, table_name: name, table_type: kind,
            is_insertable_into: insertable,
        }
    };
    let user = picture.tables.iter();
    let user = user.map(|t| row(&t.definition.schema_name, &t.definition.name, "BASE TABLE", "YES"));
    let system = picture.system().map(|(_, _, t)| {
        let kind = if t.schema == "pg_catalog" { "BASE TABLE" } else { "VIEW" };
        row(t.schema, t.name, kind, "NO")
    });
    user.chain(system).collect()
}

fn columns(picture: &Picture) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in &picture.tables {
        for (i, column) in table.definition.schema.shown().iter().enumerate() {
            let found = by_oid(of_column(column.column_type).0);
            let (precision, radix, scale) = number(column.column_type);
            let identity = column.sequence().and_then(|of| of.identity);
            let moment = matches!(column.column_type, ColumnType::Timestamp).then_some(6);
            rows.push(row! {
                table_catalog: picture.database.as_str(), table_schema: table.definition.schema_name.as_str(),
                table_name: table.definition.name.as_str(), column_name: column.name.as_str(),
                ordinal_position: i as i64 + 1,
                column_default: picture.default_of(column),
                is_identity: if identity.is_some() { "YES" } else { "NO" },
                identity_generation: identity.map(|identity| match identity {
                    Identity::Always => "ALWAYS",
                    Identity::ByDefault => "BY DEFAULT",
                }),
                is_nullable: if column.nullable { "YES" } else { "NO" },
                data_type: found.map(|t| t.sql_name), udt_name: found.map(|t| t.name),
                udt_catalog: picture.database.as_str(), udt_schema: "pg_catalog",
                numeric_precision: precision, numeric_precision_radix: radix, numeric_scale: scale,
                datetime_precision: moment.or(matches!(column.column_type, ColumnType::Date).then_some(0_i64)),
                is_updatable: "YES",
                is_generated: if column.source == ColumnSource::CommitTimestamp { "ALWAYS" } else { "NEVER" },
            });
        }
    }
    for (_, _, table) in picture.system() {
        for (i, column) in table.columns.iter().enumerate() {
            let found = by_oid(column.kind.oid());
            rows.push(row! {
                table_catalog: picture.database.as_str(), table_schema: table.schema, table_name: table.name,
                column_name: column.name, ordinal_position: i as i64 + 1, is_nullable: "YES",
                data_type: found.map(|t| t.sql_name), udt_name: found.map(|t| t.name),
                udt_catalog: picture.database.as_str(), udt_schema: "pg_catalog", is_updatable: "NO",
            });
        }
    }
    rows
}

/// Precision, its base, and scale.
fn number(column_type: ColumnType) -> (Option<i64>, Option<i64>, Option<i64>) {
    match column_type {
        ColumnType::Int8 | ColumnType::Int16 => (Some(16), Some(2), Some(0)),
        ColumnType::Int32 => (Some(32), Some(2), Some(0)),
        ColumnType::Int64 => (Some(64), Some(2), Some(0)),
        ColumnType::Float => (Some(24), Some(2), None),
        ColumnType::Double => (Some(53), Some(2), None),
        ColumnType::Decimal { precision, scale } => {
            (Some(i64::from(precision)), Some(10), Some(i64::from(scale)))
        }
        _ => (None, None, None),
    }
}

fn key_row(picture: &Picture, table: &UserTable) -> Row {
    let (schema, name) = (table.definition.schema_name.as_str(), table.definition.name.as_str());
    row! {
        constraint_catalog: picture.database.as_str(), constraint_schema: schema, constraint_name: table.key_name(),
        table_catalog: picture.database.as_str(), table_schema: schema, table_name: name,
    }
}
