//! oribi-session
