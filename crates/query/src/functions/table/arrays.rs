//! Functions of arrays, functions that give rows, and those that take any type.

use super::Row;

pub(super) const FUNCTIONS: &[Row] = &[
    ("array_append", "anyarray any"),
    ("array_cat", "anyarray anyarray"),
    ("array_length", "anyarray int4"),
    ("array_position", "anyarray any"),
    ("array_positions", "anyarray any"),
    ("array_prepend", "any anyarray"),
    ("array_replace", "anyarray any any"),
    ("array_upper", "anyarray int4"),
    ("array_to_string", "anyarray text | anyarray text text"),
    ("cardinality", "anyarray"),
    ("coalesce", "any..."),
    ("generate_series", "int4 int4 | int4 int4 int4 | int8 int8 | int8 int8 int8"),
    ("greatest", "any..."),
    ("least", "any..."),
    ("nullif", "any any"),
    ("string_to_array", "text text | text text text"),
    ("unnest", "anyarray"),
];

pub(super) const INTERNAL: &[Row] = &[
    ("array_concat", "anyarray..."),
    ("array_element", "anyarray int8"),
    ("array_has", "anyarray any"),
    ("array_replace_all", "anyarray any any"),
    ("array_slice", "anyarray int8 int8 | anyarray int8 int8 int8"),
    ("array_or_empty", "anyarray"),
    ("make_array", "  | anyelement..."),
];
