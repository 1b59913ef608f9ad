//! Reading a scan's rows, tablet by tablet. While the caller has one batch, the server makes the next.

use super::keep_alive::KeepAlive;
use super::{ReadMode, Scan};
use crate::rpc::{Attempts, Call, CallError, Connection};
use crate::status;
use crate::table::{Column, Located, Tablet};
use crate::transaction::Transaction;
use arrow::array::RecordBatch;
use bytes::Bytes;
use oribi_kudu::STEPS_MAX;
use oribi_kudu::blocks::{columnar, rowwise};
use oribi_kudu::column::WireColumn;
use oribi_kudu::frame::Body;
use oribi_kudu::messages::common::{ColumnarRowBlock, RowwiseRowBlock, StatusCode};
use oribi_kudu::messages::tserver::{
    NewScanRequest, OrderMode, ROW_FORMAT_COLUMNAR, ScanRequest, ScanResponse, TabletServerError,
    TabletServerErrorCode, TabletServerFeature,
};
use oribi_kudu::rpc::RequestHeader;
use oribi_kudu::service::{Method, TabletServerMethod};
use oribi_types::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// Yields the rows of a scan in batches. After `None` or an error it stays exhausted.
pub struct Scanner {
    scan: Arc<Scan>,
    layout: rowwise::RowwiseLayout,
    columns: Vec<WireColumn>,
    /// The partition key where to go on; `None` at the end.
    next_key: Option<Bytes>,
    /// The time that is read, once it is known.
    snapshot: Option<u64>,
    rows_left: u64,
    reading: Option<Reading>,
}

/// A tablet that is being read.
struct Reading {
    tablet: Arc<Tablet>,
    attempts: Attempts,
    open: Option<Open>,
    /// The key of the last row that came, where the server tells; rows came at all.
    last_key: Option<Bytes>,
    has_rows: bool,
}

/// A scanner at a server, and the call that it is answering.
struct Open {
    connection: Arc<Connection>,
    id: Bytes,
    call_seq_id: u32,
    call: Option<Call>,
    keep_alive: KeepAlive,
}

/// Why a call gave no rows.
enum Failure {
    /// Send the same call again, later.
    Busy(Error),
    /// Open the scanner anew, at the server that leads then.
    Lost(Error),
    /// The tablet is no more.
    Gone,
    Final(Error),
}

impl Scanner {
    pub(super) fn new(scan: Arc<Scan>) -> Self {
        let columns = scan.columns();
        Scanner {
            layout: rowwise::RowwiseLayout::new(columns.clone(), 0),
            columns,
            next_key: Some(scan.start.clone()),
            snapshot: match scan.read_mode {
                ReadMode::AtSnapshot(timestamp) => timestamp,
                ReadMode::Latest | ReadMode::YourWrites => None,
            },
            rows_left: scan.limit.unwrap_or(u64::MAX),
            reading: None,
            scan,
        }
    }

