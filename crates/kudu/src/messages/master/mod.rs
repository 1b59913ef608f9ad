//! `kudu.master.MasterService`: tables, and where their tablets are.

mod alter;
mod cluster;
mod location;
mod table;

pub use alter::{
    AddColumn, AddRangePartition, AlterColumn, AlterTableRequest, AlterTableResponse, AlterTableStep,
    CustomHashSchema, DropColumn, DropRangePartition, IsAlterTableDoneRequest, IsAlterTableDoneResponse,
    RenameColumn, StepType,
};
pub use cluster::{
    ConnectToMasterRequest, ConnectToMasterResponse, GetMasterRegistrationRequest,
    GetMasterRegistrationResponse, HiveMetastoreConfig, ListMastersRequest, ListMastersResponse,
    ListTabletServersRequest, ListTabletServersResponse, PingRequest, PingResponse, TabletServerEntry,
    TabletServerState,
};
pub use location::{
    GetTableLocationsRequest, GetTableLocationsResponse, GetTabletLocationsRequest,
    GetTabletLocationsResponse, InternedReplica, PartitionKey, Replica, ReplicaTypeFilter,
    TabletLocationError, TabletLocations, TsInfo,
};
pub use table::{
    CreateTableRequest, CreateTableResponse, DeleteTableRequest, DeleteTableResponse, GetTableSchemaRequest,
    GetTableSchemaResponse, GetTableStatisticsRequest, GetTableStatisticsResponse, IsCreateTableDoneRequest,
    IsCreateTableDoneResponse, ListTablesRequest, ListTablesResponse, TableInfo, TableType, TabletStatistics,
    TabletWithPartition,
};

use crate::messages::common::{AppStatus, StatusCode};
use bytes::Bytes;
use prost::{Enumeration, Message};

/// Why a master did not do what it was asked for. Clients look at the status more than at the code.
#[derive(Clone, PartialEq, Message)]
pub struct MasterError {
    #[prost(enumeration = "MasterErrorCode", required, tag = "1")]
    pub code: i32,
    #[prost(message, required, tag = "2")]
    pub status: AppStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum MasterErrorCode {
    UnknownError = 1,
    InvalidSchema = 2,
    TableNotFound = 3,
    TableAlreadyPresent = 4,
    TooManyTablets = 5,
    /// Clients ask again.
    CatalogManagerNotInitialized = 6,
    /// Clients ask again.
    NotTheLeader = 7,
    ReplicationFactorTooHigh = 8,
    TabletNotRunning = 9,
    EvenReplicationFactor = 10,
    IllegalReplicationFactor = 11,
    IncompatibleReplicaManagement = 12,
    HiveMetastoreError = 13,
    NotAuthorized = 14,
    MasterAlreadyPresent = 15,
    TableSoftDeleted = 16,
}

impl MasterError {
    pub fn new(code: MasterErrorCode, status: StatusCode, message: impl Into<String>) -> Self {
        MasterError { code: code.into(), status: AppStatus::new(status, message) }
    }
}

/// A table by its id, which wins, or by its name.
#[derive(Clone, PartialEq, Message)]
pub struct TableIdentifier {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub table_id: Option<Bytes>,
    #[prost(string, optional, tag = "2")]
    pub table_name: Option<String>,
}

/// What a call to a master may require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum MasterFeature {
    Unknown = 0,
    RangePartitionBounds = 1,
    AddDropRangePartitions = 2,
    ConnectToMaster = 3,
    ReplicaManagement = 4,
    GenerateAuthzToken = 5,
    DynamicMultiMaster = 6,
    IgnoreOperations = 7,
    RangeSpecificHashSchema = 8,
    UpsertIgnore = 9,
    ImmutableColumnAttribute = 10,
    AutoIncrementingColumn = 11,
    Array1dColumnType = 12,
}
