//! Messages against bytes written by hand.

use super::common::*;
use super::consensus::*;
use super::master::*;
use super::transactions::*;
use super::tserver::*;
use bytes::Bytes;
use prost::Message;
use std::fmt::Debug;

/// `message` is encoded as `bytes`, and decoded from them.
fn is_as(message: impl Message + Default + PartialEq + Debug, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes);
    assert_eq!(crate::decode(Bytes::copy_from_slice(bytes), 1000), Ok(message));
}

fn column(name: &str, data_type: DataType, is_nullable: bool) -> ColumnSchema {
    let (name, data_type) = (name.to_owned(), data_type.into());
    ColumnSchema { name, data_type, is_nullable: Some(is_nullable), ..ColumnSchema::default() }
}

/// The row of `kudu perf loadgen` in its table: key 9, int_val 18, string_val of 32 bytes.
#[test]
fn a_write_of_loadgen() {
    let rows = b"\x01\x07\0\x09\0\0\0\0\0\0\0\x12\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0";
    let indirect_data = b"4f2a7c1e9b3d5a60c8e7d6f5a4b3c2d1";
    let schema = Schema {
        columns: vec![
            ColumnSchema { is_key: Some(true), ..column("key", DataType::Int64, false) },
            column("int_val", DataType::Int32, true),
            column("string_val", DataType::String, true),
        ],
    };
    let schema_bytes = b"\x0a\x0b\x12\x03key\x18\x07\x20\x01\x28\0\x0a\x0d\x12\x07int_val\x18\x05\x28\x01\
        \x0a\x10\x12\x0astring_val\x18\x08\x28\x01";
    is_as(schema, schema_bytes);
    let write = WriteRequest {
        tablet_id: Bytes::from_static(b"tablet"),
        schema: Some(Bytes::from_static(schema_bytes)),
        row_operations: Some(RowOperations {
            rows: Some(Bytes::from_static(rows)),
            indirect_data: Some(Bytes::from_static(indirect_data)),
        }),
        external_consistency_mode: Some(ExternalConsistencyMode::ClientPropagated.into()),
        propagated_timestamp: Some(0x0102_0304_0506_0708),
        ..WriteRequest::default()
    };
    let mut bytes = b"\x0a\x06tablet\x12\x2e".to_vec();
    bytes.extend(schema_bytes);
    bytes.extend(b"\x1a\x43\x12\x1f");
    bytes.extend(rows);
    bytes.extend(b"\x1a\x20");
    bytes.extend(indirect_data);
    bytes.extend(b"\x20\x01\x29\x08\x07\x06\x05\x04\x03\x02\x01");
    is_as(write, &bytes);
}

#[test]
fn an_answer_to_a_write() {
    let response = WriteResponse {
        per_row_errors: vec![PerRowError {
            row_index: 3,
            error: AppStatus::new(StatusCode::AlreadyPresent, "key already present"),
        }],
        timestamp: Some(1 << 12),
        ..WriteResponse::default()
    };
    is_as(response, b"\x12\x1b\x08\x03\x12\x17\x08\x06\x12\x13key already present\x19\0\x10\0\0\0\0\0\0");
    let failed = WriteResponse {
        error: Some(TabletServerError::new(
            TabletServerErrorCode::TxnLockedRetryOp,
            StatusCode::Aborted,
            "x",
        )),
        ..WriteResponse::default()
    };
    is_as(failed, b"\x0a\x09\x08\x19\x12\x05\x08\x0b\x12\x01x");
}

/// `hash_buckets` is the one repeated number that is packed, and clients rely on that.
#[test]
fn buckets_are_packed_and_other_numbers_are_not() {
    let partition = Partition {
        hash_buckets: vec![1, 300],
        partition_key_start: Some(Bytes::from_static(b"\0\0\0\x01")),
        partition_key_end: Some(Bytes::new()),
    };
    is_as(partition, b"\x0a\x03\x01\xac\x02\x12\x04\0\0\0\x01\x1a\0");
    is_as(ListTablesRequest { type_filter: vec![0, 1], ..ListTablesRequest::default() }, b"\x10\0\x10\x01");
}

#[test]
fn a_partition_schema_of_names_and_of_ids() {
    let hash = HashBucketSchema {
        columns: vec![ColumnIdentifier::name("key"), ColumnIdentifier::id(0)],
        num_buckets: 8,
        seed: Some(7),
        hash_algorithm: None,
    };
    let schema = PartitionSchema {
        hash_schema: vec![hash],
        range_schema: Some(RangeSchema::default()),
        custom_hash_schema_ranges: vec![],
    };
    is_as(schema, b"\x0a\x0f\x0a\x05\x12\x03key\x0a\x02\x08\0\x10\x08\x18\x07\x12\0");
}

