//! The rows that a task takes of another, as they are asked for and as they come.
//!
//! Each partition has a stream of its own, so that one whose reader waits does not keep the others waiting. It is Arrow's format of
//! streams; beside a batch stands what it took to make it, and in the end how many rows there were: a stream that breaks off is an error,
//! however it ended.

use crate::Compression;
use crate::status::failed;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use datafusion_distributed::{ExecuteTaskRequest, MaybeEncoded, ProducerHead, TaskKey};
use futures::stream::{self, BoxStream, StreamExt};
use oribi_query::nodes::exchanged;
use oribi_types::Error;
use prost::Message;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Status;
use uuid::Uuid;

/// Tasks have so many partitions at most: a message that says otherwise is none of ours.
pub(crate) const PARTITIONS_MAX: u64 = 1 << 16;

/// Asks for a partition of a task's rows.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Take {
    #[prost(bytes = "vec", tag = "1")]
    query: Vec<u8>,
    #[prost(uint64, tag = "2")]
    stage: u64,
    #[prost(uint64, tag = "3")]
    task: u64,
    #[prost(uint64, tag = "4")]
    partition: u64,
    /// Each task that asks is given all rows, and there are this many partitions for them; 0: it is not so.
    #[prost(uint64, tag = "5")]
    broadcast: u64,
    /// Or they are shared out by columns.
    #[prost(message, optional, tag = "6")]
    shuffle: Option<Shuffle>,
    #[prost(enumeration = "Compression", tag = "7")]
    compression: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Shuffle {
    #[prost(uint64, tag = "1")]
    partitions: u64,
    #[prost(message, repeated, tag = "2")]
    keys: Vec<Key>,
}

#[derive(Clone, PartialEq, Message)]
struct Key {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    place: u64,
}

impl Take {
    /// # Errors
    /// `Unsupported` for a shuffle by what is no column.
    pub(crate) fn of(
        request: &ExecuteTaskRequest,
        partition: usize,
        compression: Compression,
    ) -> Result<Self> {
        let mut take = Take {
            query: request.task_key.query_id.as_bytes().to_vec(),
            stage: request.task_key.stage_id as u64,
            task: request.task_key.task_number as u64,
            partition: partition as u64,
            compression: compression.into(),
            ..Take::default()
        };
        match &request.producer_head {
            ProducerHead::None => {}
            ProducerHead::BroadcastExec { output_partitions } => take.broadcast = *output_partitions as u64,
            ProducerHead::RepartitionExec { partitioning } => take.shuffle = Some(Shuffle::of(partitioning)?),
        }
        Ok(take)
    }

    /// # Errors
    /// `Corrupt`.
    pub(crate) fn into_request(self) -> oribi_types::Result<(ExecuteTaskRequest, Compression)> {
        let damaged = || Error::corrupt("what a task asks for: it is none");
        let query_id = Uuid::from_slice(&self.query).map_err(|_| damaged())?;
        let compression = self.compression();
        let partition = self.partition as usize;
        let producer_head = match self.shuffle {
            _ if self.broadcast > PARTITIONS_MAX || self.partition > PARTITIONS_MAX => return Err(damaged()),
            Some(_) if self.broadcast > 0 => return Err(damaged()),
            Some(shuffle) => ProducerHead::RepartitionExec {
                partitioning: MaybeEncoded::Decoded(shuffle.into_partitioning().ok_or_else(damaged)?),
            },
            None if self.broadcast == 0 => ProducerHead::None,
            None => ProducerHead::BroadcastExec { output_partitions: self.broadcast as usize },
        };
        let (stage_id, task_number) = (self.stage as usize, self.task as usize);
        let request = ExecuteTaskRequest {
            task_key: TaskKey { query_id, stage_id, task_number },
            target_partition_start: partition,
            target_partition_end: partition + 1,
            producer_head,
        };
        Ok((request, compression))
    }
}

