//! Rows that are changed where they lie.

use super::*;
use oribi_engine::{Location, NewValues, PositionChange};
use oribi_types::Timestamp;

/// Rows of files, by key: each with its place and its value, and the snapshot that found it.
pub type Found = BTreeMap<i64, (Location, String, Timestamp)>;

/// The rows that files have of those that a snapshot sees.
pub fn in_files(engine: &Engine, table: &Arc<Table>, snapshot: &Snapshot) -> Result<Found> {
    let mut found = Found::new();
    let tablets = 0..table.definition().partitioning.tablets();
    for file in engine.scan(table, tablets, &[0, 1], false, snapshot)?.iter().flat_map(|tablet| &tablet.files)
    {
        let mut row = 0;
        for batch in file.sstable.batches(&table.schema(), &[0, 1], false, None)? {
            let batch = batch?;
            for i in 0..batch.num_rows() {
                if !file.hidden.contains(row) {
                    let k = batch.column(0).as_primitive::<arrow::datatypes::Int64Type>().value(i);
                    let v = batch.column(1).as_string_view().value(i).to_owned();
                    let location = Location { file: file.sstable.meta().id, row };
                    assert!(found.insert(k, (location, v, snapshot.ts())).is_none(), "key {k} comes twice");
                }
                row += 1;
            }
        }
    }
    Ok(found)
}

struct Values(Vec<String>);

impl NewValues for Values {
    fn columns(&self) -> &[usize] {
        &[1]
    }

    fn values(&self, rows: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(StringViewArray::from_iter_values(rows.iter().map(|n| &self.0[*n as usize])))])
    }
}

/// Sets what `new` makes of each row that was found, or deletes them all without it. Whether that could be done.
pub fn change(
    engine: &Engine,
    table: &Arc<Table>,
    found: &Found,
    new: Option<&dyn Fn(&str) -> String>,
) -> Result<bool> {
    let keys: Vec<Vec<u8>> = found.keys().map(|k| key(*k)).collect();
    let mut rows: Vec<(Location, u32)> = found.values().map(|(place, ..)| *place).zip(0..).collect();
    rows.sort();
    let values = new.map(|new| Values(found.values().map(|(_, v, _)| new(v)).collect()));
    let change = PositionChange {
        table,
        rows: &rows,
        found_at: found.values().map(|(.., at)| *at).min().unwrap_or_default(),
        key: &|number| &keys[number as usize],
        values: values.as_ref().map(|values| values as &dyn NewValues),
        threads: 2,
        is_asked: &|| true,
    };
    Ok(engine.change_by_position(&change)?.is_some())
}

/// Those of all rows for which `is_wanted` holds.
pub fn some(found: &Found, is_wanted: impl Fn(i64) -> bool) -> Found {
    found.iter().filter(|(k, _)| is_wanted(**k)).map(|(k, row)| (*k, row.clone())).collect()
}
