//! Creating a table.

use super::{Column, Located, Table, partition};
use crate::client::Client;
use crate::rpc::Attempts;
use oribi_kudu::column::WireColumn;
use oribi_kudu::messages::common::{
    ColumnIdentifier, HashBucketSchema, PartitionSchema, RangeSchema, RowOperations, Schema,
};
use oribi_kudu::messages::master::{
    CreateTableRequest, CreateTableResponse, IsCreateTableDoneRequest, IsCreateTableDoneResponse,
    MasterFeature, TableIdentifier,
};
use oribi_kudu::partition::Range;
use oribi_kudu::row_operations::{OperationLayout, OperationType, OperationsBuilder, PartialRow};
use oribi_kudu::service::MasterMethod;
use oribi_types::{Error, ErrorKind, Result, Value};
use std::sync::Arc;

/// What a table is to be. Without any partitioning it is one tablet.
#[derive(Clone, Debug, Default)]
pub struct CreateTable {
    name: String,
    columns: Vec<Column>,
    hash: Vec<HashBucketSchema>,
    range_columns: Vec<String>,
    bounds: Vec<Bound>,
    request: CreateTableRequest,
}

/// A bound of a range, or a row to split at: values of the range columns, none for unbounded.
pub(super) type Bound = (OperationType, Vec<Value>);

impl CreateTable {
    pub fn new(name: impl Into<String>) -> Self {
        CreateTable { name: name.into(), ..CreateTable::default() }
    }

    /// Columns of the key come first.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Adds a hash dimension over some columns of the key.
    #[must_use]
    pub fn hash(mut self, columns: &[&str], buckets: u32) -> Self {
        self.hash.push(HashBucketSchema {
            columns: columns.iter().map(|name| ColumnIdentifier::name(*name)).collect(),
            num_buckets: i32::try_from(buckets).unwrap_or(i32::MAX),
            seed: None,
            hash_algorithm: None,
        });
        self
    }

    /// Partitions by ranges of some columns of the key.
    #[must_use]
    pub fn range(mut self, columns: &[&str]) -> Self {
        self.range_columns = columns.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Adds the range from `lower`, inclusive, to `upper`, exclusive: values of the range columns, none for unbounded.
    /// Without any there is one that is unbounded.
    #[must_use]
    pub fn range_partition(mut self, lower: &[Value], upper: &[Value]) -> Self {
        self.bounds.push((OperationType::RangeLowerBound, lower.to_vec()));
        self.bounds.push((OperationType::RangeUpperBound, upper.to_vec()));
        self
    }

    /// Splits the range that has these values.
    #[must_use]
    pub fn split(mut self, values: &[Value]) -> Self {
        self.bounds.push((OperationType::SplitRow, values.to_vec()));
        self
    }

    /// How many replicas each tablet has; the server's default otherwise.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.request.num_replicas = i32::try_from(replicas).ok();
        self
    }

    /// Sets a property of the table that the server knows of.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.extra_configs.insert(name.into(), value.into());
        self
    }

    /// An attempt after one whose outcome is not known finds what that one made: a table like this.
    pub(crate) async fn run(self, client: &Client) -> Result<Table> {
        let name = self.name.clone();
        let request = self.request()?;
        let has_bounds = request.split_rows_range_bounds.is_some();
        let features: &[MasterFeature] =
            if has_bounds { &[MasterFeature::RangePartitionBounds] } else { &[] };
        let mut attempts = client.shared.attempts();
        let shared = &client.shared;
        let made = shared.master(MasterMethod::CreateTable, features, &request, &mut attempts).await;
        let table_id = match made {
            Ok(CreateTableResponse { table_id, .. }) => table_id,
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempts.is_unknown() => {
                let found = client.open_table(&name).await?;
                if !is_as_defined(&found, &request, &mut attempts).await? {
                    return Err(error.context(format_args!("table {name} is another one")));
                }
                Some(found.shared.id.clone())
            }
            Err(error) => return Err(error),
        };
        let table = TableIdentifier { table_id, table_name: None };
        let asked = IsCreateTableDoneRequest { table: table.clone() };
        loop {
            let method = MasterMethod::IsCreateTableDone;
            let answer: IsCreateTableDoneResponse = shared.master(method, &[], &asked, &mut attempts).await?;
            if answer.done() {
                return Table::open(client, table).await;
            }
            attempts.back_off(Error::unavailable(format!("table {name} is being created"))).await?;
        }
    }

    fn request(self) -> Result<CreateTableRequest> {
        let wire = self.columns.iter().map(Column::wire).collect();
        let range_columns = positions(&self.columns, &self.range_columns)?;
        let bounds = encode_bounds(wire, &range_columns, &self.bounds)?;
        let range_schema =
            RangeSchema { columns: self.range_columns.into_iter().map(ColumnIdentifier::name).collect() };
        Ok(CreateTableRequest {
            name: self.name,
            schema: Schema { columns: self.columns.iter().map(Column::in_definition).collect() },
            split_rows_range_bounds: Some(bounds).filter(|_| !self.bounds.is_empty()),
            partition_schema: Some(PartitionSchema {
                hash_schema: self.hash,
                range_schema: Some(range_schema),
                custom_hash_schema_ranges: Vec::new(),
            }),
            ..self.request
        })
    }
}

