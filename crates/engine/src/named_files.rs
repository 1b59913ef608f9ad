//! Files that changes have replaced, while somebody may still open them by their names.
//!
//! Who reads in this process has the files open, and reads on when their names are gone. A process beside it opens them when it comes
//! to them: for as long as a query has work there, a [`NamedFiles`] is held, and the names stay. What is left when this process is killed
//! is removed when the folder is opened, as any file that the manifest does not name.

use crate::engine::Engine;
use oribi_env::locks::{self, Mutex};
use oribi_sstable::SstableId;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Names(Mutex<State, { locks::LEAF }>);

#[derive(Default)]
struct State {
    /// Whoever holds names has a number; so does each file that is kept for those with lower ones.
    next: u64,
    holders: BTreeSet<u64>,
    kept: VecDeque<(u64, Replaced)>,
}

/// A file, by its folder and id.
type Replaced = (PathBuf, SstableId);

impl State {
    /// The files that nobody holds any more.
    fn released(&mut self) -> Vec<Replaced> {
        let oldest = self.holders.first().copied().unwrap_or(u64::MAX);
        let count = self.kept.iter().take_while(|(number, _)| *number <= oldest).count();
        self.kept.drain(..count).map(|(_, file)| file).collect()
    }
}

impl Names {
    fn hold(&self) -> u64 {
        let mut state = self.0.lock();
        state.next += 1;
        let number = state.next;
        state.holders.insert(number);
        number
    }

    fn release(&self, number: u64) -> Vec<Replaced> {
        let mut state = self.0.lock();
        state.holders.remove(&number);
        state.released()
    }

    /// The file, if it may be removed now.
    pub(crate) fn replaced(&self, file: Replaced) -> Option<Replaced> {
        let mut state = self.0.lock();
        if state.holders.is_empty() {
            return Some(file);
        }
        state.next += 1;
        let number = state.next;
        state.kept.push_back((number, file));
        None
    }
}

/// As long as this is there, the files that were live when it was made can be opened by their names.
pub struct NamedFiles {
    engine: Arc<Engine>,
    number: u64,
}

impl Engine {
    /// Keeps the names of all files that are live now, and of those that come.
    pub fn named_files(self: &Arc<Self>) -> NamedFiles {
        NamedFiles { engine: Arc::clone(self), number: self.names.hold() }
    }
}

impl Drop for NamedFiles {
    fn drop(&mut self) {
        let released = self.engine.names.release(self.number);
        released.into_iter().for_each(|(dir, id)| self.engine.remove_sstable(&dir, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_for_those_who_came_before_it_was_replaced() {
        let names = Names::default();
        let file = |id| (PathBuf::new(), id);
        assert_eq!(names.replaced(file(1)), Some(file(1)), "nobody holds it");
        let first = names.hold();
        assert_eq!(names.replaced(file(2)), None);
        let second = names.hold();
        assert_eq!(names.replaced(file(3)), None);
        assert_eq!(names.release(first), [file(2)], "the second came when it was gone");
        assert_eq!(names.release(second), [file(3)]);
        assert_eq!(names.replaced(file(4)), Some(file(4)));
    }
}
