//! The SSTable of a flush, as it is written.

use super::FlushVersion;
use crate::catalog::Table;
use crate::engine::Engine;
use crate::index::Location;
use crate::tablet::Tablet;
use oribi_sstable::{SstableId, SstableMeta, SstableOptions, SstableWriter};
use oribi_types::{Result, Timestamp};

/// Of a [`Place`]: the version is a delete, and has no row.
const NO_ROW: u32 = u32::MAX;

/// The row of the file that a version became.
pub(super) type Place = u32;

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
    /// # Errors
    /// `TooLarge` if there is no id for it.
    pub fn new(engine: &'a Engine, table: &'a Table, tablet: &'a Tablet) -> Result<Self> {
        let id = engine.manifest.next_file_id()?;
        let (marks, places) = (Vec::new(), Vec::new());
        Ok(Output { engine, table, tablet, id, writer: None, rows: 0, marks, places })
    }

    /// Writes rows that come behind those written, by key and, newest first, by version.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&mut self, versions: &[FlushVersion]) -> Result<()> {
        for FlushVersion { version, superseded } in versions {
            let Some(row) = version.row() else {
                self.places.push(NO_ROW);
                continue;
            };
            if self.writer.is_none() {
                self.writer = Some(self.create()?);
            }
            self.writer.as_mut().expect("just made").push(version.key(), row, version.meta().ts)?;
            self.places.push(self.rows);
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

/// Where a version is in the file `id`; `None` for a delete.
pub(super) fn home(row: Place, id: SstableId) -> Option<Location> {
    (row != NO_ROW).then_some(Location { file: id, row })
}

/// How many places are rows.
pub(super) fn rows(places: &[Place]) -> u64 {
    places.iter().filter(|row| **row != NO_ROW).count() as u64
}