    /// The next rows, never none; `None` at the end. Strings and JSON are `Utf8`, bytes are `Binary`, and UUIDs have 16 bytes
    /// (`FixedSizeBinary`). Columns of them may share the memory of the whole answer.
    ///
    /// # Errors
    /// What a server answers; `Unavailable` if a tablet cannot be read on, which a fault-tolerant scan tries for as long as
    /// an operation may take.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.read().await;
        if batch.is_err() {
            self.next_key = None;
            self.reading = None;
        }
        batch
    }

    async fn read(&mut self) -> Result<Option<RecordBatch>> {
        while self.rows_left > 0 {
            if self.reading.is_none() && !self.next_tablet().await? {
                return Ok(None);
            }
            match self.call().await {
                Ok(batch) if batch.num_rows() > 0 => {
                    self.rows_left = self.rows_left.saturating_sub(batch.num_rows() as u64);
                    if self.rows_left == 0 {
                        self.close();
                    }
                    return Ok(Some(batch));
                }
                Ok(_) => {}
                Err(failure) => self.recover(failure).await?,
            }
        }
        Ok(None)
    }

    /// Goes to the next tablet; false if there is none.
    async fn next_tablet(&mut self) -> Result<bool> {
        let table = &self.scan.table.shared;
        while let Some(key) = &self.next_key {
            if !self.scan.end.is_empty() && *key >= self.scan.end {
                break;
            }
            let mut attempts = table.client.shared.attempts();
            let end = match table.tablets.locate(table, key, &mut attempts).await? {
                Located::In(tablet) if !self.scan.may_be_in(&tablet) => tablet.end.clone(),
                Located::In(tablet) => {
                    let end = tablet.end.clone();
                    let (open, last_key) = (None, None);
                    self.reading = Some(Reading { tablet, attempts, open, last_key, has_rows: false });
                    end
                }
                Located::Nowhere { end } => end,
            };
            self.next_key = Some(end).filter(|end| !end.is_empty());
            if self.reading.is_some() {
                return Ok(true);
            }
        }
        self.next_key = None;
        Ok(false)
    }

    /// One answer's rows. If there are more, they have been asked for when this returns; if not, the tablet is done.
    async fn call(&mut self) -> Result<RecordBatch, Failure> {
        let client = &self.scan.table.shared.client.shared;
        let timeout = client.options.rpc_timeout;
        let reading = self.reading.as_mut().expect("a tablet is being read");
        let (connection, call) = match &mut reading.open {
            Some(open) => {
                let call = match open.call.take() {
                    Some(call) => call,
                    None => open.resume(&self.scan, timeout)?,
                };
                (open.connection.clone(), call)
            }
            None => reading.open(&self.scan, self.snapshot, self.rows_left).await?,
        };
        let body = call.answer(timeout).await.map_err(Failure::of_call)?;
        let response: ScanResponse = body.decode(STEPS_MAX).map_err(Failure::corrupt)?;
        client.observe(response.propagated_timestamp.max(response.snap_timestamp));
        if let Some(error) = &response.error {
            return Err(Failure::of_tablet_server(error));
        }
        if self.scan.read_mode != ReadMode::Latest || self.scan.is_fault_tolerant {
            self.snapshot = self.snapshot.or(response.snap_timestamp);
        }
        let batch = self.decode(&response, &body).map_err(Failure::Final)?;
        let reading = self.reading.as_mut().expect("a tablet is being read");
        reading.has_rows |= batch.num_rows() > 0;
        // From here on failures count anew.
        reading.attempts = client.attempts();
        reading.last_key = response.last_primary_key.clone().or(reading.last_key.take());
        match response.has_more_results() {
            true => reading.go_on(connection, response.scanner_id, &self.scan, timeout)?,
            false => self.reading = None,
        }
        Ok(batch)
    }

    fn decode(&self, response: &ScanResponse, body: &Body) -> Result<RecordBatch> {
        let sidecar = |index: Option<i32>| index.and_then(|index| body.sidecar(index)).cloned();
        match (&response.columnar_data, &response.data) {
            (Some(ColumnarRowBlock { columns, num_rows }), _) => {
                let sidecars: Vec<_> = columns
                    .iter()
                    .map(|column| columnar::ColumnSidecars {
                        data: sidecar(column.data_sidecar).unwrap_or_default(),
                        varlen: sidecar(column.varlen_data_sidecar),
                        non_null: sidecar(column.non_null_bitmap_sidecar),
                    })
                    .collect();
                let num_rows = usize::try_from(num_rows.unwrap_or(0))
                    .map_err(|_| Error::corrupt("a block of less than no rows"))?;
                // A block of no rows comes without sidecars.
                match num_rows {
                    0 => Ok(RecordBatch::new_empty(oribi_kudu::blocks::arrow_schema(&self.columns))),
                    _ => columnar::decode(&self.columns, num_rows, &sidecars),
                }
            }
            (None, Some(RowwiseRowBlock { num_rows, rows_sidecar, indirect_data_sidecar })) => {
                let rows = sidecar(*rows_sidecar).unwrap_or_default();
                let indirect = sidecar(*indirect_data_sidecar).unwrap_or_default();
                let num_rows = usize::try_from(num_rows.unwrap_or(0))
                    .map_err(|_| Error::corrupt("a block of less than no rows"))?;
                rowwise::decode(&self.layout, num_rows, &rows, &indirect)
            }
            (None, None) => Ok(RecordBatch::new_empty(oribi_kudu::blocks::arrow_schema(&self.columns))),
        }
    }

    /// Makes ready for another call after one that failed, if the rows that came allow that.
    async fn recover(&mut self, failure: Failure) -> Result<()> {
        let is_fault_tolerant = self.scan.is_fault_tolerant;
        let reading = self.reading.as_mut().expect("a tablet is being read");
        let cause = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Busy(error) => error,
            Failure::Gone if reading.has_rows => {
                return Err(Error::not_found("the tablet that was being read is no more"));
            }
            Failure::Gone => {
                // Whichever tablet has its keys now, if there is one.
                self.next_key = Some(reading.tablet.start.clone());
                self.reading = None;
                return Ok(());
            }
            Failure::Lost(error) => {
                if reading.has_rows && !(is_fault_tolerant && reading.last_key.is_some()) {
                    return Err(error.context("the scan cannot go on where it was"));
                }
                reading.open = None;
                reading.tablet.forget_leader();
                error
            }
        };
        reading.attempts.back_off(cause).await
    }

    /// Tells the server that no more rows are wanted. Without it the server keeps the scanner for a minute.
    pub fn close(&mut self) {
        self.next_key = None;
        let Some(Open { connection, id, call_seq_id, keep_alive, .. }) =
            self.reading.take().and_then(|r| r.open)
        else {
            return;
        };
        drop(keep_alive);
        let request = ScanRequest {
            scanner_id: Some(id),
            call_seq_id: Some(call_seq_id + 1),
            batch_size_bytes: Some(0),
            close_scanner: Some(true),
            ..ScanRequest::default()
        };
        // Nobody waits for the answer.
        let _ = connection.call(header(Duration::from_secs(1), Vec::new()), &request, None);
    }
}

