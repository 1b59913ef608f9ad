//! The extended protocol: named statements and portals.

use super::codec::{Bind, Target};
use super::connection::Connection;
use super::encode::Format;
use super::error::{self, Fault};
use super::kept::{self, Room};
use super::parameters;
use super::point;
use super::statement::{self, Progress, Running};
use super::types::{oid, oid_of, parameter_type};
use oribi_session::sql::{Prepared, SqlError, SqlSession, Suspension, TransactionStatus};
use oribi_types::{ColumnType, ErrorKind, Value};
use pgwire::messages::data::ParameterDescription;
use pgwire::messages::extendedquery::{BindComplete, CloseComplete, ParseComplete};
use pgwire::messages::response::EmptyQueryResponse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// What `Parse` made; a statement may be empty.
pub struct Statement {
    prepared: Option<Arc<dyn Prepared>>,
    /// The type oid of each parameter: the client's own or the one we chose.
    parameter_oids: Vec<u32>,
    /// For what was written, and for its plan.
    _rooms: [Room; 2],
}

/// What `Bind` made of a statement, and what has become of it.
pub struct Portal {
    statement: Arc<Statement>,
    bound: Bound,
    /// Of the settings that it was bound under: [`SqlSession::planning`].
    planning: u64,
    course: Course,
    _room: Room,
}

/// How far a portal has come.
enum Course {
    Bound,
    /// It has more rows, for which its client may ask; unless others needed their room.
    Suspended(Suspension<Running>),
    Done(Running),
}

/// The values that a client sent, and what it wants back.
#[derive(Default)]
pub struct Bound {
    parameters: Vec<Value>,
    /// One for each column.
    formats: Vec<Format>,
}

pub type Statements = Named<Arc<Statement>>;
pub type Portals = Named<Portal>;

/// Things by name; the unnamed one is replaced freely and does not count.
pub struct Named<T> {
    items: HashMap<String, T>,
    limit: usize,
}

impl<T> Named<T> {
    pub fn new(limit: usize) -> Self {
        Named { items: HashMap::new(), limit }
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        self.items.get(name)
    }

    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.items.remove(name)
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }

    fn is_free(&self, name: &str) -> bool {
        name.is_empty() || !self.items.contains_key(name)
    }

    fn has_room(&self, name: &str) -> bool {
        name.is_empty() || self.items.len() < self.limit
    }

    fn insert(&mut self, name: &str, item: T) {
        self.items.insert(name.to_owned(), item);
    }
}

impl Connection {
    pub async fn parse(&mut self, name: &str, sql: &str, types: Vec<u32>) -> Result<(), Fault> {
        if !self.statements.is_free(name) {
            return Err(error::duplicate_statement(name).into());
        }
        if !self.statements.has_room(name) {
            return Err(
                error::too_many_names("prepared statements", self.shared.limits.statements_max).into()
            );
        }
        let room = self.shelf.take(name, || kept::statement_bytes(name, sql))?;
        let given: Vec<_> = types.iter().map(|oid| parameter_type(*oid)).collect();
        let statement = match self.shared.sql.recall(&self.session, sql, &given) {
            Some(prepared) => self.keep(name, prepared, &types, room)?,
            None => self.prepare(name, sql, types, &given, room).await?,
        };
        self.statements.insert(name, Arc::new(statement));
        self.wire.put(&ParseComplete::new());
        Ok(())
    }

    async fn prepare(
        &mut self,
        name: &str,
        sql: &str,
        declared: Vec<u32>,
        given: &[Option<ColumnType>],
        room: Room,
    ) -> Result<Statement, Fault> {
        match self.wire.run(self.shared.sql.split(sql)).await?.len() {
            0 => Ok(Statement { prepared: None, parameter_oids: declared, _rooms: [room, Room::default()] }),
            1 => {
                let prepared = self.plan(sql, given).await?;
                Ok(self.keep(name, prepared, &declared, room)?)
            }
            _ => Err(error::several_statements().into()),
        }
    }

