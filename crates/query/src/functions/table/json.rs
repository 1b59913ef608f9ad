//! Functions of JSON: PostgreSQL's, and Oribi's own, which are documented with the SQL page's section on JSON.

use super::Row;

pub(super) const FUNCTIONS: &[Row] = &[
    ("json_array_length", "any..."),
    ("json_as_text", "any..."),
    ("json_contains", "any..."),
    ("json_get", "any..."),
    ("json_get_array", "any..."),
    ("json_get_bool", "any..."),
    ("json_get_float", "any..."),
    ("json_get_int", "any..."),
    ("json_get_json", "any..."),
    ("json_get_str", "any..."),
    ("json_length", "any..."),
    ("json_object_keys", "any..."),
    ("jsonb_array_length", "any..."),
];
