//! oribi-query
