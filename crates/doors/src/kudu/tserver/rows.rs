//! The rows of a write on their way from the request to the engine: each is read once, where it lies, and becomes an encoded
//! key and, if what is stored does not matter for it, an encoded row.

use super::plan::{RowPlan, SlotPlan};
use oribi_engine::{EncodedRows, Read, WriteOp};
use oribi_kudu::cell::read_cell;
use oribi_kudu::row_operations::{BadRow, OperationReader, OperationType, RowOperation, WholeOperation};
use oribi_types::key::{check_key_len, encode_component, encode_key};
use oribi_types::{Error, Result, ValueRef};

/// What the engine keeps of an operation while it is applied: where it goes, and what was decided.
const ENGINE_OPERATION_BYTES: usize = 128;

/// What is kept here of an operation beside its key and row.
const OPERATION_BYTES: usize = size_of::<Operation>();
const _: () = assert!(OPERATION_BYTES == 16);
/// Rows of one request. In 50 MiB there may be ten times as many, of a key of one byte.
pub(super) const ROWS_MAX: usize = 1 << 20;

/// The operations of a request.
#[derive(Default)]
pub(super) struct Rows<'a> {
    pub operations: Vec<Operation>,
    /// Operations that cannot be carried out, whatever is stored: by position in the request.
    pub refused: Vec<(usize, Error)>,
    /// Bytes of what is said of them.
    refused_bytes: usize,
    /// The key of each operation and, if it is known, its row.
    encoded: EncodedRows,
    /// Of operations that need the stored row: what they set, a value or none for each slot.
    values: Vec<Option<ValueRef<'a>>>,
}

/// One operation that can be carried out.
pub(super) struct Operation {
    /// Position in the request.
    pub index: u32,
    pub operation_type: OperationType,
    pub change: Change,
}

/// What becomes of the row.
pub(super) enum Change {
    /// It is the one that is encoded.
    Whole,
    /// Some of its slots are changed: in `values` from here on.
    Some(u32),
    Delete,
}

impl<'a> Rows<'a> {
    /// Reads all operations of a request, which take at most about `bytes_max` of memory: values may lie over each other
    /// in the request, and an operation takes more than it says.
    ///
    /// # Errors
    /// `Invalid` for rows that are cut short, of no known type or with strings that are not there: then the request is
    /// damaged, and not a row wrong; `TooLarge`.
    pub fn read(plan: &RowPlan, rows: &'a [u8], indirect: &'a [u8], bytes_max: usize) -> Result<Self> {
        let mut read = Rows::with_room(plan, rows.len(), indirect.len());
        let mut reader = OperationReader::new(&plan.layout, rows, indirect);
        loop {
            match reader.peek_whole().filter(|_| plan.takes_whole) {
                Some(whole) if read.push_whole(plan, &whole, indirect) => reader.pass_whole(&whole),
                _ => match reader.read_row()? {
                    Some(row) => read.push_or_refuse(plan, row)?,
                    None => break,
                },
            }
            if read.operations.len() + read.refused.len() > ROWS_MAX {
                return Err(Error::too_large(format!("the request has more than {ROWS_MAX} rows")));
            }
            if read.bytes() > bytes_max {
                return Err(Error::too_large(format!(
                    "the rows of the request take more than {bytes_max} bytes"
                )));
            }
        }
        Ok(read)
    }

    /// With room for what a request of so many bytes mostly is: whole rows, of which each is read once.
    fn with_room(plan: &RowPlan, rows_bytes: usize, indirect_bytes: usize) -> Self {
        // Rows may be shorter than those that set every column, and an operation takes more than its bytes: no more is
        // believed than what the bytes are worth.
        let operations = (rows_bytes / plan.layout.open_bytes().max(OPERATION_BYTES)).min(ROWS_MAX);
        Rows {
            operations: Vec::with_capacity(operations),
            encoded: EncodedRows::with_capacity(operations, rows_bytes + indirect_bytes),
            ..Rows::default()
        }
    }

