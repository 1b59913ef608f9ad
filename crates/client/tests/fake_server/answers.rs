//! What the fake server answers.

use super::{Answer, Shared, State};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow::datatypes::{Field, Schema};
use bytes::{Bytes, BytesMut};
use oribi_kudu::blocks::columnar::ColumnarBlock;
use oribi_kudu::blocks::rowwise::{RowwiseBlock, RowwiseLayout};
use oribi_kudu::column::WireColumn;
use oribi_kudu::frame::{Body, encode_error, encode_reply};
use oribi_kudu::messages::common;
use oribi_kudu::messages::common::{AppStatus, ColumnIdentifier, ColumnSchema, Role, StatusCode};
use oribi_kudu::messages::master::*;
use oribi_kudu::messages::tserver::*;
use oribi_kudu::partition::{HashDimension, PartitionSchema, floor};
use oribi_kudu::row_operations::{OperationLayout, OperationReader, OperationType};
use oribi_kudu::rpc::{ErrorCode, ErrorStatus, RequestHeader};
use oribi_kudu::service::MasterMethod;
use oribi_types::{ColumnType, ValueRef};
use prost::Message;
use std::sync::Arc;

/// A scan under way: its request, and the key of the last row that was sent.
pub struct OpenScanner {
    request: NewScanRequest,
    last: Option<i64>,
    next_call: u32,
}

pub fn columns() -> Vec<WireColumn> {
    vec![
        WireColumn::new("key", ColumnType::Int64, false),
        WireColumn::new("version", ColumnType::Int64, false),
        WireColumn::new("text", ColumnType::String, true),
    ]
}

pub fn partition_schema(buckets: u32, has_ranges: bool) -> PartitionSchema {
    let hash = if buckets > 1 { vec![HashDimension::new(vec![0], buckets, 0)] } else { Vec::new() };
    let range = if has_ranges { vec![0] } else { Vec::new() };
    PartitionSchema::new(&columns()[..1], hash, range, Vec::new()).unwrap()
}

fn reply(header: &RequestHeader, message: &impl Message, sidecars: &[Bytes]) -> Answer {
    let mut out = BytesMut::new();
    encode_reply(header.call_id, message, sidecars, &mut out).unwrap();
    let mut out = out.to_vec();
    sidecars.iter().for_each(|sidecar| out.extend_from_slice(sidecar));
    out
}

pub fn busy(header: &RequestHeader) -> Answer {
    let mut out = BytesMut::new();
    encode_error(header.call_id, &ErrorStatus::new(ErrorCode::ServerTooBusy, "busy"), &mut out).unwrap();
    out.to_vec()
}

fn not_found() -> Option<TabletServerError> {
    Some(TabletServerError::new(
        TabletServerErrorCode::TabletNotFound,
        StatusCode::NotFound,
        "no such tablet",
    ))
}

pub fn write_not_found(header: &RequestHeader) -> Answer {
    reply(header, &WriteResponse { error: not_found(), ..WriteResponse::default() }, &[])
}

pub fn scan_not_found(header: &RequestHeader) -> Answer {
    reply(header, &ScanResponse { error: not_found(), ..ScanResponse::default() }, &[])
}

fn tablet_id(state: &State, tablet: usize) -> Bytes {
    Bytes::from(format!("tablet {tablet} of generation {}", state.generation))
}

fn tablet_of(state: &State, id: &Bytes) -> Option<usize> {
    (0..state.partitions.len()).find(|tablet| tablet_id(state, *tablet) == id)
}

