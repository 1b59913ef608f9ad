//! The binary `oribi`: command line, configuration and wiring. Everything else lives in the crates below; nothing
//! below reads files of settings, flags or the environment.

// A reader that leaves ends a command; it must not make it panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::disallowed_methods, reason = "the binary reads and writes the files that its user names")]

mod alloc;
mod config;
mod database;
mod encryption;
mod import;
mod logging;
mod nodes;
mod perf;
mod processor;
mod serve;
mod sql;
mod stdout;
mod store;
mod tpch;
mod trim;

use clap::{Parser, Subcommand};
use config::{Flags, Layers};
use oribi_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stdout::{complain, say};

#[global_allocator]
static ALLOCATOR: alloc::CountingAllocator = alloc::CountingAllocator;

/// One live copy of the data, served as a cache and as a SQL database.
#[derive(Parser)]
#[command(name = "oribi", version = processor::VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves a folder through all doors
    Serve(Flags),
    /// Shows each setting with its value and where it came from
    Config(Flags),
    Sql(sql::SqlCommand),
    Import(import::ImportCommand),
    /// Verifies every checksum and invariant of a folder that no process serves
    Check {
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Rewrites all SSTables of a folder that no process serves, without the rows that are no more
    Compact {
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Memory budget
        #[arg(long, value_name = "SIZE", default_value = "1GiB")]
        memory: String,
    },
    /// Makes a new folder the owner of the tables that a store keeps, as they were last told to it
    Restore {
        #[arg(long, value_name = "URL")]
        store: String,
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Checks that a store does what it must for tables to be kept in it
    Doctor {
        #[arg(long, value_name = "URL")]
        store: String,
    },
    /// Writes the tables of TPC-H as Parquet files
    Generate {
        /// 1 is 8.7 million rows
        #[arg(long, default_value_t = 0.1)]
        scale: f64,
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Measures
    #[command(subcommand)]
    Perf(perf::PerfCommand),
}

fn main() -> ExitCode {
    processor::run_best();
    match run(Cli::parse().command) {
        Ok(status) => status,
        Err(_) if stdout::is_closed() => ExitCode::from(stdout::STATUS_OF_A_CLOSED_PIPE),
        Err(error) => {
            complain(format_args!("oribi: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve(flags) => serve::run(&Layers::load(&flags, std::env::vars())?),
        Command::Config(flags) => show_config(&Layers::load(&flags, std::env::vars())?),
        Command::Sql(command) => sql::run(&command),
        Command::Import(command) => {
            return import::run(&command).map(|refused| match refused {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::from(import::STATUS_OF_REFUSED_ROWS),
            });
        }
        Command::Check { data } => check(&data),
        Command::Compact { data, memory } => compact(&data, &memory),
        Command::Restore { store, data } => store::restore(&store, &data),
        Command::Doctor { store } => store::doctor(&store),
        Command::Generate { scale, out } => {
            tpch::generate(scale, &out, |table, rows| say!("{table}: {rows} rows"))
        }
        Command::Perf(command) => perf::run(&command),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn show_config(layers: &Layers) -> Result<()> {
    for (name, value, origin) in layers.iter() {
        say!("{name} = {value:?}  # {origin}")?;
    }
    layers.config().map(drop)
}

fn check(dir: &Path) -> Result<()> {
    let mut report = oribi_engine::check(database::env_of(dir)?, dir)?;
    report.findings.extend(database::stored_node_id(dir).err().map(|error| error.to_string()));
    for finding in &report.findings {
        say!("{finding}")?;
    }
    match report.findings.len() {
        0 => say!("{}: clean", dir.display()),
        n => Err(Error::corrupt(format!("{}: {n} findings", dir.display()))),
    }
}

fn compact(dir: &Path, memory: &str) -> Result<()> {
    let engine = database::open(dir, memory)?.engine;
    let catalog = engine.catalog();
    let compacted = catalog.schemas().flat_map(|schema| catalog.tables(schema)).try_for_each(|table| {
        engine.flush(table)?;
        engine.compact(table)
    });
    compacted.and(engine.close())
}

/// The threads that wait for sockets. Queries have their own.
fn runtime() -> Result<tokio::runtime::Runtime> {
    let refused = |e: std::io::Error| Error::unavailable(format!("threads: {e}"));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // And one that opens the folder.
    oribi_env::can_spawn(threads + 1, IO_STACK_BYTES).map_err(refused)?;
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(threads).thread_stack_size(IO_STACK_BYTES);
    let builder = builder.on_thread_start(oribi_env::serve_promptly);
    builder.thread_name("io").enable_all().build().map_err(refused)
}

/// As tokio has it.
const IO_STACK_BYTES: usize = 2 << 20;
