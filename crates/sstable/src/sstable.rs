//! An open SSTable: what is kept in memory of it, and the doors to its rows.

use crate::data_file::{DataFile, VerifiedReader};
use crate::index::Index;
use crate::meta::SstableMeta;
use crate::parquet_schema::{ROW_COLUMN, ROW_COLUMN_ID, TS_COLUMN_ID, index_columns, read_schema};
use crate::patch::Patch;
use crate::reads::PointReads;
use crate::{Paths, bloom, in_sstable, names_sstable, parquet_error};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use oribi_env::{Env, read_file};
use oribi_types::schema::{ColumnId, TS_COLUMN};
use oribi_types::{ColumnType, Error, Result, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use std::fmt;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// An SSTable, open for reading. Its index is in memory; rows are read from the file when asked for, with the values that
/// [patches](crate::Patch) give them.
#[derive(Clone)]
pub struct Sstable {
    pub(crate) opened: Arc<OpenFile>,
    /// The oldest first.
    pub(crate) patches: Vec<Arc<Patch>>,
}

/// The files, which never change, as long as somebody has them open.
pub struct OpenFile {
    meta: SstableMeta,
    path: PathBuf,
    pub(crate) data: Arc<DataFile>,
    /// The key columns, in key order.
    pub(crate) key: Vec<KeyColumn>,
    /// Position of the column of commit timestamps.
    pub(crate) ts_column: usize,
    /// Of the table's columns in the file, the one that was added last.
    newest_column: ColumnId,
    /// Parquet's own view of the file; parsed when first asked for.
    arrow_metadata: OnceLock<ArrowReaderMetadata>,
    /// What that takes in memory.
    metadata_bytes: AtomicUsize,
    /// By column, see [`value_bytes_max`](Self::value_bytes_max); computed when first asked for.
    pub(crate) value_bytes: OnceLock<Box<[u64]>>,
}

/// What the filters of all SSTables know a key by.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash(u64);

/// A column of the primary key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyColumn {
    /// Position in the data file.
    pub position: usize,
    pub column_type: ColumnType,
}

impl fmt::Debug for Sstable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sstable").field("meta", self.meta()).finish_non_exhaustive()
    }
}

impl Sstable {
    /// Opens a published SSTable and verifies its index against `meta`.
    ///
    /// # Errors
    /// `Corrupt` if the files are not those that `meta` was made with; those of the file system.
    pub fn open(env: &Env, dir: &Path, meta: &SstableMeta, schema: &Schema) -> Result<Self> {
        let paths = Paths::new(dir, meta.id);
        Sstable::open_files(env, meta, &Named::of(schema), &paths.index, paths.data)
    }

