//! Standard output as every command but `serve` writes to it.
//!
//! Whoever reads it may stop at any time, as `head` does. A command notices when it writes the next time: it then ends as
//! after any error, with what it opened closed, but says nothing of it. `println!` would panic.

use oribi_types::{Error, Result};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a shell shows of a process that ended by SIGPIPE, and so of one whose reader left before all was said.
pub const STATUS_OF_A_CLOSED_PIPE: u8 = 128 + 13;

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether a write found that nobody reads any more.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Standard output, which notes when it is closed.
pub struct Stdout;

impl Stdout {
    fn noted<T>(result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                CLOSED.store(true, Ordering::Relaxed);
            }
        })
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::noted(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::noted(io::stdout().flush())
    }
}

/// Writes a line, at once.
///
/// # Errors
/// Those of the system; of one whose reader left, [`is_closed`] tells.
pub fn line(text: std::fmt::Arguments<'_>) -> Result<()> {
    let written = Stdout.write_all(format!("{text}\n").as_bytes()).and_then(|()| Stdout.flush());
    written.map_err(|e| Error::from(e).context("standard output"))
}

/// [`line`] with the arguments of `println!`.
macro_rules! say {
    ($($text:tt)*) => { $crate::stdout::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// A line on standard error. Nobody can be told that it could not be written.
pub fn complain(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}
