//! A key's value: everything known about one identifier.
//!
//! ```text
//! Limiter, 16 bytes
//! | pointer -> one state |  or  | pointer | -> states, block, pause, plan, history and others
//! ```
//!
//! Most keys have one state, because one rule checks them, or several log rules that share a log. A
//! limiter is as large as the server's smallest objects. So an allocator with size classes places the
//! limiter next to the server's objects for the key.

use super::{AccessEntry, BanCount, Check, Deadline, History, Hold, Holds, PauseAndPlan};
use crate::algorithm::{Moment, NO_TIME_US, State};
use crate::heap::{HeapVisitor, address_of};
use crate::rule::{HOUR_US, MS_US, Rule};
use alloc::{boxed::Box, vec::Vec};
use core::num::NonZeroU64;

/// The value of one key. `Default` is the value of a key that was never checked.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "saved", derive(PartialEq, Eq))]
pub struct Limiter {
    contents: Contents,
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "saved", derive(PartialEq, Eq))]
enum Contents {
    #[default]
    Nothing,
    One(State),
    /// Anything that the other two variants cannot hold.
    Compound(Box<Compound>),
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "saved", derive(PartialEq, Eq))]
pub(crate) struct Compound {
    /// Ordered by first consumption.
    pub states: Vec<State>,
    pub access: Option<Box<AccessEntry>>,
    pub pause_and_plan: Option<Box<PauseAndPlan>>,
    /// Present only if a ladder banned the key.
    pub bans: Option<Box<BanCount>>,
    pub history: Option<Box<History>>,
    /// Includes lapsed holds until the key's next change.
    pub holds: Option<Box<Holds>>,
}

impl Limiter {
    /// A limiter with this content.
    pub(crate) fn of(content: Compound) -> Self {
        let mut limiter = Self::default();
        limiter.change(|compound| *compound = content);
        limiter
    }

    /// True if it holds nothing, so the key can be deleted.
    pub fn is_empty(&self) -> bool {
        matches!(self.contents, Contents::Nothing)
    }

    /// The allocation that a check reads first, for a prefetch.
    #[inline]
    pub fn first_allocation(&self) -> *const u8 {
        match &self.contents {
            Contents::Nothing => core::ptr::null(),
            Contents::One(state) => state.address(),
            Contents::Compound(compound) => address_of(&**compound),
        }
    }

    /// Every state, ordered by first consumption.
    pub(crate) fn states(&self) -> &[State] {
        match &self.contents {
            Contents::Nothing => &[],
            Contents::One(state) => core::slice::from_ref(state),
            Contents::Compound(compound) => &compound.states,
        }
    }

    pub(super) fn states_mut(&mut self) -> &mut [State] {
        self.states_and_holds().0
    }

    /// The only state of a limiter that holds nothing else, except perhaps a plan in effect.
    #[inline]
    pub(crate) fn only_state(&self, now_us: u64) -> Option<&State> {
        match &self.contents {
            Contents::Nothing => None,
            Contents::One(state) => Some(state),
            Contents::Compound(compound) => compound.only_planned(now_us)?.states.first(),
        }
    }

    #[inline]
    pub(crate) fn only_state_mut(&mut self, now_us: u64) -> Option<&mut State> {
        match &mut self.contents {
            Contents::Nothing => None,
            Contents::One(state) => Some(state),
            Contents::Compound(compound) => {
                compound.only_planned(now_us)?;
                compound.states.first_mut()
            }
        }
    }

    /// The state that a rule reads.
    pub(crate) fn state_of(&self, rule: &Rule) -> Option<&State> {
        self.states().iter().find(|state| state.belongs_to(rule))
    }

    /// The content of a limiter that holds anything besides one state.
    pub(super) fn compound(&self) -> Option<&Compound> {
        match &self.contents {
            Contents::Compound(compound) => Some(compound),
            Contents::Nothing | Contents::One(_) => None,
        }
    }

