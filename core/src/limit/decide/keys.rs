//! The general path: several rules of one key or of several keys, one answer, all
//! or nothing.
//!
//! ```text
//! each key    a block or an exemption in effect answers, and no rule is evaluated;
//!             otherwise every rule reads its state and decides
//! all keys    every rule admits:                     consume from all
//!             a rule denies:                         consume from none (but count=all)
//!             a key would hold too many states:      nothing is done (see `max_states`)
//! answer      the deciding rule, or the longest block
//! ```
//!
//! The honest wait: a rule's wait is the least time after which it admits the cost
//! if nothing else happens, so the longest wait of the rules that deny is the
//! check's. Each rule, once it admits, goes on admitting, with two exceptions: a
//! state that lies more than a window ahead of the clock is passed over, and counts
//! again once the clock has come near it; and where the check repeats a hold, no rule
//! is asked before the hold ends. If there is such a state or hold, `wait` looks
//! beyond it.

use super::deciding::Deciding;
use super::decision::{Decision, length, longer};
use super::evaluation::Evaluation;
use super::foresight::Foresight;
use super::outcome::{Ban, NewBan, Outcome};
use super::refusal::{Bounds, CheckError, Refusal};
use super::wait::{Waiting, until_all_admit};
use crate::limit::algorithm::reading::Moment;
use crate::limit::value::access::{Access, AccessEntry};
use crate::limit::value::check::{Change, Check};
use crate::limit::value::limiter::Limiter;
use crate::rule::Rule;
use std::ops::Range;

/// One key of a check.
#[derive(Debug)]
pub struct KeyCheck<'a> {
    limiter: &'a mut Limiter,
    check: Check<'a>,
    found: Found,
    /// The check repeats a hold of this key that lives.
    repeats: bool,
    ban: Option<NewBan>,
    decisions: Range<usize>,
    /// Its change is a plan at first, which nothing follows if one of the keys refuses.
    outcome: Outcome,
}

/// What answers for a key before anything is consumed.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// A block or an exemption, and its answer.
    Access(Access, Decision),
    Rules(Evaluation),
}

/// What happens to the keys of a check, settled before anything is changed.
#[derive(Clone, Copy, Debug)]
struct Plan {
    denied: bool,
    /// The denial is charged to the `count=all` rules.
    charges: bool,
}

