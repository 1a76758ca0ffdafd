//! How a key's holds change its states: when they are taken, settled, renewed, or lapse.
//!
//! ```text
//!            states                         holds
//!   check    consume ---- charge ---------> take
//!   settle   give back, or consume more <-- end        as if the check had cost this much
//!   lapse    give back, if REFUND <-------- end        at the hold's end
//! ```
//!
//! Lapsing depends on state and time only. Every change of a key at `now_us` first ends the holds
//! that have lapsed, ordered by end and id. A lapsed hold is settled at the time of its end, or at
//! `now_us` if the clock stepped back to before the hold. So a replica that makes the same changes at
//! the same times has the same holds.

use super::holds::Track;
use super::{
    Charge, Check, Compound, Costs, Hold, HoldRequest, Holds, Length, Limiter, Settlement,
};
use crate::algorithm::{Moment, NO_TIME_US, Needs, State, Take, effective_time};
use crate::rule::{Identity, Kind, MS_US, Rule};
use alloc::borrow::Cow;
use alloc::vec::Vec;

impl Limiter {
    /// The live hold with this id.
    pub(crate) fn live_hold(&self, id: &[u8], now_us: u64) -> Option<&Hold> {
        self.holds()?.find_live(id, now_us)
    }

    /// The number of live holds.
    pub fn live_holds(&self, now_us: u64) -> usize {
        self.holds().map_or(0, |holds| holds.alive(now_us))
    }

    /// The live hold that the check repeats.
    pub(crate) fn repeated_hold(&self, check: &Check<'_>) -> Option<&Hold> {
        self.live_hold(check.hold()?.id, check.now_us)
    }

    /// The end of the live hold that the check repeats; `None` if it repeats none.
    pub fn repeats_until(&self, check: &Check<'_>) -> Option<u64> {
        self.repeated_hold(check).map(Hold::end_us)
    }

    /// True if the check moves the end of the hold that it repeats.
    pub(crate) fn renews(&self, repeated: &Hold, check: &Check<'_>) -> bool {
        let (Some(request), Some(holds)) = (check.hold(), self.holds()) else { return false };
        repeated.end_us() != request.end_us
            || holds.length_of(repeated) != request.length_from(check.now_us)
    }

    /// A live hold's charge for a rule, if the charged state is still there.
    pub(crate) fn charge_for(&self, id: &[u8], rule: &Rule) -> Option<&Charge> {
        let (holds, place) =
            (self.holds()?, self.states().iter().position(|state| state.fits(rule))?);
        let track = holds.track_of(place)?;
        holds.find(id)?.charges().iter().find(|charge| charge.track == track)
    }

    /// The default cost that a live hold was charged; `None` if each of its rules had its own cost.
    pub(crate) fn held_by_default(&self, id: &[u8]) -> Option<u32> {
        let charges = self.holds()?.find(id)?.charges();
        charges.iter().find(|charge| charge.by_default && !charge.shadow).map(|charge| charge.units)
    }

    /// Milliseconds until the turn that the hold repeated by the check got under `rule`.
    pub(crate) fn turn_of_repeat(&self, rule: &Rule, check: &Check<'_>) -> i64 {
        if rule.kind() != Kind::Leaky {
            return 0;
        }
        let charge = check.hold().and_then(|hold| self.charge_for(hold.id, rule));
        charge.map_or(0, |charge| {
            let turn_us = u64::from(charge.detail.turn_ms()).saturating_mul(MS_US);
            Moment::At(charge.stamp_us.saturating_add(turn_us)).ms_after(check.now_us)
        })
    }

    /// The first step of a check: ends the holds that have lapsed, if that changes what rules read.
    /// Returns true if the key changed; this change must be propagated.
    #[inline(always)]
    pub fn lapse_if_due(&mut self, now_us: u64) -> bool {
        let due = self.lapse_is_due(now_us);
        if due {
            self.lapse(now_us);
        }
        due
    }

