//! Scenarios of queries over live tables, through SQL. One binary, because each that holds DataFusion takes long to
//! link.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods, reason = "makes and inspects files as a user does")]

mod advisory_locks_keep_sessions_apart;
mod batches_of_long_rows_are_short;
mod changes_of_the_catalog_are_part_of_their_block;
mod columns_change_under_old_files;
mod concurrent_updates_lose_nothing;
mod conditionals_have_one_type;
mod copy_moves_rows_in_bulk;
mod cursors_give_rows_part_by_part;
mod db;
mod deletes_remove_only_what_they_match;
mod explain_analyze_names_the_sources;
mod explain_of_writes_writes_nothing;
mod files_are_tables_on_the_command_line;
mod filters_are_asked_in_the_scan;
mod forms_of_postgresql_are_read;
mod functions_in_from_give_columns;
mod groups_by_key_show_other_columns;
mod json_is_taken_apart;
mod large_values_stay_within_memory;
mod many_rows_are_changed_where_they_lie;
mod moments_are_computed_as_postgresql_does;
mod moments_are_shown_by_the_sessions_clock;
mod numbers_are_read_as_written;
mod numbers_are_those_of_postgresql;
mod operators_bind_as_in_postgresql;
mod order_is_by_what_names_mean;
mod partitions_come_and_go;
mod point_reads_bypass_the_planner;
mod point_writes_agree_with_the_planner;
mod prepared_queries_see_what_is_now;
mod prepared_statements_follow_the_search_path;
mod queries_keep_within_their_memory;
mod ranges_of_keys_are_read_by_key;
mod results_have_the_types_of_postgresql;
mod scans_show_live_rows_only;
mod scans_travel_as_bytes;
mod serializable_transactions_have_an_order;
mod sessions_have_settings_and_blocks;
mod statements_that_come_again_are_remembered;
mod statistics_hold_with_rows_in_memory;
mod stored_values_keep_their_limits;
mod subqueries_without_rows_are_null;
mod tables_are_defined_by_sql;
mod transactions_see_what_they_write;
mod transactions_wait_for_each_other;
mod unread_rows_have_so_much_room;
mod updates_by_key_compute_without_a_query;
mod updates_change_what_they_match;
mod values_are_inserted_as_written;
mod what_can_be_called_answers_as_postgresql;
mod work_is_pushed_down_to_the_scan;
mod writers_wait_without_a_thread;
