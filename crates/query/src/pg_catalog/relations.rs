//! What `pg_catalog` says about tables, their columns and keys.

use super::picture::{OWNER, Picture, UserTable};
use super::table::{Cell, Declaration, Row, row};
use super::types::{TYPES, by_oid, of_column};
use oribi_types::schema::Identity;
use oribi_types::{Column, Value, ValueRef, text};

pub const TABLES: &[Declaration] = &[
    ("pg_catalog", "pg_namespace", "oid oid, nspname name, nspowner oid 10, nspacl text[]", |picture| {
        picture.namespaces.iter().map(|n| row! { oid: n.oid, nspname: n.name.as_str() }).collect()
    }),
    (
        "pg_catalog",
        "pg_class",
        "oid oid, relname name, relnamespace oid, reltype oid 0, reloftype oid 0, relowner oid 10, relam oid 0, \
         relfilenode oid 0, reltablespace oid 0, relpages int4 0, reltuples float4 -1, relallvisible int4 0, \
         reltoastrelid oid 0, relhasindex bool false, relisshared bool false, relpersistence char p, relkind char r, \
         relnatts int2 0, relchecks int2 0, relhasrules bool false, relhastriggers bool false, \
         relhassubclass bool false, relrowsecurity bool false, relforcerowsecurity bool false, \
         relispopulated bool true, relreplident char d, relispartition bool false, relrewrite oid 0, \
         relfrozenxid oid 0, relminmxid oid 0, relacl text[], reloptions text[], relpartbound text, tableoid oid 1259",
        classes,
    ),
    (
        "pg_catalog",
        "pg_attribute",
        "attrelid oid, attname name, atttypid oid, attstattarget int4 -1, attlen int2, attnum int2, attndims int4 0, \
         attcacheoff int4 -1, atttypmod int4 -1, attbyval bool false, attalign char i, attstorage char p, \
         attcompression char '', attnotnull bool false, atthasdef bool false, atthasmissing bool false, \
         attidentity char '', attgenerated char '', attisdropped bool false, attislocal bool true, \
         attinhcount int4 0, attcollation oid 0, attacl text[], attoptions text[], attfdwoptions text[], \
         attmissingval text[]",
        attributes,
    ),
    ("pg_catalog", "pg_attrdef", "oid oid, adrelid oid, adnum int2, adbin text", defaults),
    (
        "pg_catalog",
        "pg_index",
        "indexrelid oid, indrelid oid, indnatts int2, indnkeyatts int2, indisunique bool true, \
         indnullsnotdistinct bool false, indisprimary bool true, indisexclusion bool false, indimmediate bool true, \
         indisclustered bool false, indisvalid bool true, indcheckxmin bool false, indisready bool true, \
         indislive bool true, indisreplident bool false, indkey int2[], indcollation oid[], indclass oid[], \
         indoption int2[], indexprs text, indpred text",
        indexes,
    ),
    (
        "pg_catalog",
        "pg_constraint",
        "oid oid, conname name, connamespace oid, contype char p, condeferrable bool false, condeferred bool false, \
         convalidated bool true, conrelid oid, contypid oid 0, conindid oid, conparentid oid 0, confrelid oid 0, \
         confupdtype char '', confdeltype char '', confmatchtype char '', conislocal bool true, coninhcount int4 0, \
         connoinherit bool true, conkey int2[], confkey int2[], conpfeqop oid[], conppeqop oid[], conffeqop oid[], \
         confdelsetcols int2[], conexclop oid[], conbin text, tableoid oid 2606",
        constraints,
    ),
    (
        "pg_catalog",
        "pg_type",
        "oid oid, typname name, typnamespace oid 11, typowner oid 10, typlen int2, typbyval bool false, \
         typtype char b, typcategory char, typispreferred bool false, typisdefined bool true, typdelim char, \
         typrelid oid 0, typsubscript oid 0, typelem oid, typarray oid, typinput oid 0, typoutput oid 0, \
         typreceive oid 0, typsend oid 0, typmodin oid 0, typmodout oid 0, typanalyze oid 0, typalign char i, \
         typstorage char p, typnotnull bool false, typbasetype oid 0, typtypmod int4 -1, typndims int4 0, \
         typcollation oid 0, typdefaultbin text, typdefault text, typacl text[]",
        |_| {
            let types = TYPES.iter().map(|t| {
                row! {
                    oid: t.oid, typname: t.name, typlen: t.length, typcategory: t.category,
                    typelem: t.element, typarray: t.array, typdelim: ",",
                }
            });
            types.collect()
        },
    ),
    (
        "pg_catalog",
        "pg_sequence",
        "seqrelid oid, seqtypid oid, seqstart int8, seqincrement int8, seqmax int8, seqmin int8, seqcache \
         int8, seqcycle bool",
        sequences,
    ),
    (
        "pg_catalog",
        "pg_sequences",
        "schemaname name, sequencename name, sequenceowner name, data_type text, start_value int8, \
         min_value int8, max_value int8, increment_by int8, cycle bool, cache_size int8, last_value int8",
        shown_sequences,
    ),
    (
        "pg_catalog",
        "pg_tables",
        "schemaname name, tablename name, tableowner name, tablespace name, hasindexes bool, hasrules bool false, \
         hastriggers bool false, rowsecurity bool false",
        |picture| {
            let user = picture.tables.iter().map(|t| {
                row! {
                    schemaname: t.definition.schema_name.as_str(), tablename: t.definition.name.as_str(),
                    tableowner: picture.user.as_str(), hasindexes: t.has_key(),
                }
            });
            let system = picture.system().map(|(_, _, t)| {
                row! { schemaname: t.schema, tablename: t.name, tableowner: picture.user.as_str(), hasindexes: false }
            });
            user.chain(system).collect()
        },
    ),
    (
        "pg_catalog",
        "pg_indexes",
        "schemaname name, tablename name, indexname name, tablespace name, indexdef text",
        |picture| {
            let indexes = picture.keyed().map(|t| {
                row! {
                    schemaname: t.definition.schema_name.as_str(), tablename: t.definition.name.as_str(),
                    indexname: t.key_name(), indexdef: index_definition(t),
                }
            });
            indexes.collect()
        },
    ),
];

