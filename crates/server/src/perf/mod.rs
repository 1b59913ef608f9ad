//! `oribi perf`: measurements that need no other program.

mod cold_reads;
mod hardware;
mod kv;
mod loadgen;
mod random;
mod scan;
mod simple_query;
mod tpch;
mod txn_writes;

use oribi_types::Result;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum PerfCommand {
    /// Point reads of a table ten times the memory budget
    ColdReads(cold_reads::ColdReads),
    /// Gets and sets in batches, on any server that speaks memcached's protocols, or Couchbase's
    Kv(kv::KvCommand),
    /// Generated rows into a table over Kudu's protocol, of Oribi or of Kudu
    Loadgen(loadgen::LoadgenCommand),
    /// All rows of a table over Kudu's protocol, of Oribi or of Kudu
    Scan(scan::ScanCommand),
    /// Prepared statements by primary key in this process: operations per second, and what each costs
    SimpleQuery(simple_query::SimpleQuery),
    /// The 22 queries of TPC-H
    Tpch(tpch::TpchCommand),
    /// Writes of one row in a transaction and alone, over Kudu's protocol, of Oribi or of Kudu
    TxnWrites(txn_writes::TxnWritesCommand),
}

pub fn run(command: &PerfCommand) -> Result<()> {
    match command {
        PerfCommand::ColdReads(command) => cold_reads::run(command),
        PerfCommand::Kv(command) => kv::run(command),
        PerfCommand::Loadgen(command) => loadgen::run(command),
        PerfCommand::Scan(command) => scan::run(command),
        PerfCommand::SimpleQuery(command) => simple_query::run(command),
        PerfCommand::Tpch(command) => tpch::run(command),
        PerfCommand::TxnWrites(command) => txn_writes::run(command),
    }
}
