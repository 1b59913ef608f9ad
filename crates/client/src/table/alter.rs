//! Changing a table.

use super::create::{Bound, encode_bounds};
use super::{Column, Located, Shared, Table, partition};
use crate::client::Client;
use crate::rpc::Attempts;
use oribi_kudu::messages::common::{RowOperations, Schema};
use oribi_kudu::messages::master::*;
use oribi_kudu::row_operations::OperationType;
use oribi_kudu::service::MasterMethod;
use oribi_types::{Error, ErrorKind, Result, Value};

/// Steps to change a table, taken in order and together.
#[derive(Clone, Debug, Default)]
pub struct AlterTable {
    steps: Vec<Step>,
    request: AlterTableRequest,
}

#[derive(Clone, Debug)]
enum Step {
    Ready(AlterTableStep),
    /// Its bounds can be encoded only when the table's columns are known.
    Range(StepType, [Bound; 2]),
}

impl AlterTable {
    pub fn new() -> Self {
        AlterTable::default()
    }

    /// Adds a column; one that is not nullable needs a default.
    #[must_use]
    pub fn add_column(self, column: &Column) -> Self {
        let add_column = Some(AddColumn { schema: column.in_definition() });
        self.step(StepType::AddColumn, |step| step.add_column = add_column)
    }

    #[must_use]
    pub fn drop_column(self, name: &str) -> Self {
        let drop_column = Some(DropColumn { name: name.to_owned() });
        self.step(StepType::DropColumn, |step| step.drop_column = drop_column)
    }

    #[must_use]
    pub fn rename_column(self, from: &str, to: &str) -> Self {
        let rename_column = Some(RenameColumn { old_name: from.to_owned(), new_name: to.to_owned() });
        self.step(StepType::RenameColumn, |step| step.rename_column = rename_column)
    }

    #[must_use]
    pub fn rename(mut self, name: &str) -> Self {
        self.request.new_table_name = Some(name.to_owned());
        self
    }

    /// Adds the range from `lower`, inclusive, to `upper`, exclusive: values of the range columns, none for unbounded.
    #[must_use]
    pub fn add_range_partition(self, lower: &[Value], upper: &[Value]) -> Self {
        self.range(StepType::AddRangePartition, lower, upper)
    }

    /// Drops the range with exactly these bounds, and its rows.
    #[must_use]
    pub fn drop_range_partition(self, lower: &[Value], upper: &[Value]) -> Self {
        self.range(StepType::DropRangePartition, lower, upper)
    }

    fn step(mut self, step_type: StepType, fill: impl FnOnce(&mut AlterTableStep)) -> Self {
        let mut step = AlterTableStep { step_type: Some(step_type.into()), ..AlterTableStep::default() };
        fill(&mut step);
        self.steps.push(Step::Ready(step));
        self
    }

    fn range(mut self, step_type: StepType, lower: &[Value], upper: &[Value]) -> Self {
        let bounds = [
            (OperationType::RangeLowerBound, lower.to_vec()),
            (OperationType::RangeUpperBound, upper.to_vec()),
        ];
        self.steps.push(Step::Range(step_type, bounds));
        self
    }

    /// An attempt after one whose outcome is not known finds what that one did: those steps are not taken again.
    pub(crate) async fn run(mut self, client: &Client, name: &str) -> Result<()> {
        let named = TableIdentifier { table_id: None, table_name: Some(name.to_owned()) };
        let before = Table::open(client, named.clone()).await;
        self.request.table = match &before {
            Ok(before) => before.shared.identifier(),
            // A table that cannot be used here can be changed.
            Err(error) if error.kind() == ErrorKind::Unsupported => named,
            Err(error) => return Err(error.clone()),
        };
        let had = match &before {
            Ok(before) => self.ranges_of(before).await?,
            Err(_) => Vec::new(),
        };
        let mut attempts = client.shared.attempts();
        let table_id = loop {
            let refused = match self.send(client, &before, &mut attempts).await {
                Ok(AlterTableResponse { table_id, .. }) => break table_id,
                Err(error) => error,
            };
            let Ok(before) = &before else { return Err(refused) };
            if refused.kind() == ErrorKind::Unavailable || !attempts.is_unknown() {
                return Err(refused);
            }
            // Kudu's master tells of the columns before an alteration for as long as it is being rolled out.
            wait_until_done(client, name, before.shared.identifier(), &mut attempts).await?;
            let now = Table::open(client, before.shared.identifier()).await?;
            // Each was made or dropped, and was not before.
            if self.ranges_of(&now).await?.iter().zip(&had).any(|(now, had)| now == had) {
                return Err(refused);
            }
            if self.columns_are_done(before, &now)? {
                break Some(now.shared.id.clone());
            }
            // A master may make ranges before it does the rest.
            let steps = self.steps.len();
            self.steps.retain(Step::is_ready);
            if self.steps.len() == steps {
                return Err(refused);
            }
        };
        let table = TableIdentifier { table_id, table_name: None };
        wait_until_done(client, name, table, &mut attempts).await
    }

