//! Which rows of an SSTable are past their time, without reading more of it than is needed.
//!
//! The timestamps in the manifest and the statistics of the file say when the first and the last row expire; only in
//! between are rows looked at.

use crate::catalog::Table;
use crate::engine::Engine;
use crate::scan::rows_where;
use crate::tablet::{LiveFile, Tablet};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{TimestampMicrosecondType, UInt64Type};
use oribi_sstable::{Sstable, SstableId};
use oribi_types::{ColumnSource, Result, Timestamp};
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::sync::Arc;

/// How long what was found in a file is believed, unless its first or last row expires before.
const LOOK_MICROS: u64 = 600_000_000;

/// When the rows of a file expire, in microseconds since the Unix epoch: none before `first`; at `last`, all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
}

impl Span {
    const NEVER: Span = Span { first: u64::MAX, last: u64::MAX };
    const UNKNOWN: Span = Span { first: 0, last: u64::MAX };

    fn of(table: &Table, sstable: &Sstable) -> Result<Span> {
        let meta = sstable.meta();
        let max_ts = sstable.patches().iter().map(|patch| patch.ts()).fold(meta.max_ts, Timestamp::max);
        let by_age = table.expiry().ttl_micros.map_or(Span::NEVER, |ttl| Span {
            first: meta.min_ts.micros().saturating_add(ttl),
            last: max_ts.micros().saturating_add(ttl),
        });
        let by_column = Span::of_column(table, sstable)?;
        Ok(Span { first: by_age.first.min(by_column.first), last: by_age.last.min(by_column.last) })
    }

    /// By the statistics of the column that says when a row expires.
    fn of_column(table: &Table, sstable: &Sstable) -> Result<Span> {
        let id = table.definition().options.expires_at;
        let Some(id) = id.filter(|_| table.expiry().slot.is_some()) else { return Ok(Span::NEVER) };
        if sstable.is_patched(id) {
            return Ok(Span::UNKNOWN);
        }
        let metadata = sstable.metadata()?;
        let columns = metadata.file_metadata().schema_descr().columns();
        let position = columns.iter().position(|column| {
            let info = column.self_type().get_basic_info();
            info.has_id() && u32::try_from(info.id()) == Ok(id)
        });
        // A column that came later reads as its default.
        let Some(position) = position else { return Ok(Span::UNKNOWN) };
        let mut span = Span { first: u64::MAX, last: 0 };
        for group in metadata.row_groups() {
            let Some(statistics) = group.columns().get(position).and_then(|chunk| chunk.statistics()) else {
                return Ok(Span::UNKNOWN);
            };
            let Some(nulls) = statistics.null_count_opt() else { return Ok(Span::UNKNOWN) };
            if nulls > 0 {
                span.last = u64::MAX;
            }
            if i64::try_from(nulls) == Ok(group.num_rows()) {
                continue;
            }
            let (Some(min), Some(max)) =
                (micros(statistics.min_bytes_opt()), micros(statistics.max_bytes_opt()))
            else {
                return Ok(Span::UNKNOWN);
            };
            span = Span { first: span.first.min(min), last: span.last.max(max) };
        }
        Ok(span)
    }
}

/// A time as Parquet's statistics have it.
fn micros(bytes: Option<&[u8]>) -> Option<u64> {
    let at = i64::from_le_bytes(bytes?.try_into().ok()?);
    Some(u64::try_from(at).unwrap_or(0))
}

/// The rows of a file that are past their time.
pub(crate) fn expired_rows(table: &Table, file: &LiveFile, now_micros: u64) -> Result<RoaringBitmap> {
    let span = Span::of(table, &file.sstable)?;
    if now_micros < span.first {
        return Ok(RoaringBitmap::new());
    }
    if span.last <= now_micros {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..file.sstable.meta().rows as u32);
        return Ok(all);
    }
    let expiry = table.expiry();
    let schema = table.schema_ref();
    let is_slot = |source| matches!((source, expiry.slot), (ColumnSource::Slot(a), Some(b)) if a == b);
    let column: Vec<usize> = schema.columns().iter().position(|c| is_slot(c.source)).into_iter().collect();
    rows_where(table, file, &column, |batch, i| {
        let ts = batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>();
        if expiry
            .ttl_micros
            .is_some_and(|ttl| Timestamp(ts.value(i)).micros().saturating_add(ttl) <= now_micros)
        {
            return true;
        }
        if column.is_empty() {
            return false;
        }
        let expires_at = batch.column(0).as_primitive::<TimestampMicrosecondType>();
        !expires_at.is_null(i) && expires_at.value(i) <= now_micros as i64
    })
}

/// What the compaction thread found when it last looked for expired rows.
#[derive(Default)]
pub(crate) struct Looks(HashMap<SstableId, Look>);

#[derive(Clone, Copy)]
struct Look {
    expired: u64,
    again_micros: u64,
}

impl Looks {
    /// Forgets files at which nobody looks any more: they are gone.
    pub fn forget_old(&mut self, now_micros: u64) {
        self.0.retain(|_, look| now_micros < look.again_micros.saturating_add(LOOK_MICROS));
    }
}

impl Engine {
    /// How many rows of a file that are not marked no snapshot sees any more because they have expired; some time ago,
    /// at least.
    pub(crate) fn look_for_expired(
        &self,
        table: &Table,
        tablet: &Tablet,
        file: &LiveFile,
        looks: &mut Looks,
    ) -> Result<u64> {
        let now_micros = self.timeline.expiry_horizon_micros();
        if table.expiry().never() {
            return Ok(0);
        }
        if let Some(look) = looks.0.get(&file.id()).filter(|look| now_micros < look.again_micros) {
            return Ok(look.expired);
        }
        let look = match oribi_env::run_idle(|| self.count_expired(table, tablet, file, now_micros)) {
            Err(_) if tablet.is_dropped() || tablet.state().files.file(file.id()).is_none() => return Ok(0),
            look => look?,
        };
        looks.0.insert(file.id(), look);
        Ok(look.expired)
    }

    fn count_expired(
        &self,
        table: &Table,
        tablet: &Tablet,
        file: &LiveFile,
        now_micros: u64,
    ) -> Result<Look> {
        // Opened once more, because an SSTable keeps Parquet's metadata once it was asked for them: those of all files
        // of a large bucket that nobody scans would fill the memory. (Patches are not: few such tables have some.)
        let sstable = Sstable::open(&self.env, &tablet.dir, file.sstable.meta(), table.schema_ref())?;
        let sstable = Arc::new(sstable.with_patches(file.sstable.patches().to_vec()));
        let file = LiveFile { sstable, ..file.clone() };
        let span = Span::of(table, &file.sstable)?;
        let expired = expired_rows(table, &file, now_micros)?;
        let expired = expired.into_iter().filter(|row| !file.deletions.is_marked(*row)).count() as u64;
        let next = [span.first, span.last].into_iter().filter(|at| *at > now_micros).min();
        let again_micros = next.unwrap_or(u64::MAX).min(now_micros + LOOK_MICROS);
        Ok(Look { expired, again_micros })
    }
}
