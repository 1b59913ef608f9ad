//! The look-up of a single row: from the encoded key to borrowed values, without a batch and without an allocation.

use super::{Plan, PointRead, check_layout};
use oribi_engine::{Lookup, Obligation, RowVersion};
use oribi_session::sql::{self, SqlSession, TransactionStatus};
use oribi_types::key::{KeyDecoder, encode_key};
use oribi_types::{ColumnSource, Error, Result, RowRef, Timestamp, Value, ValueRef};
use smallvec::SmallVec;
use std::cell::RefCell;

/// A longer row has to wait until there is room for it, among those that clients have not taken.
const ROW_BYTES_MAX: usize = 256 << 10;
/// Columns of a row, and of its key, that are handed over without allocating.
const COLUMNS_INLINE: usize = 32;
const KEY_COLUMNS_INLINE: usize = 8;

impl sql::PointRead for PointRead {
    fn try_get(
        &self,
        session: &SqlSession,
        parameters: &[Value],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<Option<(bool, Obligation)>> {
        let is_in_block = session.transaction() != TransactionStatus::Idle;
        self.0.with_key(parameters, |plan, key| {
            if is_in_block && let Some(found) = plan.own(session, key, visit) {
                return Ok(found?.map(|found| (found, Obligation::default())));
            }
            plan.try_get(key, visit)
        })
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
        KEY.with_borrow_mut(|key| {
            key.clear();
            let mut null = false;
            let values = self.key.iter().zip(self.schema.key_columns()).map(|(operands, column)| {
                let value = operands[0].value(parameters, column.column_type);
                null |= value.is_null();
                value
            });
            match encode_key(&self.schema, values, key) {
                Ok(()) => look(self, key),
                Err(_) if null => Ok(Some((false, Obligation::default()))),
                Err(error) => Err(error),
            }
        })
    }

    /// As [`try_get`](Self::try_get), of what the session's block has made of the row; `None` if it has not changed it.
    #[cold]
    fn own(
        &self,
        session: &SqlSession,
        key: &[u8],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Option<Result<Option<bool>>> {
        let (transaction, ts) = (session.open_transaction()?, Timestamp::MAX);
        if transaction.needs_files() {
            return Some(Ok(None));
        }
        let own = transaction.own(&self.table, key, |row| match row {
            Some(row) if row.len() > ROW_BYTES_MAX => Ok(None),
            Some(row) => self.visit(RowVersion { key, row, ts }, visit).map(|()| Some(true)),
            None => Ok(Some(false)),
        });
        own.and_then(Option::transpose).transpose()
    }

    fn try_get(
        &self,
        key: &[u8],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<Option<(bool, Obligation)>> {
        let view = self.engine.read_view_of(&self.table);
        let visit = |row: RowVersion<'_>| match row.row.len() <= ROW_BYTES_MAX {
            true => self.visit(row, visit).map(|()| true),
            false => Ok(false),
        };
        match self.engine.try_get(&self.table, key, view, visit) {
            Lookup::Found(visited, obligation) => Ok(visited?.then_some((true, obligation))),
            Lookup::Absent(obligation) => Ok(Some((false, obligation))),
            Lookup::Pending => Ok(None),
        }
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<(bool, Obligation)> {
        let view = self.engine.read_view_of(&self.table);
        let (visited, obligation) = self.engine.get(&self.table, key, view, |row| self.visit(row, visit))?;
        Ok((visited.transpose()?.is_some(), obligation))
    }

    fn visit(&self, version: RowVersion<'_>, visit: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<()> {
        check_layout(&self.schema, version.row)?;
        let row = RowRef::new(self.schema.layout(), version.row);
        // A component of the key that is escaped is unescaped in here; all else is borrowed as it lies.
        let mut unescaped: SmallVec<[Vec<u8>; KEY_COLUMNS_INLINE]> = SmallVec::new();
        let mut values: SmallVec<[ValueRef<'_>; COLUMNS_INLINE]> = SmallVec::new();
        let mut shows_key = false;
        for &position in &self.projection {
            let column = &self.schema.columns()[position];
            values.push(match column.source {
                ColumnSource::Slot(slot) => self.schema.value_in(column, slot, row),
                ColumnSource::CommitTimestamp => ValueRef::Int64(version.ts.0 as i64),
                ColumnSource::Key(_) => {
                    shows_key = true;
                    ValueRef::Null
                }
            });
        }
        if shows_key {
            let mut decoder = KeyDecoder::new(version.key);
            let last = self.schema.key().len() - 1;
            unescaped.resize_with(last + 1, Vec::new);
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
