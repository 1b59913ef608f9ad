//! `COPY`: rows in and out in bulk. The door moves the bytes, in the format that [`CopyStatement`] says.

use crate::dml::{self, ParameterTypes, RowSink, Run, Scope, SourceQuery};
use crate::error::{invalid, unsupported};
use crate::syntax::{self, fold, syntax_error};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::sql::sqlparser::ast::{
    self, CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Expr, Ident, SelectItem,
    SetExpr, Statement,
};
use oribi_engine::Table;
use oribi_session::sql::{CopyFormat, CopySink, CopyStatement, Outcome, SqlError};
use oribi_types::{ColumnSource, ErrorKind};
use std::collections::HashSet;
use std::sync::Arc;

/// A planned `COPY`.
pub(crate) struct Copy {
    format: CopyStatement,
    action: Action,
}

enum Action {
    In { table: Arc<Table>, positions: Vec<usize>, schema: SchemaRef },
    Out(SourceQuery),
}

impl Copy {
    /// # Errors
    /// `Unsupported` for files and programs; `Invalid` for contradicting options.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        statement: Statement,
        types: &mut ParameterTypes,
    ) -> Result<Self, SqlError> {
        let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
            return Err(syntax_error("not a COPY"));
        };
        match (&target, to) {
            (CopyTarget::Stdin, false) | (CopyTarget::Stdout, true) => {}
            _ => {
                return Err(SqlError::new(
                    ErrorKind::Unsupported,
                    "COPY from or to a file of the server is not supported",
                )
                .with_hint("use STDIN and STDOUT; psql's \\copy does"));
            }
        }
        let format = format(to, &options, &legacy_options)?;
        if let CopySource::Table { columns, .. } = &source {
            check_distinct(columns)?;
        }
        let action = match source {
            CopySource::Query(query) => {
                Action::Out(SourceQuery::plan(scope, Statement::Query(query), types).await?)
            }
            CopySource::Table { table_name, columns } if to => {
                let query = select(&table_name, &columns)?;
                Action::Out(SourceQuery::plan(scope, query, types).await?)
            }
            CopySource::Table { table_name, columns } => {
                let table = dml::table(scope.session, scope.query.engine(), &table_name)?;
                copy_in(table, &columns)?
            }
        };
        Ok(Copy { format, action })
    }

    pub(crate) fn format(&self) -> &CopyStatement {
        &self.format
    }

    pub(crate) fn writes(&self) -> bool {
        matches!(self.action, Action::In { .. })
    }

    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        match &self.action {
            Action::In { .. } => None,
            Action::Out(query) => Some(query.schema()),
        }
    }

    /// # Errors
    /// Those of the query.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        match &self.action {
            Action::Out(query) => Ok(Outcome::Rows(query.run_for_client(run).await?)),
            Action::In { table, positions, schema } => {
                let sink = RowSink::new(run.destination(), table, &table.schema(), positions).of_client();
                Ok(Outcome::CopyIn(Box::new(Incoming { sink, schema: Arc::clone(schema) })))
            }
        }
    }
}

struct Incoming {
    sink: RowSink,
    schema: SchemaRef,
}

#[async_trait]
impl CopySink for Incoming {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        self.sink.push(&batch).await
    }

    async fn finish(self: Box<Self>) -> Result<u64, SqlError> {
        self.sink.finish().await
    }
}

fn copy_in(table: Arc<Table>, columns: &[Ident]) -> Result<Action, SqlError> {
    let schema = table.schema();
    let positions: Vec<usize> = if columns.is_empty() {
        let all = schema.shown().iter().enumerate();
        all.filter(|(_, c)| c.source != ColumnSource::CommitTimestamp).map(|(i, _)| i).collect()
    } else {
        columns.iter().map(|ident| dml::column(&table, &schema, ident)).collect::<Result<_, _>>()?
    };
    // The door may push nulls anywhere: the table says whether it takes them, with the right SQLSTATE.
    let fields: Vec<_> =
        positions.iter().map(|&i| schema.arrow().field(i).clone().with_nullable(true)).collect();
    Ok(Action::In { table, positions, schema: Arc::new(Schema::new(fields)) })
}

/// # Errors
/// 42701 for a column that is named twice.
fn check_distinct(columns: &[Ident]) -> Result<(), SqlError> {
    let mut seen = HashSet::new();
    match columns.iter().map(fold).find(|name| !seen.insert(name.clone())) {
        Some(name) => Err(invalid("42701", format!("column \"{name}\" specified more than once"))),
        None => Ok(()),
    }
}