impl Shuffle {
    fn of(partitioning: &MaybeEncoded<Partitioning>) -> Result<Self> {
        let unknown = || {
            let why = "a shuffle by other keys than columns does not travel to another process";
            DataFusionError::External(Box::new(Error::unsupported(why)))
        };
        let MaybeEncoded::Decoded(Partitioning::Hash(keys, partitions)) = partitioning else {
            return Err(unknown());
        };
        let key = |key: &Arc<dyn PhysicalExpr>| {
            let column = key.downcast_ref::<Column>()?;
            Some(Key { name: column.name().to_owned(), place: column.index() as u64 })
        };
        let keys = keys.iter().map(key).collect::<Option<_>>().ok_or_else(unknown)?;
        Ok(Shuffle { partitions: *partitions as u64, keys })
    }

    fn into_partitioning(self) -> Option<Partitioning> {
        let column = |key: Key| Arc::new(Column::new(&key.name, key.place as usize)) as Arc<dyn PhysicalExpr>;
        let is_possible = (1..=PARTITIONS_MAX).contains(&self.partitions) && !self.keys.is_empty();
        let keys = self.keys.into_iter().map(column).collect();
        is_possible.then(|| Partitioning::Hash(keys, self.partitions as usize))
    }
}

/// Beside a batch: what it took; beside nothing: that this is the end.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Beside {
    /// Before it was compressed.
    #[prost(uint64, tag = "1")]
    pub(crate) bytes: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) encoding_nanos: u64,
    /// How long what was before it waited for whoever takes it.
    #[prost(uint64, tag = "3")]
    pub(crate) waited_nanos: u64,
    /// Of the whole stream, in the end.
    #[prost(uint64, optional, tag = "4")]
    pub(crate) rows: Option<u64>,
}

/// What is told of an exchange in `EXPLAIN ANALYZE`, where its rows are taken, and of all in `/metrics`.
#[derive(Clone)]
pub(crate) struct Counts {
    batches: Count,
    handed_over: Count,
    sent: Count,
    before_compression: Count,
    encoding: Time,
    network: Time,
    receiver: Time,
}

impl Counts {
    pub(crate) fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let count = |name| MetricBuilder::new(metrics).global_counter(name);
        let time = |name| MetricBuilder::new(metrics).subset_time(name, 0);
        Counts {
            batches: count(exchanged::BATCHES),
            handed_over: count(exchanged::BYTES_HANDED_OVER),
            sent: count(exchanged::BYTES_SENT),
            before_compression: count(exchanged::BYTES_BEFORE_COMPRESSION),
            encoding: time(exchanged::ENCODING),
            network: time(exchanged::WAITING_FOR_NETWORK),
            receiver: time(exchanged::WAITING_FOR_RECEIVER),
        }
    }

    pub(crate) fn handed_over(&self, batch: &RecordBatch) {
        let bytes = slice_bytes(batch);
        self.batches.add(1);
        self.handed_over.add(bytes);
        metrics::counter!("oribi_exchange_handed_over_batches_total").increment(1);
        metrics::counter!("oribi_exchange_handed_over_rows_total").increment(batch.num_rows() as u64);
        metrics::counter!("oribi_exchange_handed_over_bytes_total").increment(bytes as u64);
    }

    fn waited_for_network(&self, time: Duration) {
        self.network.add_duration(time);
        metrics::counter!("oribi_exchange_waiting_for_network_nanoseconds_total")
            .increment(time.as_nanos() as u64);
    }

    fn sent(&self, batch: &RecordBatch, message: &FlightData, beside: &Beside) {
        let sent = message.data_header.len() + message.data_body.len();
        self.batches.add(1);
        self.sent.add(sent);
        self.before_compression.add(beside.bytes as usize);
        self.encoding.add_duration(Duration::from_nanos(beside.encoding_nanos));
        self.receiver.add_duration(Duration::from_nanos(beside.waited_nanos));
        metrics::counter!("oribi_exchange_sent_batches_total").increment(1);
        metrics::counter!("oribi_exchange_sent_rows_total").increment(batch.num_rows() as u64);
        metrics::counter!("oribi_exchange_sent_bytes_total").increment(sent as u64);
        metrics::counter!("oribi_exchange_before_compression_bytes_total").increment(beside.bytes);
        metrics::counter!("oribi_exchange_encoding_nanoseconds_total").increment(beside.encoding_nanos);
        metrics::counter!("oribi_exchange_waiting_for_receiver_nanoseconds_total")
            .increment(beside.waited_nanos);
    }
}

