//! States as they will be once holds have lapsed.
//!
//! A denied check asks when it would pass, and some of its key's holds may come back before.
//! So they lapse in a copy, which has only what that changes: the states that are asked for,
//! and what each has of its holds. The holds themselves, by far the most, are not copied.

use super::request::Settlement;
use super::{Holds, Row};
use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::state::State;
use crate::limit::series::Take;
use crate::rule::Rule;

/// A copy of states in which holds with `REFUND` lapse.
#[derive(Debug)]
pub struct Foreseen<'h> {
    holds: &'h Holds,
    /// Each in its place; the others are not copied.
    states: Vec<Option<State>>,
    /// A copy of the tracks, without holds.
    tracks: Holds,
    /// What comes back to the log, but was not given back yet: each return moves entries.
    to_log: Vec<Take>,
}

/// So many returns to the log cost no less than any more: they are made in one pass.
const MANY_RETURNS: usize = 64;

impl<'h> Foreseen<'h> {
    /// The states of a key that these rules read.
    pub fn new(states: &[State], holds: &'h Holds, mut reads: impl FnMut(&State) -> bool) -> Self {
        let states = states.iter().map(|state| reads(state).then(|| state.clone())).collect();
        Self { holds, states, tracks: holds.tracks_alone(), to_log: Vec::new() }
    }

    /// Which of the states a rule reads. It stays the same, whatever lapses.
    pub fn place_of(&self, rule: &Rule) -> Option<usize> {
        let belongs =
            |state: &Option<State>| state.as_ref().is_some_and(|own| own.belongs_to(rule));
        self.states.iter().position(belongs)
    }

    /// The state at a place.
    pub fn state_at(&mut self, place: usize) -> Option<&State> {
        let state = self.states.get_mut(place)?.as_mut()?;
        if let Some(log) = state.log_mut().filter(|_| !self.to_log.is_empty()) {
            log.give_back_each(&mut self.to_log);
            self.to_log.clear();
        }
        Some(state)
    }

    /// Whether nothing is left to be given back to the log.
    pub const fn log_has_all(&self) -> bool {
        self.to_log.is_empty()
    }

    /// How many entries of the log move, at most, when what comes back to it is given back.
    pub fn entries_to_move(&self) -> usize {
        let entries = self.states.iter().flatten().find_map(State::log).map_or(0, Log::len);
        entries.saturating_mul(self.to_log.len().min(MANY_RETURNS))
    }

    /// Whether a rule, whose state is at this place, may admit a cost until a time: a quick look
    /// at the log, which can be wrong only if it says so. Of what comes back to the log, no more
    /// than `returned` units were left in the rule's window.
    pub fn may_admit(
        &self,
        rule: &Rule,
        place: Option<usize>,
        cost: u32,
        until_us: u64,
        returned: u64,
    ) -> bool {
        let state = place.and_then(|place| self.states.get(place)?.as_ref());
        state.and_then(State::log).is_none_or(|log| {
            let at_us = until_us.max(log.last_us());
            let used = log.admitted().units_after(at_us.checked_sub(rule.period_us()));
            let room = u64::from(rule.limit()).saturating_add(returned);
            used.saturating_add(cost.into()) <= room
        })
    }

    /// A hold lapses, and its charges come back. Holds lapse in order. Returns what comes back
    /// to the log.
    pub fn lapse(&mut self, row: Row) -> &[Take] {
        let before = self.to_log.len();
        let Some(hold) = self.holds.hold(row) else { return &[] };
        for charge in hold.charges() {
            let place = self.holds.place_of(charge);
            let state = place.and_then(|place| self.states.get_mut(place)?.as_mut());
            if let (Some(state), Some(track)) = (state, self.tracks.track_mut(charge.track)) {
                let (end_us, to_log) = (hold.end_us(), Some(&mut self.to_log));
                state.correct(track, hold, charge, Settlement::Refund, end_us, to_log);
                track.forget_last(hold);
            }
        }
        self.to_log.get(before..).unwrap_or_default()
    }
}
