//! Range partitions of a table come and go.
//!
//! A change is one manifest record: the table with its new partitioning and the tablets of it. Those that it does not
//! list any more are gone with it, with their files, and what the log has of them is passed over by a recovery. In
//! memory a dropped tablet is emptied, as by a truncate, and refuses writes: who still has a handle of the table from
//! before finds nothing there, and a read by a snapshot or scan that would miss rows is refused (see `reading`). So is one by a
//! snapshot from before that looks into what came in its place.

use crate::catalog::Table;
use crate::engine::Engine;
use crate::installer::GivenUp;
use crate::manifest::{Edit, TableRecord};
use crate::tablet::{Tablet, TabletId};
use oribi_types::partition::RangePartition;
use oribi_types::{Error, Partitioning, Result, Timestamp};
use std::sync::Arc;

/// A change of a table's range partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeChange {
    Add(RangePartition),
    /// The partition with exactly these bounds, with all of its rows.
    Drop {
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
    },
}

/// A table's partitions as they are to be.
struct Plan {
    partitioning: Partitioning,
    /// By number; `None` is to be made.
    tablets: Vec<Option<Arc<Tablet>>>,
    dropped: Vec<Arc<Tablet>>,
}

impl Plan {
    fn of(table: &Table, changes: &[RangeChange]) -> Result<Self> {
        let mut plan = Plan {
            partitioning: table.definition().partitioning.clone(),
            tablets: table.tablets.iter().cloned().map(Some).collect(),
            dropped: Vec::new(),
        };
        for change in changes {
            match change {
                RangeChange::Add(range) => {
                    let (with, numbers) = plan.partitioning.with_range(range.clone())?;
                    plan.tablets.splice(numbers.start..numbers.start, numbers.map(|_| None));
                    plan.partitioning = with;
                }
                RangeChange::Drop { lower, upper } => {
                    let (without, numbers) = plan.partitioning.without_range(lower, upper.as_deref())?;
                    plan.dropped.extend(plan.tablets.drain(numbers).flatten());
                    plan.partitioning = without;
                }
            }
        }
        plan.partitioning.check(table.schema_ref())?;
        Ok(plan)
    }
}

impl Engine {
    /// Makes `changes`, one after the other, all or none, durably. The rows of a dropped partition are gone when this
    /// returns; reads of it by snapshots taken before are refused.
    ///
    /// # Errors
    /// `NotFound` for the table or a partition to drop; `AlreadyExists` for one of the same bounds; `Invalid` if
    /// partitions overlap, or the table has none by range; those of log and manifest.
    pub fn alter_partitions(&self, schema: &str, name: &str, changes: &[RangeChange]) -> Result<()> {
        let _ddl = self.begin_ddl();
        let table = self.table(schema, name)?;
        let Plan { partitioning, tablets, dropped } = Plan::of(&table, changes)?;
        let dir = self.table_dir(table.id());
        let mut made = Vec::new();
        let mut make = || {
            let tablet = self.new_tablet(table.schema_ref(), self.manifest.next_id(), &dir);
            tablet.set_version(table.version());
            made.push(tablet.clone());
            tablet
        };
        let tablets: Vec<Arc<Tablet>> =
            tablets.into_iter().map(|tablet| tablet.unwrap_or_else(&mut make)).collect();
        let ids: Vec<TabletId> = tablets.iter().map(|tablet| tablet.id).collect();
        let definition = oribi_types::TableDefinition { partitioning, ..(*table.definition()).clone() };
        let record = TableRecord { id: table.id(), definition, tablets: ids };
        let altered = Table::new(&record, tablets, table.version());
        let commit = || self.manifest.commit(vec![Edit::PutTable(record)]);
        let publish = |range_dropped: Timestamp| {
            // The rows of a dropped range are in none that comes in its place.
            made.iter().for_each(|tablet| tablet.set_emptied(range_dropped));
            dropped.iter().for_each(|tablet| tablet.set_dropped());
            self.put(&Arc::new(altered.with_range_dropped(range_dropped)));
        };
        if dropped.is_empty() {
            commit()?;
            publish(table.range_dropped());
            return Ok(());
        }
        let _installers: Vec<_> = dropped.iter().map(|tablet| tablet.installer.lock()).collect();
        // As long as a crash may find them dropped, they take no write.
        let leave = |_: &Error| self.give_up_all([GivenUp::Drop(vec![table.clone()])]);
        self.remove_rows(&table, &dropped, |_, _| commit().inspect_err(leave), publish)
    }

    /// Why a write of `key`, made for `table` as it was, found no tablet that takes it.
    #[cold]
    pub(crate) fn no_tablet(&self, table: &Table, key: &[u8]) -> Error {
        let Some(table) = self.latest(table.id()) else { return Error::not_found("the table was dropped") };
        if table.tablet_of(key).is_leaving() {
            if let Err(error) = self.manifest.check() {
                return error.context(format!("whether table \"{}\" is dropped is not known", table.name()));
            }
            self.settle_given_up();
        }
        if !table.tablet_of(key).is_dropped() {
            return Error::retry("the table was altered meanwhile");
        }
        let (name, key) = (table.name(), table.key_text(key));
        Error::not_covered(format!("no partition of table \"{name}\" covers key ({key})"))
    }
}