    /// The same without the request, unless values are still to be taken from that.
    pub fn owned(self) -> Option<Rows<'static>> {
        let Rows { operations, refused, refused_bytes, encoded, values } = self;
        let owned = Rows { operations, refused, refused_bytes, encoded, values: Vec::new() };
        values.is_empty().then_some(owned)
    }

    /// What is held, and what the engine will hold besides.
    pub fn bytes(&self) -> usize {
        let fixed = OPERATION_BYTES + size_of::<WriteOp<'_>>() + ENGINE_OPERATION_BYTES;
        let operations = (self.operations.len() + self.refused.len()) * fixed;
        self.encoded.bytes() + size_of_val(&*self.values) + operations + self.refused_bytes
    }

    /// What the engine is to write.
    pub fn write_ops<'r>(&'r self, plan: &'r RowPlan) -> Vec<WriteOp<'r>> {
        let op = |(operation, (key, row)): (&Operation, _)| WriteOp {
            table: &plan.table,
            key,
            read: operation.reads(),
            row,
        };
        self.operations.iter().zip(self.encoded.iter()).map(op).collect()
    }

    /// What an operation sets, by slot.
    pub fn values(&self, plan: &RowPlan, at: u32) -> &[Option<ValueRef<'a>>] {
        &self.values[at as usize..][..plan.slots.len()]
    }

    /// Adds an operation straight from its cells to key and row, if it makes a whole row and has nothing wrong. Nearly all that
    /// clients send in bulk are such, and cost a quarter of what others do.
    fn push_whole(&mut self, plan: &RowPlan, whole: &WholeOperation<'a>, indirect: &'a [u8]) -> bool {
        use OperationType as Type;
        let (index, operation_type) = (whole.index as u32, whole.operation_type);
        if !matches!(operation_type, Type::Insert | Type::InsertIgnore | Type::Upsert | Type::UpsertIgnore) {
            return false;
        }
        let key = |key: &mut Vec<u8>| {
            let start = key.len();
            for (i, column) in plan.key.iter().enumerate() {
                encode_component(cell(plan, whole, *column, indirect)?, i + 1 == plan.key.len(), key);
            }
            check_key_len(&key[start..])?;
            plan.check_covered(&key[start..])
        };
        let row = |row: &mut Vec<u8>| {
            let mut wrong = None;
            let of_slot = |slot: &SlotPlan| match slot.request.map(|i| cell(plan, whole, i, indirect)) {
                Some(Ok(value)) => value,
                Some(Err(error)) => {
                    wrong = Some(error);
                    ValueRef::Null
                }
                None => ValueRef::Null,
            };
            plan.table.schema_ref().layout().encode_each(plan.slots.iter().map(of_slot), row);
            wrong.map_or(Ok(()), Err)
        };
        let is_right = self.encoded.push_with(key, row).is_ok();
        if is_right {
            self.operations.push(Operation { index, operation_type, change: Change::Whole });
        }
        is_right
    }

    /// # Errors
    /// `Invalid` for what is no row.
    fn push_or_refuse(&mut self, plan: &RowPlan, row: Result<RowOperation<'_, 'a>, BadRow>) -> Result<()> {
        let pushed = match row {
            Ok(operation) if !operation.operation_type.is_write() => {
                return Err(Error::invalid(format!("row {} is no row but a bound", operation.index)));
            }
            Ok(operation) => self.push(plan, &operation).map_err(|error| (operation.index, error)),
            Err(BadRow { index, error }) => Err((index, error)),
        };
        if let Err((index, error)) = pushed {
            self.refused_bytes += error.message().len();
            self.refused.push((index, error));
        }
        Ok(())
    }

    fn push(&mut self, plan: &RowPlan, operation: &RowOperation<'_, 'a>) -> Result<()> {
        check_values(plan, operation.values)?;
        if let Some(missing) = plan.key.iter().find(|i| operation.values[**i].is_none()) {
            return Err(no_value(&plan.layout.columns()[*missing].name));
        }
        let values = plan.key.iter().map(|&i| operation.values[i].unwrap_or(ValueRef::Null));
        let key = |key: &mut Vec<u8>| {
            let start = key.len();
            encode_key(plan.table.schema_ref(), values, key)?;
            plan.check_covered(&key[start..])
        };
        let (mut change, some) = (Change::Delete, &mut self.values);
        self.encoded.push_with(key, |row| {
            change = Change::of(plan, operation, row, some)?;
            Ok(())
        })?;
        let (index, operation_type) = (operation.index as u32, operation.operation_type);
        self.operations.push(Operation { index, operation_type, change });
        Ok(())
    }
}