    /// True if holds have lapsed, and that changes what rules read.
    #[inline(always)]
    pub fn lapse_is_due(&self, now_us: u64) -> bool {
        self.holds().is_some_and(|holds| holds.lapse_matters(now_us))
    }

    /// The limiter as rules read it at `now_us`, without the holds that have lapsed.
    #[must_use]
    pub fn as_of(&self, now_us: u64) -> Cow<'_, Self> {
        let mut seen = Cow::Borrowed(self);
        if self.lapse_is_due(now_us) {
            seen.to_mut().lapse(now_us);
        }
        seen
    }

    /// The level of a rule's state before a check consumes from it; 0 if the key has no holds and
    /// the check takes none.
    pub(super) fn level_before(&self, index: usize, rule: &Rule, check: &Check<'_>) -> u128 {
        if check.hold().is_none() && self.holds().is_none() {
            return 0;
        }
        let level = |state: &State| {
            let at_us = effective_time(check.now_us, state.meter().last_us(), rule.period_us())?;
            Some(state.seen_by(rule, at_us)?.level(rule.limit(), at_us))
        };
        self.states().get(index).and_then(level).unwrap_or_default()
    }

    /// Called before a check consumes if the clock stepped back by more than the check's longest
    /// window. Moves the log's entries back in time, or drops them. The charges of holds follow
    /// their entries.
    #[cold]
    pub(super) fn step_log_back(&mut self, index: usize, window_us: u64, now_us: u64) {
        let (states, holds) = self.states_and_holds();
        let Some(log) = states.get_mut(index).and_then(State::log_mut) else { return };
        let holds = holds.and_then(|holds| Some((holds.track_of(index)?, holds)));
        let held_us = holds.as_ref().map_or(0, |(track, holds)| holds.longest_window_us(*track));
        match (log.step_back(window_us, held_us, now_us), holds) {
            (Some(latest_us), Some((track, holds))) => holds.move_stamps(track, latest_us),
            // The log dropped its entries, so its holds' charges lose their state.
            (None, Some((_, holds))) => holds.replace_state(index),
            (_, None) => {}
        }
    }

    /// Takes a hold for a check that has consumed from the states of these rules. At most one of them
    /// is a log rule. Does nothing if the key has no room, or has a hold with this id.
    pub(super) fn take_hold(
        &mut self,
        request: HoldRequest<'_>,
        check: &Check<'_>,
        levels: &[(&Rule, u128)],
    ) {
        let rank = self.holds().map_or(Some(0), |holds| holds.free_rank(request.id));
        let Some(rank) = rank else { return };
        let needs = Needs::of(check.rules);
        self.change(|Compound { states, holds, .. }| {
            let holds = holds.get_or_insert_default();
            holds.drop_orphans();
            let charge = |&(rule, before): &(&Rule, u128)| {
                let mut places = states.iter().enumerate();
                let (place, state) = places.find(|(_, state)| state.belongs_to(rule))?;
                let (last_us, window_us) = (state.meter().last_us(), check.window_us_of(rule));
                let stamp_us = effective_time(check.now_us, last_us, window_us);
                let stamp_us = stamp_us.unwrap_or(check.now_us);
                state.charge(holds, place, (rule, before), needs, check.cost_of(rule), stamp_us)
            };
            let charges = levels.iter().filter_map(charge).collect();
            let log_rules = check.rules.iter().filter(|rule| rule.kind() == Kind::Log);
            let log_names = log_rules.filter_map(|rule| rule.name().copied()).collect();
            let length = request.length_from(check.now_us);
            holds.add(rank, Hold::new(request, charges, log_names), length);
        });
    }

    /// Ends a live hold, and corrects its charges to the settlement's costs. Returns false, and
    /// changes nothing, if there is no such hold.
    pub fn settle(&mut self, id: &[u8], settlement: Settlement<Costs<'_>>, now_us: u64) -> bool {
        if self.live_hold(id, now_us).is_none() {
            return false;
        }
        self.drop_ended(now_us);
        let end = |holds: &mut Holds| {
            let hold = holds.end(id);
            holds.look_ahead_again(now_us);
            hold
        };
        if let Some(hold) = self.holds_mut().and_then(end) {
            self.close(&hold, settlement, now_us, None);
        }
        self.drop_closed();
        true
    }

    /// Moves the end of a live hold, whose length becomes the time from `now_us` to the new end.
    /// Returns false, and changes nothing, if there is no such hold.
    pub fn renew(&mut self, id: &[u8], end_us: u64, now_us: u64) -> bool {
        let lives = self.live_hold(id, now_us).is_some();
        if lives {
            self.drop_ended(now_us);
            if let Some(holds) = self.holds_mut() {
                holds.renew(id, end_us, Length::new(end_us.saturating_sub(now_us)));
                holds.look_ahead_again(now_us);
            }
        }
        lives
    }

    /// Ends the holds that have lapsed at `now_us`.
    #[inline]
    pub fn lapse(&mut self, now_us: u64) {
        if self.holds().is_some_and(|holds| holds.any_lapsed(now_us)) {
            self.end_lapsed(now_us);
        }
    }

    #[cold]
    fn end_lapsed(&mut self, now_us: u64) {
        let ended = self.holds_mut().map(|holds| holds.end_lapsed(now_us)).unwrap_or_default();
        // Thousands of holds may lapse at once, and a log that gives units back moves its entries.
        // So the log gives back the units of all these holds together.
        let mut to_log = Vec::new();
        for hold in ended {
            let settlement =
                if hold.refunds() { Settlement::Refund } else { Settlement::AsCharged };
            self.close(&hold, settlement, hold.end_us().min(now_us), Some(&mut to_log));
        }
        if !to_log.is_empty()
            && let Some(log) = self.states_mut().iter_mut().find_map(State::log_mut)
        {
            log.give_back_each(&mut to_log);
        }
        self.drop_closed();
    }

    /// Drops what ended holds leave behind: their data in tracks, empty states, and the list of
    /// holds if it is empty.
    fn drop_closed(&mut self) {
        if let Some(holds) = self.holds_mut() {
            holds.compact_sparse();
        }
        self.forget_lost_units();
        self.drop_emptied();
        if self.holds().is_some_and(Holds::is_empty) {
            self.change(|compound| compound.holds = None);
        }
    }

    /// Called after units were given back. What holds were charged on a state in which nothing is
    /// consumed any more cannot come back: a window that has closed took it along. The state has lost
    /// its time, so on a clock that steps back the same window may open again, for the units of
    /// others.
    pub(super) fn forget_lost_units(&mut self) {
        let (states, Some(holds)) = self.states_and_holds() else { return };
        for (place, state) in
            states.iter().enumerate().filter(|(_, state)| state.meter().is_empty())
        {
            let Some(number) = holds.track_of(place) else { continue };
            let lost = |track: &Track| track.kind.finds_units_by_stamp() && track.units > 0;
            if holds.track(number).is_some_and(lost) && !state.meter().is_of_kind(Kind::Slots) {
                holds.move_stamps(number, NO_TIME_US);
            }
        }
    }

    /// Corrects each charge of an ended hold, if the charge's state is still there. If `later`
    /// is given, units that a log is to give back are only listed there.
    fn close(
        &mut self,
        hold: &Hold,
        settlement: Settlement<Costs<'_>>,
        now_us: u64,
        mut later: Option<&mut Vec<Take>>,
    ) {
        let (states, Some(holds)) = self.states_and_holds() else { return };
        for charge in hold.charges() {
            let state = holds.place_of(charge).and_then(|place| states.get_mut(place));
            if let (Some(state), Some(track)) = (state, holds.track_mut(charge.track)) {
                state.correct(track, hold, charge, settlement, now_us, later.as_deref_mut());
            }
            holds.release(hold, charge);
        }
    }
}

