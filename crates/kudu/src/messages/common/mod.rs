//! What the messages of several services consist of.

mod partition;
mod predicate;
mod rows;
mod schema;
mod server;
mod status;

pub use partition::{
    ColumnIdentifier, HashAlgorithm, HashBucketSchema, Partition, PartitionSchema, RangeSchema,
    RangeWithHashSchema, column_identifier,
};
pub use predicate::{
    BlockBloomFilter, ColumnPredicate, Equality, InBloomFilter, InList, IsNotNull, IsNull, Range,
    column_predicate,
};
pub use rows::{ColumnarBlockColumn, ColumnarRowBlock, OperationType, RowOperations, RowwiseRowBlock};
pub use schema::{
    ArrayType, ColumnSchema, ColumnSchemaDelta, ColumnTypeAttributes, CompressionType, DataType,
    EncodingType, NestedDataType, Schema, nested_data_type,
};
pub use server::{HostPort, MemberType, NodeInstance, Role, ServerEntry, ServerRegistration, SignedToken};
pub use status::{AppStatus, StatusCode};