impl Change {
    /// Appends to `row` the row that an operation makes, or to `some` what it sets.
    fn of<'a>(
        plan: &RowPlan,
        operation: &RowOperation<'_, 'a>,
        row: &mut Vec<u8>,
        some: &mut Vec<Option<ValueRef<'a>>>,
    ) -> Result<Self> {
        let values = operation.values;
        let is_set = |i: usize| values[i].is_some();
        match operation.operation_type {
            OperationType::Insert | OperationType::InsertIgnore => Change::whole(plan, values, row),
            OperationType::Upsert | OperationType::UpsertIgnore => {
                // A dropped column's slot is never set, and counts as if it were.
                let sets_all = |slot: &SlotPlan| slot.name.is_empty() || slot.value(values).is_some();
                match plan.slots.iter().all(sets_all) {
                    true => Change::whole(plan, values, row),
                    false => Ok(Change::some(plan, values, some)),
                }
            }
            OperationType::Update | OperationType::UpdateIgnore => {
                match plan.slots.iter().any(|slot| slot.value(values).is_some()) {
                    true => Ok(Change::some(plan, values, some)),
                    false => Err(Error::invalid("No fields updated")),
                }
            }
            _ => {
                let is_key = |i: usize| plan.key.contains(&i);
                match (0..values.len()).find(|i| is_set(*i) && !is_key(*i)) {
                    None => Ok(Change::Delete),
                    Some(i) => {
                        let name = &plan.layout.columns()[i].name;
                        Err(Error::invalid(format!("DELETE should not have a value for column: {name}")))
                    }
                }
            }
        }
    }

    /// A whole row: what the operation does not set has its default.
    fn whole(plan: &RowPlan, values: &[Option<ValueRef<'_>>], row: &mut Vec<u8>) -> Result<Self> {
        encode_new(plan, |slot| plan.slots[slot].value(values), row)?;
        Ok(Change::Whole)
    }

    fn some<'a>(
        plan: &RowPlan,
        values: &[Option<ValueRef<'a>>],
        some: &mut Vec<Option<ValueRef<'a>>>,
    ) -> Self {
        let start = some.len();
        some.extend(plan.slots.iter().map(|slot| slot.value(values)));
        Change::Some(u32::try_from(start).expect("the memory of a request is bounded"))
    }
}

impl Operation {
    /// Whether what is stored must be known.
    pub fn reads(&self) -> Read {
        let replaces = matches!(self.operation_type, OperationType::Upsert | OperationType::UpsertIgnore);
        if replaces && matches!(self.change, Change::Whole) { Read::Blind } else { Read::Existing }
    }
}

/// The value of a column. Inlined, what reads it and what encodes it look at its type once.
#[inline(always)]
fn cell<'a>(
    plan: &RowPlan,
    whole: &WholeOperation<'a>,
    column: usize,
    indirect: &'a [u8],
) -> Result<ValueRef<'a>> {
    let layout = &plan.layout;
    read_cell(layout.columns()[column].column_type, layout.cell(whole.bytes, column), indirect)
}

/// Appends a new row with these values; a slot without one has its default.
///
/// # Errors
/// `Invalid`, naming the column, for one without either.
pub(super) fn encode_new<'v>(
    plan: &'v RowPlan,
    value: impl Fn(usize) -> Option<ValueRef<'v>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let lacks = |(i, slot): &(usize, &SlotPlan)| slot.default.is_none() && value(*i).is_none();
    if let Some((_, slot)) = plan.slots.iter().enumerate().find(lacks) {
        return Err(no_value(&slot.name));
    }
    let of_slot = |(i, slot): (usize, &'v SlotPlan)| {
        let default = || slot.default.as_ref().map_or(ValueRef::Null, |default| default.as_ref());
        value(i).unwrap_or_else(default)
    };
    plan.table.schema_ref().layout().encode_each(plan.slots.iter().enumerate().map(of_slot), out);
    Ok(())
}

fn check_values(plan: &RowPlan, values: &[Option<ValueRef<'_>>]) -> Result<()> {
    let name = |i: usize| &plan.layout.columns()[i].name;
    if let Some(i) = plan.not_settable.iter().find(|i| values[**i].is_some()) {
        return Err(Error::invalid(format!("column {} is set by the server", name(*i))));
    }
    for &i in &plan.json {
        if let Some(ValueRef::Json(text)) = values[i] {
            serde_json::from_str::<serde::de::IgnoredAny>(text)
                .map_err(|e| Error::invalid(format!("column {} is not JSON: {e}", name(i))))?;
        }
    }
    Ok(())
}

fn no_value(column: &str) -> Error {
    Error::invalid(format!("No value provided for required column: {column}"))
}

#[cfg(test)]
mod tests;
