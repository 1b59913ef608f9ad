//! Which lane a key takes.
//!
//! While tablets make way for others, lanes to old and to new ones have keys in common. So that all rows of a key that are not
//! done are in one lane, each lane *claims* intervals of partition keys, disjoint from those of the others: it gets what nobody
//! claims when it is opened, and keeps it as long as it has rows.

use crate::table::{Table, Tablet};
use bytes::Bytes;
use std::sync::Arc;

/// The lanes to a table.
pub(super) struct Route {
    table: Table,
    /// In the order of their keys, disjoint.
    claims: Vec<Claim>,
}

/// Keys from `start`, inclusive, to `end`, exclusive; an empty end is the end of all keys.
struct Claim {
    start: Bytes,
    end: Bytes,
    lane: usize,
}

impl Route {
    pub(super) fn new(table: Table) -> Self {
        Route { table, claims: Vec::new() }
    }

    pub(super) fn is_to(&self, table: &Table) -> bool {
        Arc::ptr_eq(&self.table.shared, &table.shared)
    }

    /// The lane that a key takes, if any claims it.
    #[inline]
    pub(super) fn find(&self, partition_key: &[u8]) -> Option<usize> {
        let after = self.claims.partition_point(|claim| claim.start <= partition_key);
        let claim = self.claims[..after].last()?;
        (claim.end.is_empty() || partition_key < claim.end).then_some(claim.lane)
    }

    /// Claims for a lane to a tablet what keys of it no other lane has; those that `is_idle` have none.
    pub(super) fn claim(&mut self, lane: usize, tablet: &Tablet, is_idle: impl Fn(usize) -> bool) {
        self.claims.retain(|claim| !(claim.overlaps(tablet) && is_idle(claim.lane)));
        let mut gaps = Vec::new();
        // Where the next gap may begin; `None` if all keys are claimed from here on.
        let mut from = Some(tablet.start.clone());
        for claim in self.claims.iter().filter(|claim| claim.overlaps(tablet)) {
            let Some(start) = from else { break };
            if start < claim.start {
                gaps.push(Claim { start, end: claim.start.clone(), lane });
            }
            from = Some(claim.end.clone()).filter(|end| !end.is_empty());
        }
        if let Some(start) = from.filter(|start| tablet.end.is_empty() || *start < tablet.end) {
            gaps.push(Claim { start, end: tablet.end.clone(), lane });
        }
        self.claims.extend(gaps);
        self.claims.sort_unstable_by(|a, b| a.start.cmp(&b.start));
    }

    /// Gives back what lanes have claimed that `is_free`, which have no rows; whether any has a claim still.
    pub(super) fn release(&mut self, is_free: impl Fn(usize) -> bool) -> bool {
        self.claims.retain(|claim| !is_free(claim.lane));
        !self.claims.is_empty()
    }
}

impl Claim {
    fn overlaps(&self, tablet: &Tablet) -> bool {
        (tablet.end.is_empty() || self.start < tablet.end) && (self.end.is_empty() || tablet.start < self.end)
    }
}
