//! Arrow batches that a client sends in a call.
//!
//! Arrow's decoder trusts the places of buffers that a message names, and the form of a schema, and panics where they are wrong. So places
//! are looked at first, and a panic that is left is an error of the call.

use crate::status::{invalid, unsupported, violation};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use futures::{FutureExt, Stream, StreamExt};
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use std::panic::AssertUnwindSafe;
use tonic::Status;

/// Rows of a batch, at most: columns of nulls have any number without a byte.
const ROWS_MAX: i64 = 16 << 20;
/// Values of all of its columns, likewise.
const VALUES_MAX: i64 = 64 << 20;

pub struct Arrivals {
    decoder: FlightDataDecoder,
}

impl Arrivals {
    /// What comes in `messages`, with dictionaries of so many bytes at most: those of a call are kept to its end.
    pub fn new(
        messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        dictionary_bytes_max: usize,
    ) -> Self {
        let mut dictionary_bytes = 0;
        let checked = messages.map(move |message| {
            let message = message.map_err(|status| FlightError::Tonic(Box::new(status)))?;
            let refused = |error: SqlError| FlightError::ExternalError(Box::new(error));
            dictionary_bytes += check(&message).map_err(refused)?;
            if dictionary_bytes > dictionary_bytes_max {
                let message =
                    format!("the dictionaries of a call are longer than {dictionary_bytes_max} bytes");
                return Err(refused(SqlError::new(ErrorKind::TooLarge, message)));
            }
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
            Ok(Some(Err(FlightError::ExternalError(error)))) => Err(match error.downcast::<SqlError>() {
                Ok(error) => *error,
                Err(error) => violation(format!("not a message of Arrow: {error}")),
            }),
            Ok(Some(Err(error))) => Err(violation(format!("not a message of Arrow: {error}"))),
            Err(_) => Err(violation("not a message of Arrow")),
        }
    }
}

/// The bytes that a message adds to what the decoder keeps: those of a dictionary.
///
/// # Errors
/// 08P01 if it names what does not lie within it, 0A000 for a compressed batch: how long that would be is for its client to say.
fn check(message: &FlightData) -> Result<usize, SqlError> {
    let damaged = |what: &str| Err(violation(format!("not a message of Arrow: {what}")));
    let Ok(header) = arrow::ipc::root_as_message(&message.data_header) else {
        // The decoder says what is wrong.
        return Ok(0);
    };
    let dictionary = header.header_as_dictionary_batch();
    let Some(batch) = header.header_as_record_batch().or_else(|| dictionary.and_then(|d| d.data())) else {
        return if dictionary.is_some() { damaged("a dictionary without values") } else { Ok(0) };
    };
    if batch.compression().is_some() {
        return Err(unsupported("a compressed batch"));
    }
    let len = message.data_body.len() as i64;
    let is_within = |begin: i64, bytes: i64| {
        begin >= 0 && bytes >= 0 && begin.checked_add(bytes).is_some_and(|end| end <= len)
    };
    if batch.buffers().is_some_and(|buffers| buffers.iter().any(|b| !is_within(b.offset(), b.length()))) {
        return damaged("a buffer that is not within its message");
    }
    let is_length = |rows: i64| (0..=ROWS_MAX).contains(&rows);
    let nodes_are_short = batch
        .nodes()
        .is_none_or(|nodes| nodes.iter().all(|n| is_length(n.length()) && is_length(n.null_count())));
    let values =
        batch.nodes().map(|nodes| nodes.iter().map(|n| n.length().max(0)).fold(0, i64::saturating_add));
    let values_are_few = values.is_none_or(|values| values <= VALUES_MAX);
    let counts_are_few = batch.variadicBufferCounts().is_none_or(|counts| counts.iter().all(is_length));
    match is_length(batch.length()) && nodes_are_short && values_are_few && counts_are_few {
        true => Ok(if dictionary.is_some() { message.data_body.len() } else { 0 }),
        false => damaged("a batch of more rows than there may be"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, DictionaryArray, Int64Array, StringArray};
    use arrow::datatypes::Int8Type;
    use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
    use futures::{TryStreamExt, stream};
    use std::sync::Arc;

    async fn sent(batch: RecordBatch) -> Vec<FlightData> {
        let encoder = FlightDataEncoderBuilder::new().with_dictionary_handling(DictionaryHandling::Resend);
        encoder.build(stream::iter([Ok(batch)])).try_collect().await.unwrap()
    }

    async fn messages() -> Vec<FlightData> {
        let columns: [(&str, ArrayRef); 2] = [
            ("a", Arc::new(Int64Array::from(vec![Some(1), None]))),
            ("b", Arc::new(StringArray::from(vec!["one", "two"]))),
        ];
        sent(RecordBatch::try_from_iter(columns).unwrap()).await
    }

    async fn read(messages: Vec<FlightData>) -> Result<usize, SqlError> {
        let mut arrivals = Arrivals::new(stream::iter(messages.into_iter().map(Ok)), 1000);
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

    #[tokio::test]
    async fn dictionaries_of_a_call_are_bounded() {
        let words = |word: &str| {
            let words: DictionaryArray<Int8Type> = [word].into_iter().collect();
            RecordBatch::try_from_iter([("a", Arc::new(words) as ArrayRef)]).unwrap()
        };
        assert_eq!(read(sent(words("a")).await).await.unwrap(), 1);
        let long = sent(words(&"a".repeat(1000))).await;
        assert_eq!(read(long).await.unwrap_err().sqlstate(), "54000");
    }
}