    pub(super) fn compound_mut(&mut self) -> Option<&mut Compound> {
        match &mut self.contents {
            Contents::Compound(compound) => Some(compound),
            Contents::Nothing | Contents::One(_) => None,
        }
    }

    /// The holds, including lapsed ones.
    pub(crate) fn holds(&self) -> Option<&Holds> {
        self.compound()?.holds.as_deref()
    }

    pub(super) fn holds_mut(&mut self) -> Option<&mut Holds> {
        self.states_and_holds().1
    }

    pub(super) fn states_and_holds(&mut self) -> (&mut [State], Option<&mut Holds>) {
        match &mut self.contents {
            Contents::Nothing => (&mut [], None),
            Contents::One(state) => (core::slice::from_mut(state), None),
            Contents::Compound(compound) => (&mut compound.states, compound.holds.as_deref_mut()),
        }
    }

    /// Adds a state.
    pub(crate) fn add(&mut self, state: State) {
        match self.contents {
            Contents::Nothing => self.contents = Contents::One(state),
            _ => self.change(|compound| compound.states.push(state)),
        }
    }

    /// Keeps the states for which `keep` returns true. Its second argument says whether holds were
    /// charged on the state.
    pub(super) fn retain(&mut self, keep: impl Fn(&State, bool) -> bool) {
        let keeps = |state: &State, place, holds: Option<&Holds>| {
            keep(state, holds.is_some_and(|holds| holds.track_of(place).is_some()))
        };
        let (states, holds) = (self.states(), self.holds());
        if states.iter().enumerate().all(|(place, state)| keeps(state, place, holds)) {
            return;
        }
        self.change(|Compound { states, holds, .. }| {
            let mut place: usize = 0;
            states.retain(|state| {
                let stays = keeps(state, place, holds.as_deref());
                match holds {
                    _ if stays => place = place.saturating_add(1),
                    Some(holds) => holds.remove_state(place),
                    None => {}
                }
                stays
            });
        });
    }