#[test]
fn creating_a_table() {
    let request = CreateTableRequest {
        name: "t".to_owned(),
        schema: Schema { columns: vec![column("c", DataType::Decimal128, false)] },
        num_replicas: Some(1),
        split_rows_range_bounds: Some(RowOperations::default()),
        extra_configs: [("k".to_owned(), "v".to_owned())].into(),
        ..CreateTableRequest::default()
    };
    is_as(
        request,
        b"\x0a\x01t\x12\x09\x0a\x07\x12\x01c\x18\x11\x28\0\x20\x01\x32\0\x4a\x06\x0a\x01k\x12\x01v",
    );
}

#[test]
fn a_look_up_has_defaults() {
    let bytes = b"\x0a\x03\x12\x01t\x1a\0\x38\x01\x42\x02\x0a\0";
    let request: GetTableLocationsRequest = crate::decode(Bytes::from_static(bytes), 100).unwrap();
    assert_eq!(request.table.table_name.as_deref(), Some("t"));
    assert_eq!(request.partition_key_start, Some(Bytes::new()));
    assert!(request.intern_ts_infos_in_response());
    assert_eq!(request.key_start.clone().unwrap().range_key, Some(Bytes::new()));
    assert_eq!(request.max_returned_locations(), 10);
    assert_eq!(request.replica_type_filter(), ReplicaTypeFilter::VoterReplica);
    assert_eq!(NewScanRequest::default().read_mode(), ReadMode::ReadLatest);
    assert_eq!(NewScanRequest::default().order_mode(), OrderMode::Unordered);
    assert_eq!(
        WriteRequest::default().external_consistency_mode(),
        ExternalConsistencyMode::ClientPropagated
    );
    assert_eq!(BlockBloomFilter::default().hash_algorithm(), HashAlgorithm::FastHash);
    assert_eq!(ColumnSchema::default().encoding(), EncodingType::AutoEncoding);
    assert!(ListTabletsRequest::default().need_schema_info());
}

#[test]
fn locations() {
    let response = GetTableLocationsResponse {
        tablet_locations: vec![TabletLocations {
            tablet_id: Bytes::from_static(b"a"),
            deprecated_stale: Some(false),
            partition: Some(Partition::default()),
            interned_replicas: vec![InternedReplica {
                ts_info_idx: 0,
                role: Role::Leader.into(),
                dimension_label: None,
            }],
            ..TabletLocations::default()
        }],
        ttl_millis: Some(300_000),
        ts_infos: vec![TsInfo {
            permanent_uuid: Bytes::from_static(b"u"),
            rpc_addresses: vec![HostPort { host: "h".to_owned(), port: 7050 }],
            ..TsInfo::default()
        }],
        error: None,
    };
    let bytes = b"\x12\x0d\x0a\x01a\x28\0\x32\0\x3a\x04\x08\0\x10\x01\x18\xe0\xa7\x12\
        \x22\x0b\x0a\x01u\x12\x06\x0a\x01h\x10\x8a\x37";
    is_as(response, bytes);
}

#[test]
fn a_scan_with_predicates() {
    use column_predicate::Predicate;
    let predicate = |predicate| ColumnPredicate { column: Some("c".to_owned()), predicate: Some(predicate) };
    let request = ScanRequest {
        new_scan_request: Some(NewScanRequest {
            tablet_id: Bytes::from_static(b"t"),
            limit: Some(i64::MAX as u64),
            read_mode: Some(ReadMode::ReadYourWrites.into()),
            column_predicates: vec![
                predicate(Predicate::Range(Range { lower: Some(Bytes::from_static(b"\x05")), upper: None })),
                predicate(Predicate::IsNotNull(IsNotNull {})),
                predicate(Predicate::InList(InList { values: vec![Bytes::new(), Bytes::from_static(b"x")] })),
            ],
            row_format_flags: Some(ROW_FORMAT_COLUMNAR),
            ..NewScanRequest::default()
        }),
        call_seq_id: Some(0),
        batch_size_bytes: Some(1 << 20),
        ..ScanRequest::default()
    };
    let bytes = b"\x12\x2e\x0a\x01t\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x28\x03\
        \x6a\x08\x0a\x01c\x12\x03\x0a\x01\x05\x6a\x05\x0a\x01c\x22\0\x6a\x0a\x0a\x01c\x2a\x05\x0a\0\x0a\x01x\
        \x70\x02\x18\0\x20\x80\x80\x40";
    is_as(request, bytes);
}

