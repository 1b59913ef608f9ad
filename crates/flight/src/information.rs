//! What the server says of itself and of its types.

use arrow::array::RecordBatch;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    CommandGetSqlInfo, CommandGetXdbcTypeInfo, Nullable, Searchable, SqlInfo, SqlNullOrdering,
    SqlSupportedCaseSensitivity, SqlSupportedTransaction, SqlTransactionIsolationLevel, XdbcDataType,
};
use oribi_session::sql::{POSTGRES_VERSION, SqlError};
use oribi_types::ErrorKind;
use std::sync::LazyLock;

static SERVER: LazyLock<SqlInfoData> =
    LazyLock::new(|| server().build().expect("what is said is of types that there are"));
static TYPES: LazyLock<XdbcTypeInfoData> =
    LazyLock::new(|| types().build().expect("what is said is of types that there are"));

/// What is asked of the server.
///
/// # Errors
/// `Internal` for what Arrow says.
pub fn sql_info(command: CommandGetSqlInfo) -> Result<RecordBatch, SqlError> {
    command.into_builder(&SERVER).build().map_err(internal)
}

/// # Errors
/// `Internal` for what Arrow says.
pub fn type_info(command: CommandGetXdbcTypeInfo) -> Result<RecordBatch, SqlError> {
    command.into_builder(&TYPES).build().map_err(internal)
}

fn internal(error: arrow_flight::error::FlightError) -> SqlError {
    SqlError::new(ErrorKind::Internal, error.to_string())
}

fn server() -> SqlInfoDataBuilder {
    let mut say = SqlInfoDataBuilder::new();
    say.append(SqlInfo::FlightSqlServerName, "Oribi");
    say.append(SqlInfo::FlightSqlServerVersion, POSTGRES_VERSION);
    say.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    for (info, is) in [
        (SqlInfo::FlightSqlServerReadOnly, false),
        (SqlInfo::FlightSqlServerSql, true),
        (SqlInfo::FlightSqlServerSubstrait, false),
        (SqlInfo::FlightSqlServerCancel, true),
        (SqlInfo::FlightSqlServerBulkIngestion, true),
        (SqlInfo::FlightSqlServerIngestTransactionsSupported, true),
        (SqlInfo::SqlDdlCatalog, false),
        (SqlInfo::SqlDdlSchema, true),
        (SqlInfo::SqlDdlTable, true),
        (SqlInfo::SqlAllTablesAreSelectable, true),
        (SqlInfo::SqlSupportsColumnAliasing, true),
        (SqlInfo::SqlNullPlusNullIsNull, true),
        (SqlInfo::SqlSupportsTableCorrelationNames, true),
        (SqlInfo::SqlSupportsExpressionsInOrderBy, true),
        (SqlInfo::SqlSupportsOrderByUnrelated, true),
        (SqlInfo::SqlSupportsLikeEscapeClause, true),
        (SqlInfo::SqlSupportsNonNullableColumns, true),
        (SqlInfo::SqlSelectForUpdateSupported, true),
        (SqlInfo::SqlStoredProceduresSupported, false),
        (SqlInfo::SqlCorrelatedSubqueriesSupported, true),
        (SqlInfo::SqlTransactionsSupported, true),
        (SqlInfo::SqlDataDefinitionCausesTransactionCommit, false),
        (SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false),
        (SqlInfo::SqlBatchUpdatesSupported, true),
        (SqlInfo::SqlSavepointsSupported, true),
        (SqlInfo::SqlNamedParametersSupported, false),
    ] {
        say.append(info, is);
    }
    say.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
    say.append(SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i64);
    say.append(
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i64,
    );
    say.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    say.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i64);
    say.append(SqlInfo::SqlSearchStringEscape, "\\");
    say.append(SqlInfo::SqlCatalogTerm, "database");
    say.append(SqlInfo::SqlSchemaTerm, "schema");
    say.append(
        SqlInfo::SqlDefaultTransactionIsolation,
        SqlTransactionIsolationLevel::SqlTransactionReadCommitted as i64,
    );
    say
}

fn types() -> XdbcTypeInfoDataBuilder {
    use XdbcDataType as T;
    let mut types = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, size, quotes) in [
        ("boolean", T::XdbcBit, 1, false),
        ("tinyint", T::XdbcTinyint, 3, false),
        ("smallint", T::XdbcSmallint, 5, false),
        ("integer", T::XdbcInteger, 10, false),
        ("bigint", T::XdbcBigint, 19, false),
        ("real", T::XdbcReal, 7, false),
        ("double precision", T::XdbcDouble, 15, false),
        ("numeric", T::XdbcNumeric, 38, false),
        ("text", T::XdbcVarchar, i32::MAX, true),
        ("json", T::XdbcLongvarchar, i32::MAX, true),
        ("bytea", T::XdbcVarbinary, i32::MAX, true),
        ("uuid", T::XdbcBinary, 16, true),
        ("date", T::XdbcDate, 10, true),
        ("timestamp", T::XdbcTimestamp, 26, true),
    ] {
        let quote = quotes.then(|| "'".to_owned());
        let is_number = !quotes && name != "boolean";
        types.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type,
            column_size: Some(size),
            literal_prefix: quote.clone(),
            literal_suffix: quote,
            create_params: (name == "numeric").then(|| vec!["precision".to_owned(), "scale".to_owned()]),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: quotes,
            searchable: Searchable::Full,
            unsigned_attribute: is_number.then_some(false),
            local_type_name: Some(name.to_owned()),
            minimum_scale: (name == "numeric").then_some(0),
            maximum_scale: (name == "numeric").then_some(38),
            sql_data_type: data_type,
            num_prec_radix: is_number.then_some(10),
            ..XdbcTypeInfo::default()
        });
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_can_be_asked_for() {
        let all = sql_info(CommandGetSqlInfo { info: Vec::new() }).unwrap();
        let one = sql_info(CommandGetSqlInfo { info: vec![SqlInfo::FlightSqlServerName as u32] }).unwrap();
        assert!(all.num_rows() > 30 && one.num_rows() == 1);
        assert_eq!(type_info(CommandGetXdbcTypeInfo { data_type: None }).unwrap().num_rows(), 14);
        let numeric = CommandGetXdbcTypeInfo { data_type: Some(XdbcDataType::XdbcNumeric as i32) };
        assert_eq!(type_info(numeric).unwrap().num_rows(), 1);
    }
}
