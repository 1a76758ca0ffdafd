//! A state as it will be after some holds have lapsed.
//!
//! A denied check asks when it would pass, and some of its key's holds may give back units before
//! then. So these holds lapse in a copy, which has only the state that the rule reads and its
//! track. The holds themselves, by far the largest part, are not copied.

use super::{Track, TrackNumber};
use crate::algorithm::{Algorithm, State, Take};
use crate::key::{Holds, Settlement};
use alloc::{borrow::Cow, vec::Vec};
use core::ops::Range;

/// A state and its track, copied when the first hold with `REFUND` lapses in them.
#[derive(Clone, Debug)]
pub struct LapsedCopy<'h> {
    holds: &'h Holds,
    number: TrackNumber,
    track: Cow<'h, Track>,
    state: Cow<'h, State>,
    /// Units that the log is still to give back. Giving them back copies the log's entries.
    to_log: Vec<Take>,
}

impl<'h> LapsedCopy<'h> {
    /// The state at a place of a key with holds; `None` if no hold was charged on it.
    pub fn new(place: usize, state: &'h State, holds: &'h Holds) -> Option<Self> {
        let number = holds.track_of(place)?;
        let track = Cow::Borrowed(holds.track(number)?);
        Some(Self { holds, number, track, state: Cow::Borrowed(state), to_log: Vec::new() })
    }

    pub fn state(&mut self) -> &State {
        if !self.to_log.is_empty()
            && let Some(log) = self.state.to_mut().log_mut()
        {
            log.give_back_each(&mut self.to_log);
            self.to_log.clear();
        }
        &self.state
    }

    /// Lets the holds of these ranks lapse. Every hold that lapses before them must have lapsed
    /// here already.
    pub fn lapse(&mut self, ranks: Range<usize>) {
        let Self { holds, number, .. } = *self;
        for hold in holds.of_ranks(ranks).filter(|hold| hold.refunds()) {
            let end_us = hold.end_us();
            for charge in hold.charges().iter().filter(|charge| charge.track == number) {
                if self.state.log().is_some_and(|log| log.last_us() <= end_us) {
                    let units = charge.units.into();
                    self.to_log.push(Take { time_us: charge.stamp_us, units });
                    continue;
                }
                let (state, track) = (self.state.to_mut(), self.track.to_mut());
                state.correct(track, hold, charge, Settlement::Refund, end_us, None);
                track.forget_last(hold);
            }
        }
    }
}
