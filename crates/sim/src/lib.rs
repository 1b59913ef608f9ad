//! oribi-sim