/// Of what a batch shows, whatever lies beside it in its buffers.
pub(crate) fn slice_bytes(batch: &RecordBatch) -> usize {
    let bytes = |column: &Arc<dyn Array>| {
        // Of views it is those alone.
        let texts = column.as_string_view_opt().map_or(0, |texts| texts.total_buffer_bytes_used());
        let binary = column.as_binary_view_opt().map_or(0, |bytes| bytes.total_buffer_bytes_used());
        texts + binary + column.to_data().get_slice_memory_size().unwrap_or_default()
    };
    batch.columns().iter().map(bytes).sum()
}

/// The batches in `messages`, which end with how many rows there were.
pub(crate) fn batches(
    messages: BoxStream<'static, std::result::Result<FlightData, Status>>,
    counts: Counts,
    room: MemoryReservation,
) -> BoxStream<'static, Result<RecordBatch>> {
    let messages = messages.map(|message| message.map_err(|status| FlightError::Tonic(Box::new(status))));
    let begun = (FlightDataDecoder::new(messages), 0);
    let batches = stream::try_unfold(begun, move |(mut decoder, mut rows)| {
        // For what is on its way.
        let _room = &room;
        let counts = counts.clone();
        async move {
            loop {
                let asked = Instant::now();
                let message = decoder.next().await;
                counts.waited_for_network(asked.elapsed());
                let Some(message) = message else { return Err(broken("they ended before their end")) };
                let message = message.map_err(|error| match error {
                    FlightError::Tonic(status) => failed(&status),
                    other => broken(other),
                })?;
                let beside = Beside::decode(message.inner.app_metadata.clone()).map_err(broken)?;
                if let DecodedPayload::RecordBatch(batch) = message.payload {
                    rows += batch.num_rows() as u64;
                    counts.sent(&batch, &message.inner, &beside);
                    return Ok(Some((batch, (decoder, rows))));
                }
                match beside.rows {
                    Some(all) if all == rows => return Ok(None),
                    Some(all) => return Err(broken(format!("{rows} rows of {all} came"))),
                    None => {}
                }
            }
        }
    });
    batches.boxed()
}

fn broken(why: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::External(Box::new(Error::corrupt(format!("rows of another node: {why}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(producer_head: ProducerHead) -> Take {
        let task_key = TaskKey { query_id: Uuid::from_u128(7), stage_id: 2, task_number: 1 };
        let request = ExecuteTaskRequest {
            task_key,
            target_partition_start: 4,
            target_partition_end: 8,
            producer_head,
        };
        Take::of(&request, 5, Compression::Zstd).unwrap()
    }

    #[test]
    fn what_is_asked_for_comes_through() {
        let columns: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("a", 3))];
        let shuffle = MaybeEncoded::Decoded(Partitioning::Hash(columns, 16));
        let heads = [
            ProducerHead::None,
            ProducerHead::BroadcastExec { output_partitions: 12 },
            ProducerHead::RepartitionExec { partitioning: shuffle },
        ];
        for head in heads {
            let take = asked(head.clone());
            let come = Take::decode(take.encode_to_vec().as_slice()).unwrap();
            let (request, compression) = come.into_request().unwrap();
            assert_eq!(compression, Compression::Zstd);
            assert_eq!((request.target_partition_start, request.target_partition_end), (5, 6));
            assert_eq!(Take::of(&request, 5, compression).unwrap(), take);
        }
    }

    #[test]
    fn garbage_asks_for_nothing() {
        let good = asked(ProducerHead::BroadcastExec { output_partitions: 12 });
        let none = Shuffle { partitions: 4, keys: Vec::new() };
        let key = Key { name: "a".to_owned(), place: 0 };
        let endless = Shuffle { partitions: u64::MAX, keys: vec![key] };
        let garbage = [
            Take { query: vec![1], ..good.clone() },
            Take { broadcast: u64::MAX, ..good.clone() },
            Take { partition: u64::MAX, ..good.clone() },
            Take { shuffle: Some(endless.clone()), ..good.clone() },
            Take { shuffle: Some(endless), broadcast: 0, ..good.clone() },
            Take { shuffle: Some(none), broadcast: 0, ..good.clone() },
        ];
        assert!(good.into_request().is_ok());
        for take in garbage {
            assert!(take.clone().into_request().is_err(), "{take:?}");
        }
    }
}
