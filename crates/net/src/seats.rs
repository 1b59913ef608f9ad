//! Those whom a loop serves: each has a seat, whose number is its own as long as it sits there.

use crate::Service;
use crate::guest::Guest;
use std::ops::Range;
use std::time::Instant;

pub(crate) struct Seats<S: Service> {
    seats: Vec<Option<Seat<S>>>,
    free: Vec<usize>,
}

pub(crate) struct Seat<S: Service> {
    pub guest: Guest<S>,
    /// When it had its last turn, where it may not be silent for ever.
    pub heard: Instant,
    /// The round of its last turn.
    pub round: u64,
    /// It had none since it came.
    pub is_unheard: bool,
}

impl<S: Service> Default for Seats<S> {
    fn default() -> Self {
        Seats { seats: Vec::new(), free: Vec::new() }
    }
}

impl<S: Service> Seats<S> {
    /// Returns the number of the seat that is taken.
    pub fn take(&mut self, seat: Seat<S>) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.seats.push(None);
            self.seats.len() - 1
        });
        self.seats[number] = Some(seat);
        number
    }

    /// None if nobody sits there any more.
    pub fn get(&self, number: usize) -> Option<&Seat<S>> {
        self.seats[number].as_ref()
    }

    /// Likewise.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Seat<S>> {
        self.seats[number].as_mut()
    }

    pub fn vacate(&mut self, number: usize) -> Option<Seat<S>> {
        let left = self.seats[number].take();
        if left.is_some() {
            self.free.push(number);
        }
        left
    }

    pub fn has_anybody(&self) -> bool {
        self.free.len() < self.seats.len()
    }

    /// Of all seats, taken or not.
    pub fn numbers(&self) -> Range<usize> {
        0..self.seats.len()
    }
}
