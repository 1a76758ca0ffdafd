//! The general path: several rules of one key or of several keys, one answer, all
//! or nothing.
//!
//! ```text
//! each key    a block or an exemption in effect answers, and no rule is evaluated;
//!             otherwise every rule reads its state and decides, and a pause denies
//! all keys    every rule admits:                     consume from all
//!             a rule denies:                         consume from none (but count=all)
//!             a key is paused:                       deny; charge, record and ban nothing on any key
//!             a key would hold too many states:      nothing is done (see `refusal`)
//! answer      the deciding rule, or the longest block or pause
//! ```
//!
//! The honest wait: a rule's wait is the least time after which the rule admits the cost if nothing
//! else happens. The longest wait of the rules that deny is the wait of the check. Once a rule
//! admits, it goes on admitting, with four exceptions. For these, `later_denials` corrects the
//! wait:
//!
//! - A rule ignores a state that lies more than a window ahead of the clock, and sees the state again
//!   once the clock has come near it.
//! - A pause that lies ahead of the clock comes back in the same way.
//! - On a key where the check repeats a hold, the rules are not evaluated before the hold ends, and
//!   may deny then.
//! - A peek does not store that a hold has lapsed because it lies ahead of the clock. So that hold
//!   comes back in the same way.
//!
//! A check whose cost is a range (`COST a..b`) is decided for the lower bound. If that is allowed, the
//! check is granted the largest cost in the range that every rule without its own cost admits. This is
//! the least `remaining` of these rules, because `remaining` is exact. A rule with its own cost must
//! admit that cost, and a shadow never lowers the grant.

use super::{
    Ban, Bounds, Budget, CheckError, Decision, Decisions, Outcome, Refusal, View, longer,
    until_all_admit,
};
use crate::algorithm::Moment;
use crate::key::{Access, AccessEntry, BanCount, Change, Check, Limiter};
use crate::rule::{Ladder, Rule};
use core::ops::{Deref, Range};
use core::slice;

/// One key of a check, or of a peek, which only borrows the limiter.
#[derive(Debug)]
pub struct KeyCheck<'a, L = &'a mut Limiter> {
    limiter: L,
    check: Check<'a>,
    /// The check repeats a live hold of this key.
    repeats: bool,
    /// The check moves the end of the hold that it repeats.
    renews: bool,
    /// The answer of the key's pause, if the pause denies the check.
    pause: Option<Decision>,
    /// A pause of this key or of another key denies the check.
    paused: bool,
    decisions: Range<usize>,
    /// `change` is only planned at first, and never made if one of the keys refuses the check.
    /// `summary` is at first the answer of this key's block or exemption, and in the end the answer
    /// of all keys.
    outcome: Outcome,
}

