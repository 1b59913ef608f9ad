//! Types by oid: `pg_type`, `format_type`, and what `regtype` reads.

use oribi_types::ColumnType;

/// A type as `pg_type` lists it.
pub struct Type {
    pub oid: i64,
    pub name: &'static str,
    /// The name that SQL has for it.
    pub sql_name: &'static str,
    pub length: i64,
    pub category: &'static str,
    /// Oid of the array type over it; 0 if there is none.
    pub array: i64,
    /// For array types, what they hold.
    pub element: i64,
}

const fn base(
    oid: i64,
    name: &'static str,
    sql_name: &'static str,
    length: i64,
    category: &'static str,
    array: i64,
) -> Type {
    Type { oid, name, sql_name, length, category, array, element: 0 }
}

const fn array(oid: i64, name: &'static str, sql_name: &'static str, element: i64) -> Type {
    Type { oid, name, sql_name, length: -1, category: "A", array: 0, element }
}

/// The types that values have here, from PostgreSQL's `pg_type.dat`.
pub const TYPES: &[Type] = &[
    base(16, "bool", "boolean", 1, "B", 1000),
    base(17, "bytea", "bytea", -1, "U", 1001),
    base(18, "char", "\"char\"", 1, "Z", 0),
    base(19, "name", "name", 64, "S", 1003),
    base(20, "int8", "bigint", 8, "N", 1016),
    base(21, "int2", "smallint", 2, "N", 1005),
    base(23, "int4", "integer", 4, "N", 1007),
    base(24, "regproc", "regproc", 4, "N", 0),
    base(25, "text", "text", -1, "S", 1009),
    base(26, "oid", "oid", 4, "N", 1028),
    base(114, "json", "json", -1, "U", 199),
    base(700, "float4", "real", 4, "N", 1021),
    base(701, "float8", "double precision", 8, "N", 1022),
    base(705, "unknown", "unknown", -2, "X", 0),
    base(1042, "bpchar", "character", -1, "S", 0),
    base(1043, "varchar", "character varying", -1, "S", 1015),
    base(1082, "date", "date", 4, "D", 1182),
    base(1083, "time", "time without time zone", 8, "D", 1183),
    base(1114, "timestamp", "timestamp without time zone", 8, "D", 1115),
    base(1184, "timestamptz", "timestamp with time zone", 8, "D", 1185),
    base(1186, "interval", "interval", 16, "T", 1187),
    base(1700, "numeric", "numeric", -1, "N", 1231),
    base(2205, "regclass", "regclass", 4, "N", 0),
    base(2206, "regtype", "regtype", 4, "N", 0),
    base(2950, "uuid", "uuid", 16, "U", 2951),
    base(3802, "jsonb", "jsonb", -1, "U", 0),
    base(4089, "regnamespace", "regnamespace", 4, "N", 0),
    array(199, "_json", "json[]", 114),
    array(1000, "_bool", "boolean[]", 16),
    array(1001, "_bytea", "bytea[]", 17),
    array(1003, "_name", "name[]", 19),
    array(1005, "_int2", "smallint[]", 21),
    array(1007, "_int4", "integer[]", 23),
    array(1009, "_text", "text[]", 25),
    array(1015, "_varchar", "character varying[]", 1043),
    array(1016, "_int8", "bigint[]", 20),
    array(1021, "_float4", "real[]", 700),
    array(1022, "_float8", "double precision[]", 701),
    array(1028, "_oid", "oid[]", 26),
    array(1115, "_timestamp", "timestamp without time zone[]", 1114),
    array(1182, "_date", "date[]", 1082),
    array(1183, "_time", "time without time zone[]", 1083),
    array(1185, "_timestamptz", "timestamp with time zone[]", 1184),
    array(1187, "_interval", "interval[]", 1186),
    array(1231, "_numeric", "numeric[]", 1700),
    array(2951, "_uuid", "uuid[]", 2950),
];

pub fn by_oid(oid: i64) -> Option<&'static Type> {
    TYPES.iter().find(|t| t.oid == oid)
}

/// The type that a name means, with or without `pg_catalog.` and a modifier.
pub fn by_name(name: &str) -> Option<&'static Type> {
    let name = name.trim().to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let plain = match (name.find('('), name.find(')')) {
        (Some(open), Some(close)) if open < close => {
            format!("{}{}", name[..open].trim_end(), &name[close + 1..])
        }
        _ => name.to_owned(),
    };
    let spoken = match plain.as_str() {
        "int" => "int4",
        "decimal" => "numeric",
        "timestamp" => "timestamp",
        other => other,
    };
    TYPES.iter().find(|t| t.name == spoken || t.sql_name == spoken)
}

/// Oid and modifier of a column type.
pub fn of_column(column_type: ColumnType) -> (i64, i64) {
    let oid = match column_type {
        ColumnType::Bool => 16,
        ColumnType::Int8 | ColumnType::Int16 => 21,
        ColumnType::Int32 => 23,
        ColumnType::Int64 => 20,
        ColumnType::Float => 700,
        ColumnType::Double => 701,
        ColumnType::Decimal { precision, scale } => {
            return (1700, ((i64::from(precision) << 16) | i64::from(scale)) + 4);
        }
        ColumnType::String => 25,
        ColumnType::Binary => 17,
        ColumnType::Date => 1082,
        ColumnType::Timestamp => 1114,
        ColumnType::Uuid => 2950,
        ColumnType::Json => 114,
    };
    (oid, -1)
}

/// `format_type`: `numeric(15,2)`; `None` for null.
pub fn format(oid: Option<i64>, modifier: Option<i64>) -> Option<String> {
    let oid = oid?;
    if oid == 0 {
        return Some("-".to_owned());
    }
    let Some(found) = by_oid(oid) else { return Some("???".to_owned()) };
    Some(match modifier {
        Some(m) if oid == 1700 && m >= 4 => format!("numeric({},{})", (m - 4) >> 16, (m - 4) & 0xFFFF),
        Some(m) if (oid == 1042 || oid == 1043) && m >= 4 => format!("{}({})", found.sql_name, m - 4),
        _ => found.sql_name.to_owned(),
    })
}