    /// Changes the content as a compound, then restores the smallest form.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Compound)) {
        let mut compound = match core::mem::take(&mut self.contents) {
            Contents::Nothing => Box::default(),
            Contents::One(state) => {
                Box::new(Compound { states: vec![state], ..Compound::default() })
            }
            Contents::Compound(compound) => compound,
        };
        change(&mut compound);
        compound.holds.take_if(|holds| holds.is_empty());
        let Compound { states: _, access, pause_and_plan, bans, history, holds } = &*compound;
        let overridden = access.is_some() || pause_and_plan.is_some() || bans.is_some();
        let plain = !overridden && history.is_none() && holds.is_none();
        self.contents = if !plain || compound.states.len() > 1 {
            Contents::Compound(compound)
        } else {
            compound.states.pop().map_or(Contents::Nothing, Contents::One)
        };
    }

    /// The last checks, if a check with `META` started a history.
    pub fn history(&self) -> Option<&History> {
        self.compound()?.history.as_deref()
    }

    pub(super) fn drop_emptied(&mut self) {
        self.retain(|state, held| held || !state.meter().is_empty());
    }

    /// Gives back up to `units`, newest first, to the states of these rules, or to every state if
    /// there are no rules. Returns the largest number of units that one state got back.
    pub fn refund(&mut self, units: u32, now_us: u64, rules: &[Rule]) -> u64 {
        self.lapse_if_due(now_us);
        let check = Check::new(rules, units, now_us);
        let mut most = 0;
        for state in self.states_mut() {
            let reads =
                |rule: &&Rule| state.belongs_to(rule) && state.meter().is_of_kind(rule.kind());
            let window_us = match rules.iter().find(reads) {
                Some(rule) => check.window_us_of(rule),
                None if rules.is_empty() => state.meter().period_us(),
                None => continue,
            };
            most = most.max(state.refund(window_us, now_us, units));
        }
        if most > 0 {
            self.drop_ended(now_us);
            self.forget_lost_units();
        }
        self.drop_emptied();
        most
    }

    /// Drops every state and hold. Keeps the history, the count of bans, and a block, an exemption,
    /// a pause or a plan in effect. Returns true if it dropped any.
    pub fn reset(&mut self, now_us: u64) -> bool {
        let any = !self.states().is_empty() || self.holds().is_some();
        if any {
            self.drop_ended(now_us);
            self.change(|compound| {
                compound.states.clear();
                compound.holds = None;
            });
        }
        any
    }

    /// Drops a block, an exemption, a pause or a plan that has ended: it would keep the key large and
    /// the checks off the fast path. Also forgets bans and ends lapsed holds. Called when the key
    /// changes anyway, on replicas too.
    pub(super) fn drop_ended(&mut self, now_us: u64) {
        if self.compound().is_none() {
            return;
        }
        if self.access().is_some_and(|access| !access.in_effect(now_us)) {
            self.set_access(None);
        }
        if self.pause().is_some() && self.pause_at(now_us).is_none() {
            self.resume();
        }
        if self.plan().is_some() && self.plan_at(now_us).is_none() {
            self.set_plan(None);
        }
        self.forget_bans(now_us);
        self.lapse(now_us);
    }

    /// Until when the value matters.
    #[inline(always)]
    pub fn deadline(&self) -> Deadline {
        match &self.contents {
            Contents::Nothing => Deadline::PASSED,
            Contents::One(state) => deadline_of(state),
            Contents::Compound(compound) => compound.deadline(),
        }
    }

    /// Visits each heap allocation, except the limiter's own.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        if let Contents::Compound(compound) = &mut self.contents {
            to.boxed(compound);
            to.vec(&mut compound.states);
            to.optional(&mut compound.access, |access, to| {
                to.slice(&mut access.reason);
                if let Some(author) = &mut access.author {
                    to.slice(&mut author.user);
                }
            });
            to.optional(&mut compound.pause_and_plan, |both, to| {
                to.optional(&mut both.pause, |pause, to| to.slice(&mut pause.reason));
                to.optional(&mut both.plan, |_, _| {});
            });
            to.optional(&mut compound.bans, |_, _| {});
            to.optional(&mut compound.history, History::visit_heap);
            to.optional(&mut compound.holds, Holds::visit_heap);
        }
        for state in self.states_mut() {
            state.visit_heap(to);
        }
    }
}

// When a key should expire after a command that takes no `AT`.
//
// A replay checks its keys with `AT`, often at times that lie years back. The server keeps the keys
// as long as it would have kept them then. A block or a pause takes no `AT`. By the server's clock,
// all that the checks left in the key is long over, but the replay still needs it:
//
// ```text
// clock of the replay   | check, 1/h ============|            it reads the state for an hour
// server's clock        |                        | expiry     years later
//                              | RL.BLOCK                     by its clock the state is over
// ```
//
// So a command without `AT` moves the expiry to an earlier time only if the key's remaining time
// exceeds the longest time for which a check's consumption can matter (`lasts_us`). In that case, an
// earlier block or pause set the expiry.

impl Limiter {
    /// Until when the value matters after a command at `now_us` that takes no `AT`. `expires_ms` is
    /// the key's expiry before it.
    #[must_use]
    pub fn deadline_without_at(&self, now_us: u64, expires_ms: Option<u64>) -> Deadline {
        let needed_us = now_us.saturating_add(self.lasts_us());
        let expires_us = expires_ms.map_or(u64::MAX, |ms| ms.saturating_mul(MS_US));
        self.deadline().or(Deadline::new(Moment::At(needed_us.min(expires_us)), 0))
    }

