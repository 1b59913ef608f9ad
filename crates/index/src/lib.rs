//! The row index's parts.

pub mod eviction;