impl Limiter {
    /// The states that get something back when a hold is settled.
    pub fn states_settled(&self, id: &[u8], settlement: Settlement<Costs<'_>>) -> Vec<Identity> {
        let keeps_charges = matches!(settlement, Settlement::AsCharged);
        let gives_back = |state: &State| !keeps_charges || state.meter().is_of_kind(Kind::Slots);
        self.states_charged_for(id).filter(|state| gives_back(state)).map(identity).collect()
    }

    /// The states that get something back earlier when a hold's end moves to `end_us`.
    pub fn states_renewed(&self, id: &[u8], end_us: u64) -> Vec<Identity> {
        let ends_us = self.holds().and_then(|holds| holds.find(id)).map(Hold::end_us);
        let states = self.states_charged_for(id).filter(|_| ends_us > Some(end_us));
        states.map(identity).collect()
    }

    /// The states that any hold was charged on, which get something back when holds lapse.
    pub fn states_held(&self) -> Vec<Identity> {
        let places = self.states().iter().enumerate();
        let held = places.filter(|&(place, _)| {
            self.holds().is_some_and(|holds| holds.track_of(place).is_some())
        });
        held.map(|(_, state)| identity(state)).collect()
    }

    /// The states that get something back from a refund to these rules; without rules, all states.
    pub fn states_refunded(&self, rules: &[Rule]) -> Vec<Identity> {
        if rules.is_empty() {
            self.states().iter().map(identity).collect()
        } else {
            rules.iter().map(Rule::state).collect()
        }
    }

