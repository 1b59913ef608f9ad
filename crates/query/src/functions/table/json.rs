//! Functions of JSON: PostgreSQL's, and Oribi's own, which are documented with the SQL page's section on JSON.

use super::Row;

pub(super) const FUNCTIONS: &[Row] = &[
    ("json_array_length", "json"),
    ("json_as_text", "document | document path..."),
    ("json_contains", "document | document path..."),
    ("json_get", "document | document path..."),
    ("json_get_array", "document | document path..."),
    ("json_get_bool", "document | document path..."),
    ("json_get_float", "document | document path..."),
    ("json_get_int", "document | document path..."),
    ("json_get_json", "document | document path..."),
    ("json_get_keys", "document | document path..."),
    ("json_get_str", "document | document path..."),
    ("json_length", "document | document path..."),
    ("jsonb_array_length", "jsonb"),
];

pub(super) const INTERNAL: &[Row] = &[
    ("json_at_path", "document path..."),
    ("json_at_path_as_text", "document path..."),
    ("json_part", "document path..."),
    ("json_part_as_text", "document path..."),
];