pub fn of_master(
    shared: &Shared,
    state: &mut State,
    method: MasterMethod,
    header: &RequestHeader,
    body: &Body,
) -> Answer {
    match method {
        MasterMethod::ConnectToMaster => {
            let response = ConnectToMasterResponse {
                role: Some(Role::Leader.into()),
                ..ConnectToMasterResponse::default()
            };
            reply(header, &response, &[])
        }
        MasterMethod::GetTableSchema => reply(header, &table_schema(shared), &[]),
        MasterMethod::GetTableLocations => {
            state.look_ups += 1;
            let request: GetTableLocationsRequest = body.decode(1000).unwrap();
            reply(header, &locations(shared, state, &request), &[])
        }
        other => panic!("{other:?}"),
    }
}

fn table_schema(shared: &Shared) -> GetTableSchemaResponse {
    let column = |(id, column): (usize, &WireColumn)| ColumnSchema {
        id: Some(10 + id as u32),
        name: column.name.clone(),
        data_type: column.data_type().into(),
        is_key: Some(id == 0),
        is_nullable: Some(column.nullable),
        ..ColumnSchema::default()
    };
    let key = || vec![ColumnIdentifier::id(10)];
    let hash = shared.partition_schema.hash().iter().map(|dimension| common::HashBucketSchema {
        columns: key(),
        num_buckets: dimension.buckets() as i32,
        seed: None,
        hash_algorithm: None,
    });
    let range = if shared.partition_schema.range().is_empty() { Vec::new() } else { key() };
    GetTableSchemaResponse {
        schema: Some(common::Schema { columns: columns().iter().enumerate().map(column).collect() }),
        num_replicas: Some(1),
        table_id: Some(Bytes::from_static(b"0123456789abcdef0123456789abcdef")),
        partition_schema: Some(common::PartitionSchema {
            hash_schema: hash.collect(),
            range_schema: Some(common::RangeSchema { columns: range }),
            custom_hash_schema_ranges: Vec::new(),
        }),
        table_name: Some("t".to_owned()),
        ..GetTableSchemaResponse::default()
    }
}

fn locations(
    shared: &Shared,
    state: &State,
    request: &GetTableLocationsRequest,
) -> GetTableLocationsResponse {
    let key = request.key_start.clone().unwrap_or_default();
    let key = [key.hash_key.unwrap_or_default(), key.range_key.unwrap_or_default()].concat();
    let first = floor(&state.partitions, &key, |partition| &partition.start).unwrap_or(0);
    let location = |tablet: usize| {
        let partition = &state.partitions[tablet];
        TabletLocations {
            tablet_id: tablet_id(state, tablet),
            partition: Some(common::Partition {
                hash_buckets: partition.hash_buckets.iter().map(|bucket| *bucket as i32).collect(),
                partition_key_start: Some(Bytes::from(partition.start.clone())),
                partition_key_end: Some(Bytes::from(partition.end.clone())),
            }),
            interned_replicas: vec![InternedReplica {
                ts_info_idx: 0,
                role: Role::Leader.into(),
                dimension_label: None,
            }],
            ..TabletLocations::default()
        }
    };
    let count = request.max_returned_locations() as usize;
    GetTableLocationsResponse {
        tablet_locations: (first..state.partitions.len()).take(count).map(location).collect(),
        ts_infos: vec![TsInfo {
            permanent_uuid: Bytes::from_static(b"server"),
            rpc_addresses: vec![shared.address.clone()],
            ..TsInfo::default()
        }],
        ..GetTableLocationsResponse::default()
    }
}

pub fn write(shared: &Shared, state: &mut State, header: &RequestHeader, body: &Body) -> Answer {
    let request: WriteRequest = body.decode(1000).unwrap();
    let Some(tablet) = tablet_of(state, &request.tablet_id) else { return write_not_found(header) };
    let id = header.request_id.clone().expect("each write has an id");
    let key = (id.client_id, id.seq_no);
    if let Some(result) = state.results.get(&key) {
        let result = WriteResponse::decode(&result[..]).unwrap();
        return reply(header, &result, &[]);
    }
    if id.first_incomplete_seq_no > id.seq_no {
        state
            .complaints
            .push(format!("write {} after {} was complete", id.seq_no, id.first_incomplete_seq_no));
    }
    let result = execute(shared, state, tablet, &request);
    state.results.insert(key, result.encode_to_vec());
    reply(header, &result, &[])
}

