//! SQL over the engine: the only crate that names DataFusion.
//!
//! A statement takes one snapshot and one picture of the catalog when it begins ([`context`]); every table it names is
//! a [`provider`] over that snapshot. Plans are made a few at a time ([`planners`]), and run on threads of their own that
//! yield to the serving threads ([`runtime`]), within the memory that the engine has left ([`memory`]). Key lookups never
//! come this far: they are recognised from the syntax tree and answered by the engine directly ([`point`]).

mod add_key;
mod advisory;
mod alter;
mod block;
mod carried;
mod catalog;
mod context;
mod copy;
mod cursor;
mod ddl;
mod delivery;
mod depth;
mod dml;
mod error;
mod explain;
mod foreign_words;
mod forms;
mod functions;
mod grouped_order;
pub mod interest;
pub mod ipc;
mod json;
mod json_text;
mod jsonb;
mod lexical;
mod limits;
mod literals;
mod lone_joins;
mod long_rows;
mod memory;
pub mod nodes;
mod number;
mod one_type;
mod only_call;
mod options;
mod order;
mod partitions;
mod pg_catalog;
mod planners;
mod point;
mod precedence;
mod provider;
mod queries;
mod reference;
mod remembered;
mod runtime;
pub mod runtime_filters;
mod sequences;
mod settings;
mod shape;
mod statement;
mod states;
mod syntax;
mod table_names;
mod timeout;
mod unique_keys;
mod unread;
mod upkeep;
pub mod wrapped;

pub use context::{QueryEngine, QueryOptions};
pub use point::PointRead;
pub use reference::ParquetReference;