/// The access method of tables; that of keys is the next.
pub const TABLE_METHOD: i64 = 2;
pub const KEY_METHOD: i64 = 403;

fn classes(picture: &Picture) -> Vec<Row> {
    let tables = picture.tables.iter().map(|t| {
        row! {
            oid: t.oid, relname: t.definition.name.as_str(), relnamespace: t.namespace, relowner: OWNER,
            relam: TABLE_METHOD, reltuples: t.estimated_rows as i64, relhasindex: t.has_key(),
            relnatts: t.definition.schema.shown().len() as i64,
        }
    });
    let keys = picture.keyed().map(|t| {
        row! {
            oid: t.key_oid(), relname: t.key_name(), relnamespace: t.namespace, relam: KEY_METHOD,
            relkind: "i", relnatts: t.key_columns().count() as i64,
        }
    });
    let sequences = picture.sequences.iter().map(|s| {
        row! {
            oid: s.oid, relname: s.name.as_str(), relnamespace: s.namespace, relowner: OWNER, relkind: "S",
            reltuples: 1_i64, relnatts: 3_i64,
        }
    });
    let system = picture.system().map(|(oid, namespace, t)| {
        let kind = if t.schema == "pg_catalog" { "r" } else { "v" };
        row! {
            oid: oid, relname: t.name, relnamespace: namespace, relkind: kind, relam: TABLE_METHOD,
            relnatts: t.columns.len() as i64,
        }
    });
    tables.chain(keys).chain(sequences).chain(system).collect()
}

fn attributes(picture: &Picture) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in &picture.tables {
        let columns = table.definition.schema.shown();
        for (i, column) in columns.iter().enumerate() {
            let (oid, modifier) = of_column(column.column_type);
            rows.push(row! {
                attrelid: table.oid, attname: column.name.as_str(), atttypid: oid, atttypmod: modifier,
                attlen: by_oid(oid).map_or(-1, |t| t.length), attnum: i as i64 + 1,
                attnotnull: !column.nullable, atthasdef: picture.default_of(column).is_some(),
                attidentity: identity(column),
                attstorage: if by_oid(oid).is_some_and(|t| t.length < 0) { "x" } else { "p" },
            });
        }
        for (i, name) in table.key_columns().enumerate() {
            let column = columns.iter().find(|c| c.name == name);
            let (oid, modifier) = column.map_or((25, -1), |c| of_column(c.column_type));
            rows.push(row! {
                attrelid: table.key_oid(), attname: name, atttypid: oid, atttypmod: modifier,
                attlen: by_oid(oid).map_or(-1, |t| t.length), attnum: i as i64 + 1,
            });
        }
    }
    for (oid, _, table) in picture.system() {
        for (i, column) in table.columns.iter().enumerate() {
            let length = by_oid(column.kind.oid()).map_or(-1, |t| t.length);
            rows.push(row! {
                attrelid: oid, attname: column.name, atttypid: column.kind.oid(), attlen: length,
                attnum: i as i64 + 1,
            });
        }
    }
    rows
}

