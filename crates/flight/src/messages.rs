//! What a client sends in a call: gRPC messages one behind the other, each with its length in front.
//!
//! A long one is handed on when it has come whole. Until then it counts in the memory that doors have for long requests, by what has come of
//! it; tonic would make room for what a message says that it is long.

use bytes::{Buf, Bytes, BytesMut};
use futures::Stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame};
use oribi_net::{FrameRoom, LONG_REQUEST_SILENCE_MAX, Load, TURN_SILENCE_MAX, UNCOUNTED_REQUEST_BYTES};
use std::sync::Arc;
use tonic::Status;

/// A flag and the length, in front of each message.
const HEAD_BYTES: usize = 5;

struct Messages<B> {
    body: B,
    message_bytes_max: usize,
    load: Arc<Load>,
    room: FrameRoom,
    /// What has come and was not handed on.
    input: BytesMut,
    ended: bool,
}

/// The body of a request in whole messages of so many bytes at most.
pub fn whole<B>(
    body: B,
    load: Arc<Load>,
    message_bytes_max: usize,
) -> StreamBody<impl Stream<Item = Result<Frame<Bytes>, Status>>>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    let messages = Messages {
        body,
        message_bytes_max,
        load,
        room: FrameRoom::default(),
        input: BytesMut::new(),
        ended: false,
    };
    StreamBody::new(futures::stream::unfold(Some(messages), |messages| async move {
        let mut messages = messages?;
        let next = messages.next().await.transpose()?;
        // Nothing comes behind an error.
        let messages = next.is_ok().then_some(messages);
        Some((next.map(Frame::data), messages))
    }))
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    /// What is handed on next; `None` behind the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        // Who asks for more has done with what came before.
        self.room.release();
        loop {
            let len = self.length()?;
            if let Some(len) = len.filter(|len| *len <= self.input.len()) {
                return Ok(Some(self.input.split_to(len).freeze()));
            }
            if self.ended {
                let rest = std::mem::take(&mut self.input);
                return Ok((!rest.is_empty()).then(|| rest.freeze()));
            }
            match len.filter(|len| *len > UNCOUNTED_REQUEST_BYTES) {
                Some(len) => self.receive_long(len).await?,
                None => self.receive().await?,
            }
        }
    }

    /// The bytes of the message that comes next, with its head, once that is there.
    fn length(&self) -> Result<Option<usize>, Status> {
        if self.input.len() < HEAD_BYTES {
            return Ok(None);
        }
        let len = (&self.input[1..HEAD_BYTES]).get_u32() as usize;
        if len > self.message_bytes_max {
            let most = self.message_bytes_max;
            return Err(Status::resource_exhausted(format!(
                "54000: a message of {len} bytes is longer than {most}, which is the limit"
            )));
        }
        Ok(Some(HEAD_BYTES + len))
    }

    /// Receives more of a long message, as soon as there is room for it.
    async fn receive_long(&mut self, len: usize) -> Result<(), Status> {
        while !self.room.has_more(&self.load, len, self.input.len()) {
            self.room.wait(false).await;
        }
        let silence_max = if self.room.has_turn() { TURN_SILENCE_MAX } else { LONG_REQUEST_SILENCE_MAX };
        tokio::time::timeout(silence_max, self.receive()).await.map_err(|_| {
            let seconds = silence_max.as_secs();
            Status::deadline_exceeded(format!(
                "57P05: nothing of a message that had begun came for {seconds} seconds"
            ))
        })?
    }

    async fn receive(&mut self) -> Result<(), Status> {
        match self.body.frame().await {
            None => self.ended = true,
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.input.extend_from_slice(&data);
                }
            }
            Some(Err(error)) => return Err(Status::cancelled(format!("57014: {error}"))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, stream};
    use oribi_net::{Network, Room};
    use std::convert::Infallible;

    fn message(len: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend_from_slice(&(len as u32).to_be_bytes());
        message.resize(HEAD_BYTES + len, 7);
        message
    }

    /// The lengths of what is handed on of `sent`, cut into pieces.
    async fn handed_on(sent: &[u8], piece: usize, most: usize) -> Vec<Result<usize, tonic::Code>> {
        let pieces: Vec<_> = sent.chunks(piece).map(Bytes::copy_from_slice).collect();
        let body = StreamBody::new(stream::iter(pieces).map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
        let load = Arc::new(Load::of_requests(&Network::default(), most));
        let mut whole = Box::pin(whole(body, load, most));
        let mut lens = Vec::new();
        while let Some(frame) = whole.frame().await {
            lens.push(frame.map(|frame| frame.into_data().unwrap().len()).map_err(|status| status.code()));
        }
        lens
    }

    #[tokio::test]
    async fn messages_are_handed_on_whole_however_they_come() {
        let long = UNCOUNTED_REQUEST_BYTES * 3;
        let sent = [message(0), message(3), message(long)].concat();
        for piece in [1, 4, 5, 6, 8192, sent.len()] {
            let lens = handed_on(&sent, piece, long).await;
            assert_eq!(lens, [Ok(5), Ok(8), Ok(HEAD_BYTES + long)], "{piece}");
        }
        assert_eq!(
            handed_on(&sent[..20], 7, long).await,
            [Ok(5), Ok(8), Ok(7)],
            "the end is tonic's to judge"
        );
        assert_eq!(handed_on(&sent, 8192, long - 1).await[2..], [Err(tonic::Code::ResourceExhausted)]);
    }

    #[tokio::test]
    async fn a_long_message_counts_by_what_has_come_of_it() {
        const LONG: usize = 1 << 20;
        let room = Room::new(4 * LONG);
        let load = Arc::new(Load::new(&room, 4 * LONG));
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        let body = StreamBody::new(receiver.map(|piece: Bytes| Ok::<_, Infallible>(Frame::data(piece))));
        let mut whole = Box::pin(whole(body, load, LONG));
        let mut pieces =
            message(LONG).chunks(LONG / 8).map(Bytes::copy_from_slice).collect::<Vec<_>>().into_iter();
        sender.unbounded_send(pieces.next().unwrap()).unwrap();
        assert!(futures::poll!(std::pin::pin!(whole.frame())).is_pending());
        assert!((LONG / 8..LONG / 2).contains(&room.used()), "{}", room.used());
        pieces.for_each(|piece| sender.unbounded_send(piece).unwrap());
        assert!(whole.frame().await.unwrap().is_ok());
        drop(sender);
        assert!(whole.frame().await.is_none());
        assert_eq!(room.used(), 0);
    }
}
