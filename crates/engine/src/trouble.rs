//! What an engine cannot do at the moment. It tries again by itself: who serves tells who operates it.

use crate::engine::Engine;
use oribi_env::locks::{self, Mutex};
use oribi_types::Error;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The log has stopped, or there is no disk space for its next segment: writes are refused, or will be.
    Log,
    /// The manifest cannot be written: tables cannot be changed, nor memory flushed.
    Manifest,
    /// The memory of some tablet cannot be flushed.
    Flush,
    /// The files of some tablet cannot be compacted.
    Compaction,
    /// What the tables are made of cannot be told to the store: it has what it had before.
    Store,
}

impl Part {
    pub const ALL: [Part; 5] = [Part::Log, Part::Manifest, Part::Flush, Part::Compaction, Part::Store];

    pub fn name(self) -> &'static str {
        match self {
            Part::Log => "log",
            Part::Manifest => "manifest",
            Part::Flush => "flush",
            Part::Compaction => "compaction",
            Part::Store => "store",
        }
    }
}

/// Why something fails.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub part: Part,
    pub error: Error,
    /// Whether something that clients ask for is refused for it, or will be soon.
    pub refuses: bool,
}

/// What the background threads found last.
#[derive(Default)]
pub(crate) struct Troubles {
    flush: Mutex<Option<Error>, { locks::LEAF }>,
    compaction: Mutex<Option<Error>, { locks::LEAF }>,
    store: Mutex<Option<Error>, { locks::LEAF }>,
}

impl Troubles {
    pub fn set(&self, part: Part, error: Option<Error>) {
        match part {
            Part::Flush => *self.flush.lock() = error,
            Part::Compaction => *self.compaction.lock() = error,
            Part::Store => *self.store.lock() = error,
            Part::Log | Part::Manifest => {}
        }
    }

    fn flush(&self) -> Option<Error> {
        self.flush.lock().clone()
    }

    fn compaction(&self) -> Option<Error> {
        self.compaction.lock().clone()
    }

    fn store(&self) -> Option<Error> {
        self.store.lock().clone()
    }
}

impl Engine {
    /// What fails at the moment, at most once for each part; nothing, as a rule.
    pub fn troubles(&self) -> Vec<Trouble> {
        let background = &self.background.troubles;
        let log = self.log.check().and_then(|()| self.log.room()).err();
        let manifest = if self.manifest.has_failed() { self.manifest.check().err() } else { None };
        let (flush, compaction) = (background.flush(), background.compaction());
        let found = [
            (Part::Log, log, true),
            (Part::Manifest, manifest, true),
            (Part::Flush, flush, self.budget.is_full()),
            (Part::Compaction, compaction, false),
            (Part::Store, background.store(), false),
        ];
        let found = found.into_iter().filter_map(|(part, error, refuses)| Some((part, error?, refuses)));
        found.map(|(part, error, refuses)| Trouble { part, error, refuses }).collect()
    }
}
