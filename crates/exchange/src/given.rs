//! The rows that a task gives to others in other processes.

use crate::Compression;
use crate::door::{Answers, Door, garbage, is_not_asked};
use crate::status::{of_failure, to_status};
use crate::taken::{Beside, Take, slice_bytes};
use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::FlightData;
use async_trait::async_trait;
use datafusion::execution::SendableRecordBatchStream;
use datafusion_distributed::Worker;
use futures::stream::{self, StreamExt, TryStreamExt};
use prost::Message;
use std::sync::Arc;
use std::time::Instant;
use tonic::Status;

/// Of the tasks of a node.
pub(crate) struct Given(pub(crate) Worker);

#[async_trait]
impl Door for Given {
    async fn act(&self, _asked: &str, _body: &[u8]) -> Result<Vec<u8>, Status> {
        Err(is_not_asked())
    }

    async fn give(&self, ticket: &[u8]) -> Result<Answers<FlightData>, Status> {
        let take = Take::decode(ticket).map_err(garbage)?;
        let (request, compression) = take.into_request().map_err(|error| to_status(&error))?;
        let (mut streams, _) = self.0.execute_task(request).await.map_err(|error| of_failure(&error))?;
        let batches = streams.pop().ok_or_else(|| Status::internal("a task without the partition"))?;
        let encoder = Encoder::new(&batches.schema(), compression);
        Ok(messages(batches, encoder.map_err(|error| of_failure(&error.into()))?))
    }
}

/// Batches as messages, and in the end how many rows there were.
fn messages(batches: SendableRecordBatchStream, encoder: Encoder) -> Answers<FlightData> {
    let first = stream::once(std::future::ready(Ok(encoder.first.clone())));
    let rest = stream::try_unfold(
        (Some(batches), encoder, Instant::now()),
        |(batches, mut encoder, given)| async move {
            let Some(mut batches) = batches else { return Ok::<_, Status>(None) };
            let waited_nanos = given.elapsed().as_nanos() as u64;
            match batches.try_next().await.map_err(|error| of_failure(&error))? {
                Some(batch) => {
                    let messages =
                        encoder.encode(batch, waited_nanos).map_err(|error| of_failure(&error.into()))?;
                    Ok(Some((in_turn(messages), (Some(batches), encoder, Instant::now()))))
                }
                None => {
                    let end = Beside { rows: Some(encoder.rows), ..Beside::default() }.encode_to_vec();
                    let end = encoder.first.clone().with_app_metadata(end);
                    Ok(Some((in_turn(vec![end]), (None, encoder, given))))
                }
            }
        },
    );
    first.chain(rest.try_flatten()).boxed()
}

fn in_turn(messages: Vec<FlightData>) -> impl futures::Stream<Item = Result<FlightData, Status>> {
    stream::iter(messages.into_iter().map(Ok))
}

struct Encoder {
    first: FlightData,
    generator: IpcDataGenerator,
    dictionaries: DictionaryTracker,
    options: IpcWriteOptions,
    context: IpcWriteContext,
    rows: u64,
}

impl Encoder {
    fn new(schema: &SchemaRef, compression: Compression) -> Result<Self, ArrowError> {
        let compression = match compression {
            Compression::None => None,
            Compression::Lz4 => Some(CompressionType::LZ4_FRAME),
            Compression::Zstd => Some(CompressionType::ZSTD),
        };
        let options = IpcWriteOptions::default().try_with_compression(compression)?;
        let (generator, mut dictionaries) = (IpcDataGenerator::default(), DictionaryTracker::new(false));
        let first = generator.schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &options);
        let context = IpcWriteContext::default();
        Ok(Encoder { first: first.into(), generator, dictionaries, options, context, rows: 0 })
    }

    /// The batch, behind dictionaries that it needs.
    fn encode(&mut self, batch: RecordBatch, waited_nanos: u64) -> Result<Vec<FlightData>, ArrowError> {
        let begun = Instant::now();
        let batch = trimmed(batch)?;
        let (before, encoded) =
            self.generator.encode(&batch, &mut self.dictionaries, &self.options, &mut self.context)?;
        self.rows += batch.num_rows() as u64;
        let encoding_nanos = begun.elapsed().as_nanos() as u64;
        let beside = Beside { bytes: slice_bytes(&batch) as u64, encoding_nanos, waited_nanos, rows: None };
        let encoded = FlightData::from(encoded).with_app_metadata(beside.encode_to_vec());
        Ok(before.into_iter().map(FlightData::from).chain([encoded]).collect())
    }
}