    /// A statement of this name; the client has declared types of its parameters.
    fn keep(
        &self,
        name: &str,
        prepared: Arc<dyn Prepared>,
        declared: &[u32],
        room: Room,
    ) -> Result<Statement, SqlError> {
        let rooms = [room, self.shelf.take(name, || prepared.plan_bytes())?];
        let chosen = |(i, expected)| match declared.get(i).copied() {
            Some(oid) if !matches!(oid, oid::UNSPECIFIED | oid::UNKNOWN) => oid,
            _ if prepared.is_moment(i) => oid::TIMESTAMPTZ,
            _ => oid_of(expected),
        };
        let parameter_oids = prepared.parameters().iter().copied().enumerate().map(chosen).collect();
        Ok(Statement { prepared: Some(prepared), parameter_oids, _rooms: rooms })
    }

    pub fn bind(&mut self, bind: &Bind<'_>) -> Result<(), Fault> {
        let statement = self
            .statements
            .get(bind.statement)
            .cloned()
            .ok_or_else(|| error::no_statement(bind.statement))?;
        if let Some(prepared) = statement.prepared.as_deref() {
            self.check_block(Some(prepared))?;
        }
        if !self.portals.is_free(bind.portal) {
            return Err(error::duplicate_portal(bind.portal).into());
        }
        if !self.portals.has_room(bind.portal) {
            return Err(error::too_many_names("portals", self.shared.limits.statements_max).into());
        }
        let room = self.shelf.take(bind.portal, || kept::portal_bytes(bind.portal, value_bytes(bind)))?;
        if bind.portal.is_empty() {
            self.end_unnamed_portal();
        }
        let mut bound = std::mem::take(&mut self.spare);
        bind_parameters(&self.session, &statement, bind, &mut bound.parameters)?;
        let columns = result_columns(&statement);
        spread_formats(&bind.result_formats, columns, "result columns", &mut bound.formats)?;
        let planning = self.session.planning();
        let portal = Portal { statement, bound, planning, course: Course::Bound, _room: room };
        self.portals.insert(bind.portal, portal);
        self.wire.put(&BindComplete::new());
        Ok(())
    }

    pub fn describe(&mut self, target: Target<'_>) -> Result<(), Fault> {
        let (statement, formats) = match target {
            Target::Statement(name) => {
                let statement =
                    self.statements.get(name).cloned().ok_or_else(|| error::no_statement(name))?;
                self.wire.put(&ParameterDescription::new(statement.parameter_oids.clone()));
                // The formats are the portal's to choose.
                let formats = vec![Format::Text; result_columns(&statement)];
                (statement, formats)
            }
            // A cursor that `DECLARE` has made is a portal too, in PostgreSQL.
            Target::Portal(name) if self.portals.get(name).is_none() => {
                let columns = self.session.cursors().columns(name).ok_or_else(|| error::no_portal(name))?;
                let formats = vec![Format::Text; columns.fields().len()];
                statement::put_description(self, Some(&columns), &formats);
                return Ok(());
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name).ok_or_else(|| error::no_portal(name))?;
                (portal.statement.clone(), portal.bound.formats.clone())
            }
        };
        let rows = statement.prepared.as_ref().filter(|p| p.copy().is_none()).and_then(|p| p.columns());
        statement::put_description(self, rows, &formats);
        Ok(())
    }

    pub async fn execute(&mut self, name: &str, rows_max: usize) -> Result<(), Fault> {
        // It is back in its place if it can go on: an error ends a portal.
        let mut portal = self.portals.remove(name).ok_or_else(|| error::no_portal(name))?;
        let Some(prepared) = portal.statement.prepared.clone() else {
            self.wire.put(&EmptyQueryResponse::new());
            self.portals.insert(name, portal);
            return Ok(());
        };
        self.check_block(Some(prepared.as_ref()))?;
        let mut running = match std::mem::replace(&mut portal.course, Course::Bound) {
            Course::Done(running) => running,
            Course::Suspended(rows) => rows.take().ok_or_else(error::portal_ended)?,
            // PostgreSQL plans it when it is bound; here it would be about the tables of another schema.
            Course::Bound if portal.planning != self.session.planning() => {
                return Err(error::bound_before().into());
            }
            Course::Bound => {
                if self.session.transaction() == TransactionStatus::Idle && !self.wire.ends_series() {
                    self.shared.sql.begin_series(&self.session);
                }
                let Bound { parameters, formats } = &portal.bound;
                // With a limit of one row the portal is suspended behind it, whether or not there are more.
                let unlimited = rows_max != 1;
                if unlimited
                    && let Some(done) = point::run(self, prepared.as_ref(), parameters, formats, false)
                {
                    portal.course = Course::Done(done);
                    self.portals.insert(name, portal);
                    return self.wire.drain().await;
                }
                statement::start(self, &prepared, parameters, formats.clone()).await?
            }
        };
        portal.course = match running.advance(self, rows_max).await? {
            Progress::Done => Course::Done(running),
            Progress::Suspended => Course::Suspended(self.shared.suspended.keep(running, Instant::now())),
        };
        self.portals.insert(name, portal);
        self.wire.drain().await
    }

    /// Forgets all portals.
    pub fn end_portals(&mut self) {
        self.end_unnamed_portal();
        self.portals.clear();
    }

    /// Forgets the unnamed portal; the next one takes over its memory.
    fn end_unnamed_portal(&mut self) {
        if let Some(portal) = self.portals.remove("") {
            self.spare = portal.bound;
            self.spare.parameters.iter_mut().for_each(parameters::shrink);
        }
    }

    /// Closing what does not exist is no error.
    pub fn close(&mut self, target: Target<'_>) {
        match target {
            Target::Statement(name) => drop(self.statements.remove(name)),
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        self.wire.put(&CloseComplete::new());
    }
}

