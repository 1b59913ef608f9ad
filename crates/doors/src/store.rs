//! The engine, as the loops of the key-value doors know it.

use oribi_engine::{Engine, Obligation};
use oribi_net::Progress;
use oribi_session::kv::Stop;
use oribi_types::Result;
use std::sync::Arc;

/// What the answers of a key-value door rest on, and what its clients wait for.
pub struct Store(pub Arc<Engine>);

impl oribi_net::Store for Store {
    type Obligation = Obligation;

    fn both(mut one: Obligation, other: Obligation) -> Obligation {
        one.merge(other);
        one
    }

    fn is_settled(&self, obligation: Obligation) -> bool {
        self.0.is_settled(obligation)
    }

    fn settled(&self, obligation: Obligation) -> impl Future<Output = Result<()>> + Send {
        // What is appended is written now, whether or not anybody waits for the disk.
        self.0.settled(obligation)
    }

    fn admits(&self) -> bool {
        self.0.admits()
    }

    fn admission(&self) -> impl Future<Output = ()> + Send {
        self.0.admission()
    }

    fn turn(&self, tries: u32) -> impl Future<Output = ()> + Send {
        oribi_session::turn(&self.0, tries)
    }
}

/// What the rest of the requests needs, of which a round executed some.
pub fn needs(stop: Stop) -> Progress {
    match stop {
        Stop::NeedsFiles => Progress::NeedsBlocking,
        Stop::NeedsTurn => Progress::NeedsTurn,
    }
}