    fn states_charged_for(&self, id: &[u8]) -> impl Iterator<Item = &State> {
        let charges = self.holds().and_then(|holds| Some((holds, holds.find(id)?)));
        let places = charges.into_iter().flat_map(|(holds, hold)| {
            hold.charges().iter().filter_map(|charge| holds.place_of(charge))
        });
        places.filter_map(|place| self.states().get(place))
    }
}

/// The identity of the rules that read a state as it is.
fn identity(state: &State) -> Identity {
    let meter = state.meter();
    if meter.is_of_kind(Kind::Log) {
        return Identity::LOG;
    }
    Identity::of_state(state.name().as_ref(), meter.params(), meter.period_us())
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::key::{Check, CheckOptions, HoldRequest};
    use crate::tests::rules_of_line;

    const LINE: &str = "5/s log:9/m,name=l window:5/m fixed:5/d,keep=3 fixed:5/h,tz=+02:00 \
        leaky:5/m bucket:5/m bucket:5/h,refill=interval slots:5 slots:9,name=a bucket:5/m,name=b";

    fn held() -> (Limiter, Vec<Rule>) {
        let (mut limiter, rules) = (Limiter::default(), rules_of_line(LINE));
        let hold = HoldRequest { id: b"h", end_us: 2_000_000, refund: true };
        let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
        limiter.check(&Check::new(&rules, 1, 1_000_000).with(&options), &mut Vec::new());
        (limiter, rules)
    }

    fn sorted(mut identities: Vec<Identity>) -> Vec<Identity> {
        identities.sort_unstable();
        identities.dedup();
        identities
    }

    #[test]
    fn a_state_has_the_identity_of_the_rules_that_read_it() {
        let (limiter, rules) = held();
        let expected = sorted(rules.iter().map(Rule::state).collect());
        assert_eq!(sorted(limiter.states_refunded(&[])), expected);
        assert_eq!(limiter.states_refunded(&rules[..1]), [Identity::LOG]);
        assert_eq!(sorted(limiter.states_held()), expected);
        assert_eq!(sorted(limiter.states_settled(b"h", Settlement::Refund)), expected);
        assert_eq!(limiter.states_settled(b"other", Settlement::Refund), []);
        let slots = rules_of_line("slots:5 slots:9,name=a");
        let slots = sorted(slots.iter().map(Rule::state).collect());
        assert_eq!(sorted(limiter.states_settled(b"h", Settlement::AsCharged)), slots);
        assert_eq!(sorted(limiter.states_renewed(b"h", 1_999_999)), expected);
        assert_eq!(limiter.states_renewed(b"h", 2_000_000), []);
    }
}
