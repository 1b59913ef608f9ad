//! Checksums of scans, as `ksck -checksum_scan` compares replicas by: the sum of a hash of each row, so that the order of rows
//! does not matter.

use super::scan::{Refused, invalid, lock_after_ahead, new_scanner, number, take};
use super::scanner::Scanner;
use crate::kudu::call::{Call, too_busy};
use crate::kudu::node::Node;
use crate::kudu::services::{Handled, Work};
use arrow::array::RecordBatch;
use oribi_engine::Obligation;
use oribi_kudu::messages::tserver::{ChecksumRequest, ChecksumResponse, TabletServerErrorCode as Code};
use oribi_types::batch::value_at;
use oribi_types::key::murmur_hash2_64a;
use oribi_types::{Result, ValueRef};
use std::sync::Arc;

/// Rows of one call, about.
const ROWS_MAX: usize = 1 << 19;

pub(super) fn handle(node: &Arc<Node>, call: Call) -> Handled {
    let request: ChecksumRequest = match call.request() {
        Ok(request) => request,
        Err(status) => return Handled::Now(call.fail(&status)),
    };
    let node = node.clone();
    Work::blocking(call, move |call| match checksum(&node, &request) {
        Ok((response, obligation)) => call.answer(&response).resting_on(obligation),
        Err(Refused::Busy(why)) => call.fail(&too_busy(&why)),
        Err(Refused::Error(error)) => {
            call.answer(&ChecksumResponse { error: Some(error), ..ChecksumResponse::default() })
        }
    })
}

fn checksum(node: &Arc<Node>, request: &ChecksumRequest) -> Result<(ChecksumResponse, Obligation), Refused> {
    match (&request.new_request, &request.continue_request) {
        (Some(new), None) => {
            let (mut scanner, is_told) = new_scanner(node, new)?;
            let mut summed = sum_up(&mut scanner, 0)?;
            summed.0.snap_timestamp = is_told.then(|| scanner.snapshot.ts().0);
            if scanner.has_more() {
                let id = node.scanners.keep(scanner).map_err(|e| Refused::new(&e, Code::UnknownError))?;
                summed.0.scanner_id = Some(id);
            }
            Ok(summed)
        }
        (None, Some(going_on)) => {
            let id = &going_on.scanner_id;
            let open = take(node, id, true)?;
            let mut scanner = lock_after_ahead(&open)?;
            // Part of its rows was returned, or is about to be.
            if scanner.is_read {
                return Err(invalid("the scanner is one of a scan, not of a checksum"));
            }
            number(&mut scanner, request.call_seq_id.unwrap_or(0))?;
            let summed = sum_up(&mut scanner, going_on.previous_checksum);
            if summed.is_err() || !scanner.has_more() || request.close_scanner.unwrap_or(false) {
                node.scanners.close(id);
            }
            summed
        }
        _ => Err(invalid("a checksum is either new or goes on")),
    }
}

fn sum_up(scanner: &mut Scanner, before: u64) -> Result<(ChecksumResponse, Obligation), Refused> {
    let (mut checksum, mut rows) = (before, 0);
    let mut rows_left = ROWS_MAX;
    while rows_left > 0 {
        let batch = scanner.next_batch(&mut rows_left).map_err(|e| Refused::new(&e, Code::UnknownError))?;
        let Some(batch) = batch else { break };
        rows += batch.num_rows() as i64;
        let sum = rows_sum(scanner, &batch).map_err(|e| Refused::new(&e, Code::UnknownError))?;
        checksum = checksum.wrapping_add(sum);
    }
    let response = ChecksumResponse {
        checksum: Some(checksum),
        has_more_results: Some(scanner.has_more()),
        rows_checksummed: Some(rows),
        ..ChecksumResponse::default()
    };
    Ok((response, scanner.obligation()))
}

fn rows_sum(scanner: &Scanner, batch: &RecordBatch) -> Result<u64> {
    let rows = scanner.spec().project(batch)?;
    let mut hashes = vec![0_u64; rows.num_rows()];
    for (column, array) in scanner.spec().columns.iter().zip(rows.columns()) {
        for (i, hash) in hashes.iter_mut().enumerate() {
            *hash = hash_value(*hash, value_at(array, column.column_type, i));
        }
    }
    Ok(hashes.into_iter().fold(0, u64::wrapping_add))
}

/// Goes on with the hash of a row by one value.
fn hash_value(hash: u64, value: ValueRef<'_>) -> u64 {
    let number = |number: u128| murmur_hash2_64a(&number.to_le_bytes(), hash);
    match value {
        ValueRef::Null => murmur_hash2_64a(b"null", hash),
        ValueRef::Bool(v) => number(v.into()),
        ValueRef::Int8(v) => number(v as u128),
        ValueRef::Int16(v) => number(v as u128),
        ValueRef::Int32(v) | ValueRef::Date(v) => number(v as u128),
        ValueRef::Int64(v) | ValueRef::Timestamp(v) => number(v as u128),
        ValueRef::Float(v) => number(v.to_bits().into()),
        ValueRef::Double(v) => number(v.to_bits().into()),
        ValueRef::Decimal(v) => number(v as u128),
        ValueRef::Uuid(v) => murmur_hash2_64a(&v, hash),
        ValueRef::String(v) | ValueRef::Json(v) => murmur_hash2_64a(v.as_bytes(), hash),
        ValueRef::Binary(v) => murmur_hash2_64a(v, hash),
    }
}
