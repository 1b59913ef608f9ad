//! Functions of dates, times and intervals.

use super::Row;

pub(super) const FUNCTIONS: &[Row] = &[
    ("current_date", ""),
    ("current_timestamp", ""),
    ("date_part", "text date | text timestamp | text timestamptz | text interval"),
    ("date_trunc", "text timestamp | text timestamptz | text date"),
    ("make_date", "int4 int4 int4"),
    ("now", ""),
    ("to_timestamp", "float8"),
];

pub(super) const INTERNAL: &[Row] = &[
    ("extract_millionths", "text date | text timestamp | text timestamptz | text interval"),
    ("extract_thousandths", "text date | text timestamp | text timestamptz | text interval"),
    ("extract_whole", "text date | text timestamp | text timestamptz | text interval"),
    ("to_local_time", "timestamptz"),
];
