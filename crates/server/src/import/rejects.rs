//! Rows that were refused: kept beside their file, each with its line (of a Parquet file, the number of the row; `-` if a
//! server refused it) and the reason.

use oribi_types::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes `FILE.rejected`: per row its line, the reason and its text, separated by tabs. The file is made with the
/// first row.
pub struct Rejects {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    pub rows: u64,
}

impl Rejects {
    pub fn new(of: &Path) -> Self {
        let mut name = of.as_os_str().to_owned();
        name.push(".rejected");
        Rejects { path: name.into(), file: None, rows: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn add(&mut self, line: u64, reason: &str, text: &str) -> Result<()> {
        self.rows += 1;
        self.write(&line, reason, text)
    }

    /// Adds a row of which it is not known where it stood.
    pub fn add_unnumbered(&mut self, reason: &str, text: &str) -> Result<()> {
        self.rows += 1;
        self.write(&"-", reason, text)
    }

    /// Counts `rows` of which no more is known.
    pub fn count_others(&mut self, rows: u64) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        self.rows += rows;
        self.write(&"-", &format!("{rows} more rows were refused"), "")
    }

    fn write(&mut self, line: &dyn std::fmt::Display, reason: &str, text: &str) -> Result<()> {
        let named = |e: std::io::Error| Error::from(e).context(self.path.display());
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::new(File::create(&self.path).map_err(named)?)),
        };
        let one_line = |text: &str| text.replace(['\n', '\r', '\t'], " ");
        writeln!(file, "{line}\t{}\t{}", one_line(reason), one_line(text)).map_err(named)
    }

    pub fn finish(mut self) -> Result<u64> {
        if let Some(file) = &mut self.file {
            file.flush().map_err(|e| Error::from(e).context(self.path.display()))?;
        }
        Ok(self.rows)
    }
}