    /// Opens an SSTable that is finished and not yet published.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_unpublished(env: &Env, dir: &Path, meta: &SstableMeta, schema: &Schema) -> Result<Self> {
        let paths = Paths::new(dir, meta.id);
        Sstable::open_files(env, meta, &Named::of(schema), &paths.index_tmp, paths.data_tmp)
    }

    pub(crate) fn open_files(
        env: &Env,
        meta: &SstableMeta,
        columns: &Named<'_>,
        index_path: &Path,
        data_path: PathBuf,
    ) -> Result<Self> {
        let of_this = |e: Error| e.context(format!("sstable {}", meta.id));
        let index = Bytes::from(read_file(env.files.as_ref(), index_path).map_err(|e| of_this(e.into()))?);
        let index = Index::decode(index, meta).map_err(of_this)?;
        let file = env.files.open(&data_path, false).map_err(|e| of_this(e.into()))?;
        if file.len()? != meta.data_bytes {
            return Err(of_this(Error::corrupt("the data file has not the length it was written with")));
        }
        let key = |(id, column_type): &(ColumnId, ColumnType)| {
            let position = plain_column(&index, *id, *column_type)?;
            Ok(KeyColumn { position, column_type: *column_type })
        };
        let key = columns.key.iter().map(key).collect::<Result<_>>().map_err(of_this)?;
        let ts_column = plain_column(&index, TS_COLUMN_ID, ColumnType::Int64).map_err(of_this)?;
        let names = index.columns.iter().map(|column| columns.name(column.id)).collect();
        let ids = index.columns.iter().map(|column| column.id).filter(|id| is_of_table(*id));
        let newest_column = ids.max().unwrap_or_default();
        let opened = OpenFile {
            meta: meta.clone(),
            path: data_path,
            data: Arc::new(DataFile::new(file, meta.id, index, names)),
            key,
            ts_column,
            newest_column,
            arrow_metadata: OnceLock::new(),
            metadata_bytes: AtomicUsize::new(0),
            value_bytes: OnceLock::new(),
        };
        Ok(Sstable { opened: Arc::new(opened), patches: Vec::new() })
    }

    pub fn meta(&self) -> &SstableMeta {
        &self.opened.meta
    }

    /// There as long as somebody has the file open, with whatever patches.
    pub fn opened(&self) -> Weak<OpenFile> {
        Arc::downgrade(&self.opened)
    }

    /// The data file.
    pub fn path(&self) -> &Path {
        &self.opened.path
    }

    /// Whether `key` may be in the file, by its range of keys and its bloom filters. Looks at memory only.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.may_contain_hashed(key, &mut None)
    }

    /// As [`may_contain`](Self::may_contain), for a key that is looked for in several files: its hash is computed by
    /// the first one whose range has it, and is there for the next.
    pub fn may_contain_hashed(&self, key: &[u8], hash: &mut Option<KeyHash>) -> bool {
        if key < &*self.meta().min_key || &*self.meta().max_key < key {
            return false;
        }
        let KeyHash(hash) = *hash.get_or_insert_with(|| KeyHash(bloom::hash(key)));
        self.index().may_contain(key, hash)
    }

    /// Whether `schema` is as new as the file: of an older one, columns that were added since are missing.
    pub fn is_known_to(&self, schema: &Schema) -> bool {
        let patched = self.patches.iter().map(|patch| patch.sstable.opened.newest_column);
        patched.chain([self.opened.newest_column]).all(|newest| schema.has_known(newest))
    }

    /// Bytes of memory that the index takes, and Parquet's metadata if they were asked for.
    pub fn memory_bytes(&self) -> usize {
        let of_patches: usize = self.patches.iter().map(|patch| patch.memory_bytes()).sum();
        self.index().memory_bytes() + self.opened.metadata_bytes.load(Ordering::Relaxed) + of_patches
    }

    /// Bytes of the files.
    pub fn stored_bytes(&self) -> u64 {
        let patches = self.patches.iter().map(|patch| patch.meta());
        patches.chain([self.meta()]).map(|meta| meta.data_bytes + meta.index_bytes).sum()
    }

    /// What look-ups have cost since the file was opened.
    pub fn point_reads(&self) -> PointReads {
        let mut reads = self.opened.data.reads.get();
        self.patches.iter().for_each(|patch| reads += patch.sstable.point_reads());
        reads
    }

    /// Parquet's metadata with column and offset index, parsed once: of the file itself, whose bounds say nothing of the values
    /// that [patches](Self::patches) give.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn metadata(&self) -> Result<Arc<ParquetMetaData>> {
        Ok(self.arrow_metadata()?.metadata().clone())
    }

    /// The columns as [`batches`](Self::batches) reads them, under their names in the file, with their ids.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn arrow_schema(&self) -> Result<SchemaRef> {
        Ok(self.arrow_metadata()?.schema().clone())
    }

    pub(crate) fn index(&self) -> &Index {
        self.opened.data.index()
    }

    pub(crate) fn arrow_metadata(&self) -> Result<&ArrowReaderMetadata> {
        if let Some(metadata) = self.opened.arrow_metadata.get() {
            return Ok(metadata);
        }
        // Two threads that come here at once parse it twice and agree.
        let of_footer = |e: Error| if names_sstable(&e) { e } else { e.context("footer") };
        let metadata = self.parse_metadata().map_err(|e| in_sstable(of_footer(e), self.meta().id))?;
        self.opened.metadata_bytes.store(metadata.metadata().memory_size(), Ordering::Relaxed);
        Ok(self.opened.arrow_metadata.get_or_init(|| metadata))
    }

    fn parse_metadata(&self) -> Result<ArrowReaderMetadata> {
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .parse_and_finish(&VerifiedReader(self.opened.data.clone()))
            .map_err(parquet_error)?;
        let metadata = Arc::new(metadata);
        if index_columns(metadata.file_metadata().schema_descr())? != self.index().columns {
            return Err(Error::corrupt("the columns are not those of the index"));
        }
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let as_stored =
            ArrowReaderMetadata::try_new(metadata.clone(), options.clone()).map_err(parquet_error)?;
        let options = options.with_schema(read_schema(as_stored.schema()));
        ArrowReaderMetadata::try_new(metadata, options).map_err(parquet_error)
    }
}

/// The columns of a file, as its table has them.
pub(crate) struct Named<'a> {
    pub schema: &'a Schema,
    /// Those by which rows are searched.
    pub key: Vec<(ColumnId, ColumnType)>,
}

impl<'a> Named<'a> {
    fn of(schema: &'a Schema) -> Self {
        Named { schema, key: schema.key_columns().map(|column| (column.id, column.column_type)).collect() }
    }

    fn name(&self, id: ColumnId) -> String {
        match self.schema.column_by_id(id) {
            Some(column) => column.name.clone(),
            None if id == TS_COLUMN_ID => TS_COLUMN.to_owned(),
            None if id == ROW_COLUMN_ID => ROW_COLUMN.to_owned(),
            None => format!("dropped, id {id}"),
        }
    }
}

/// Whether an id is a column's that the table has or had.
pub(crate) fn is_of_table(id: ColumnId) -> bool {
    id != TS_COLUMN_ID && id != ROW_COLUMN_ID
}

/// Position of a column that point reads search: of the type wanted and never null.
fn plain_column(index: &Index, id: u32, column_type: ColumnType) -> Result<usize> {
    let position = index.column(id).ok_or_else(|| Error::corrupt(format!("column id {id} is missing")))?;
    let column = index.columns[position];
    if column.nullable || !column.physical.holds(column_type) {
        return Err(Error::corrupt(format!("column id {id} is not a not-null {column_type}")));
    }
    Ok(position)
}
