//! Changing a table.

use super::create::{Bound, encode_bounds};
use super::{Column, Table};
use crate::client::Client;
use oribi_kudu::messages::common::{RowOperations, Schema};
use oribi_kudu::messages::master::*;
use oribi_kudu::row_operations::OperationType;
use oribi_kudu::service::MasterMethod;
use oribi_types::{Error, Result, Value};

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

    pub(crate) async fn run(self, client: &Client, name: &str) -> Result<()> {
        let table = TableIdentifier { table_id: None, table_name: Some(name.to_owned()) };
        let mut request = self.request;
        request.table = table.clone();
        let mut features = Vec::new();
        if self.steps.iter().any(|step| matches!(step, Step::Range(..))) {
            let opened = Table::open(client, table).await?;
            features.push(MasterFeature::AddDropRangePartitions);
            request.schema =
                Some(Schema { columns: opened.columns().iter().map(Column::in_request).collect() });
            for step in self.steps {
                request.alter_schema_steps.push(step.encode(Some(&opened))?);
            }
        } else {
            for step in self.steps {
                request.alter_schema_steps.push(step.encode(None)?);
            }
        }
        let shared = &client.shared;
        let mut attempts = shared.attempts();
        let altered: AlterTableResponse =
            shared.master(MasterMethod::AlterTable, &features, &request).await?;
        let asked = IsAlterTableDoneRequest {
            table: TableIdentifier { table_id: altered.table_id, table_name: None },
        };
        loop {
            let method = MasterMethod::IsAlterTableDone;
            let answer: IsAlterTableDoneResponse =
                shared.master_within(method, &asked, &mut attempts).await?;
            if answer.done() {
                return Ok(());
            }
            attempts.back_off(Error::unavailable(format!("table {name} is being altered"))).await?;
        }
    }
}

impl Step {
    fn encode(self, table: Option<&Table>) -> Result<AlterTableStep> {
        let (step_type, bounds) = match (self, table) {
            (Step::Ready(step), _) => return Ok(step),
            (Step::Range(step_type, bounds), Some(table)) => (step_type, range_bounds(table, &bounds)?),
            (Step::Range(..), None) => return Err(Error::internal("a range step without its table")),
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

fn range_bounds(table: &Table, bounds: &[Bound]) -> Result<RowOperations> {
    let columns = table.columns().iter().map(Column::wire).collect();
    encode_bounds(columns, table.shared.partition_schema.range(), bounds)
}
