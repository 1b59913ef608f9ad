//! Functions of dates, times and intervals.

use super::Row;

pub(super) const FUNCTIONS: &[Row] = &[
    ("current_date", ""),
    ("current_timestamp", ""),
    ("date_part", "text date | text time | text timestamp | text timestamptz | text interval"),
    ("date_trunc", "text timestamp | text timestamptz | text date"),
    ("make_date", "int4 int4 int4"),
    ("now", ""),
    ("to_timestamp", "float8"),
];

pub(super) const INTERNAL: &[Row] = &[("to_local_time", "timestamptz")];
