//! oribi-engine