fn execute(shared: &Shared, state: &mut State, tablet: usize, request: &WriteRequest) -> WriteResponse {
    state.writes += 1;
    let operations = request.row_operations.clone().unwrap();
    let (rows, indirect) = (operations.rows.unwrap(), operations.indirect_data.unwrap());
    let layout = OperationLayout::new(columns());
    let mut reader = OperationReader::new(&layout, &rows, &indirect);
    let mut errors = Vec::new();
    while let Some(operation) = reader.read().unwrap() {
        let [Some(key_value @ ValueRef::Int64(key)), version, text] = operation.values else { panic!() };
        let mut partition_key = Vec::new();
        shared.partition_schema.partition_key(&[*key_value], &mut partition_key).unwrap();
        if !state.partitions[tablet].contains(&partition_key) {
            state.complaints.push(format!("key {key} in tablet {tablet}"));
        }
        let is_insert = operation.operation_type == OperationType::Insert;
        if is_insert && state.rows.contains_key(key) {
            errors.push(PerRowError {
                row_index: operation.index as i32,
                error: AppStatus::new(StatusCode::AlreadyPresent, "key already present"),
            });
            continue;
        }
        let row = state.rows.entry(*key).or_default();
        if let Some(ValueRef::Int64(version)) = version {
            row.0.push(*version);
        }
        row.1 = match text {
            Some(ValueRef::String(text)) => Some((*text).to_owned()),
            _ => None,
        };
    }
    WriteResponse { per_row_errors: errors, timestamp: Some(state.writes as u64), ..WriteResponse::default() }
}

pub fn scan(shared: &Shared, state: &mut State, header: &RequestHeader, body: &Body) -> Answer {
    let request: ScanRequest = body.decode(1000).unwrap();
    let id = match (&request.new_scan_request, &request.scanner_id) {
        (Some(new), None) => {
            if tablet_of(state, &new.tablet_id).is_none() {
                return scan_not_found(header);
            }
            state.scans.push(new.clone());
            let id = Bytes::from(format!("scanner {}", state.scans.len()));
            let last = new
                .last_primary_key
                .as_ref()
                .map(|key| (u64::from_be_bytes(key[..].try_into().unwrap()) ^ (1 << 63)) as i64);
            state.scanners.insert(id.clone(), OpenScanner { request: new.clone(), last, next_call: 0 });
            id
        }
        (None, Some(id)) => id.clone(),
        other => panic!("{other:?}"),
    };
    let Some(mut scanner) = state.scanners.remove(&id) else {
        let error = TabletServerError::new(
            TabletServerErrorCode::ScannerExpired,
            StatusCode::NotFound,
            "no such scanner",
        );
        return reply(header, &ScanResponse { error: Some(error), ..ScanResponse::default() }, &[]);
    };
    if request.close_scanner() {
        return reply(header, &ScanResponse::default(), &[]);
    }
    if request.call_seq_id() != scanner.next_call {
        state.complaints.push(format!(
            "call {} of a scanner at {}",
            request.call_seq_id(),
            scanner.next_call
        ));
    }
    scanner.next_call += 1;
    let tablet = tablet_of(state, &scanner.request.tablet_id).unwrap();
    let in_tablet = |key: &i64| {
        let mut partition_key = Vec::new();
        shared.partition_schema.partition_key(&[ValueRef::Int64(*key)], &mut partition_key).unwrap();
        state.partitions[tablet].contains(&partition_key) && scanner.last.is_none_or(|last| *key > last)
    };
    let mut rows = state.rows.iter().filter(|(key, _)| in_tablet(key));
    let some: Vec<_> = rows.by_ref().take(state.rows_per_answer).collect();
    let has_more = rows.next().is_some();
    let last = some.last().map(|(key, _)| **key).or(scanner.last);
    let batch = batch_of(&some, &scanner.request.projected_columns);
    let columnar = scanner.request.row_format_flags() & ROW_FORMAT_COLUMNAR != 0;
    let (mut response, sidecars) = block(&batch, &scanner.request.projected_columns, columnar);
    response.scanner_id = has_more.then(|| id.clone());
    response.has_more_results = Some(has_more);
    response.snap_timestamp = Some(77 << 12);
    response.last_primary_key =
        last.map(|key| Bytes::copy_from_slice(&((key as u64) ^ (1 << 63)).to_be_bytes()));
    if has_more {
        scanner.last = last;
        state.scanners.insert(id, scanner);
    }
    reply(header, &response, &sidecars)
}

