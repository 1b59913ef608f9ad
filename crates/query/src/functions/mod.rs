//! What may be called: the one table of functions, and the rules that refuse the rest.
//!
//! A function, operator or cast that exists here answers as PostgreSQL does, or it is refused by name. DataFusion brings
//! many functions that PostgreSQL does not have, and takes types that PostgreSQL does not take. So nothing can be called
//! that is not in the [table]: names are checked in the syntax tree ([`names`]), before the planner makes calls of its
//! own; types are checked in the plan ([`check`]), before DataFusion converts arguments so that they fit.

mod any_element;
mod array_literal;
mod array_or_empty;
mod casts;
mod check;
mod internal;
mod itself;
mod kinds;
mod large;
mod moment_fields;
mod moment_operators;
mod moments;
mod names;
mod parts;
mod patterns;
mod regex;
mod rows;
mod series;
mod signature;
mod table;
mod texts;
mod value_or_null;

pub(crate) use array_literal::array_literal;
pub(crate) use check::{
    check_arguments, check_cells, check_join, check_order, check_union, check_zones, checked, is_int4,
    is_of_one_type, kind,
};
pub(crate) use internal::{by_word, word_of};
pub(crate) use itself::{CELL, UNARY_PLUS, cell, sort_key};
pub(crate) use kinds::{Kind, is_json};
#[cfg(test)]
pub(crate) use large::aside;
pub(crate) use large::{
    ValueMemory, is_postponed, may_be_large, measured_function, planned, planning, unmeasured,
};
pub(crate) use moment_fields::extracted_scale;
pub(crate) use moment_operators::{arithmetic, interval_literal};
pub(crate) use moments::assigned as assigned_moments;
pub(crate) use names::check_names;
pub(crate) use table::{callable, parameter_type};
pub(crate) use texts::{json_has_key, long_text, register};
pub(crate) use value_or_null::of_subquery;
