//! The look-up of a single row: from the encoded key to borrowed values, without a batch and without an allocation.

use super::{Plan, PointRead, check_layout};
use oribi_engine::{Lookup, Obligation, RowVersion};
use oribi_session::sql;
use oribi_types::key::{KeyDecoder, encode_key};
use oribi_types::{ColumnSource, Error, Result, Value, ValueRef};
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;

/// Columns of a row, and of its key, that are handed over without allocating.
const COLUMNS_INLINE: usize = 32;
const KEY_COLUMNS_INLINE: usize = 8;

impl sql::PointRead for PointRead {
    fn try_get(
        &self,
        parameters: &[Value],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<Option<(bool, Obligation)>> {
        self.0.with_key(parameters, |plan, key| plan.try_get(key, visit))
    }

    fn get(
        &self,
        parameters: &[Value],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<(bool, Obligation)> {
        let answered = self.0.with_key(parameters, |plan, key| match plan.try_get(key, visit)? {
            None => plan.get(key, visit).map(Some),
            answered => Ok(answered),
        })?;
        Ok(answered.expect("files were read"))
    }
}

impl Plan {
    /// Calls `look` with the encoded key of the only row; null finds none.
    fn with_key(
        &self,
        parameters: &[Value],
        look: impl FnOnce(&Self, &[u8]) -> Result<Option<(bool, Obligation)>>,
    ) -> Result<Option<(bool, Obligation)>> {
        thread_local! {
            static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        if !self.single {
            return Err(Error::unsupported("a statement with IN finds several rows"));
        }
        let operands = || self.key.iter().map(|operands| &operands[0]).zip(self.schema.key_columns());
        let values = || operands().map(|(operand, column)| operand.value(parameters, column.column_type));
        if values().any(ValueRef::is_null) {
            return Ok(Some((false, Obligation::default())));
        }
        let mut key = KEY.take();
        key.clear();
        let found = encode_key(&self.schema, values(), &mut key).and_then(|()| look(self, &key));
        KEY.set(key);
        found
    }

    fn try_get(
        &self,
        key: &[u8],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<Option<(bool, Obligation)>> {
        let view = self.engine.read_view();
        match self.engine.try_get(&self.table, key, view, |row| self.visit(row, visit)) {
            Lookup::Found(visited, obligation) => visited.map(|()| Some((true, obligation))),
            Lookup::Absent(obligation) => Ok(Some((false, obligation))),
            Lookup::Pending => Ok(None),
        }
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<(bool, Obligation)> {
        let view = self.engine.read_view();
        let (visited, obligation) = self.engine.get(&self.table, key, view, |row| self.visit(row, visit))?;
        Ok((visited.transpose()?.is_some(), obligation))
    }

    fn visit(&self, row: RowVersion<'_>, visit: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<()> {
        check_layout(&self.schema, row.row)?;
        // A component of the key that is escaped is unescaped in here; all else is borrowed as it lies.
        let mut unescaped: SmallVec<[Vec<u8>; KEY_COLUMNS_INLINE]> =
            smallvec![Vec::new(); self.schema.key().len()];
        let mut values: SmallVec<[ValueRef<'_>; COLUMNS_INLINE]> =
            smallvec![ValueRef::Null; self.projection.len()];
        let mut shows_key = false;
        for (value, &position) in values.iter_mut().zip(&self.projection) {
            let column = &self.schema.columns()[position];
            match column.source {
                ColumnSource::Slot(slot) => *value = self.schema.slot_value(column, slot, row.row),
                ColumnSource::CommitTimestamp => *value = ValueRef::Int64(row.ts.0 as i64),
                ColumnSource::Key(_) => shows_key = true,
            }
        }
        if shows_key {
            let mut decoder = KeyDecoder::new(row.key);
            let last = self.schema.key().len() - 1;
            for ((i, &position), scratch) in self.schema.key().iter().enumerate().zip(&mut unescaped) {
                let column_type = self.schema.columns()[position].column_type;
                let value = decoder.next(column_type, i == last, scratch)?;
                self.place(&mut values, position, value);
            }
        }
        visit(&values);
        Ok(())
    }

    /// Puts the value of the column at `position` of the schema wherever the result wants it.
    fn place<'v>(&self, values: &mut [ValueRef<'v>], position: usize, value: ValueRef<'v>) {
        for (target, projected) in values.iter_mut().zip(&self.projection) {
            if *projected == position {
                *target = value;
            }
        }
    }
}
