//! Calls of scans: the first one opens a scanner, those after it go on, until there is no more or the client closes it.

use super::ahead::{OpenScan, read_ahead};
use super::scanner::{Page, Scanner};
use super::snapshot::choose;
use super::spec::ScanSpec;
use crate::kudu::call::{Call, too_busy};
use crate::kudu::node::Node;
use crate::kudu::services::{Handled, Work};
use crate::kudu::{status, transaction_table, transactions};
use bytes::Bytes;
use oribi_engine::Obligation;
use oribi_kudu::messages::common::StatusCode;
use oribi_kudu::messages::tserver::{
    NewScanRequest, ScanRequest, ScanResponse, ScannerKeepAliveRequest, ScannerKeepAliveResponse,
    TabletServerError, TabletServerErrorCode as Code,
};
use oribi_types::{Error, ErrorKind};
use std::sync::{Arc, MutexGuard, TryLockError};
use tokio::time::Instant;

/// A client that asks for less would wait for each row or two.
const ANSWER_BYTES_MIN: usize = 1 << 10;
/// Kudu's own sizes of an answer (`--scanner_default_batch_size_bytes`, `--scanner_max_batch_size_bytes`).
const ANSWER_BYTES: usize = 1 << 20;
const ANSWER_BYTES_MAX: usize = 8 << 20;

pub(super) fn handle(node: &Arc<Node>, call: Call) -> Handled {
    let request: ScanRequest = match call.request() {
        Ok(request) => request,
        Err(status) => return Handled::Now(call.fail(&status)),
    };
    if let (Some(id), Some(true), Some(0)) =
        (&request.scanner_id, request.close_scanner, request.batch_size_bytes)
    {
        let closed = node.scanners.close(id);
        // What it holds, millions of rows perhaps, is freed by a thread that serves nobody.
        tokio::task::spawn_blocking(move || drop(closed));
        return Handled::Now(call.answer(&ScanResponse::default()));
    }
    let node = node.clone();
    Work::long(call, answer_bytes(&request), move |call| match scan(&node, &request) {
        Ok(scanned) => call.answer_with(&scanned.response, scanned.sidecars).resting_on(scanned.obligation),
        Err(Refused::Busy(why)) => call.fail(&too_busy(&why)),
        Err(Refused::Error(error)) => call.answer(&ScanResponse { error: Some(error), ..Default::default() }),
    })
}

/// Why there is no answer.
pub(super) enum Refused {
    /// Another time there may be one.
    Busy(String),
    Error(TabletServerError),
}

impl Refused {
    /// `code` is of what the client had wrong.
    pub fn new(error: &Error, code: Code) -> Self {
        match error.kind() {
            ErrorKind::Retry => Refused::Busy(error.message().to_owned()),
            // Rows went away under the scan, with a truncate or a range: it cannot go on, and a new one can.
            ErrorKind::Conflict => {
                let code = Code::ScannerExpired;
                Refused::Error(TabletServerError::new(code, StatusCode::NotFound, error.message()))
            }
            _ => Refused::Error(status::tserver(error, code)),
        }
    }
}

impl From<TabletServerError> for Refused {
    fn from(error: TabletServerError) -> Self {
        Refused::Error(error)
    }
}

struct Scanned {
    response: ScanResponse,
    sidecars: Vec<Bytes>,
    obligation: Obligation,
}

impl Scanned {
    fn new(node: &Node, page: Page, scanner: &Scanner) -> Self {
        let mut response = ScanResponse {
            has_more_results: Some(scanner.has_more()),
            last_primary_key: page.last_key.map(Bytes::from),
            propagated_timestamp: Some(scanner.snapshot.ts().0),
            ..ScanResponse::default()
        };
        let sidecars = match page.block.rows() {
            0 => Vec::new(),
            _ => page.block.finish(&node.scanners.buffers, &mut response),
        };
        Scanned { response, sidecars, obligation: scanner.obligation() }
    }
}

/// How long the answer may become, about.
fn answer_bytes(request: &ScanRequest) -> usize {
    match request.batch_size_bytes {
        None => ANSWER_BYTES,
        // Only to open it.
        Some(0) => 0,
        Some(bytes) => (bytes as usize).clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX),
    }
}

fn scan(node: &Arc<Node>, request: &ScanRequest) -> Result<Scanned, Refused> {
    let bytes_max = answer_bytes(request);
    let closes = request.close_scanner.unwrap_or(false);
    match (&request.new_scan_request, &request.scanner_id) {
        (Some(new), None) => open(node, new, bytes_max, closes),
        (None, Some(id)) => go_on(node, id, request.call_seq_id.unwrap_or(0), bytes_max, closes),
        _ => Err(invalid("a scan is either new or goes on")),
    }
}

