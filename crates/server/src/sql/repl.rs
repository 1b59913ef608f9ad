//! The conversation: what each [entry](Entry) asks for, done.

use crate::sql::connection::Connection;
use crate::sql::lines::{Entry, Lines};
use crate::sql::output::{Format, Printer};
use crate::stdout::{self, Stdout, complain, say};
use oribi_types::{Error, Result};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::path::PathBuf;
use std::time::Instant;
use tokio::runtime::Runtime;

const HELP: &str = "\
  \\d          tables             \\d TABLE    columns of a table
  \\dt         tables             \\timing     switches the time of each statement on and off
  \\q          leave              \\?          this text
  A statement ends with a semicolon; Ctrl-C cancels one that runs, or drops one that was begun.";

const TABLES: &str = "select table_schema as \"schema\", table_name as \"table\" from information_schema.tables \
                      where table_schema not in ('information_schema', 'pg_catalog') order by 1, 2";

/// What an entry asks for.
#[derive(Debug, PartialEq, Eq)]
enum Ask {
    Sql(String),
    Timing,
    Help,
    Quit,
    Unknown(String),
}

fn ask(entry: Entry) -> Ask {
    match entry {
        Entry::Statement(sql) => Ask::Sql(sql),
        Entry::Command(line) => command(&line),
    }
}

/// Interprets a command that starts with a backslash.
fn command(line: &str) -> Ask {
    let line = line.trim().trim_end_matches(';');
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, argument.trim()) {
        ("\\q", _) => Ask::Quit,
        ("\\timing", _) => Ask::Timing,
        ("\\?" | "\\h", _) => Ask::Help,
        ("\\d" | "\\dt", "") => Ask::Sql(TABLES.to_owned()),
        ("\\d", table) => Ask::Sql(describe(table)),
        _ => Ask::Unknown(line.to_owned()),
    }
}

fn describe(table: &str) -> String {
    let quote = |name: &str| format!("'{}'", name.trim_matches('"').replace('\'', "''"));
    let wanted = match table.split_once('.') {
        Some((schema, name)) => format!("table_schema = {} and table_name = {}", quote(schema), quote(name)),
        None => format!("table_name = {}", quote(table)),
    };
    format!(
        "select column_name as \"column\", data_type as \"type\", is_nullable as nullable \
         from information_schema.columns where {wanted} order by table_schema, ordinal_position"
    )
}

/// Talks until the end of the input or `\q`.
///
/// # Errors
/// Those of the terminal.
pub fn run(runtime: &Runtime, connection: &Connection, format: Format, in_process: bool) -> Result<()> {
    let readline_error = |e: ReadlineError| Error::internal(format!("terminal: {e}"));
    let mut editor = DefaultEditor::new().map_err(readline_error)?;
    let history = history_file();
    if let Some(path) = &history {
        // There is none yet, the first time.
        let _ = editor.load_history(path);
    }
    say!(
        "oribi {} ({}). \\? for help.",
        env!("CARGO_PKG_VERSION"),
        if in_process { "in process" } else { "server" }
    )?;
    let mut timing = false;
    let mut lines = Lines::default();
    'conversation: loop {
        let line = match editor.readline(lines.prompt()) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                lines.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(readline_error(error)),
        };
        for entry in lines.push(&line) {
            let (Entry::Statement(text) | Entry::Command(text)) = &entry;
            // A line that cannot be kept is only missing from the history.
            let _ = editor.add_history_entry(text);
            match ask(entry) {
                Ask::Sql(sql) => {
                    let started = Instant::now();
                    let done = runtime.block_on(run_until_interrupt(connection, &sql, format));
                    match done {
                        Err(error) if stdout::is_closed() => return Err(error),
                        Err(error) => complain(format_args!("error: {error}")),
                        Ok(()) => {}
                    }
                    if timing {
                        say!("time: {:.3} ms", started.elapsed().as_secs_f64() * 1e3)?;
                    }
                }
                Ask::Timing => {
                    timing = !timing;
                    say!("timing is {}", if timing { "on" } else { "off" })?;
                }
                Ask::Help => say!("{HELP}")?,
                Ask::Quit => break 'conversation,
                Ask::Unknown(line) => say!("unknown command {line}; \\? for help")?,
            }
        }
    }
    if let Some(path) = &history {
        editor.save_history(path).map_err(readline_error)?;
    }
    Ok(())
}

async fn run_until_interrupt(connection: &Connection, sql: &str, format: Format) -> Result<()> {
    let mut out = Stdout;
    let mut printer = Printer::new(&mut out, format);
    let mut statement = std::pin::pin!(connection.run(sql, &mut printer));
    tokio::select! {
        result = &mut statement => result,
        _ = tokio::signal::ctrl_c() => {
            connection.cancel().await;
            match connection {
                // The server answers that it stopped.
                Connection::Remote(_) => statement.await,
                Connection::Local { .. } => Err(Error::invalid("canceled")),
            }
        }
    }
}

fn history_file() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".oribi_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_apart() {
        assert_eq!(command("\\q"), Ask::Quit);
        assert_eq!(command("\\timing "), Ask::Timing);
        assert_eq!(command("\\dt;"), Ask::Sql(TABLES.into()));
        assert_eq!(command("\\x y"), Ask::Unknown("\\x y".into()));
        let Ask::Sql(sql) = command("\\d s.o'clock") else { panic!("a query") };
        assert!(sql.contains("table_schema = 's' and table_name = 'o''clock'"), "{sql}");
    }
}