impl Reading {
    /// Sends the call that opens a scanner.
    async fn open(
        &mut self,
        scan: &Scan,
        snapshot: Option<u64>,
        rows_left: u64,
    ) -> Result<(Arc<Connection>, Call), Failure> {
        let table = &scan.table.shared;
        let client = &table.client.shared;
        let leader = table.tablets.leader(table, &self.tablet, &mut self.attempts).await;
        let leader = leader.map_err(Failure::of_leader)?.ok_or(Failure::Gone)?;
        let connection =
            client.connections.get(&leader, client.options.rpc_timeout).await.map_err(Failure::of_leader)?;
        let (mut read_mode, _) = scan.read_mode.wire();
        if snapshot.is_some() || scan.is_fault_tolerant {
            // The time was chosen, with the first tablet or before the scan was resumed; or it will be, after what this client
            // has seen.
            read_mode = oribi_kudu::messages::tserver::ReadMode::ReadAtSnapshot;
        }
        let order = if scan.is_fault_tolerant { OrderMode::Ordered } else { OrderMode::Unordered };
        let columns = scan.projection.iter().map(|column| Column::in_request(&scan.table.columns()[*column]));
        let new = NewScanRequest {
            tablet_id: self.tablet.id.clone(),
            limit: scan.limit.map(|_| rows_left),
            projected_columns: columns.collect(),
            read_mode: Some(read_mode.into()),
            snap_timestamp: snapshot,
            propagated_timestamp: client.propagated_timestamp(),
            order_mode: Some(order.into()),
            last_primary_key: self.last_key.clone().filter(|_| scan.is_fault_tolerant),
            column_predicates: scan.predicates.clone(),
            row_format_flags: scan.is_columnar.then_some(ROW_FORMAT_COLUMNAR),
            authz_token: table.authz_token(),
            txn_id: scan.transaction.as_ref().map(Transaction::id),
            ..NewScanRequest::default()
        };
        let request = ScanRequest {
            new_scan_request: Some(new),
            call_seq_id: Some(0),
            batch_size_bytes: Some(scan.batch_bytes),
            ..ScanRequest::default()
        };
        let mut features = Vec::new();
        features.extend(scan.is_columnar.then_some(TabletServerFeature::ColumnarLayout as u32));
        features
            .extend((!scan.predicates.is_empty()).then_some(TabletServerFeature::ColumnPredicates as u32));
        let header = header(client.options.rpc_timeout, features);
        let call = connection.call(header, &request, None).map_err(Failure::of_call)?;
        Ok((connection, call))
    }

