//! oribi-doors
