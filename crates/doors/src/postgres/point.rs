//! Statements about one row, named by its primary key: run on the spot and answered straight into the output buffer.
//!
//! Nothing is awaited and nothing allocated here. What such a statement observed or wrote is settled once for all whose
//! answers wait in the buffer, before the buffer is written: many that arrived together share one sync of the log.

use super::connection::Connection;
use super::encode::Format;
use super::row::put_data_row;
use super::statement::{self, Running};
use oribi_session::sql::{Point, PointRead, PointWrite, Prepared};
use oribi_types::Value;
use std::time::Instant;

/// Runs a statement and answers it in full; with the description of its columns first if it is to be `described`.
/// `None` if it is no such statement, or must be executed to be answered: then nothing has happened.
pub fn run(
    connection: &mut Connection,
    prepared: &dyn Prepared,
    parameters: &[Value],
    formats: &[Format],
    described: bool,
) -> Option<Running> {
    let point = prepared.point(&connection.session)?;
    // Executing it tells the client that it was cancelled.
    if connection.wire.is_cancelled() {
        return None;
    }
    match point {
        // Executing it waits for what it must see. A write is decided on the newest row, whether or not others see that.
        Point::Read(_) if connection.wire.is_unseen() => None,
        Point::Read(point) => read(connection, prepared, point, parameters, formats, described),
        Point::Write(point) => write(connection, prepared, point, parameters),
    }
}

fn read(
    connection: &mut Connection,
    prepared: &dyn Prepared,
    point: &dyn PointRead,
    parameters: &[Value],
    formats: &[Format],
    described: bool,
) -> Option<Running> {
    let started = Instant::now();
    let columns = prepared.columns()?;
    let start = connection.wire.out.len();
    if described {
        statement::put_description(connection, Some(columns), formats);
    }
    let mut encoded = Ok(());
    let out = &mut connection.wire.out;
    let found = point.try_get(&connection.session, parameters, &mut |values| {
        encoded = put_data_row(values, columns, formats, out);
    });
    // A file must be read, or it fails: both are for the threads that queries run on.
    let (Ok(Some((found, obligation))), Ok(())) = (found, encoded) else {
        connection.wire.out.truncate(start);
        return None;
    };
    let verb = prepared.verb();
    connection.wire.put_complete(verb, u64::from(found));
    connection.wire.owe(obligation, started);
    Some(Running::finished(Some(verb)))
}

fn write(
    connection: &mut Connection,
    prepared: &dyn Prepared,
    point: &dyn PointWrite,
    parameters: &[Value],
) -> Option<Running> {
    let started = Instant::now();
    let (rows, obligation) = point.write(&connection.session, parameters)?;
    connection.wire.put_complete(prepared.verb(), rows);
    connection.wire.owe(obligation, started);
    Some(Running::finished(None))
}