pub fn keep_alive(state: &mut State, header: &RequestHeader, body: &Body) -> Answer {
    let request: ScannerKeepAliveRequest = body.decode(1000).unwrap();
    if state.scanners.contains_key(&request.scanner_id) {
        state.keep_alives += 1;
    }
    reply(header, &ScannerKeepAliveResponse::default(), &[])
}

/// A key, and what its row holds.
type KeyAndRow<'r> = (&'r i64, &'r (Vec<i64>, Option<String>));

fn batch_of(rows: &[KeyAndRow<'_>], projection: &[ColumnSchema]) -> RecordBatch {
    let array = |column: &ColumnSchema| -> ArrayRef {
        match column.name.as_str() {
            "key" => Arc::new(rows.iter().map(|(key, _)| **key).collect::<Int64Array>()),
            "version" => Arc::new(rows.iter().map(|(_, row)| *row.0.last().unwrap()).collect::<Int64Array>()),
            _ => Arc::new(rows.iter().map(|(_, row)| row.1.as_deref()).collect::<StringViewArray>()),
        }
    };
    let field = |c: WireColumn| Field::new(&c.name, c.column_type.arrow(), c.nullable);
    let fields: Vec<Field> = wire_columns(projection).into_iter().map(field).collect();
    let schema = Arc::new(Schema::new(fields));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema, projection.iter().map(array).collect(), &options).unwrap()
}

fn wire_columns(projection: &[ColumnSchema]) -> Vec<WireColumn> {
    let named =
        |column: &ColumnSchema| columns().into_iter().find(|known| known.name == column.name).unwrap();
    projection.iter().map(named).collect()
}

fn block(batch: &RecordBatch, projection: &[ColumnSchema], is_columnar: bool) -> (ScanResponse, Vec<Bytes>) {
    let wire = wire_columns(projection);
    let mut sidecars = Vec::new();
    let mut add = |bytes: Vec<u8>| {
        sidecars.push(Bytes::from(bytes));
        sidecars.len() as i32 - 1
    };
    let mut response = ScanResponse::default();
    if is_columnar {
        let mut block = ColumnarBlock::new(wire);
        block.append(batch).unwrap();
        let columns = block.into_sidecars().into_iter().map(|column| common::ColumnarBlockColumn {
            data_sidecar: Some(add(column.data)),
            varlen_data_sidecar: column.varlen.map(&mut add),
            non_null_bitmap_sidecar: column.non_null.map(&mut add),
        });
        let columns = columns.collect();
        response.columnar_data =
            Some(common::ColumnarRowBlock { columns, num_rows: Some(batch.num_rows() as i64) });
    } else {
        let (layout, mut block) = (RowwiseLayout::new(wire, 0), RowwiseBlock::default());
        block.append(&layout, batch).unwrap();
        let num_rows = Some(block.num_rows() as i32);
        let (rows, indirect) = block.into_sidecars();
        response.data = Some(common::RowwiseRowBlock {
            num_rows,
            rows_sidecar: Some(add(rows)),
            indirect_data_sidecar: Some(add(indirect)),
        });
    }
    (response, sidecars)
}