fn defaults(picture: &Picture) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in &picture.tables {
        for (i, column) in table.definition.schema.shown().iter().enumerate() {
            if let Some(value) = picture.default_of(column) {
                let number = i as i64 + 1;
                // No constraint or table of ours has an oid this large.
                let oid = (1_i64 << 40) + table.oid * 4096 + number;
                rows.push(row! { oid: oid, adrelid: table.oid, adnum: number, adbin: value });
            }
        }
    }
    rows
}

fn identity(column: &Column) -> &'static str {
    match column.sequence().and_then(|of| of.identity) {
        Some(Identity::Always) => "a",
        Some(Identity::ByDefault) => "d",
        None => "",
    }
}

fn sequences(picture: &Picture) -> Vec<Row> {
    let sequences = picture.sequences.iter().map(|s| {
        let rules = &s.rules;
        row! {
            seqrelid: s.oid, seqtypid: of_column(rules.column_type).0, seqstart: rules.start,
            seqincrement: rules.increment, seqmax: rules.max, seqmin: rules.min, seqcache: rules.cache,
            seqcycle: rules.cycles,
        }
    });
    sequences.collect()
}

fn shown_sequences(picture: &Picture) -> Vec<Row> {
    let sequences = picture.sequences.iter().map(|s| {
        let rules = &s.rules;
        row! {
            schemaname: s.schema_name.as_str(), sequencename: s.name.as_str(),
            sequenceowner: picture.user.as_str(), data_type: rules.column_type.to_string(),
            start_value: rules.start, min_value: rules.min, max_value: rules.max, increment_by: rules.increment,
            cycle: rules.cycles, cache_size: rules.cache,
        }
    });
    sequences.collect()
}

/// A default as SQL writes it.
pub fn literal(value: &Value, column: &Column) -> String {
    let text = text::to_string(value.as_ref(), column.column_type);
    match value.as_ref() {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Bool(_)
        | ValueRef::Int8(_)
        | ValueRef::Int16(_)
        | ValueRef::Int32(_)
        | ValueRef::Int64(_)
        | ValueRef::Decimal(_) => text,
        _ => format!("'{}'::{}", text.replace('\'', "''"), column.column_type),
    }
}

fn key_numbers(table: &UserTable) -> Cell {
    let columns = table.definition.schema.columns();
    let position = |name: &str| columns.iter().position(|c| c.name == name).map_or(0, |i| i as i64 + 1);
    Cell::Ints(table.key_columns().map(position).collect())
}

fn indexes(picture: &Picture) -> Vec<Row> {
    let indexes = picture.keyed().map(|t| {
        let count = t.key_columns().count();
        let mut row = row! {
            indexrelid: t.key_oid(), indrelid: t.oid, indnatts: count as i64, indnkeyatts: count as i64,
        };
        row.extend([
            ("indkey", key_numbers(t)),
            ("indoption", Cell::Ints(vec![0; count])),
            ("indcollation", Cell::Ints(vec![0; count])),
            ("indclass", Cell::Ints(vec![0; count])),
        ]);
        row
    });
    indexes.collect()
}

fn constraints(picture: &Picture) -> Vec<Row> {
    let keys = picture.keyed().map(|t| {
        let mut row = row! {
            oid: t.key_oid(), conname: t.key_name(), connamespace: t.namespace, conrelid: t.oid,
            conindid: t.key_oid(),
        };
        row.push(("conkey", key_numbers(t)));
        row
    });
    keys.collect()
}

/// `PRIMARY KEY (a, b)`.
pub fn key_definition(table: &UserTable) -> String {
    format!("PRIMARY KEY ({})", quoted_key(table))
}

/// `CREATE UNIQUE INDEX …`: the key's order and point reads are those of a tree.
pub fn index_definition(table: &UserTable) -> String {
    format!(
        "CREATE UNIQUE INDEX {} ON {}.{} USING btree ({})",
        super::picture::quote(&table.key_name()),
        super::picture::quote(&table.definition.schema_name),
        super::picture::quote(&table.definition.name),
        quoted_key(table)
    )
}

fn quoted_key(table: &UserTable) -> String {
    table.key_columns().map(super::picture::quote).collect::<Vec<_>>().join(", ")
}
