//! A call, and its answer on the way to the socket.

use super::status::short;
use bytes::{Bytes, BytesMut};
use oribi_engine::Obligation;
use oribi_kudu::frame::{self, Body};
use oribi_kudu::rpc::{ErrorCode, ErrorStatus, RequestHeader, RequestId};
use oribi_kudu::service::Method;
use oribi_kudu::{MessageError, STEPS_MAX};
use oribi_net::Held;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;

/// What a client asks.
pub(super) struct Call {
    pub id: i32,
    pub method: Method,
    /// Who the client says it is.
    pub user: Arc<str>,
    /// How long the client waits for the answer.
    pub timeout: Option<Duration>,
    /// What a write is known by when it is sent again.
    pub request_id: Option<RequestId>,
    pub body: Body,
}

impl Call {
    /// The call of this header and this user.
    ///
    /// # Errors
    /// What to answer if nobody knows its method.
    pub fn new(user: &Arc<str>, header: &mut RequestHeader, body: Body) -> Result<Call, ErrorStatus> {
        let remote = header.remote_method.take();
        let remote = remote.ok_or_else(|| invalid("the call names no method".to_owned()))?;
        let timeout = header.timeout_millis.filter(|millis| *millis > 0);
        Ok(Call {
            id: header.call_id,
            method: Method::of(&remote)?,
            user: user.clone(),
            timeout: timeout.map(|millis| Duration::from_millis(millis.into())),
            request_id: header.request_id.take(),
            body,
        })
    }

    /// The request.
    ///
    /// # Errors
    /// What to answer if it is malformed.
    pub fn request<M: Message + Default>(&self) -> Result<M, ErrorStatus> {
        self.body.decode(STEPS_MAX).map_err(|error: MessageError| invalid(error.to_string()))
    }

    /// Bytes of the request.
    pub fn bytes(&self) -> usize {
        self.body.message.len() + self.body.sidecars.iter().map(Bytes::len).sum::<usize>()
    }

    pub fn answer(&self, message: &impl Message) -> Answer {
        self.answer_with(message, Vec::new())
    }

    pub fn answer_with(&self, message: &impl Message, sidecars: Vec<Bytes>) -> Answer {
        let mut head = BytesMut::new();
        match frame::encode_reply(self.id, message, &sidecars, &mut head) {
            Ok(()) => Answer { head: head.freeze(), sidecars, ..Answer::default() },
            Err(error) => {
                Answer::error(self.id, &ErrorStatus::new(ErrorCode::Application, error.to_string()))
            }
        }
    }

    pub fn fail(&self, status: &ErrorStatus) -> Answer {
        Answer::error(self.id, status)
    }
}

fn invalid(message: String) -> ErrorStatus {
    ErrorStatus::new(ErrorCode::InvalidRequest, message)
}

/// Too much is under way; clients repeat the same call after a while.
pub(super) fn too_busy(why: &str) -> ErrorStatus {
    ErrorStatus::new(ErrorCode::ServerTooBusy, why)
}

/// Clients ask for a few features at a time.
const FLAGS_MAX: usize = 64;

/// A frame, to be sent once `obligation` is settled.
#[derive(Default)]
pub(super) struct Answer {
    /// All but the sidecars.
    pub head: Bytes,
    pub sidecars: Vec<Bytes>,
    pub obligation: Obligation,
    /// What was held for the call.
    pub room: Held,
}

impl Answer {
    pub fn bytes(&self) -> usize {
        self.head.len() + self.sidecars.iter().map(Bytes::len).sum::<usize>()
    }

    pub fn error(call_id: i32, status: &ErrorStatus) -> Answer {
        let flags = status.unsupported_feature_flags.iter().copied().take(FLAGS_MAX);
        let status = ErrorStatus {
            message: short(&status.message).to_owned(),
            code: status.code,
            unsupported_feature_flags: flags.collect(),
        };
        let mut head = BytesMut::new();
        // A frame that does not fit is the only error, and the status is short.
        let encoded = frame::encode_error(call_id, &status, &mut head);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        Answer { head: head.freeze(), ..Answer::default() }
    }

    #[must_use]
    pub fn resting_on(mut self, obligation: Obligation) -> Answer {
        self.obligation.merge(obligation);
        self
    }
}
