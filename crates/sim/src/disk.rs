//! What the simulated disk holds, and what a power cut leaves of it.
//!
//! Contents and names are kept twice: as the process sees them, and as they are durable. Between the two stand the
//! changes that were not synced, each of which a power cut may keep, lose or tear by itself, whatever their order was.

use crate::Rng;
use crate::pages::Pages;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What a disk writes wholly or not at all.
const SECTOR: usize = 512;

pub(crate) type Inode = u64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    Folder,
    File(Inode),
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Clone)]
pub(crate) enum NameChange {
    Add(PathBuf, Node),
    Remove(PathBuf),
    Rename { from: PathBuf, to: PathBuf, node: Node },
}

#[derive(Clone)]
pub(crate) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Grow(u64),
    Length(u64),
}

#[derive(Clone, Default)]
pub(crate) struct Content {
    pub seen: Pages,
    durable: Pages,
    unsynced: Vec<Change>,
}

#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub names: Names,
    durable_names: Names,
    unsynced_names: Vec<NameChange>,
    contents: HashMap<Inode, Content>,
    next_inode: Inode,
    pub locked: HashSet<PathBuf>,
}

impl Disk {
    pub fn add_folder(&mut self, path: &Path) {
        self.change_names(NameChange::Add(path.to_owned(), Node::Folder));
    }

    pub fn add_file(&mut self, path: &Path) -> Inode {
        let inode = self.next_inode;
        self.next_inode += 1;
        self.contents.insert(inode, Content::default());
        self.change_names(NameChange::Add(path.to_owned(), Node::File(inode)));
        inode
    }

    pub fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    /// Makes the changes of names in `folder` durable.
    pub fn sync_names(&mut self, folder: &Path) {
        let durable = &mut self.durable_names;
        self.unsynced_names.retain(|change| {
            let touches = change.touches(folder);
            if touches {
                change.apply(durable);
            }
            !touches
        });
    }

    pub fn content(&mut self, inode: Inode) -> &mut Content {
        self.contents.entry(inode).or_default()
    }

    pub fn used_bytes(&self) -> u64 {
        let inode = |node: &Node| if let Node::File(inode) = node { Some(*inode) } else { None };
        self.names
            .values()
            .filter_map(inode)
            .filter_map(|inode| self.contents.get(&inode))
            .map(|c| c.seen.len())
            .sum()
    }

    /// The disk after a power cut.
    pub fn crash(&self, seed: u64) -> Disk {
        let mut rng = Rng::new(seed);
        let fate = Fate::draw(&mut rng);
        let mut names = self.durable_names.clone();
        for change in &self.unsynced_names {
            if fate.keeps(&mut rng) {
                change.apply(&mut names);
            }
        }
        let reachable: Names = names
            .iter()
            .filter(|(path, _)| is_reachable(path, &names))
            .map(|(p, n)| (p.clone(), *n))
            .collect();
        let mut contents = HashMap::new();
        for node in reachable.values() {
            if let Node::File(inode) = node {
                let content = self.contents.get(inode).map(|content| content.crash(fate, &mut rng));
                contents.insert(*inode, content.unwrap_or_default());
            }
        }
        Disk {
            names: reachable.clone(),
            durable_names: reachable,
            contents,
            next_inode: self.next_inode,
            ..Disk::default()
        }
    }
}

/// Whether every folder above `path` is there.
fn is_reachable(path: &Path, names: &Names) -> bool {
    let mut above = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    above.all(|folder| folder.parent().is_none() || names.get(folder) == Some(&Node::Folder))
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Add(path, node) => {
                names.insert(path.clone(), *node);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename { from, to, node } => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
        }
    }

    fn touches(&self, folder: &Path) -> bool {
        let within = |path: &Path| path.parent() == Some(folder);
        match self {
            NameChange::Add(path, _) | NameChange::Remove(path) => within(path),
            NameChange::Rename { from, to, .. } => within(from) || within(to),
        }
    }
}

impl Content {
    pub fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.unsynced.push(change);
    }

    pub fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A sync that failed: the kernel has marked the pages clean, so no later sync writes them.
    pub fn fail_sync(&mut self) {
        self.unsynced.clear();
    }

    /// Flips a bit of the medium and of what the process reads.
    pub fn flip(&mut self, bit: u64) {
        for pages in [&mut self.seen, &mut self.durable] {
            if bit / 8 < pages.len() {
                let mut byte = [0];
                pages.read(&mut byte, bit / 8);
                pages.write(&[byte[0] ^ (1 << (bit % 8))], bit / 8);
            }
        }
    }

    fn crash(&self, fate: Fate, rng: &mut Rng) -> Content {
        let mut left = self.durable.clone();
        for change in &self.unsynced {
            match change {
                Change::Write { offset, bytes } => write_some_sectors(&mut left, *offset, bytes, fate, rng),
                _ if fate.keeps(rng) => change.apply(&mut left),
                _ => {}
            }
        }
        Content { seen: left.clone(), durable: left, unsynced: Vec::new() }
    }
}

impl Change {
    fn apply(&self, pages: &mut Pages) {
        match self {
            Change::Write { offset, bytes } => pages.write(bytes, *offset),
            Change::Grow(len) => pages.set_len(pages.len().max(*len)),
            Change::Length(len) => pages.set_len(*len),
        }
    }
}

fn write_some_sectors(pages: &mut Pages, offset: u64, bytes: &[u8], fate: Fate, rng: &mut Rng) {
    // A third of the writes is torn; of the others, each is kept or lost as a whole.
    let torn = matches!(fate, Fate::Mixed) && rng.below(3) == 0;
    let whole = fate.keeps(rng);
    let mut at = 0;
    while at < bytes.len() {
        let within = (offset as usize + at) % SECTOR;
        let end = bytes.len().min(at + SECTOR - within);
        if if torn { rng.coin() } else { whole } {
            pages.write(&bytes[at..end], offset + at as u64);
        }
        at = end;
    }
}

/// What becomes of unsynced changes in one crash. The two extremes come often, for they hide behind chance otherwise.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Kept,
    Mixed,
}

impl Fate {
    fn draw(rng: &mut Rng) -> Fate {
        match rng.below(6) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            _ => Fate::Mixed,
        }
    }

    fn keeps(self, rng: &mut Rng) -> bool {
        match self {
            Fate::Lost => false,
            Fate::Kept => true,
            Fate::Mixed => rng.coin(),
        }
    }
}