/// Whether a table has the columns that were asked for, and is partitioned by them likewise, into the same ranges.
async fn is_as_defined(found: &Table, request: &CreateTableRequest, attempts: &mut Attempts) -> Result<bool> {
    let columns = request.schema.columns.iter().map(Column::of).collect::<Result<Vec<_>>>()?;
    if found.columns() != columns {
        return Ok(false);
    }
    let wire: Vec<WireColumn> = columns.iter().map(Column::wire).collect();
    let message = request.partition_schema.clone().unwrap_or_default();
    let wanted = partition::schema(&message, &request.schema, &wire, found.key_columns())?;
    if found.shared.partition_schema != wanted {
        return Ok(false);
    }
    let bounds = request.split_rows_range_bounds.clone().unwrap_or_default();
    has_just(found, &partition::ranges(&wanted, &found.shared.layout, &bounds)?, attempts).await
}

/// Whether a table has these ranges, which are in order, and no others.
async fn has_just(table: &Table, ranges: &[Range], attempts: &mut Attempts) -> Result<bool> {
    let tablets = &table.shared.tablets;
    let hash_bytes = table.shared.hash_key_bytes();
    let range_key = |key: &[u8]| key.get(hash_bytes..).unwrap_or_default().to_vec();
    // Each range has a tablet in the first bucket of each dimension.
    let first_buckets = vec![0; hash_bytes];
    let (mut ranges, mut key) = (ranges.iter(), first_buckets.clone());
    while key.starts_with(&first_buckets) {
        let end = match tablets.locate(&table.shared, &key, attempts).await? {
            Located::In(tablet) => {
                let range = Range { lower: range_key(&tablet.start), upper: range_key(&tablet.end) };
                if ranges.next() != Some(&range) {
                    return Ok(false);
                }
                tablet.end.clone()
            }
            Located::Nowhere { end } => end,
        };
        if end.is_empty() {
            break;
        }
        key = end.to_vec();
    }
    Ok(ranges.next().is_none())
}

/// Positions of the columns of these names.
pub(super) fn positions(columns: &[Column], names: &[String]) -> Result<Vec<usize>> {
    let position = |name: &String| columns.iter().position(|column| column.name == *name);
    let found = names.iter().map(|name| {
        position(name).ok_or_else(|| Error::invalid(format!("range column {name} is not a column")))
    });
    found.collect()
}

/// Bounds as row operations, over all columns of the table.
pub(super) fn encode_bounds(
    columns: Vec<WireColumn>,
    range_columns: &[usize],
    bounds: &[Bound],
) -> Result<RowOperations> {
    let mut builder = OperationsBuilder::new(Arc::new(OperationLayout::new(columns)));
    for (kind, values) in bounds {
        if values.len() > range_columns.len() {
            let (got, most) = (values.len(), range_columns.len());
            return Err(Error::invalid(format!("a bound of {got} values for {most} range columns")));
        }
        let mut bound = builder.begin(*kind);
        for (column, value) in range_columns.iter().zip(values) {
            bound.set(*column, value.as_ref())?;
        }
        bound.finish();
    }
    let (rows, indirect) = builder.into_parts();
    Ok(RowOperations { rows: Some(rows.into()), indirect_data: Some(indirect.into()) })
}
