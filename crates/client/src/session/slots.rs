//! The lanes that there are, each at a place that it keeps while it has rows.
//!
//! A session may live for long, and tables and ranges come and go meanwhile. So a lane that has no rows may be let go, and
//! its place be another's: whoever has rows for its tablet later opens it again, without asking the master. Those whose
//! tablet is no more are let go at once; of the others all that are idle, each time that there have come to be twice as many.

use crate::batch::Batch;
use crate::table::{Table, Tablet};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Slots {
    lanes: Vec<Lane>,
    /// Places of lanes that were let go.
    free: Vec<usize>,
    /// How many there may be before those that are idle are let go.
    max: usize,
}

/// The way to one tablet.
pub(super) struct Lane {
    pub table: Table,
    /// `None` in a place that is free.
    tablet: Option<Arc<Tablet>>,
    pub open: Batch,
    /// The flush that the oldest row in `open` belongs to.
    pub open_flush: u64,
    /// That of the batch that is being sent.
    pub under_way: Option<u64>,
    /// Send `open` as soon as nothing is under way.
    pub is_due: bool,
}

/// A session that writes to fewer tablets has all of its lanes to the end.
const IDLE_MAX: usize = 64;

impl Slots {
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// The place of the lane to a tablet, if there is one.
    pub fn find(&self, tablet: &Arc<Tablet>) -> Option<usize> {
        self.lanes
            .iter()
            .position(|lane| lane.tablet.as_ref().is_some_and(|known| Arc::ptr_eq(known, tablet)))
    }

    /// Adds a lane to a tablet; returns its place.
    pub fn add(&mut self, table: &Table, tablet: Arc<Tablet>) -> usize {
        let (table, tablet, open) = (table.clone(), Some(tablet), Batch::default());
        let lane = Lane { table, tablet, open, open_flush: 0, under_way: None, is_due: false };
        match self.free.pop() {
            Some(place) => {
                self.lanes[place] = lane;
                place
            }
            None => {
                self.lanes.push(lane);
                self.lanes.len() - 1
            }
        }
    }

    /// Lets a lane go that has no rows.
    pub fn release(&mut self, place: usize) {
        debug_assert!(self.lanes[place].is_idle());
        self.lanes[place].tablet = None;
        self.free.push(place);
    }

    /// Lets those go that are idle, if there are many; whether there were.
    pub fn release_idle(&mut self) -> bool {
        if self.lanes.len() - self.free.len() < self.max.max(IDLE_MAX) {
            return false;
        }
        for place in 0..self.lanes.len() {
            if self.lanes[place].is_idle() && !self.lanes[place].is_free() {
                self.release(place);
            }
        }
        self.max = 2 * (self.lanes.len() - self.free.len());
        true
    }
}

impl Index<usize> for Slots {
    type Output = Lane;

    #[inline]
    fn index(&self, place: usize) -> &Lane {
        &self.lanes[place]
    }
}

impl IndexMut<usize> for Slots {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut Lane {
        &mut self.lanes[place]
    }
}

impl Lane {
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.under_way.is_none()
    }

    pub fn is_free(&self) -> bool {
        self.tablet.is_none()
    }

    /// Of a lane that is not free.
    pub fn tablet(&self) -> Arc<Tablet> {
        self.tablet.clone().expect("a lane with rows leads to a tablet")
    }
}