    /// How long after a check its traces in this key may matter, in microseconds.
    fn lasts_us(&self) -> u64 {
        let of_state = |state: &State| match state.meter().matters_until() {
            Moment::At(us) => us.saturating_sub(state.meter().last_us()),
            Moment::Never => u64::MAX,
        };
        let of_hold = |hold: &Hold| {
            let stamps = hold.charges().iter().map(|charge| charge.stamp_us);
            let taken_us = stamps.filter(|&stamp_us| stamp_us != NO_TIME_US).min();
            taken_us.map_or(0, |taken_us| hold.end_us().saturating_sub(taken_us))
        };
        let holds = self.holds().into_iter().flat_map(Holds::in_order_of_ids);
        let newest = self.history().and_then(|history| Some((history, history.entries.back()?)));
        let others = [
            self.access().and_then(|access| access.ban_us).map_or(0, NonZeroU64::get),
            self.bans().map_or(0, |bans| bans.span_us),
            newest.map_or(0, |(history, entry)| history.until_us.saturating_sub(entry.time_us)),
        ];
        let states = self.states().iter().map(of_state);
        states.chain(holds.map(of_hold)).chain(others).max().unwrap_or(0)
    }
}

impl Compound {
    /// This value, if it holds one state and a plan in effect, and nothing else.
    fn only_planned(&self, now_us: u64) -> Option<&Self> {
        let Self { states, access, pause_and_plan, bans, history, holds } = self;
        let PauseAndPlan { pause, plan } = pause_and_plan.as_deref()?;
        let others = access.is_some() || pause.is_some() || bans.is_some() || history.is_some();
        let in_effect = plan.as_ref().is_some_and(|plan| plan.ends() > Moment::At(now_us));
        (states.len() == 1 && in_effect && !others && holds.is_none()).then_some(self)
    }

    fn deadline(&self) -> Deadline {
        let Self { states, access, pause_and_plan, bans, history, holds } = self;
        let mut deadline = states.iter().map(deadline_of).fold(Deadline::PASSED, Deadline::or);
        let mut lasts = |until, window_us| deadline = deadline.or(Deadline::new(until, window_us));
        if let Some(access) = access {
            lasts(access.ends(), 0);
        }
        if let Some(both) = pause_and_plan {
            if let Some(pause) = &both.pause {
                lasts(Moment::At(pause.until_us), 0);
            }
            if let Some(plan) = &both.plan {
                lasts(plan.ends(), 0);
            }
        }
        if let Some(bans) = bans {
            lasts(Moment::At(bans.forgotten_us), 0);
        }
        if let Some(history) = history {
            lasts(Moment::At(history.until_us), HOUR_US);
        }
        if let Some(holds) = holds {
            lasts(Moment::At(holds.last_end_us()), 0);
        }
        deadline
    }
}

#[inline(always)]
fn deadline_of(state: &State) -> Deadline {
    Deadline::new(state.meter().matters_until(), state.meter().period_us())
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::algorithm::bucket::Interval;
    use crate::algorithm::debt::Debt;
    use crate::algorithm::fixed::Fixed;
    use crate::algorithm::meter::Meter;
    use crate::algorithm::state::Named;
    use crate::key::check::Change;
    use crate::tests::laws::holds::memory::Bytes;
    use crate::tests::rules_of_line;

    #[test]
    fn a_limiter_with_one_state_is_two_small_allocations() {
        assert_eq!(size_of::<Limiter>(), 16);
        assert_eq!(size_of::<Meter>(), 16);
        assert_eq!(size_of::<State>(), 16);
        assert_eq!(size_of::<Debt>(), 32);
        assert_eq!(size_of::<Named>(), 48);
        assert_eq!(size_of::<Fixed>(), 32);
        assert_eq!(size_of::<Interval>(), 32);
        assert_eq!(size_of::<Compound>(), 64);
    }

    #[test]
    fn a_throttle_takes_no_allocation_for_its_name() {
        let bytes = |rule: &str| {
            let mut limiter = Limiter::default();
            limiter.record(&Check::new(&rules_of_line(rule), 1, 9), Change::Admitted);
            Bytes::of(&mut limiter).all
        };
        assert_eq!(bytes("bucket:9/m,name=throttle"), bytes("bucket:9/m"));
        assert_eq!(bytes("leaky:9/m,name=throttle"), bytes("bucket:9/m,name=other"));
    }
}