/// Decides over several different keys, and consumes from all of them if the answer
/// says so. Returns which key's rule or block is the answer; `None` if no rule decided. All
/// checks have the same time, default cost and `META`. `decisions` gets one decision a rule,
/// key by key, and none for a key whose block or exemption answers; their resets are left for
/// [`Limiter::fill_resets`].
///
/// # Errors
/// [`CheckError`], and nothing changed, if a key would come to hold more than it may, or if
/// the check repeats a hold with another cost.
pub fn check_keys(
    keys: &mut [KeyCheck<'_>],
    bounds: Bounds,
    decisions: &mut Vec<Decision>,
) -> Result<Option<usize>, CheckError> {
    decisions.clear();
    let foresight = &mut Foresight::of_command();
    let plan = plan(keys, bounds, decisions, foresight)?;
    for key in keys.iter_mut() {
        key.consume(plan, decisions, foresight);
    }
    let (summary, decider) = conclude(keys, plan.denied, decisions, foresight);
    for key in keys.iter_mut() {
        key.finish(summary);
    }
    Ok(decider)
}

/// What the check will do, if none of the keys refuses.
fn plan(
    keys: &mut [KeyCheck<'_>],
    bounds: Bounds,
    decisions: &mut Vec<Decision>,
    foresight: &mut Foresight,
) -> Result<Plan, CheckError> {
    for key in keys.iter_mut() {
        key.evaluate(decisions, foresight);
    }
    for (index, key) in keys.iter().enumerate() {
        key.test_repeat().map_err(|why| CheckError { key: index, why })?;
    }
    let denied = keys.iter().any(|key| key.outcome.denied);
    grant(keys, denied, decisions, foresight);
    let plan = Plan { denied, charges: denied && keys.iter().all(KeyCheck::may_be_charged) };
    for (index, key) in keys.iter_mut().enumerate() {
        key.outcome.change = key.change_by(plan);
        key.test(bounds).map_err(|why| CheckError { key: index, why })?;
    }
    Ok(plan)
}

/// Makes the default cost of all keys what is granted, if it is a range: the least that any
/// key grants. A key that repeats a hold grants what the hold was charged.
fn grant(
    keys: &mut [KeyCheck<'_>],
    denied: bool,
    decisions: &mut [Decision],
    foresight: &mut Foresight,
) {
    if denied || keys.iter().all(|key| key.check.up_to().is_none()) {
        return;
    }
    let Some(granted) = keys.iter().map(|key| key.granted(decisions)).min() else { return };
    for key in keys.iter_mut() {
        let changed = std::mem::replace(&mut key.check.cost, granted) != granted;
        // The other rules admit the grant; a shadow need not.
        if changed && key.outcome.access.is_none() && key.check.rules.iter().any(Rule::is_shadow) {
            let own = key.decisions.clone();
            key.decide_again(decisions.get_mut(own).unwrap_or_default(), foresight);
        }
    }
}

/// The answer of all keys: the longest wait or block if the check is denied, else the
/// least remaining/cost and the longest turn; the first of equals.
fn conclude(
    keys: &[KeyCheck<'_>],
    denied: bool,
    decisions: &mut [Decision],
    foresight: &mut Foresight,
) -> (Decision, Option<usize>) {
    let mut deciding = Deciding { cost: 0, decision: Decision::UNDECIDED };
    let (mut decider, mut turn_ms) = (None, 0);
    for (index, key) in keys.iter().enumerate() {
        let Some(own) = key.summary(denied, decisions, foresight) else { continue };
        turn_ms = longer(turn_ms, own.decision.wait_ms);
        let decides = match (denied, decider) {
            (_, None) => true,
            (true, Some(_)) => length(own.decision.wait_ms) > length(deciding.decision.wait_ms),
            (false, Some(_)) => own.has_less_left_than(deciding),
        };
        if decides {
            (deciding, decider) = (own, Some(index));
        }
    }
    let mut summary = deciding.decision;
    if !denied {
        summary.wait_ms = turn_ms;
    } else if keys.iter().any(KeyCheck::may_deny_later) {
        let keys = keys.iter().filter(|key| key.outcome.access.is_none());
        let keys = keys.map(KeyCheck::waiting);
        summary.wait_ms = until_all_admit(keys, summary.wait_ms, foresight);
    }
    (summary, decider)
}

impl<'a> KeyCheck<'a> {
    /// A key's value, empty if the key does not exist, and its check.
    pub fn new(limiter: &'a mut Limiter, check: Check<'a>) -> Self {
        Self {
            limiter,
            check,
            found: Found::Rules(Evaluation::default()),
            repeats: false,
            ban: None,
            decisions: 0..0,
            outcome: Outcome::unchanged(Decision::UNDECIDED, 0, None),
        }
    }

    /// What was done to the key.
    #[must_use]
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Where among the decisions this key's are.
    #[must_use]
    pub const fn decisions(&self) -> &Range<usize> {
        &self.decisions
    }

    /// Whether a rule may deny later that does not deny now.
    const fn may_deny_later(&self) -> bool {
        self.repeats || matches!(self.found, Found::Rules(Evaluation { passed_over: true, .. }))
    }

    fn waiting(&self) -> Waiting<'_> {
        let repeats_until_us = self.limiter.repeats_until(&self.check);
        Waiting { limiter: self.limiter, check: self.check, repeats_until_us }
    }

    /// Nothing is charged if a key is blocked, nor for a cost that can never pass.
    fn may_be_charged(&self) -> bool {
        match self.found {
            Found::Access(access, _) => access == Access::Exempt,
            Found::Rules(_) => self.check.can_ever_pass(),
        }
    }

    fn evaluate(&mut self, decisions: &mut Vec<Decision>, foresight: &mut Foresight) {
        let start = decisions.len();
        self.found = match self.limiter.access_answer(self.check.now_us) {
            Some((access, answer)) => Found::Access(access, answer),
            None => {
                self.limiter.lapse_if_due(self.check.now_us);
                self.repeats = self.limiter.repeats_until(&self.check).is_some();
                let show = |decision| decisions.push(decision);
                let mut evaluation =
                    Evaluation::of(self.limiter.states(), self.limiter.holds(), &self.check, show);
                if self.limiter.holds().is_some() {
                    let decisions = decisions.get_mut(start..).unwrap_or_default();
                    self.look_ahead(&mut evaluation, decisions, foresight);
                }
                Found::Rules(evaluation)
            }
        };
        (self.outcome.access, self.outcome.denied) = match self.found {
            Found::Access(access, _) => (Some(access), access == Access::Block),
            Found::Rules(evaluation) => (None, evaluation.denies()),
        };
        self.decisions = start..decisions.len();
        // Before anything is charged: a rule that denies only because of the charge
        // does not ban.
        if self.outcome.denied {
            let remembered = self.limiter.bans_at(self.check.now_us);
            self.ban = self.check.ban(decisions.get(start..).unwrap_or_default(), remembered);
        }
    }

    /// Lets the rules decide again, in place of what they decided before.
    fn decide_again(&mut self, decisions: &mut [Decision], foresight: &mut Foresight) {
        let mut slots = decisions.iter_mut();
        let show = |decision| {
            if let Some(slot) = slots.next() {
                *slot = decision;
            }
        };
        let mut evaluation =
            Evaluation::of(self.limiter.states(), self.limiter.holds(), &self.check, show);
        self.look_ahead(&mut evaluation, decisions, foresight);
        self.found = Found::Rules(evaluation);
    }

    /// What this key grants of a range of costs.
    fn granted(&self, decisions: &[Decision]) -> u32 {
        let held = self.check.hold().filter(|_| self.repeats);
        match held.and_then(|hold| self.limiter.held_by_default(hold.id)) {
            Some(units) => units.clamp(self.check.cost, self.check.up_to().unwrap_or(units)),
            None => {
                let own = decisions.get(self.decisions.clone()).unwrap_or_default();
                self.check.granted_by(own.iter())
            }
        }
    }

    /// What the key's holds make of the decisions of its rules.
    fn look_ahead(
        &self,
        evaluation: &mut Evaluation,
        decisions: &mut [Decision],
        foresight: &mut Foresight,
    ) {
        let Self { limiter, check, repeats, .. } = self;
        if *repeats {
            for (rule, decision) in check.rules.iter().zip(decisions.iter_mut()) {
                decision.allow(limiter.turn_of_repeat(rule, check));
            }
            evaluation.settle_denials(check.rules, decisions);
        }
        limiter.foresee_waits(check, evaluation, decisions, foresight);
    }

    /// What a plan does to the states of this key.
    fn change_by(&self, plan: Plan) -> Change {
        let change = match self.found {
            Found::Rules(_) if !plan.denied && self.repeats => {
                let renews = self.limiter.renews(&self.check);
                return if renews { Change::Renewed } else { Change::Nothing };
            }
            Found::Rules(_) if !plan.denied => Change::Admitted,
            Found::Rules(_) if plan.charges && !self.repeats => Change::Charged,
            Found::Rules(_) | Found::Access(..) => return Change::Nothing,
        };
        let rules = self.check.rules;
        let consumes = rules.iter().any(|rule| self.check.consumes_from(rule, change));
        let renames = || change == Change::Admitted && self.limiter.loses_a_name_to(rules);
        if consumes || renames() { change } else { Change::Nothing }
    }

    /// Tests that a repeat costs what the hold was taken for.
    fn test_repeat(&self) -> Result<(), Refusal> {
        if self.repeats { self.limiter.test_costs_of_repeat(&self.check) } else { Ok(()) }
    }

    /// Tests how much the key would come to hold.
    fn test(&self, bounds: Bounds) -> Result<(), Refusal> {
        let Bounds { max_states, max_holds } = bounds;
        if self.check.hold().is_some() && self.outcome.change == Change::Admitted {
            self.limiter.test_max_holds(self.check.now_us, max_holds)?;
        }
        if self.limiter.may_exceed(self.check.rules.len(), max_states) {
            return self.limiter.test_max_states(&self.check, self.outcome.change, max_states);
        }
        Ok(())
    }

    fn consume(&mut self, plan: Plan, decisions: &mut [Decision], foresight: &mut Foresight) {
        self.outcome.repeated = self.repeats && !plan.denied;
        let decisions = decisions.get_mut(self.decisions.clone()).unwrap_or_default();
        let change = self.outcome.change;
        match change {
            Change::Admitted => {
                self.outcome.held = self.check.hold().is_some();
                self.limiter.record(&self.check, change);
                for (rule, decision) in self.check.rules.iter().zip(decisions) {
                    decision.take(self.check.cost_of(rule));
                }
            }
            Change::Renewed => self.limiter.record(&self.check, change),
            Change::Charged => {
                self.limiter.record(&self.check, change);
                self.decide_again(decisions, foresight);
            }
            Change::Nothing | Change::HistoryOnly(_) => {}
        }
    }

    /// This key's part of the answer, after everything was consumed; `None` if it is
    /// exempt or has only shadows.
    fn summary(
        &self,
        denied: bool,
        decisions: &mut [Decision],
        foresight: &mut Foresight,
    ) -> Option<Deciding> {
        let evaluation = match &self.found {
            Found::Access(Access::Exempt, _) => return None,
            Found::Access(Access::Block, answer) => {
                return Some(Deciding { cost: 0, decision: *answer });
            }
            Found::Rules(evaluation) => evaluation,
        };
        let decisions = decisions.get_mut(self.decisions.clone()).unwrap_or_default();
        let Self { limiter, check, .. } = self;
        let mut own = limiter.summary(check, evaluation, denied, decisions, foresight)?;
        if let Some(new) = self.ban {
            let ban_ms = Moment::At(new.ban.until_us).after(self.check.now_us).millis();
            own.decision.wait_ms = longer(own.decision.wait_ms, ban_ms);
            own.decision.reset_ms = longer(own.decision.reset_ms, ban_ms);
        }
        Some(own)
    }

    /// Shortens a ban that a step of the clock made longer, blocks the key if a rule
    /// bans it, and adds a check with `META` to the history even if it consumed nothing.
    fn finish(&mut self, summary: Decision) {
        let outcome = &mut self.outcome;
        (outcome.summary, outcome.cost) = (summary, self.check.cost);
        if outcome.access.is_some() {
            outcome.ban_shortened = self.limiter.shorten_ban(self.check.now_us);
        }
        if outcome.change == Change::Nothing && self.check.meta().is_some() && !outcome.repeated {
            outcome.change = Change::HistoryOnly(summary.verdict);
            self.limiter.record(&self.check, outcome.change);
        }
        outcome.ban = self.ban.map(|new| new.ban);
        if let Some(NewBan { ban: Ban { rule, until_us }, length_us, count }) = self.ban
            && let Some(rule) = self.check.rules.get(rule)
        {
            self.limiter.set_ban(AccessEntry::ban(rule, until_us, length_us), count);
        }
    }
}
