//! SQL type names as column types.

use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, ObjectName, TimezoneInfo};
use oribi_session::sql::SqlError;
use oribi_types::{ColumnType, ErrorKind};

/// The column type that a type of SQL means.
///
/// `varchar(n)` and `char(n)` are text whose length is not enforced; `jsonb` is `json`.
///
/// # Errors
/// `Unsupported` (0A000) with a hint, or `NotFound` (42704) for a name that is no type.
pub(crate) fn column_type(sql: &DataType) -> Result<ColumnType, SqlError> {
    Ok(match sql {
        DataType::Bool | DataType::Boolean => ColumnType::Bool,
        DataType::TinyInt(_) => ColumnType::Int8,
        DataType::Int2(_) | DataType::SmallInt(_) => ColumnType::Int16,
        DataType::Int(_) | DataType::Int4(_) | DataType::Integer(_) => ColumnType::Int32,
        DataType::BigInt(_) | DataType::Int8(_) => ColumnType::Int64,
        DataType::Real | DataType::Float4 => ColumnType::Float,
        DataType::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => ColumnType::Float,
        DataType::Float(_) | DataType::Float8 | DataType::Double(_) | DataType::DoublePrecision => {
            ColumnType::Double
        }
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => decimal(sql, info)?,
        DataType::Text
        | DataType::String(_)
        | DataType::Varchar(_)
        | DataType::CharacterVarying(_)
        | DataType::CharVarying(_)
        | DataType::Char(_)
        | DataType::Character(_) => ColumnType::String,
        DataType::Bytea | DataType::Blob(_) | DataType::Binary(_) | DataType::Varbinary(_) => {
            ColumnType::Binary
        }
        DataType::Date => ColumnType::Date,
        DataType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            return Err(unsupported(sql).with_hint("use timestamp, and write and read it in UTC"));
        }
        DataType::Timestamp(..) => ColumnType::Timestamp,
        DataType::Uuid => ColumnType::Uuid,
        DataType::JSON | DataType::JSONB => ColumnType::Json,
        DataType::Custom(name, modifiers) => custom(sql, name, modifiers)?,
        other => return Err(unsupported(other)),
    })
}

fn custom(sql: &DataType, name: &ObjectName, modifiers: &[String]) -> Result<ColumnType, SqlError> {
    let name = name.to_string().to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name).trim_matches('"');
    match (name, modifiers) {
        ("serial" | "serial2" | "serial4" | "serial8" | "smallserial" | "bigserial", _) => {
            Err(unsupported(sql).with_hint("it is a type of columns in CREATE TABLE alone"))
        }
        ("money" | "time" | "timetz" | "interval" | "inet" | "cidr" | "point" | "xml" | "tsvector", _) => {
            Err(unsupported(sql))
        }
        ("bpchar" | "name", _) => Ok(ColumnType::String),
        _ => Err(SqlError::new(ErrorKind::NotFound, format!("type \"{name}\" does not exist"))
            .with_sqlstate("42704")),
    }
}

fn decimal(sql: &DataType, info: &ExactNumberInfo) -> Result<ColumnType, SqlError> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => {
            return Err(unsupported(sql).with_hint("give precision and scale, such as numeric(38,10)"));
        }
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if !(1..=38).contains(&precision) || !(0..=precision as i64).contains(&scale) {
        return Err(SqlError::new(
            ErrorKind::Invalid,
            format!("{sql}: precision is 1 to 38 and scale 0 to the precision"),
        )
        .with_sqlstate("22023"));
    }
    Ok(ColumnType::Decimal { precision: precision as u8, scale: scale as i8 })
}

fn unsupported(sql: &DataType) -> SqlError {
    SqlError::new(ErrorKind::Unsupported, format!("type {} is not supported", sql.to_string().to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn of(sql: &str) -> Result<ColumnType, SqlError> {
        let dialect = PostgreSqlDialect {};
        let parsed = Parser::new(&dialect).try_with_sql(sql).unwrap().parse_data_type().unwrap();
        column_type(&parsed)
    }

    #[test]
    fn postgresql_names_mean_what_they_mean_there() {
        for (sql, expected) in [
            ("int2", ColumnType::Int16),
            ("int4", ColumnType::Int32),
            ("int8", ColumnType::Int64),
            ("float4", ColumnType::Float),
            ("float(24)", ColumnType::Float),
            ("float", ColumnType::Double),
            ("double precision", ColumnType::Double),
            ("numeric(12,2)", ColumnType::Decimal { precision: 12, scale: 2 }),
            ("decimal(5)", ColumnType::Decimal { precision: 5, scale: 0 }),
            ("varchar(10)", ColumnType::String),
            ("character varying", ColumnType::String),
            ("jsonb", ColumnType::Json),
            ("bytea", ColumnType::Binary),
        ] {
            assert_eq!(of(sql).unwrap(), expected, "{sql}");
        }
        for (sql, kind) in [
            ("serial", ErrorKind::Unsupported),
            ("numeric", ErrorKind::Unsupported),
            ("interval", ErrorKind::Unsupported),
            ("timestamptz", ErrorKind::Unsupported),
            ("timestamp(3) with time zone", ErrorKind::Unsupported),
            ("int[]", ErrorKind::Unsupported),
            ("nonsense", ErrorKind::NotFound),
            ("numeric(39,2)", ErrorKind::Invalid),
        ] {
            assert_eq!(of(sql).unwrap_err().error.kind(), kind, "{sql}");
        }
    }
}