/// `SELECT columns FROM table`.
fn select(table: &ast::ObjectName, columns: &[Ident]) -> Result<Statement, SqlError> {
    let mut parsed = syntax::parse("select * from t")?.statement;
    if let Statement::Query(query) = &mut parsed
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        if let ast::TableFactor::Table { name, .. } = &mut select.from[0].relation {
            *name = table.clone();
        }
        if !columns.is_empty() {
            let item = |column: &Ident| SelectItem::UnnamedExpr(Expr::Identifier(column.clone()));
            select.projection = columns.iter().map(item).collect();
        }
    }
    Ok(parsed)
}

/// The options, with PostgreSQL's defaults for the format.
fn format(
    to_stdout: bool,
    options: &[CopyOption],
    legacy: &[CopyLegacyOption],
) -> Result<CopyStatement, SqlError> {
    let mut given = Given::default();
    options.iter().try_for_each(|option| given.option(option))?;
    legacy.iter().try_for_each(|option| given.legacy(option))?;
    let format = given.format.unwrap_or(CopyFormat::Text);
    let csv = format == CopyFormat::Csv;
    if !csv && (given.quote.is_some() || given.escape.is_some()) {
        return Err(syntax_error("COPY QUOTE and ESCAPE need FORMAT csv"));
    }
    let quote = given.quote.unwrap_or(b'"');
    let statement = CopyStatement {
        to_stdout,
        format,
        header: given.header,
        delimiter: given.delimiter.unwrap_or(if csv { b',' } else { b'\t' }),
        null: given.null.unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() }),
        quote,
        escape: given.escape.unwrap_or(quote),
    };
    if matches!(statement.delimiter, b'\n' | b'\r' | b'\\') || csv && statement.delimiter == quote {
        return Err(syntax_error("COPY delimiter must be another character"));
    }
    if statement.null.contains(['\n', '\r']) {
        return Err(syntax_error("COPY null representation cannot use newline or carriage return"));
    }
    Ok(statement)
}

#[derive(Default)]
struct Given {
    format: Option<CopyFormat>,
    header: bool,
    delimiter: Option<u8>,
    null: Option<String>,
    quote: Option<u8>,
    escape: Option<u8>,
}

impl Given {
    fn option(&mut self, option: &CopyOption) -> Result<(), SqlError> {
        match option {
            CopyOption::Format(name) => {
                self.format = Some(match fold(name).as_str() {
                    "text" => CopyFormat::Text,
                    "csv" => CopyFormat::Csv,
                    other => return Err(unsupported(&format!("COPY format \"{other}\""))),
                });
            }
            CopyOption::Header(header) => self.header = *header,
            CopyOption::Delimiter(c) => self.delimiter = Some(byte(*c, "delimiter")?),
            CopyOption::Null(text) => self.null = Some(text.clone()),
            CopyOption::Quote(c) => self.quote = Some(byte(*c, "quote")?),
            CopyOption::Escape(c) => self.escape = Some(byte(*c, "escape")?),
            CopyOption::Encoding(name) if matches!(name.to_lowercase().as_str(), "utf8" | "utf-8") => {}
            // Rows are as frozen as they will ever be.
            CopyOption::Freeze(_) => {}
            other => return Err(unsupported(&format!("COPY option {other}"))),
        }
        Ok(())
    }

    /// The options as they stood before PostgreSQL 9.0, which psql's `\copy … csv header` still writes.
    fn legacy(&mut self, option: &CopyLegacyOption) -> Result<(), SqlError> {
        match option {
            CopyLegacyOption::Delimiter(c) => self.delimiter = Some(byte(*c, "delimiter")?),
            CopyLegacyOption::Null(text) => self.null = Some(text.clone()),
            CopyLegacyOption::Header => self.header = true,
            CopyLegacyOption::Csv(options) => {
                self.format = Some(CopyFormat::Csv);
                for option in options {
                    match option {
                        CopyLegacyCsvOption::Header => self.header = true,
                        CopyLegacyCsvOption::Quote(c) => self.quote = Some(byte(*c, "quote")?),
                        CopyLegacyCsvOption::Escape(c) => self.escape = Some(byte(*c, "escape")?),
                        other => return Err(unsupported(&format!("COPY option {other}"))),
                    }
                }
            }
            other => return Err(unsupported(&format!("COPY option {other}"))),
        }
        Ok(())
    }
}

fn byte(c: char, what: &str) -> Result<u8, SqlError> {
    u8::try_from(c)
        .ok()
        .filter(u8::is_ascii)
        .ok_or_else(|| syntax_error(format!("COPY {what} must be a single one-byte character")))
}
