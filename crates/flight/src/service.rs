//! The calls of Flight, and the commands and actions of Flight SQL within them.

use crate::arrivals::Arrivals;
use crate::bind::Bindings;
use crate::call::{Call, rows_of};
use crate::results::{Connection, Made, encoded};
use crate::shared::Shared;
use crate::statements::{self, Statement};
use crate::status::{status, unsupported, violation};
use crate::types::sent_schema;
use crate::{information, ingest, metadata, transactions};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionRequest,
    ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, ActionEndSavepointRequest, ActionEndTransactionRequest, Any,
    Command, DoPutPreparedStatementResult, DoPutUpdateResult, EndTransaction, ProstMessageExt,
    TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Criteria, Empty,
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse,
    IpcMessage, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, once};
use oribi_session::sql::{Outcome, Point, Prepared, SqlError};
use oribi_types::Value;
use prost::Message;
use std::sync::Arc;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

/// The actions that there are, with what each is for.
const ACTIONS: [(&str, &str); 8] = [
    ("CreatePreparedStatement", "prepares a statement: ActionCreatePreparedStatementRequest"),
    ("ClosePreparedStatement", "forgets it: ActionClosePreparedStatementRequest"),
    ("BeginTransaction", "begins a transaction: ActionBeginTransactionRequest"),
    ("EndTransaction", "commits it, or rolls it back: ActionEndTransactionRequest"),
    ("BeginSavepoint", "makes a savepoint: ActionBeginSavepointRequest"),
    ("EndSavepoint", "releases it, or rolls back to it: ActionEndSavepointRequest"),
    ("CancelQuery", "cancels a query: ActionCancelQueryRequest"),
    ("CancelFlightInfo", "cancels a query: CancelFlightInfoRequest"),
];

/// What answers the calls of a connection.
pub struct Service {
    pub shared: Arc<Shared>,
    pub connection: Arc<Connection>,
}

/// Rows of an update that are written before others have their turn on the thread.
const ROWS_AT_A_TIME: usize = 256;

