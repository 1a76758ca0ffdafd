//! States as they will be once holds have lapsed.
//!
//! A denied check asks when it would pass, and some of its key's holds may come back before.
//! So they lapse in a copy, which has only what that changes: the states that are asked for,
//! and what each has of its holds. The holds themselves, by far the most, are not copied.

use super::request::Settlement;
use super::{Ended, Holds, Row};
use crate::limit::algorithm::state::State;
use crate::rule::Rule;
use std::borrow::Cow;

/// A copy of states in which holds with `REFUND` lapse.
#[derive(Debug)]
pub struct Foreseen<'h> {
    holds: &'h Holds,
    states: Vec<State>,
    /// A copy of the tracks, without holds.
    tracks: Holds,
}

impl<'h> Foreseen<'h> {
    /// The states of a key that these rules read.
    pub fn new(states: &[State], holds: &'h Holds, mut reads: impl FnMut(&State) -> bool) -> Self {
        let states = states.iter().filter(|state| reads(state)).cloned().collect();
        Self { holds, states, tracks: holds.tracks_alone() }
    }

    /// The state that a rule reads.
    pub fn state_of(&self, rule: &Rule) -> Option<&State> {
        self.states.iter().find(|state| state.belongs_to(rule))
    }

    /// A hold lapses, and its charges come back. Holds lapse in order.
    pub fn lapse(&mut self, row: Row) {
        let Some(hold) = self.holds.hold(row) else { return };
        let queued_last = self.tracks.forget_last(row);
        let ended = Ended { hold: Cow::Borrowed(hold), queued_last };
        for charge in hold.charges() {
            let state = self.states.iter_mut().find(|state| state.track() == Some(charge.track));
            if let (Some(state), Some(track)) = (state, self.tracks.track_mut(charge.track)) {
                state.correct(track, &ended, charge, Settlement::Refund, hold.end_us());
            }
        }
    }
}
