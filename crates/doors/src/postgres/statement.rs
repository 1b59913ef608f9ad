//! A statement on its way: executed once, its rows handed over in as many pieces as the client asks for.

use super::codec;
use super::connection::Connection;
use super::copy::{CopyReader, CopyWriter};
use super::encode::{Column, Format};
use super::error::{self, Fault};
use super::types::wire_type;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use metrics::{counter, histogram};
use oribi_session::sql::{CopySink, CopyStatement, Outcome, Prepared, Release, RowStream, SqlError};
use oribi_types::{ErrorKind, Value};
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::data::{FieldDescription, NoData, RowDescription};
use pgwire::messages::extendedquery::PortalSuspended;
use pgwire::messages::response::CommandComplete;
use std::sync::Arc;
use std::time::Instant;

/// A statement that was executed and has more to say.
pub struct Running {
    state: State,
    columns: Option<SchemaRef>,
    formats: Vec<Format>,
    copy: Option<CopyStatement>,
    releases: Option<Release>,
    started: Instant,
}

enum State {
    Rows { stream: RowStream, batch: Option<(RecordBatch, usize)>, verb: &'static str },
    CopyIn(Box<dyn CopySink>),
    Command { tag: String },
    Finished { verb: Option<&'static str> },
}

/// Whether a statement has been answered in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    Suspended,
}

/// Executes a statement. `formats` has one entry per result column.
pub async fn start(
    connection: &mut Connection,
    prepared: &Arc<dyn Prepared>,
    parameters: &[Value],
    formats: Vec<Format>,
) -> Result<Running, Fault> {
    counter!("oribi_postgres_statements_total").increment(1);
    let started = Instant::now();
    connection.wire.be_seen().await?;
    let outcome = connection.wire.run(prepared.execute(&connection.session, parameters)).await?;
    connection.put_warnings();
    let state = match outcome {
        Outcome::Rows(stream) => State::Rows { stream, batch: None, verb: prepared.verb() },
        Outcome::Done { tag } => State::Command { tag },
        Outcome::CopyIn(sink) => State::CopyIn(sink),
    };
    let (columns, copy) = (prepared.columns().cloned(), prepared.copy().cloned());
    Ok(Running { state, columns, formats, copy, releases: prepared.releases().cloned(), started })
}

/// Appends the description of a statement's result: of `columns` in `formats`, or that there is none.
pub fn put_description(connection: &mut Connection, columns: Option<&SchemaRef>, formats: &[Format]) {
    let Some(columns) = columns else { return connection.wire.put(&NoData::new()) };
    let fields = columns.fields().iter().zip(formats).map(|(field, format)| {
        let wire = wire_type(field);
        // No table, no column of it: results are not traced back to where they come from.
        FieldDescription::new(
            field.name().replace('\0', ""),
            0,
            0,
            wire.oid,
            wire.length,
            wire.modifier,
            i16::from(*format == Format::Binary),
        )
    });
    connection.wire.put(&RowDescription::new(fields.collect()));
}

impl Running {
    /// A statement that was answered in full; `verb` if it gave rows.
    pub fn finished(verb: Option<&'static str>) -> Self {
        Running {
            state: State::Finished { verb },
            columns: None,
            formats: Vec::new(),
            copy: None,
            releases: None,
            started: Instant::now(),
        }
    }

    fn has_rows(&self) -> bool {
        matches!(self.state, State::Rows { .. })
    }

    /// Describes the rows of a simple query, if there are any.
    pub fn put_description(&self, connection: &mut Connection) {
        if self.has_rows() && self.copy.is_none() {
            put_description(connection, self.columns.as_ref(), &self.formats);
        }
    }

    /// Answers with at most `rows_max` rows (0: all).
    pub async fn advance(&mut self, connection: &mut Connection, rows_max: usize) -> Result<Progress, Fault> {
        let taken = std::mem::replace(&mut self.state, State::Finished { verb: None });
        let tag = match taken {
            State::Rows { stream, batch: None, .. } if self.copy.is_some() => {
                self.copy_out(connection, stream).await?
            }
            State::Rows { mut stream, mut batch, verb } => {
                let (rows, exhausted) = self.put_rows(connection, &mut stream, &mut batch, rows_max).await?;
                if !exhausted {
                    self.state = State::Rows { stream, batch, verb };
                    connection.wire.put(&PortalSuspended::new());
                    return Ok(Progress::Suspended);
                }
                self.state = State::Finished { verb: Some(verb) };
                format!("{verb} {rows}")
            }
            State::CopyIn(sink) => self.copy_in(connection, sink).await?,
            State::Command { tag } => {
                if let Some(release) = self.releases.take() {
                    forget(connection, &release)?;
                }
                tag
            }
            State::Finished { verb: Some(verb) } => format!("{verb} 0"),
            State::Finished { verb: None } => return Err(error::portal_done("").into()),
        };
        histogram!("oribi_postgres_statement_seconds").record(self.started.elapsed().as_secs_f64());
        connection.put_parameters();
        let in_series = connection.session.modes().implicit;
        // Otherwise it is part of the transaction that the series is.
        let is_applied = connection.session.open_transaction().is_none();
        connection.applied |= in_series && is_applied && changes_catalog(&tag);
        connection.wire.put(&CommandComplete::new(tag));
        Ok(Progress::Done)
    }

