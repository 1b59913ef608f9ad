//! Whose the parts of a scan are: row groups of files, and the rows that a tablet has in memory.
//!
//! A part is the node's whose name and it have the highest hash (rendezvous hashing), so that a file's row groups are read by the same nodes
//! in each query. A node that has its share of the rows takes no more, and the next in order does: tables have few row groups, and by
//! hashes alone one of two nodes often had twice as many rows as the other.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// A file, or [`MEMORY`], and which part of it.
pub(super) type Part = (u64, u32);

pub(super) const MEMORY: u64 = u64::MAX;

/// Tasks by parts.
pub(super) type Shares = HashMap<Part, usize>;

/// Shares out parts, with as many rows each, to tasks that run on nodes with these names.
pub(super) fn shares(names: &[String], mut parts: Vec<(Part, u64)>) -> Shares {
    // However they were found.
    parts.sort_unstable();
    let all: u64 = parts.iter().map(|(_, rows)| rows).sum();
    let share = all.div_ceil(names.len().max(1) as u64);
    let hash = BuildHasherDefault::<DefaultHasher>::default();
    let mut taken = vec![0; names.len()];
    let mut task_of = |(file, part): Part, rows: u64| {
        let weight = |task: &usize| hash.hash_one((&names[*task], file, part));
        let task =
            (0..names.len()).filter(|task| taken[*task] < share).max_by_key(weight).unwrap_or_default();
        taken[task] += rows;
        task
    };
    parts.into_iter().map(|(part, rows)| (part, task_of(part, rows))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|name| format!("node{name}")).collect()
    }

    fn rows_of(shares: &Shares, parts: &[(Part, u64)], task: usize) -> u64 {
        parts.iter().filter(|(part, _)| shares[part] == task).map(|(_, rows)| rows).sum()
    }

    proptest! {
        #[test]
        fn no_node_has_more_than_its_share_and_a_part(
            nodes in 1..6usize,
            parts in proptest::collection::btree_map((0..5u64, 0..20u32), 0..1000u64, 0..60),
        ) {
            let (names, parts) = (names(nodes), Vec::from_iter(parts));
            let of = shares(&names, parts.clone());
            let (all, most) = (parts.iter().map(|(_, rows)| rows).sum::<u64>(), parts.iter().map(|(_, rows)| *rows).max());
            prop_assert!(of.values().all(|task| *task < nodes));
            for task in 0..nodes {
                prop_assert!(rows_of(&of, &parts, task) <= all.div_ceil(nodes as u64) + most.unwrap_or(0));
            }
            let reversed = parts.iter().rev().copied().collect();
            prop_assert_eq!(shares(&names, reversed), of);
        }
    }

    #[test]
    fn most_parts_stay_when_a_file_comes() {
        let parts = |files: u64| -> Vec<(Part, u64)> {
            (0..files).flat_map(|file| (0..20).map(move |group| ((file, group), 1000))).collect()
        };
        let (before, after) = (shares(&names(3), parts(10)), shares(&names(3), parts(11)));
        let stays = before.iter().filter(|(part, task)| after[*part] == **task).count();
        assert!(stays > 180, "{stays} of 200");
    }
}
