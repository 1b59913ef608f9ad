//! Hands DataFusion's Parquet reader the metadata and the bytes of SSTables, both verified.

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use oribi_sstable::Sstable;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use std::ops::Range;
use std::sync::Arc;

/// What a [`PartitionedFile`] stands for.
pub(crate) struct SstableExtension {
    pub(crate) sstable: Arc<Sstable>,
    /// Name of its table.
    pub(crate) table: Arc<str>,
}

/// Makes a reader of each SSTable of a scan.
#[derive(Debug)]
pub(super) struct SstableReaders;

impl ParquetFileReaderFactory for SstableReaders {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let Some(extension) = file.extension::<SstableExtension>() else {
            return Err(DataFusionError::Internal("a scanned file is no sstable".into()));
        };
        let metrics = ParquetFileMetrics::new(partition_index, file.path().as_ref(), metrics);
        Ok(Box::new(Reader { sstable: Arc::clone(&extension.sstable), metrics }))
    }
}

/// Reads block: pages are in the page cache or one seek away, and query threads may wait.
struct Reader {
    sstable: Arc<Sstable>,
    metrics: ParquetFileMetrics,
}

impl Reader {
    fn read(&self, range: Range<u64>) -> parquet::errors::Result<Bytes> {
        self.metrics.bytes_scanned.add((range.end - range.start) as usize);
        self.sstable.read_verified(range).map_err(external)
    }
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        ready(self.read(range)).boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        ready(ranges.into_iter().map(|range| self.read(range)).collect()).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        ready(self.sstable.metadata().map_err(external)).boxed()
    }
}

fn external(error: oribi_types::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}