    /// Asks for the next rows. The id comes with the first answer, and may with others.
    fn go_on(
        &mut self,
        connection: Arc<Connection>,
        id: Option<Bytes>,
        scan: &Scan,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let before = self.open.take();
        let mut open = match (before, id) {
            (Some(open), _) => Open { call_seq_id: open.call_seq_id + 1, ..open },
            (None, Some(id)) => {
                let every = scan.table.shared.client.shared.options.scanner_keep_alive;
                let keep_alive = KeepAlive::start(connection.clone(), id.clone(), every);
                Open { connection, id, call_seq_id: 1, call: None, keep_alive }
            }
            (None, None) => {
                return Err(Failure::Final(Error::corrupt("a scanner without an id has more rows")));
            }
        };
        let call = open.resume(scan, timeout)?;
        open.call = Some(call);
        self.open = Some(open);
        Ok(())
    }
}

impl Open {
    fn resume(&mut self, scan: &Scan, timeout: Duration) -> Result<Call, Failure> {
        let request = ScanRequest {
            scanner_id: Some(self.id.clone()),
            call_seq_id: Some(self.call_seq_id),
            batch_size_bytes: Some(scan.batch_bytes),
            ..ScanRequest::default()
        };
        self.connection.call(header(timeout, Vec::new()), &request, None).map_err(Failure::of_call)
    }
}

fn header(timeout: Duration, required_feature_flags: Vec<u32>) -> RequestHeader {
    RequestHeader {
        remote_method: Some(Method::TabletServer(TabletServerMethod::Scan).remote()),
        timeout_millis: Some(timeout.as_millis() as u32),
        required_feature_flags,
        ..RequestHeader::default()
    }
}

impl Failure {
    fn corrupt(error: impl std::error::Error) -> Self {
        Failure::Final(Error::corrupt(error.to_string()))
    }

    fn of_leader(error: Error) -> Self {
        match error.kind() {
            oribi_types::ErrorKind::Unavailable => Failure::Lost(error),
            _ => Failure::Final(error),
        }
    }

    fn of_call(error: CallError) -> Self {
        let cause = error.error();
        match error {
            CallError::Broken(_) | CallError::TimedOut(_) => Failure::Lost(cause),
            CallError::Refused(status) if status::is_busy(&status) => Failure::Busy(cause),
            CallError::Refused(_) | CallError::TooLarge(_) => Failure::Final(cause),
        }
    }

    fn of_tablet_server(error: &TabletServerError) -> Self {
        let cause = status::of_app(&error.status);
        match error.code() {
            TabletServerErrorCode::ScannerExpired
            | TabletServerErrorCode::TabletNotFound
            | TabletServerErrorCode::TabletNotRunning
            | TabletServerErrorCode::TabletFailed
            | TabletServerErrorCode::NotTheLeader
            | TabletServerErrorCode::WrongServerUuid => Failure::Lost(cause),
            TabletServerErrorCode::Throttled => Failure::Busy(cause),
            _ if error.status.code() == StatusCode::ServiceUnavailable => Failure::Busy(cause),
            _ => Failure::Final(cause),
        }
    }
}
