//! What nodes ask each other over Arrow Flight: two of its calls.

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest,
    HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt, once};
use tonic::{Request, Response, Status, Streaming};

pub(crate) type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// Who answers.
#[async_trait]
pub(crate) trait Door: Send + Sync + 'static {
    /// Does what an action of this name asks for.
    async fn act(&self, asked: &str, body: &[u8]) -> Result<Vec<u8>, Status>;

    /// The rows that a ticket names.
    async fn give(&self, ticket: &[u8]) -> Result<Answers<FlightData>, Status>;
}

pub(crate) fn is_not_asked() -> Status {
    Status::unimplemented("nodes of Oribi do not ask this")
}

pub(crate) fn garbage(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("a request that is none: {error}"))
}

pub(crate) struct Flight<D>(pub(crate) D);

#[async_trait]
impl<D: Door> FlightService for Flight<D> {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let Action { r#type: asked, body } = request.into_inner();
        let answer = self.0.act(&asked, &body).await?;
        Ok(Response::new(once(async { Ok(arrow_flight::Result { body: answer.into() }) }).boxed()))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        self.0.give(&request.into_inner().ticket).await.map(Response::new)
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(is_not_asked())
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        Err(is_not_asked())
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        Err(is_not_asked())
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        Err(is_not_asked())
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Err(is_not_asked())
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(is_not_asked())
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(is_not_asked())
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(is_not_asked())
    }
}
