//! One client of the door: its requests that arrived together are executed together.

use super::Shared;
use super::binary;
use super::codec::{self, CodecLimits};
use super::text::Text;
use super::window::Window;
use oribi_engine::Obligation;
use oribi_net::{Exchange, Leave, Progress, Protocol};
use std::sync::Arc;

pub struct Client {
    shared: Arc<Shared>,
    language: Language,
}

/// Which protocol a client speaks, as its first byte shows.
enum Language {
    Unknown,
    Text(Text),
    Binary,
}

/// What was taken of the input.
pub enum Taken {
    /// The next request is not whole.
    Nothing,
    /// A request: `window.end` is where it ends.
    Request,
    /// Likewise, and so many bytes that have not arrived are no request.
    Skip(u64),
    /// So many bytes, and nothing more will be.
    Last(usize),
}

impl Taken {
    /// A request, and `absent` bytes behind it.
    pub fn skip(absent: u64) -> Self {
        if absent == 0 { Taken::Request } else { Taken::Skip(absent) }
    }
}

impl Client {
    pub fn new(shared: Arc<Shared>) -> Self {
        Client { shared, language: Language::Unknown }
    }
}

impl Protocol for Client {
    type Obligation = Obligation;

    fn advance(&mut self, exchange: &mut Exchange<Obligation>, leave: Leave) -> Progress {
        let Some(first) = exchange.input.first() else { return Progress::Done };
        if matches!(self.language, Language::Unknown) {
            self.language = match *first {
                codec::binary::MAGIC => Language::Binary,
                _ => Language::Text(Text::default()),
            };
        }
        let limits = self.shared.kv.limits();
        let limits =
            CodecLimits { key_bytes_max: limits.key_bytes_max, value_bytes_max: limits.value_bytes_max };
        let Exchange { input, output, obligation, .. } = exchange;
        let mut window = Window::new(&self.shared, leave, *obligation, input.len(), output);
        let (progress, last) = execute(&mut self.language, input, &limits, &mut window);
        let (consumed, owed) = window.finish();
        if let (Language::Text(text), true) = (&mut self.language, progress != Progress::Done) {
            // What was not executed is read again, from its beginning.
            text.search_anew();
        }
        obligation.merge(owed);
        exchange.input.advance(consumed);
        match last {
            Taken::Skip(bytes) => exchange.skip(bytes),
            Taken::Last(_) => exchange.closing = true,
            Taken::Nothing | Taken::Request => {}
        }
        progress
    }
}

/// Executes what is whole in `input`, up to what ends the connection or the input that has arrived.
fn execute<'b>(
    language: &mut Language,
    input: &'b [u8],
    limits: &CodecLimits,
    window: &mut Window<'b>,
) -> (Progress, Taken) {
    loop {
        if window.output_is_full() {
            return (Progress::OutputFull, Taken::Nothing);
        }
        let rest = &input[window.end..];
        let taken = match language {
            Language::Text(text) => text.take(rest, limits, window),
            Language::Binary | Language::Unknown => binary::take(rest, limits, window),
        };
        let last = match taken {
            Ok(Taken::Request) => continue,
            Ok(last) => last,
            Err(progress) => return (progress, Taken::Nothing),
        };
        if let Taken::Last(len) = last {
            window.end += len;
        }
        return match window.flush() {
            Ok(()) => {
                window.conclude();
                (Progress::Done, last)
            }
            Err(progress) => (progress, Taken::Nothing),
        };
    }
}