type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// How a command is answered that has rows.
enum Answer {
    /// They are taken with a ticket.
    Ticket { ticket: Bytes, schema: SchemaRef },
    /// The statement has been executed, and has none.
    Done,
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        self.shared.door.user(request.metadata()).map_err(|error| status(&error))?;
        let token = self.shared.door.token();
        let payload = Bytes::from(token.strip_prefix("Bearer ").unwrap_or_default().to_owned());
        let answer = HandshakeResponse { protocol_version: 0, payload };
        let mut response = Response::new(once(async { Ok(answer) }).boxed());
        response.metadata_mut().insert("authorization", token.parse().expect("a token is ASCII"));
        Ok(response)
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let (headers, _, descriptor) = request.into_parts();
        let info = self.info(&headers, descriptor).await.map_err(|error| status(&error))?;
        Ok(Response::new(info))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let (headers, _, descriptor) = request.into_parts();
        let schema = self.schema(&headers, &descriptor).await.map_err(|error| status(&error))?;
        let schema = SchemaAsIpc::new(&schema, &IpcWriteOptions::default()).try_into();
        schema
            .map(Response::new)
            .map_err(|error: arrow::error::ArrowError| Status::internal(format!("XX000: {error}")))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let (headers, _, ticket) = request.into_parts();
        self.taken(&headers, &ticket.ticket).await.map(Response::new).map_err(|error| status(&error))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let (headers, _, messages) = request.into_parts();
        let answer = self.put(&headers, messages).await.map_err(|error| status(&error))?;
        let answer = PutResult { app_metadata: answer.into() };
        Ok(Response::new(once(async { Ok(answer) }).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let (headers, _, action) = request.into_parts();
        let answer = self.act(&headers, &action).await.map_err(|error| status(&error))?;
        let answers = answer.into_iter().map(|body| Ok(arrow_flight::Result { body: body.into() }));
        Ok(Response::new(futures::stream::iter(answers).boxed()))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        let actions = ACTIONS.map(|(name, description)| {
            Ok(ActionType { r#type: name.to_owned(), description: description.to_owned() })
        });
        Ok(Response::new(futures::stream::iter(actions).boxed()))
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(status(&unsupported("ListFlights")))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(status(&unsupported("PollFlightInfo")))
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(status(&unsupported("DoExchange")))
    }
}

impl Service {
    /// Executes a command that has rows; how to come by them.
    async fn info(
        &self,
        headers: &MetadataMap,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, SqlError> {
        let answer = match command(&descriptor.cmd)? {
            Command::CommandStatementQuery(query) => {
                let call = Call::new(&self.shared, headers, query.transaction_id.as_deref())?;
                let prepared = call.prepare(&self.shared, &query.query, &[]).await?;
                self.execute(call, &prepared, &[]).await?
            }
            Command::CommandPreparedStatementQuery(query) => {
                let statement = self.shared.statements.get(&query.prepared_statement_handle)?;
                let call = statement.call(&self.shared, headers)?;
                self.execute(call, &statement.prepared, &statement.bound()).await?
            }
            // What is asked for costs nothing until it is taken: the command is its own ticket.
            other => {
                self.shared.door.user(headers)?;
                let schema = described(&other)?;
                Answer::Ticket { ticket: descriptor.cmd.clone(), schema }
            }
        };
        let info = FlightInfo::new().with_descriptor(descriptor).with_ordered(true);
        let (schema, info) = match answer {
            Answer::Ticket { ticket, schema } => {
                (schema, info.with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(ticket))))
            }
            Answer::Done => (Arc::new(Schema::empty()), info.with_total_records(0)),
        };
        info.try_with_schema(&schema).map_err(|error| oribi_types::Error::from(error).into())
    }

    /// Executes a statement and keeps its rows, if it has any.
    async fn execute(
        &self,
        call: Call,
        prepared: &Arc<dyn Prepared>,
        values: &[Value],
    ) -> Result<Answer, SqlError> {
        // One for which there is no place is not executed.
        let place = prepared.columns().map(|_| self.shared.results.place()).transpose()?;
        match call.execute(prepared, values).await? {
            Outcome::Rows(rows) => {
                let schema = sent_schema(prepared.columns());
                let place = match place {
                    Some(place) => place,
                    None => self.shared.results.place()?,
                };
                let handle = self.shared.results.keep(place, Made { call, rows, schema: schema.clone() });
                let ticket =
                    TicketStatementQuery { statement_handle: handle }.as_any().encode_to_vec().into();
                Ok(Answer::Ticket { ticket, schema })
            }
            Outcome::Done { .. } => Ok(Answer::Done),
            Outcome::CopyIn(_) => Err(unsupported("COPY by this protocol")),
        }
    }

    /// The columns that a command's rows have, without executing it.
    async fn schema(
        &self,
        headers: &MetadataMap,
        descriptor: &FlightDescriptor,
    ) -> Result<SchemaRef, SqlError> {
        match command(&descriptor.cmd)? {
            Command::CommandStatementQuery(query) => {
                let call = Call::new(&self.shared, headers, query.transaction_id.as_deref())?;
                Ok(sent_schema(call.prepare(&self.shared, &query.query, &[]).await?.columns()))
            }
            Command::CommandPreparedStatementQuery(query) => {
                self.shared.door.user(headers)?;
                Ok(self.shared.statements.get(&query.prepared_statement_handle)?.schema())
            }
            other => described(&other),
        }
    }

    /// The rows that a ticket is for.
    async fn taken(&self, headers: &MetadataMap, ticket: &[u8]) -> Result<Answers<FlightData>, SqlError> {
        if let Command::TicketStatementQuery(ticket) = command(ticket)? {
            self.shared.door.user(headers)?;
            return self.shared.results.take(&ticket.statement_handle, &self.connection);
        }
        let call = Call::new(&self.shared, headers, None)?;
        let shared = &self.shared;
        let batch = match command(ticket)? {
            Command::CommandGetCatalogs(command) => metadata::catalogs(command),
            Command::CommandGetDbSchemas(command) => metadata::schemas(shared, &call, command).await,
            Command::CommandGetTables(command) => metadata::tables(shared, &call, command).await,
            Command::CommandGetPrimaryKeys(command) => metadata::primary_keys(shared, &call, command).await,
            other => constant(other),
        }?;
        let schema = batch.schema();
        Ok(encoded(once(async { Ok(batch) }).boxed(), schema))
    }

    /// Does with what a client sends what it says that is for; what it is told.
    async fn put(
        &self,
        headers: &MetadataMap,
        mut messages: Streaming<FlightData>,
    ) -> Result<Vec<u8>, SqlError> {
        let first = messages.next().await.ok_or_else(|| violation("nothing came"))?;
        let first = first.map_err(|status| violation(status.message()))?;
        let descriptor = first.flight_descriptor.as_ref().ok_or_else(|| violation("no descriptor came"))?;
        let command = command(&descriptor.cmd)?;
        let arrivals =
            Arrivals::new(once(async { Ok(first) }).chain(messages), self.shared.limits.message_bytes_max);
        let shared = &self.shared;
        let rows = match command {
            Command::CommandStatementUpdate(update) => {
                let mut call = Call::new(shared, headers, update.transaction_id.as_deref())?;
                call.take_turn().await?;
                let prepared = call.prepare(shared, &update.query, &[]).await?;
                execute_update(&call, &prepared, &[]).await?
            }
            Command::CommandStatementIngest(command) => {
                let mut call = Call::new(shared, headers, command.transaction_id.as_deref())?;
                ingest::ingest(shared, &mut call, &command, arrivals).await?
            }
            Command::CommandPreparedStatementUpdate(update) => {
                let statement = shared.statements.get(&update.prepared_statement_handle)?;
                self.update(headers, &statement, arrivals).await?
            }
            Command::CommandPreparedStatementQuery(query) => {
                let statement = shared.statements.get(&query.prepared_statement_handle)?;
                self.bind(headers, &statement, arrivals).await?;
                let handle = Some(query.prepared_statement_handle);
                return Ok(DoPutPreparedStatementResult { prepared_statement_handle: handle }.encode_to_vec());
            }
            other => return Err(unsupported(format!("{} by DoPut", name(&other)))),
        };
        Ok(DoPutUpdateResult { record_count: rows }.encode_to_vec())
    }

    /// Binds what comes to the next query of a statement.
    ///
    /// # Errors
    /// 0A000 for several rows, as soon as there are; those of binding.
    async fn bind(
        &self,
        headers: &MetadataMap,
        statement: &Statement,
        mut arrivals: Arrivals,
    ) -> Result<(), SqlError> {
        let call = statement.call(&self.shared, headers)?;
        let bytes_max = self.shared.limits.message_bytes_max;
        let (mut rows, mut values) = (0, Vec::new());
        arrivals.schema().await?;
        while let Some(batch) = arrivals.next().await? {
            rows += batch.num_rows();
            if rows > 1 {
                return Err(
                    unsupported("a query with several rows of parameters").with_hint("execute it for each")
                );
            }
            let bindings = Bindings::new(&call.session, &statement.prepared, &batch, bytes_max)?;
            if bindings.rows() == 1 {
                values = bindings.row(0)?;
            }
        }
        statement.bind(&self.shared, values)
    }

    /// Executes a statement for each row of what comes, all or nothing; the rows that it has changed.
    async fn update(
        &self,
        headers: &MetadataMap,
        statement: &Statement,
        mut arrivals: Arrivals,
    ) -> Result<i64, SqlError> {
        let mut call = statement.call(&self.shared, headers)?;
        call.take_turn().await?;
        let call = &call;
        if statement.prepared.parameters().is_empty() {
            return execute_update(call, &statement.prepared, &[]).await;
        }
        let is_series = !call.is_in_transaction();
        if is_series {
            self.shared.sql.begin_series(&call.session);
        }
        let undone = call.undone();
        let updated = self.update_rows(call, &statement.prepared, &mut arrivals).await;
        match updated {
            Ok(_) => undone.done(),
            Err(_) => drop(undone),
        }
        if is_series {
            self.shared.sql.end_series(&call.session, updated.is_ok()).await?;
        }
        updated
    }

    /// Executes a statement for each row of what comes; the rows that it has changed.
    async fn update_rows(
        &self,
        call: &Call,
        prepared: &Arc<dyn Prepared>,
        arrivals: &mut Arrivals,
    ) -> Result<i64, SqlError> {
        let mut changed = 0;
        arrivals.schema().await?;
        while let Some(batch) = arrivals.next().await? {
            for first in (0..batch.num_rows()).step_by(ingest::PART_ROWS) {
                let part = batch.slice(first, ingest::PART_ROWS.min(batch.num_rows() - first));
                let bytes_max = self.shared.limits.message_bytes_max;
                let bindings = Bindings::new(&call.session, prepared, &part, bytes_max)?;
                for row in 0..bindings.rows() {
                    changed += self.update_row(call, prepared, &bindings.row(row)?).await?;
                    if row % ROWS_AT_A_TIME == ROWS_AT_A_TIME - 1 {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        Ok(changed)
    }

    async fn update_row(
        &self,
        call: &Call,
        prepared: &Arc<dyn Prepared>,
        values: &[Value],
    ) -> Result<i64, SqlError> {
        // In a transaction of the client's its statements take turns.
        if !call.is_in_transaction()
            && let Some(Point::Write(point)) = prepared.point(&call.session)
            && let Some((rows, obligation)) = point.write(&call.session, values)
        {
            // What the series has written is settled when it ends; outside of one, here.
            if let Some(settled) = self.shared.sql.settled(obligation) {
                settled.await?;
            }
            return Ok(rows as i64);
        }
        execute_update(call, prepared, values).await
    }

    /// Does what an action is for; what it answers.
    async fn act(&self, headers: &MetadataMap, action: &Action) -> Result<Option<Vec<u8>>, SqlError> {
        let shared = &self.shared;
        shared.door.user(headers)?;
        let body = &action.body;
        match action.r#type.as_str() {
            "CreatePreparedStatement" => {
                let request: ActionCreatePreparedStatementRequest = unpack(body)?;
                let call = Call::new(shared, headers, request.transaction_id.as_deref())?;
                let transaction = request.transaction_id.filter(|id| !id.is_empty());
                let (handle, statement) =
                    statements::create(shared, &call, &request.query, transaction).await?;
                answer(&ActionCreatePreparedStatementResult {
                    prepared_statement_handle: handle,
                    dataset_schema: ipc(&statement.schema())?,
                    parameter_schema: ipc(&statement.parameters())?,
                })
            }
            "ClosePreparedStatement" => {
                let request: ActionClosePreparedStatementRequest = unpack(body)?;
                shared.statements.close(&request.prepared_statement_handle);
                Ok(None)
            }
            "BeginTransaction" => {
                let ActionBeginTransactionRequest {} = unpack(body)?;
                let session = Call::new(shared, headers, None)?.into_session();
                let transaction_id = transactions::begin(shared, session).await?;
                answer(&ActionBeginTransactionResult { transaction_id })
            }
            "EndTransaction" => {
                let request: ActionEndTransactionRequest = unpack(body)?;
                let commits = match request.action() {
                    EndTransaction::Commit => true,
                    EndTransaction::Rollback => false,
                    EndTransaction::Unspecified => {
                        return Err(violation("how a transaction ends is not said"));
                    }
                };
                transactions::end(shared, &request.transaction_id, commits).await?;
                Ok(None)
            }
            "BeginSavepoint" => {
                let request: ActionBeginSavepointRequest = unpack(body)?;
                let made = transactions::begin_savepoint(shared, &request.transaction_id, &request.name);
                answer(&ActionBeginSavepointResult { savepoint_id: made.await? })
            }
            "EndSavepoint" => {
                /// Of `EndSavepoint` in the protocol: to release it, and to roll back to it.
                const RELEASE: i32 = 1;
                const ROLLBACK: i32 = 2;
                let request: ActionEndSavepointRequest = unpack(body)?;
                if ![RELEASE, ROLLBACK].contains(&request.action) {
                    return Err(violation("how a savepoint ends is not said"));
                }
                transactions::end_savepoint(shared, &request.savepoint_id, request.action == ROLLBACK)
                    .await?;
                Ok(None)
            }
            "CancelQuery" => {
                let request: ActionCancelQueryRequest = unpack(body)?;
                let info = FlightInfo::decode(request.info).map_err(|error| violation(error.to_string()))?;
                /// Of `CancelResult`: cancelled, and not cancellable.
                const RESULTS: [i32; 2] = [1, 3];
                let result = RESULTS[usize::from(!self.cancel(&info))];
                answer(&ActionCancelQueryResult { result })
            }
            "CancelFlightInfo" => {
                let request = CancelFlightInfoRequest::decode(body.as_ref())
                    .map_err(|error| violation(error.to_string()))?;
                let cancelled = request.info.is_some_and(|info| self.cancel(&info));
                let told = if cancelled { CancelStatus::Cancelled } else { CancelStatus::NotCancellable };
                Ok(Some(CancelFlightInfoResult::new(told).encode_to_vec()))
            }
            other => Err(unsupported(format!("the action \"{}\"", &other[..other.floor_char_boundary(64)]))),
        }
    }

    /// Cancels the results that an answer told of; whether there were any.
    fn cancel(&self, info: &FlightInfo) -> bool {
        let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
        let results = tickets.filter_map(|ticket| match command(&ticket.ticket) {
            Ok(Command::TicketStatementQuery(ticket)) => Some(ticket.statement_handle),
            _ => None,
        });
        results.filter(|ticket| self.shared.results.cancel(ticket)).count() > 0
    }
}

/// Executes a statement of which nobody wants the rows; how many it has changed.
async fn execute_update(
    call: &Call,
    prepared: &Arc<dyn Prepared>,
    values: &[Value],
) -> Result<i64, SqlError> {
    let undone = call.undone();
    let count = match call.execute(prepared, values).await? {
        Outcome::Done { tag } => rows_of(&tag),
        Outcome::Rows(mut rows) => {
            let mut count = 0;
            while let Some(batch) = rows.next().await.transpose()? {
                count += batch.num_rows() as i64;
            }
            count
        }
        Outcome::CopyIn(_) => return Err(unsupported("COPY by this protocol")),
    };
    undone.done();
    Ok(count)
}

/// The command that a descriptor or a ticket has.
///
/// # Errors
/// 08P01 for what is none.
fn command(bytes: &[u8]) -> Result<Command, SqlError> {
    let any = Any::decode(bytes).map_err(|error| violation(format!("not a command: {error}")))?;
    Command::try_from(any).map_err(|error| violation(format!("not a command: {error}")))
}

fn unpack<M: ProstMessageExt + Default>(body: &[u8]) -> Result<M, SqlError> {
    let any = Any::decode(body).map_err(|error| violation(format!("not an action's request: {error}")))?;
    let unpacked = any.unpack().map_err(|error| violation(error.to_string()))?;
    unpacked.ok_or_else(|| violation(format!("an action's request is a {}", M::type_url())))
}

fn answer(message: &impl ProstMessageExt) -> Result<Option<Vec<u8>>, SqlError> {
    Ok(Some(message.as_any().encode_to_vec()))
}

fn ipc(schema: &Schema) -> Result<Bytes, SqlError> {
    // Without columns there is nothing to say: clients take an absent schema for that of a statement without rows.
    if schema.fields().is_empty() {
        return Ok(Bytes::new());
    }
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into();
    message.map(|message| message.0).map_err(|error| oribi_types::Error::from(error).into())
}

/// The name of a command, as errors tell it.
fn name(command: &Command) -> String {
    let url = command.type_url();
    let name = url.rsplit('.').next().unwrap_or(url);
    name[..name.floor_char_boundary(64)].to_owned()
}

/// The answer to a command that is the same for everybody.
fn constant(command: Command) -> Result<RecordBatch, SqlError> {
    match command {
        Command::CommandGetTableTypes(command) => metadata::table_types(command),
        Command::CommandGetSqlInfo(command) => information::sql_info(command),
        Command::CommandGetXdbcTypeInfo(command) => information::type_info(command),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => Ok(metadata::no_foreign_keys()),
        other => Err(unsupported(name(&other))),
    }
}

/// The columns of the answer to a command about what there is.
fn described(command: &Command) -> Result<SchemaRef, SqlError> {
    match command.clone() {
        Command::CommandGetCatalogs(command) => Ok(command.into_builder().schema()),
        Command::CommandGetDbSchemas(command) => Ok(command.into_builder().schema()),
        Command::CommandGetTables(command) => Ok(command.into_builder().schema()),
        Command::CommandGetPrimaryKeys(_) => Ok(metadata::primary_keys_schema()),
        other => constant(other).map(|batch| batch.schema()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_command_is_refused() {
        for bytes in [&b""[..], b"\xff", b"\x0a\x03abc", b"select 1"] {
            match command(bytes) {
                Ok(command) => assert!(described(&command).is_err(), "{bytes:?}"),
                Err(error) => assert_eq!(error.sqlstate(), "08P01"),
            }
        }
        assert!(unpack::<ActionEndTransactionRequest>(b"\x0a\x01a").is_err());
    }
}