#[test]
fn results_of_a_scan() {
    let response = ScanResponse {
        scanner_id: Some(Bytes::from_static(b"s")),
        has_more_results: Some(true),
        data: Some(RowwiseRowBlock {
            num_rows: Some(128),
            rows_sidecar: Some(0),
            indirect_data_sidecar: Some(1),
        }),
        snap_timestamp: Some(2),
        last_primary_key: Some(Bytes::from_static(b"k")),
        ..ScanResponse::default()
    };
    is_as(response, b"\x12\x01s\x18\x01\x22\x07\x08\x80\x01\x10\0\x18\x01\x31\x02\0\0\0\0\0\0\0\x3a\x01k");
}

/// The error of a master's response is its field 1, but for two of them.
#[test]
fn errors_of_masters() {
    let error = || Some(MasterError::new(MasterErrorCode::TableNotFound, StatusCode::NotFound, ""));
    is_as(DeleteTableResponse { error: error() }, b"\x0a\x08\x08\x03\x12\x04\x08\x01\x12\0");
    is_as(ListMastersResponse { masters: vec![], error: error() }, b"\x1a\x08\x08\x03\x12\x04\x08\x01\x12\0");
    let registration =
        GetMasterRegistrationResponse { error: error(), ..GetMasterRegistrationResponse::default() };
    is_as(registration, b"\x0a\x04\x0a\0\x10\0\x22\x08\x08\x03\x12\x04\x08\x01\x12\0");
}

#[test]
fn steps_of_an_alteration() {
    let step = |step_type: StepType| AlterTableStep {
        step_type: Some(step_type.into()),
        ..AlterTableStep::default()
    };
    let bounds = Some(RowOperations { rows: Some(Bytes::from_static(b"\x06")), indirect_data: None });
    let request = AlterTableRequest {
        table: TableIdentifier { table_id: None, table_name: Some("t".to_owned()) },
        alter_schema_steps: vec![
            AlterTableStep {
                rename_column: Some(RenameColumn { old_name: "a".to_owned(), new_name: "b".to_owned() }),
                ..step(StepType::RenameColumn)
            },
            AlterTableStep {
                drop_range_partition: Some(DropRangePartition { range_bounds: bounds }),
                ..step(StepType::DropRangePartition)
            },
        ],
        ..AlterTableRequest::default()
    };
    let bytes = b"\x0a\x03\x12\x01t\x12\x0a\x08\x03\x22\x06\x0a\x01a\x12\x01b\
        \x12\x09\x08\x06\x32\x05\x0a\x03\x12\x01\x06";
    is_as(request, bytes);
}

#[test]
fn what_ksck_asks_a_master() {
    let response = GetConsensusStateResponse {
        tablets: vec![TabletConsensusInfo {
            tablet_id: Bytes::from_static(b"0"),
            cstate: Some(ConsensusState {
                current_term: 1,
                leader_uuid: Some("u".to_owned()),
                committed_config: RaftConfig {
                    opid_index: Some(-1),
                    peers: vec![RaftPeer {
                        permanent_uuid: Some(Bytes::from_static(b"u")),
                        member_type: Some(MemberType::Voter.into()),
                        last_known_addr: None,
                    }],
                },
                pending_config: None,
            }),
        }],
        error: None,
        replica_management_info: Some(ReplicaManagementInfo {
            replacement_scheme: Some(ReplacementScheme::PrepareReplacementBeforeEviction.into()),
        }),
    };
    let bytes =
        b"\x0a\x1e\x0a\x010\x12\x19\x08\x01\x12\x01u\x1a\x12\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\
        \x1a\x05\x0a\x01u\x10\x01\x1a\x02\x08\x01";
    is_as(response, bytes);
}

/// `txn_id` is a varint, all timestamps are of fixed length.
#[test]
fn transactions() {
    is_as(
        BeginTransactionResponse { error: None, txn_id: Some(300), keepalive_millis: Some(30_000) },
        b"\x10\xac\x02\x18\xb0\xea\x01",
    );
    let state = GetTransactionStateResponse {
        error: None,
        state: Some(TxnState::Committed.into()),
        commit_timestamp: Some(1),
    };
    is_as(state, b"\x10\x04\x19\x01\0\0\0\0\0\0\0");
}

/// A peer may be newer: fields and numbers that are not known here are no error.
#[test]
fn what_is_not_known_is_passed_over() {
    let bytes = b"\x0a\x01t\x12\0\x98\x06\x01\xa2\x06\x03abc\xad\x06\0\0\0\0\xa1\x06\0\0\0\0\0\0\0\0";
    let write: WriteRequest = crate::decode(Bytes::from_static(bytes), 100).unwrap();
    assert_eq!((&write.tablet_id[..], write.schema), (&b"t"[..], Some(Bytes::new())));
    let column: ColumnSchema = crate::decode(Bytes::from_static(b"\x12\x01c\x18\xe9\x07"), 100).unwrap();
    assert!(DataType::try_from(column.data_type).is_err());
}