    /// Appends rows; returns how many, and whether there are no more. PostgreSQL does not look ahead either: the
    /// limit's last row may be the last of all.
    async fn put_rows(
        &mut self,
        connection: &mut Connection,
        stream: &mut RowStream,
        rest: &mut Option<(RecordBatch, usize)>,
        rows_max: usize,
    ) -> Result<(usize, bool), Fault> {
        let limit = if rows_max == 0 { usize::MAX } else { rows_max };
        let mut sent = 0;
        while sent < limit {
            let (batch, mut row) = match rest.take() {
                Some(rest) => rest,
                None => match next_batch(connection, stream).await? {
                    Some(batch) => (batch, 0),
                    None => return Ok((sent, true)),
                },
            };
            let columns = self.encoders(&batch)?;
            let end = batch.num_rows().min(row.saturating_add(limit - sent));
            while row < end {
                let next = connection.wire.put_rows(&columns, row, end)?;
                sent += next - row;
                row = next;
                connection.wire.drain().await?;
            }
            if row < batch.num_rows() {
                *rest = Some((batch, row));
            }
        }
        Ok((sent, false))
    }

    /// The encoders of a batch's columns, by what the client was told about them.
    fn encoders(&self, batch: &RecordBatch) -> Result<Vec<Column>, SqlError> {
        let described = self.columns.as_ref().map_or(0, |c| c.fields().len());
        if described != batch.num_columns() || described != self.formats.len() {
            let message =
                format!("a result of {} columns was described with {described}", batch.num_columns());
            return Err(SqlError::new(ErrorKind::Internal, message));
        }
        let schema = self.columns.iter().flat_map(|c| c.fields());
        let columns = batch.columns().iter().zip(schema).zip(&self.formats);
        columns.map(|((array, field), format)| Column::new(array, field, *format)).collect()
    }

    async fn copy_out(
        &mut self,
        connection: &mut Connection,
        mut stream: RowStream,
    ) -> Result<String, Fault> {
        let options = self.copy.clone().expect("only a COPY is copied out");
        let columns = self.columns.clone().unwrap_or_else(|| Arc::new(arrow::datatypes::Schema::empty()));
        let count = columns.fields().len();
        self.formats = vec![Format::Text; count];
        connection.wire.put(&CopyOutResponse::new(0, error::column_count(count)?, vec![0; count]));
        let writer = CopyWriter::new(&options);
        writer.put_header(&columns, &mut connection.wire)?;
        let mut rows = 0;
        while let Some(batch) = next_batch(connection, &mut stream).await? {
            let columns = self.encoders(&batch)?;
            let mut row = 0;
            while row < batch.num_rows() {
                row = writer.put_rows(&columns, row, batch.num_rows(), &mut connection.wire)?;
                connection.wire.drain().await?;
            }
            rows += row;
        }
        connection.wire.put(&CopyDone::new());
        Ok(format!("COPY {rows}"))
    }

    /// Takes rows from the client until it says that it is done. Whatever goes wrong drops the sink, which undoes all.
    async fn copy_in(
        &mut self,
        connection: &mut Connection,
        mut sink: Box<dyn CopySink>,
    ) -> Result<String, Fault> {
        let options = self.copy.as_ref().ok_or_else(|| {
            SqlError::new(ErrorKind::Internal, "a statement that is not COPY asked for the client's data")
        })?;
        let mut reader = CopyReader::new(options, sink.schema(), connection.shared.limits.message_bytes_max)?;
        let count = sink.schema().fields().len();
        connection.wire.put(&CopyInResponse::new(0, error::column_count(count)?, vec![0; count]));
        connection.wire.flush().await?;
        loop {
            let (tag, body) = connection.wire.frame(true).await?;
            match tag {
                b'd' => {
                    reader.feed(&body);
                    while let Some(batch) = reader.next_batch()? {
                        connection.wire.run(sink.push(batch)).await?;
                    }
                }
                b'c' => break,
                b'f' => {
                    let message = format!("COPY from stdin failed: {}", codec::copy_failure(&body)?);
                    return Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("57014").into());
                }
                // Clients of the extended protocol send these behind Execute, before they know of the copy.
                b'H' | b'S' => {}
                b'X' => return Err(Fault::Gone),
                _ => {
                    return Err(Fault::Fatal(error::protocol_violation(
                        "unexpected message type during COPY",
                    )));
                }
            }
        }
        if let Some(batch) = reader.finish()? {
            connection.wire.run(sink.push(batch)).await?;
        }
        let rows = connection.wire.run(sink.finish()).await?;
        Ok(format!("COPY {rows}"))
    }
}

/// Whether a statement with a tag changes the catalog.
fn changes_catalog(tag: &str) -> bool {
    let verbs = ["CREATE", "ALTER", "DROP", "TRUNCATE"];
    verbs.iter().any(|verb| tag.starts_with(verb))
}

/// Forgets what a statement releases.
fn forget(connection: &mut Connection, release: &Release) -> Result<(), SqlError> {
    match release {
        Release::Statement(name) => {
            connection.statements.remove(name).ok_or_else(|| error::no_statement(name))?;
        }
        Release::Statements => connection.statements.clear(),
        Release::Everything => {
            connection.statements.clear();
            connection.portals.clear();
        }
    }
    Ok(())
}

async fn next_batch(
    connection: &mut Connection,
    stream: &mut RowStream,
) -> Result<Option<RecordBatch>, Fault> {
    connection.wire.run(async { stream.next().await.transpose() }).await
}