/// Bytes that the values of a portal take.
fn value_bytes(bind: &Bind<'_>) -> usize {
    bind.parameters.iter().map(|value| size_of::<Value>() + value.map_or(0, <[u8]>::len)).sum()
}

fn result_columns(statement: &Statement) -> usize {
    statement.prepared.as_ref().and_then(|p| p.columns()).map_or(0, |columns| columns.fields().len())
}

/// Decodes the parameters over what `values` held before.
fn bind_parameters(
    session: &SqlSession,
    statement: &Statement,
    bind: &Bind<'_>,
    values: &mut Vec<Value>,
) -> Result<(), SqlError> {
    let expected = statement.prepared.as_ref().map_or(&[][..], |p| p.parameters());
    if bind.parameters.len() != expected.len() {
        return Err(error::protocol_violation(format!(
            "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
            bind.parameters.len(),
            bind.statement,
            expected.len()
        )));
    }
    let format = format_of(&bind.parameter_formats, expected.len(), "parameters")?;
    let sent = bind.parameters.iter().zip(&statement.parameter_oids).zip(expected);
    values.resize(expected.len(), Value::Null);
    // It is asked for under a lock.
    let zone = if expected.contains(&ColumnType::Timestamp) { session.time_zone() } else { None };
    for (i, (((bytes, oid), expected), value)) in sent.zip(values).enumerate() {
        let rounds = statement.prepared.as_ref().is_some_and(|prepared| prepared.rounds(i));
        let wanted = parameters::Wanted { column_type: *expected, rounds, zone };
        parameters::decode_into(*bytes, format(i), *oid, wanted, value).map_err(|mut error| {
            error.error = error.error.context(format!("parameter ${}", i + 1));
            error
        })?;
    }
    Ok(())
}

/// Fills `formats` with one for each of `count` things.
fn spread_formats(
    codes: &[i16],
    count: usize,
    what: &str,
    formats: &mut Vec<Format>,
) -> Result<(), SqlError> {
    let format = format_of(codes, count, what)?;
    formats.clear();
    formats.extend((0..count).map(format));
    Ok(())
}

/// The format of each of `count` things: no code means text, a single one is for all.
fn format_of<'c>(
    codes: &'c [i16],
    count: usize,
    what: &str,
) -> Result<impl Fn(usize) -> Format + 'c, SqlError> {
    if codes.len() > 1 && codes.len() != count {
        let message = format!("bind message has {} formats for {count} {what}", codes.len());
        return Err(error::protocol_violation(message));
    }
    if let Some(unknown) = codes.iter().find(|code| !matches!(code, 0 | 1)) {
        let message = format!("unsupported format code: {unknown}");
        return Err(SqlError::new(ErrorKind::Invalid, message));
    }
    Ok(move |i: usize| match codes {
        [] => Format::Text,
        [one] => Format::of_code(*one),
        several => Format::of_code(several[i]),
    })
}
