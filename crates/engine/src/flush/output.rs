//! The SSTable of a flush, as it is written.

use super::FlushVersion;
use crate::catalog::Table;
use crate::engine::Engine;
use crate::index::{Flushed, Location};
use crate::tablet::Tablet;
use oribi_sstable::{SstableId, SstableMeta, SstableOptions, SstableWriter};
use oribi_types::{Result, Timestamp};

/// Of a [`Place`]: the version is a delete, and has no row.
const NO_ROW: u32 = u32::MAX;

/// A version, by its timestamp, and the row of the file that it became.
pub(super) type Place = (Timestamp, u32);

/// The file of a flush, not yet published.
pub(super) struct FlushedFile {
    pub meta: SstableMeta,
    pub marks: Vec<(u32, Timestamp)>,
}

pub(super) struct Output<'a> {
    engine: &'a Engine,
    table: &'a Table,
    tablet: &'a Tablet,
    pub id: SstableId,
    /// Made for the first row.
    writer: Option<SstableWriter>,
    rows: u32,
    marks: Vec<(u32, Timestamp)>,
    places: Vec<Place>,
}

impl<'a> Output<'a> {
    pub fn new(engine: &'a Engine, table: &'a Table, tablet: &'a Tablet) -> Self {
        let id = engine.manifest.next_id();
        Output { engine, table, tablet, id, writer: None, rows: 0, marks: Vec::new(), places: Vec::new() }
    }

    /// Writes rows that come behind those written, by key and, newest first, by version.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&mut self, versions: &[FlushVersion]) -> Result<()> {
        for FlushVersion { version, superseded } in versions {
            let ts = version.meta().ts;
            let Some(row) = version.row() else {
                self.places.push((ts, NO_ROW));
                continue;
            };
            if self.writer.is_none() {
                self.writer = Some(self.create()?);
            }
            self.writer.as_mut().expect("just made").push(version.key(), row, ts)?;
            self.places.push((ts, self.rows));
            self.marks.extend(superseded.map(|at| (self.rows, at)));
            self.rows += 1;
        }
        Ok(())
    }

    fn create(&self) -> Result<SstableWriter> {
        let (env, schema) = (&self.engine.env, self.table.schema_ref());
        SstableWriter::create(env, &self.tablet.dir, self.id, schema, &SstableOptions::default())
    }

    /// The file, if there are rows, and the place of each version.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish(self) -> Result<(Option<FlushedFile>, Vec<Place>)> {
        let file = match self.writer {
            Some(writer) => Some(FlushedFile { meta: writer.finish()?, marks: self.marks }),
            None => None,
        };
        Ok((file, self.places))
    }
}

/// What became of a version, whose place is in the file `id`.
pub(super) fn flushed((ts, row): Place, id: SstableId) -> (Timestamp, Flushed) {
    (ts, if row == NO_ROW { Flushed::Gone } else { Flushed::At(Location { file: id, row }) })
}

/// How many places are rows.
pub(super) fn rows(places: &[Place]) -> u64 {
    places.iter().filter(|(_, row)| *row != NO_ROW).count() as u64
}