/// The batch without what lies beside its values in their buffers, which Arrow would send along.
fn trimmed(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let (schema, columns, _) = batch.into_parts();
    let column = |column: Arc<dyn Array>| match (column.as_string_view_opt(), column.as_binary_view_opt()) {
        (Some(texts), _) => Arc::new(texts.gc()) as Arc<dyn Array>,
        (_, Some(bytes)) => Arc::new(bytes.gc()),
        _ => column,
    };
    RecordBatch::try_new_with_options(schema, columns.into_iter().map(column).collect(), &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::taken::{Counts, batches};
    use arrow::array::{ArrayRef, DictionaryArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int32Type;
    use datafusion::common::DataFusionError;
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
    use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

    fn rows(from: i64) -> RecordBatch {
        let numbers: Vec<i64> = (from..from + 100).collect();
        let texts = numbers.iter().map(|number| Some(format!("a text that is not so short, {number}")));
        let words = numbers.iter().map(|number| ["a", "b"][*number as usize % 2]);
        let columns: [(&str, ArrayRef); 3] = [
            ("number", Arc::new(Int64Array::from(numbers.clone()))),
            ("text", Arc::new(texts.collect::<StringViewArray>())),
            ("word", Arc::new(words.collect::<DictionaryArray<Int32Type>>())),
        ];
        RecordBatch::try_from_iter(columns).unwrap().slice(10, 80)
    }

    fn sent(
        batches: Vec<Result<RecordBatch, DataFusionError>>,
        compression: Compression,
    ) -> Answers<FlightData> {
        let schema = rows(0).schema();
        let encoder = Encoder::new(&schema, compression).unwrap();
        messages(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches))), encoder)
    }

    async fn come(
        messages: Answers<FlightData>,
    ) -> Result<(Vec<RecordBatch>, ExecutionPlanMetricsSet), DataFusionError> {
        let metrics = ExecutionPlanMetricsSet::new();
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let room = MemoryConsumer::new("test").register(&pool);
        let rows = batches(messages, Counts::new(&metrics), room).try_collect().await?;
        Ok((rows, metrics))
    }

    #[tokio::test]
    async fn rows_come_as_they_were() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let given = vec![rows(0), rows(1000), rows(0).slice(0, 0)];
            let (come, metrics) =
                come(sent(given.iter().cloned().map(Ok).collect(), compression)).await.unwrap();
            assert_eq!(come, given);
            let count = |name| metrics.clone_inner().sum_by_name(name).map(|count| count.as_usize());
            assert_eq!(count("batches"), Some(3));
            assert_eq!(count("bytes_handed_over"), Some(0));
            let (sent, before) = (count("bytes_sent").unwrap(), count("bytes_before_compression").unwrap());
            assert_eq!(
                sent < before,
                compression != Compression::None,
                "{sent} of {before}, {compression:?}"
            );
        }
    }

    #[tokio::test]
    async fn rows_that_break_off_are_an_error() {
        let all: Vec<_> = sent(vec![Ok(rows(0)), Ok(rows(1))], Compression::Lz4).collect().await;
        let count = all.len();
        let messages = |count: usize| -> Vec<_> { all.iter().take(count).cloned().collect() };
        assert!(come(stream::iter(messages(count)).boxed()).await.is_ok());
        for count in 0..count {
            let error = come(stream::iter(messages(count)).boxed()).await.unwrap_err().to_string();
            assert!(error.contains("they ended before their end"), "{error}");
        }
        let mut fewer = messages(count);
        let _ = fewer.remove(count - 2);
        let error = come(stream::iter(fewer).boxed()).await.unwrap_err().to_string();
        assert!(error.contains("rows of 160 came"), "{error}");
        let failed = || DataFusionError::Execution("as it does".to_owned());
        let error = come(sent(vec![Ok(rows(0)), Err(failed())], Compression::Lz4)).await.unwrap_err();
        assert!(error.to_string().contains("as it does"), "{error}");
    }
}
