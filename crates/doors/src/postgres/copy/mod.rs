//! The data of `COPY`: rows as lines of text or CSV.

mod read;
mod write;

pub use read::CopyReader;
pub use write::CopyWriter;

#[cfg(test)]
mod tests;