/// Decides over several different keys, and consumes from all of them or from none. Returns which
/// key decides, by its index; `None` if no key does. All checks must have the same time, default cost
/// and `META`. `decisions` gets one decision per rule, key by key, but none for a key whose block or
/// exemption answers. [`Limiter::fill_resets`] fills in their resets.
///
/// # Errors
/// [`CheckError`] if a key would have too many states or holds, or if the check repeats a hold with
/// another cost. Nothing has changed then.
pub fn check_keys(
    keys: &mut [KeyCheck<'_>],
    bounds: Bounds,
    decisions: &mut impl Decisions,
) -> Result<Option<usize>, CheckError> {
    let budget = &Budget::of_command();
    evaluate(keys, decisions, budget)?;
    let denied = plan(keys, bounds, decisions, budget)?;
    Ok(commit(keys, denied, decisions, budget))
}

/// Lets each key decide, before anything is consumed.
#[inline]
pub(super) fn evaluate(
    keys: &mut [KeyCheck<'_>],
    decisions: &mut impl Decisions,
    budget: &Budget,
) -> Result<(), CheckError> {
    decisions.clear();
    for (index, key) in keys.iter_mut().enumerate() {
        key.limiter.lapse_if_due(key.check.now_us);
        key.evaluate(decisions, budget);
        if key.repeats {
            let tested = key.limiter.test_costs_of_repeat(&key.check);
            tested.map_err(|why| CheckError { key: index, why })?;
        }
    }
    Ok(())
}

/// Plans what the answer changes in each key, and tests whether the key has room for it. Returns
/// true if the check is denied.
#[inline]
pub(super) fn plan(
    keys: &mut [KeyCheck<'_>],
    bounds: Bounds,
    decisions: &mut [Decision],
    budget: &Budget,
) -> Result<bool, CheckError> {
    let paused = keys.iter().any(|key| key.pause.is_some());
    let denied = paused || keys.iter().any(|key| key.outcome.denied);
    if paused {
        keys.iter_mut().for_each(KeyCheck::deny_by_pause);
    }
    grant(keys, denied, decisions, budget);
    let charges = denied && keys.iter().all(KeyCheck::may_be_charged);
    for (index, key) in keys.iter_mut().enumerate() {
        key.outcome.change = key.change_by(denied, charges);
        key.test(bounds).map_err(|why| CheckError { key: index, why })?;
    }
    Ok(denied)
}

/// Does what was planned. Returns the index of the key whose rule, block or pause is the answer.
#[inline]
pub(super) fn commit(
    keys: &mut [KeyCheck<'_>],
    denied: bool,
    decisions: &mut [Decision],
    budget: &Budget,
) -> Option<usize> {
    for key in keys.iter_mut() {
        key.consume(denied, decisions, budget);
    }
    let (summary, decider) = conclude(keys, denied, decisions, budget);
    for key in keys.iter_mut() {
        key.finish(summary);
    }
    decider
}

/// Decides for one key as [`check_keys`] does, but changes nothing.
pub(crate) fn peek_key(
    mut key: KeyCheck<'_, &Limiter>,
    decisions: &mut impl Decisions,
    budget: &Budget,
) -> Outcome {
    decisions.clear();
    key.evaluate(decisions, budget);
    let (denied, keys) = (key.denies(), slice::from_mut(&mut key));
    grant(keys, denied, decisions, budget);
    let (summary, _) = conclude(keys, denied, decisions, budget);
    Outcome::unchanged(summary, key.check.cost, key.outcome.access)
}

/// If the default cost is a range, replaces it on all keys by the grant: the least that any key
/// grants. A key that repeats a hold grants what the hold was charged.
fn grant<L: Deref<Target = Limiter>>(
    keys: &mut [KeyCheck<'_, L>],
    denied: bool,
    decisions: &mut [Decision],
    budget: &Budget,
) {
    if denied || keys.iter().all(|key| key.check.up_to().is_none()) {
        return;
    }
    let Some(granted) = keys.iter().map(|key| key.granted(decisions)).min() else { return };
    for key in keys {
        let changed = core::mem::replace(&mut key.check.cost, granted) != granted;
        // The other rules admit the grant; a shadow may not.
        if changed && key.outcome.access.is_none() && key.check.rules.iter().any(Rule::is_shadow) {
            key.decide(decisions, budget);
        }
    }
}

/// The answer of all keys. If the check is denied, it is the longest wait or block. Otherwise it is
/// the least remaining/cost, with the longest turn. Of equal answers, the first is taken.
fn conclude<L: Deref<Target = Limiter>>(
    keys: &[KeyCheck<'_, L>],
    denied: bool,
    decisions: &mut [Decision],
    budget: &Budget,
) -> (Decision, Option<usize>) {
    let (mut summary, mut cost) = (Decision::UNDECIDED, 0);
    let (mut decider, mut turn_ms) = (None, 0);
    for (index, key) in keys.iter().enumerate() {
        let Some((own, own_cost)) = key.summary(denied, decisions, budget) else { continue };
        turn_ms = longer(turn_ms, own.wait_ms);
        if decider.is_none() || own.precedes(own_cost, &summary, cost) {
            (summary, cost, decider) = (own, own_cost, Some(index));
        }
    }
    summary.wait_ms = if denied {
        let evaluated = keys.iter().filter(|key| key.outcome.access.is_none());
        until_all_admit(evaluated.map(|key| key.view(budget)), summary.wait_ms)
    } else {
        turn_ms
    };
    (summary, decider)
}

impl<'a, L: Deref<Target = Limiter>> KeyCheck<'a, L> {
    /// The check of a key, with the key's value: an empty limiter if the key does not exist.
    pub fn new(limiter: L, check: Check<'a>) -> Self {
        Self {
            limiter,
            check,
            repeats: false,
            renews: false,
            pause: None,
            paused: false,
            decisions: 0..0,
            outcome: Outcome::unchanged(Decision::UNDECIDED, 0, None),
        }
    }

    /// The key's value.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The check, at the cost that was decided.
    #[must_use]
    pub const fn check(&self) -> &Check<'a> {
        &self.check
    }

    /// What was done to the key.
    #[must_use]
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The range of this key's decisions among those of all keys.
    #[must_use]
    pub const fn decisions(&self) -> &Range<usize> {
        &self.decisions
    }

    fn own<'d>(&self, decisions: &'d mut [Decision]) -> &'d mut [Decision] {
        decisions.get_mut(self.decisions.clone()).unwrap_or_default()
    }

    fn view<'v>(&'v self, budget: &'v Budget) -> View<'v> {
        View { limiter: &self.limiter, check: &self.check, budget }
    }

    /// Lets a block, an exemption or the rules decide, before anything is consumed.
    fn evaluate(&mut self, decisions: &mut impl Decisions, budget: &Budget) {
        let start = decisions.len();
        self.decisions = start..start;
        let observes = self.check.observes();
        let access = self.limiter.access_answer(self.check.now_us);
        let access = access.filter(|(kind, _)| !observes || *kind == Access::Exempt);
        if let Some((access, answer)) = access {
            self.outcome = Outcome::unchanged(answer, self.check.cost, Some(access));
            return;
        }
        let repeated = self.limiter.repeated_hold(&self.check);
        self.repeats = repeated.is_some();
        self.renews = repeated.is_some_and(|hold| self.limiter.renews(hold, &self.check));
        decisions.resize(start.saturating_add(self.check.rules.len()));
        self.decisions = start..decisions.len();
        let own = self.decide(decisions, budget);
        let denied = self.check.is_denied(own);
        let pause = self.limiter.pause_at(self.check.now_us).filter(|_| !self.repeats && !observes);
        self.pause = pause.map(|pause| Decision::paused(pause.left_ms(self.check.now_us)));
        self.outcome.denied = denied;
    }

    /// True if its block, its pause or its rules deny the check.
    const fn denies(&self) -> bool {
        self.outcome.denied || self.pause.is_some()
    }

    /// Lets the rules decide, and takes account of the key's holds.
    fn decide<'d>(&self, decisions: &'d mut [Decision], budget: &Budget) -> &'d mut [Decision] {
        let (own, view) = (self.own(decisions), self.view(budget));
        view.decide(own);
        if self.repeats {
            for (rule, decision) in self.check.rules.iter().zip(&mut *own) {
                decision.allow(self.limiter.turn_of_repeat(rule, &self.check));
            }
        }
        view.shorten_waits(own);
        own
    }

    /// What this key grants of a range of costs.
    fn granted(&self, decisions: &mut [Decision]) -> u32 {
        let (least, most) = (self.check.cost, self.check.up_to().unwrap_or(self.check.cost));
        let lowers = |rule: &Rule| !rule.is_shadow() && rule.cost().own().is_none();
        let rules = self.check.rules.iter().zip(self.own(decisions));
        let remaining = rules.filter(|(rule, _)| lowers(rule)).map(|(_, one)| one.remaining);
        let held = self.check.hold().filter(|_| self.repeats);
        let held = held.and_then(|hold| self.limiter.held_by_default(hold.id));
        let granted = held.or(remaining.filter_map(|units| u32::try_from(units).ok()).min());
        granted.unwrap_or(most).clamp(least, most)
    }

    /// The decision of this key's block, pause or deciding rule, and the cost for which it was made.
    /// `None` if the key is exempt or has only shadows.
    fn summary(
        &self,
        denied: bool,
        decisions: &mut [Decision],
        budget: &Budget,
    ) -> Option<(Decision, u32)> {
        match self.outcome.access {
            Some(Access::Exempt) => return None,
            Some(Access::Block) => return Some((self.outcome.summary, 0)),
            None => {}
        }
        let decisions = self.own(decisions);
        if denied {
            Check::take_turns_back(decisions);
        }
        let deciding = self.check.deciding_rule(decisions);
        let longer_pause = |pause: &Decision| {
            deciding.is_none_or(|(rule, own)| pause.precedes(0, &own, self.check.cost_of(rule)))
        };
        if let Some(pause) = self.pause.filter(longer_pause) {
            return Some((pause, 0));
        }
        let (rule, mut own) = deciding?;
        own.reset_ms = self.view(budget).reset_ms(rule);
        if let Some(ban) = self.outcome.ban {
            let ban_ms = Moment::At(ban.until_us).ms_after(self.check.now_us);
            own.wait_ms = longer(own.wait_ms, ban_ms);
            own.reset_ms = longer(own.reset_ms, ban_ms);
        }
        Some((own, self.check.cost_of(rule)))
    }
}

impl KeyCheck<'_> {
    /// Lets a pause of this key or of another key deny the check. The denials of the rules are then
    /// ignored: they ban no key and are not counted.
    fn deny_by_pause(&mut self) {
        self.paused = true;
        self.outcome.denied = self.outcome.access == Some(Access::Block);
    }

    /// False if the key is blocked or paused, or if a cost can never pass: then no key is charged.
    fn may_be_charged(&self) -> bool {
        let Self { check, .. } = self;
        let can_pass = |rule: &Rule| rule.is_shadow() || rule.can_ever_admit(check.cost_of(rule));
        match self.outcome.access {
            Some(access) => access == Access::Exempt,
            None => !self.paused && check.rules.iter().all(can_pass),
        }
    }

    /// What the check does to the states of this key. `denied`: the check is denied. `charges`: the
    /// denial is charged to `count=all` rules.
    fn change_by(&self, denied: bool, charges: bool) -> Change {
        let change = match (denied, self.repeats) {
            _ if self.outcome.access.is_some() => return Change::Nothing,
            (false, true) if self.renews => return Change::Renewed,
            (false, false) => Change::Admitted,
            (true, false) if charges => Change::Charged,
            (false | true, _) => return Change::Nothing,
        };
        let rules = self.check.rules;
        let consumes = rules.iter().any(|rule| self.check.consumes_from(rule, change));
        if consumes { change } else { Change::Nothing }
    }

    /// Tests whether the key has room for the states and holds that the check adds.
    fn test(&self, bounds: Bounds) -> Result<(), Refusal> {
        if self.check.hold().is_some() && self.outcome.change == Change::Admitted {
            self.limiter.test_max_holds(self.check.now_us, bounds.max_holds)?;
        }
        self.limiter.test_max_states(&self.check, self.outcome.change, bounds.max_states)
    }

    /// Consumes as planned, and blocks the key if a rule bans it.
    fn consume(&mut self, denied: bool, decisions: &mut [Decision], budget: &Budget) {
        let Self { check, outcome, .. } = self;
        let own = decisions.get_mut(self.decisions.clone()).unwrap_or_default();
        if outcome.denied {
            // Before anything is charged: a rule that denies only because of the charge does not
            // ban.
            outcome.ban = self.limiter.ban(check, own);
        }
        outcome.repeated = self.repeats && !denied;
        self.limiter.record(check, outcome.change);
        match outcome.change {
            Change::Admitted => {
                outcome.held = check.hold().is_some();
                for (rule, decision) in check.rules.iter().zip(own) {
                    decision.take(check.cost_of(rule));
                }
            }
            Change::Charged => drop(self.decide(decisions, budget)),
            Change::Renewed | Change::Nothing | Change::HistoryOnly(_) => {}
        }
    }

    /// Shortens a ban that a step of the clock made longer. Adds a check with `META` to the history,
    /// even if the check consumed nothing.
    fn finish(&mut self, summary: Decision) {
        let outcome = &mut self.outcome;
        (outcome.summary, outcome.cost) = (summary, self.check.cost);
        if outcome.access.is_some() {
            outcome.ban_shortened = self.limiter.shorten_ban(self.check.now_us);
        }
        let shows = !outcome.repeated && !self.paused;
        if outcome.change == Change::Nothing && self.check.meta().is_some() && shows {
            outcome.change = Change::HistoryOnly(summary.verdict);
            self.limiter.record(&self.check, outcome.change);
        }
    }
}

