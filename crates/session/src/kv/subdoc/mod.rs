//! Operations on parts of a JSON document: the sub-document commands of Couchbase, without protocol or storage.
//!
//! A [`Lookup`] reads below a path, a [`Mutation`] changes what is there; both are made from what stands in a request
//! and refused with the [`Status`] that the protocol has for it. A [`Reader`] answers lookups with slices of the
//! document. [`mutate`] applies mutations in order, all or none, each as one splice of the text: what it does not
//! touch stays byte for byte.
//!
//! Semantics follow Couchbase Server (its `kv_engine` and `subjson`), with what could make a document invalid left
//! out. A document is checked to be JSON as a whole, once, before anything looks into it. After that a level of
//! nesting costs a counter, and an operation passes over the text a bounded number of times; only with `[-1]` more
//! than once, for each such component.
//!
//! Extended attributes are not stored. The virtual ones, such as `$document.exptime`, are made of
//! [`DocumentMeta`]; all others are refused.

mod attribute;
mod locate;
mod lookup;
mod mutate;
mod path;
mod spec;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_model;

pub use attribute::DocumentMeta;
pub use lookup::Reader;
pub use mutate::{Failure, Mutated, mutate};
pub use spec::{Lookup, LookupOp, MutateOp, Mutation, check_lookups, check_mutations};
pub use status::Status;

/// Operations of one request.
pub const OPERATIONS_MAX: usize = 16;
pub const PATH_BYTES_MAX: usize = 1024;
/// How deep a document is looked into: it is level 1 itself, and what a container holds is one level below.
pub const LEVELS_MAX: usize = 32;