    async fn send(
        &self,
        client: &Client,
        table: &Result<Table>,
        attempts: &mut Attempts,
    ) -> Result<AlterTableResponse> {
        let mut request = self.request.clone();
        let mut features = Vec::new();
        if self.steps.iter().any(|step| matches!(step, Step::Range(..))) {
            let columns = table.as_ref().map_err(Error::clone)?.columns();
            features.push(MasterFeature::AddDropRangePartitions);
            request.schema = Some(Schema { columns: columns.iter().map(Column::in_request).collect() });
        }
        for step in &self.steps {
            request.alter_schema_steps.push(step.encode(table)?);
        }
        client.shared.master(MasterMethod::AlterTable, &features, &request, attempts).await
    }

    /// For each range that is to be added or dropped whether a table has it.
    async fn ranges_of(&self, table: &Table) -> Result<Vec<bool>> {
        let mut has = Vec::new();
        for step in &self.steps {
            if let Step::Range(_, bounds) = step {
                has.push(has_range(table, bounds).await?);
            }
        }
        Ok(has)
    }

    /// Whether a table has become what the other steps make of it, name and columns, and was not before.
    fn columns_are_done(&self, before: &Table, now: &Table) -> Result<bool> {
        let mut expected = before.columns().to_vec();
        for step in &self.steps {
            let Step::Ready(step) = step else { continue };
            if let Some(add) = &step.add_column {
                expected.push(Column::of(&add.schema)?);
            }
            if let Some(drop) = &step.drop_column {
                expected.retain(|column| column.name != drop.name);
            }
            if let Some(rename) = &step.rename_column
                && let Some(column) = expected.iter_mut().find(|column| column.name == rename.old_name)
            {
                column.name.clone_from(&rename.new_name);
            }
        }
        let name = self.request.new_table_name.as_deref().unwrap_or(before.name());
        let is_change = before.name() != name || before.columns() != expected;
        let has_others = self.request.new_table_name.is_some() || self.steps.iter().any(Step::is_ready);
        Ok(now.name() == name && now.columns() == expected && (is_change || !has_others))
    }
}

impl Step {
    fn is_ready(&self) -> bool {
        matches!(self, Step::Ready(_))
    }

    fn encode(&self, table: &Result<Table>) -> Result<AlterTableStep> {
        let (step_type, bounds) = match self {
            Step::Ready(step) => return Ok(step.clone()),
            Step::Range(step_type, bounds) => {
                (*step_type, range_bounds(table.as_ref().map_err(Error::clone)?, bounds)?)
            }
        };
        let mut step = AlterTableStep { step_type: Some(step_type.into()), ..AlterTableStep::default() };
        match step_type {
            StepType::DropRangePartition => {
                step.drop_range_partition = Some(DropRangePartition { range_bounds: Some(bounds) });
            }
            _ => {
                step.add_range_partition =
                    Some(AddRangePartition { range_bounds: Some(bounds), ..AddRangePartition::default() });
            }
        }
        Ok(step)
    }
}

/// Waits until no alteration of a table is being rolled out.
async fn wait_until_done(
    client: &Client,
    name: &str,
    table: TableIdentifier,
    attempts: &mut Attempts,
) -> Result<()> {
    let asked = IsAlterTableDoneRequest { table };
    loop {
        let method = MasterMethod::IsAlterTableDone;
        let answer: IsAlterTableDoneResponse = client.shared.master(method, &[], &asked, attempts).await?;
        if answer.done() {
            return Ok(());
        }
        attempts.back_off(Error::unavailable(format!("table {name} is being altered"))).await?;
    }
}

fn range_bounds(table: &Table, bounds: &[Bound]) -> Result<RowOperations> {
    let columns = table.columns().iter().map(Column::wire).collect();
    encode_bounds(columns, table.shared.partition_schema.range(), bounds)
}

/// Whether a table has a range with exactly these bounds.
async fn has_range(table: &Table, bounds: &[Bound]) -> Result<bool> {
    let Shared { layout, partition_schema, tablets, .. } = &*table.shared;
    let wanted = partition::ranges(partition_schema, layout, &range_bounds(table, bounds)?)?;
    let hash_bytes = table.shared.hash_key_bytes();
    for range in wanted {
        // In the first bucket of each dimension.
        let mut key = vec![0; hash_bytes];
        key.extend_from_slice(&range.lower);
        let located = tablets.locate(&table.shared, &key, &mut table.shared.client.shared.attempts()).await?;
        let Located::In(tablet) = located else { return Ok(false) };
        let bound = |key: &[u8]| key.get(hash_bytes..).unwrap_or_default().to_vec();
        if bound(&tablet.start) != range.lower || bound(&tablet.end) != range.upper {
            return Ok(false);
        }
    }
    Ok(true)
}