impl Limiter {
    /// Blocks the key with the longest ban of the rules that deny; of equal bans, the first. If
    /// some of these rules count bans, the key's count of bans rises. Of the rules that count, the
    /// one with the longest ban decides when the key forgets the count.
    pub(super) fn ban(&mut self, check: &Check<'_>, decisions: &[Decision]) -> Option<Ban> {
        let remembered = self.bans_at(check.now_us);
        let bans = remembered.map_or(0, |count| count.bans);
        let rules = check.rules.iter().enumerate().zip(decisions);
        let denials = rules.filter(|((_, rule), decision)| decision.is_denial_by(rule));
        let ladders = denials.filter_map(|((index, rule), _)| Some((index, rule, rule.ban()?)));
        // `max_by_key` takes the last of equals.
        let ladders = ladders.rev();
        let length_us = |(_, _, ladder): &(usize, &Rule, &Ladder)| ladder.rung_us(bans);
        let (index, rule, ladder) = ladders.clone().max_by_key(length_us)?;
        let counting = ladders.filter(|(_, _, ladder)| ladder.counts_bans()).max_by_key(length_us);
        let length_us = ladder.rung_us(bans);
        let count = match counting {
            Some((_, _, ladder)) => {
                let span_us = length_us.saturating_add(ladder.longest_us());
                Some(BanCount::new(bans.saturating_add(1), check.now_us, span_us))
            }
            None => remembered.map(|count| count.as_of(check.now_us)),
        };
        let until_us = check.now_us.saturating_add(length_us);
        self.set_ban(AccessEntry::ban(rule, until_us, length_us), count);
        Some(Ban { rule: index, until_us })
    }
}
