//! Arrow batches that a client sends in a call.
//!
//! Arrow's decoder trusts the places of buffers that a message names, and the form of a schema, and panics where they are wrong. So places
//! are looked at first, and a panic that is left is an error of the call.

use crate::status::{invalid, violation};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use futures::{FutureExt, Stream, StreamExt};
use oribi_session::sql::SqlError;
use std::panic::AssertUnwindSafe;
use tonic::Status;

/// Rows of a batch, at most: columns of nulls have any number without a byte.
const ROWS_MAX: i64 = 16 << 20;

pub struct Arrivals {
    decoder: FlightDataDecoder,
}

impl Arrivals {
    pub fn new(messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static) -> Self {
        let checked = messages.map(|message| {
            let message = message.map_err(|status| FlightError::Tonic(Box::new(status)))?;
            check(&message).map_err(|what| FlightError::DecodeError(what.to_owned()))?;
            Ok(message)
        });
        Arrivals { decoder: FlightDataDecoder::new(checked) }
    }

    /// The columns of the batches that come.
    ///
    /// # Errors
    /// 08P01 if the first message has none.
    pub async fn schema(&mut self) -> Result<SchemaRef, SqlError> {
        match self.next_payload().await? {
            Some(DecodedPayload::Schema(schema)) => Ok(schema),
            _ => Err(violation("no schema came before the batches")),
        }
    }

    /// The next batch.
    ///
    /// # Errors
    /// 08P01 for what is none; what the call has ended with.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        loop {
            match self.next_payload().await? {
                Some(DecodedPayload::RecordBatch(batch)) => return Ok(Some(batch)),
                Some(DecodedPayload::Schema(_)) => return Err(violation("a second schema came")),
                Some(DecodedPayload::None) => {}
                None => return Ok(None),
            }
        }
    }

    async fn next_payload(&mut self) -> Result<Option<DecodedPayload>, SqlError> {
        match AssertUnwindSafe(self.decoder.next()).catch_unwind().await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(decoded))) => Ok(Some(decoded.payload)),
            Ok(Some(Err(FlightError::Tonic(status)))) => {
                Err(invalid(status.message()).with_sqlstate("08006"))
            }
            Ok(Some(Err(error))) => Err(violation(format!("not a message of Arrow: {error}"))),
            Err(_) => Err(violation("not a message of Arrow")),
        }
    }
}

/// Whether what a message names lies within it.
fn check(message: &FlightData) -> Result<(), &'static str> {
    let Ok(header) = arrow::ipc::root_as_message(&message.data_header) else {
        // The decoder says what is wrong.
        return Ok(());
    };
    let dictionary = header.header_as_dictionary_batch();
    let Some(batch) = header.header_as_record_batch().or_else(|| dictionary.and_then(|d| d.data())) else {
        return if dictionary.is_some() { Err("a dictionary without values") } else { Ok(()) };
    };
    let len = message.data_body.len() as i64;
    let is_within = |begin: i64, bytes: i64| {
        begin >= 0 && bytes >= 0 && begin.checked_add(bytes).is_some_and(|end| end <= len)
    };
    if batch.buffers().is_some_and(|buffers| buffers.iter().any(|b| !is_within(b.offset(), b.length()))) {
        return Err("a buffer that is not within its message");
    }
    let is_length = |rows: i64| (0..=ROWS_MAX).contains(&rows);
    let nodes_are_short = batch
        .nodes()
        .is_none_or(|nodes| nodes.iter().all(|n| is_length(n.length()) && is_length(n.null_count())));
    let counts_are_few = batch.variadicBufferCounts().is_none_or(|counts| counts.iter().all(is_length));
    match is_length(batch.length()) && nodes_are_short && counts_are_few {
        true => Ok(()),
        false => Err("a batch of more rows than there may be"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow_flight::encode::FlightDataEncoderBuilder;
    use futures::{TryStreamExt, stream};
    use std::sync::Arc;

    async fn messages() -> Vec<FlightData> {
        let columns: [(&str, ArrayRef); 2] = [
            ("a", Arc::new(Int64Array::from(vec![Some(1), None]))),
            ("b", Arc::new(StringArray::from(vec!["one", "two"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        FlightDataEncoderBuilder::new().build(stream::iter([Ok(batch)])).try_collect().await.unwrap()
    }

    async fn read(messages: Vec<FlightData>) -> Result<usize, SqlError> {
        let mut arrivals = Arrivals::new(stream::iter(messages.into_iter().map(Ok)));
        arrivals.schema().await?;
        let mut rows = 0;
        while let Some(batch) = arrivals.next().await? {
            rows += batch.num_rows();
        }
        Ok(rows)
    }

    #[tokio::test]
    async fn garbage_is_refused_and_nobody_panics() {
        let sent = messages().await;
        assert_eq!(read(sent.clone()).await.unwrap(), 2);
        assert_eq!(read(sent[1..].to_vec()).await.unwrap_err().sqlstate(), "08P01");
        for part in 0..2 {
            for at in 0..sent[part].data_header.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut damaged = sent.clone();
                    let mut header = damaged[part].data_header.to_vec();
                    header[at] = value;
                    damaged[part].data_header = header.into();
                    let _ = read(damaged).await;
                }
            }
        }
        let mut cut = sent.clone();
        cut[1].data_body = cut[1].data_body.slice(..8);
        assert_eq!(read(cut).await.unwrap_err().sqlstate(), "08P01");
    }
}