fn open(
    node: &Arc<Node>,
    request: &NewScanRequest,
    bytes_max: usize,
    closes: bool,
) -> Result<Scanned, Refused> {
    let (mut scanner, is_told) = new_scanner(node, request)?;
    let page =
        scanner.read(bytes_max, &node.scanners.buffers).map_err(|e| Refused::new(&e, Code::UnknownError))?;
    let mut scanned = Scanned::new(node, page, &scanner);
    scanned.response.snap_timestamp = is_told.then(|| scanner.snapshot.ts().0);
    if scanner.has_more() && !closes {
        let id = node.scanners.keep(scanner).map_err(|e| Refused::new(&e, Code::UnknownError))?;
        scanned.response.scanner_id = Some(id);
    }
    Ok(scanned)
}

/// The scanner that a request asks for, and whether the client is told its timestamp.
pub(super) fn new_scanner(node: &Arc<Node>, request: &NewScanRequest) -> Result<(Scanner, bool), Refused> {
    let directory = node.directory();
    let (entry, tablet) =
        directory.tablet(&request.tablet_id).map_err(|e| Refused::new(&e, Code::TabletNotFound))?;
    let spec = ScanSpec::new(entry, tablet.number, request);
    let mut spec = spec.map_err(|e| Refused::new(&e, Code::InvalidScanSpec))?;
    if entry.is_of_transactions() {
        let rows = transaction_table::rows(&node.engine, &spec.table);
        spec.own = Some(rows.map_err(|e| Refused::new(&e, Code::UnknownError))?);
    } else if let Some(id) = request.txn_id {
        spec.see_changes_of(&*transactions::open(&node.engine, id)?);
    }
    let chosen = choose(node, request)?;
    let scanner = Scanner::open(&node.engine, spec, chosen.snapshot);
    Ok((scanner.map_err(|e| Refused::new(&e, Code::UnknownError))?, chosen.is_told))
}

fn go_on(
    node: &Arc<Node>,
    id: &Bytes,
    call: u32,
    bytes_max: usize,
    closes: bool,
) -> Result<Scanned, Refused> {
    // Who asks for no rows keeps it alive, no more.
    let open = take(node, id, bytes_max > 0)?;
    let mut scanner = lock_after_ahead(&open)?;
    number(&mut scanner, call)?;
    let page = scanner.read(bytes_max, &node.scanners.buffers).map_err(|e| {
        node.scanners.close(id);
        Refused::new(&e, Code::UnknownError)
    })?;
    // A client that has named it goes on with it in other tablets.
    node.leases.renew(scanner.snapshot.ts().0, Instant::now());
    open.rest.set(scanner.rest_bytes());
    let scanned = Scanned::new(node, page, &scanner);
    if closes || !scanner.has_more() {
        node.scanners.close(id);
    } else if bytes_max > 0 {
        drop(scanner);
        read_ahead(node, &open, bytes_max);
    }
    node.scanners.close_excess();
    Ok(scanned)
}

pub(super) fn take(node: &Node, id: &Bytes, goes_on: bool) -> Result<Arc<OpenScan>, Refused> {
    node.scanners.touch(id, goes_on).ok_or_else(|| Refused::Error(expired(id)))
}

/// A client makes one call of a scanner at a time. Waits for what is read ahead: not for a thread that serves.
pub(super) fn lock_after_ahead(scan: &OpenScan) -> Result<MutexGuard<'_, Scanner>, Refused> {
    scan.lock_after_ahead().map_err(|error| match error {
        TryLockError::WouldBlock => Refused::Busy("the scanner is in use".to_owned()),
        TryLockError::Poisoned(_) => invalid("the scanner has failed"),
    })
}

/// Checks the number of a call; a call that was lost on its way must not be made up for by the next one.
pub(super) fn number(scanner: &mut Scanner, call: u32) -> Result<(), Refused> {
    if call != scanner.next_call {
        let why = format!("call {call} of the scanner where {} was expected", scanner.next_call);
        let code = Code::InvalidScanCallSeqId;
        return Err(TabletServerError::new(code, StatusCode::InvalidArgument, why).into());
    }
    scanner.next_call += 1;
    Ok(())
}

pub(super) fn invalid(why: &str) -> Refused {
    TabletServerError::new(Code::InvalidScanSpec, StatusCode::InvalidArgument, why).into()
}

fn expired(id: &[u8]) -> TabletServerError {
    let why = format!("scanner {} not found (it may have expired)", String::from_utf8_lossy(id));
    TabletServerError::new(Code::ScannerExpired, StatusCode::NotFound, why)
}

pub(super) fn keep_alive(node: &Node, request: &ScannerKeepAliveRequest) -> ScannerKeepAliveResponse {
    let Some(open) = node.scanners.touch(&request.scanner_id, false) else {
        return ScannerKeepAliveResponse { error: Some(expired(&request.scanner_id)) };
    };
    node.leases.renew(open.snapshot_ts, Instant::now());
    ScannerKeepAliveResponse::default()
}
