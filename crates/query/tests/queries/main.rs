//! Scenarios of queries over live tables, through SQL. One binary, because each that holds DataFusion takes long to
//! link.

mod columns_change_under_old_files;
mod db;
mod explain_analyze_names_the_sources;
mod point_reads_bypass_the_planner;
mod queries_keep_within_their_memory;
mod scans_show_live_rows_only;
mod work_is_pushed_down_to_the_scan;
