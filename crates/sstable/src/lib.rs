//! oribi-sstable
