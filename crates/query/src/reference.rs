//! Plain DataFusion over Parquet files, with its own settings and its own scan: what our tables are measured against.

use crate::error::sql_error;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::TryStreamExt;
use oribi_types::Result;
use std::path::PathBuf;

/// Parquet files as tables.
pub struct ParquetReference {
    context: SessionContext,
}

impl ParquetReference {
    /// Registers each file under its name, with as many partitions as there are cores.
    ///
    /// # Errors
    /// If a file is not readable Parquet.
    pub async fn open(tables: &[(&str, PathBuf)]) -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(threads));
        for (name, path) in tables {
            let path = path.to_string_lossy();
            let registered = context.register_parquet(*name, path, ParquetReadOptions::default()).await;
            registered.map_err(|e| sql_error(e).error)?;
        }
        Ok(ParquetReference { context })
    }

    /// The rows of a query.
    ///
    /// # Errors
    /// Those of the query.
    pub async fn rows(&self, sql: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let frame = self.context.sql(sql).await.map_err(|e| sql_error(e).error)?;
        let batches = frame.execute_stream().await.map_err(|e| sql_error(e).error)?;
        let schema = batches.schema();
        Ok((schema, batches.try_collect().await.map_err(|e| sql_error(e).error)?))
    }
}
