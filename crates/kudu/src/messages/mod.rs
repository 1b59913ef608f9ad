//! The messages of Kudu's services, a module per service, and in [`common`] what several use.
//!
//! Each struct is a protobuf message (proto2) with Kudu's field numbers. A field that is absent is `None`;
//! where Kudu has a default, the method of the field's name returns the field or that. An enumeration is an
//! `i32`, as a newer peer may send numbers that are not known here: `try_from` tells, and the method of the
//! field's name reads those as the first variant.
//!
//! `bytes` fields share the memory of the frame that they came in. Ids of tables, tablets and servers are
//! text of 32 hexadecimal digits, in `bytes` fields as a rule. Timestamps are hybrid: microseconds since 1970
//! shifted left by 12 bits, and a counter below.

pub mod admin;
pub mod common;
pub mod consensus;
pub mod generic;
pub mod master;
#[cfg(test)]
mod tests;
pub mod transactions;
pub mod tserver;
