//! `oribi sql`: one statement, a script, or a conversation.

pub mod connection;
mod lines;
mod output;
mod repl;

pub use output::{Format, Printer, write_csv_line};

use crate::runtime;
use crate::stdout::Stdout;
use connection::{Connection, Target};
use oribi_types::Result;
use std::io::{IsTerminal, Read};

/// Runs SQL against a server, a folder, or nothing but files: `oribi sql -c "select * from 'data.parquet'"`
#[derive(Clone, Debug, clap::Args)]
pub struct SqlCommand {
    #[command(flatten)]
    target: Target,
    /// Statements to run instead of a conversation
    #[arg(short = 'c', long = "command", value_name = "SQL", allow_hyphen_values = true)]
    command: Option<String>,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(command: &SqlCommand) -> Result<()> {
    let runtime = runtime()?;
    let connection = runtime.block_on(Connection::open(&command.target))?;
    let script = match &command.command {
        Some(script) => Some(script.clone()),
        None if std::io::stdin().is_terminal() => None,
        None => {
            let mut script = String::new();
            std::io::stdin().read_to_string(&mut script)?;
            Some(script)
        }
    };
    let result = match script {
        Some(script) => {
            let mut out = std::io::BufWriter::new(Stdout);
            let mut printer = Printer::new(&mut out, command.format);
            runtime.block_on(connection.run(&script, &mut printer))
        }
        None => repl::run(&runtime, &connection, command.format, command.target.host.is_none()),
    };
    // Closing comes first, whatever the statements did; their error is the one to tell.
    let closed = connection.close();
    result.and(closed)
}
