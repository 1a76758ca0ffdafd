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
//! check's. Each rule, once it admits, goes on admitting, with one exception: a
//! state that lies more than a window ahead of the clock is passed over, and counts
//! again once the clock has come near it. If there is such a state, `wait` looks
//! beyond it.

use super::decision::{Decision, length, longer};
use super::evaluation::Evaluation;
use super::max_states::TooManyStates;
use super::outcome::{Ban, Conclusion};
use super::wait::until_all_admit;
use crate::limit::algorithm::reading::Moment;
use crate::limit::value::access::{Access, AccessEntry};
use crate::limit::value::check::{Change, Check, Verdict};
use crate::limit::value::limiter::Limiter;
use crate::rule::Rule;
use std::ops::Range;

/// One key of a check.
#[derive(Debug)]
pub struct KeyCheck<'a> {
    limiter: &'a mut Limiter,
    check: Check<'a>,
    found: Found,
    denied: bool,
    change: Change,
    ban: Option<Ban>,
    ban_shortened: bool,
    decisions: Range<usize>,
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
/// says so. All checks have the same time, cost and `META`. `decisions` gets one
/// decision a rule, key by key, and none for a key whose block or exemption answers;
/// their resets are left for [`Limiter::fill_resets`].
///
/// # Errors
/// [`TooManyStates`], and nothing changed, if a key would come to hold more than
/// `max_states`.
pub fn check_keys(
    keys: &mut [KeyCheck<'_>],
    max_states: usize,
    decisions: &mut Vec<Decision>,
) -> Result<Conclusion, TooManyStates> {
    decisions.clear();
    for key in keys.iter_mut() {
        key.evaluate(decisions);
    }
    let denied = keys.iter().any(KeyCheck::denied);
    let plan = Plan { denied, charges: denied && keys.iter().all(KeyCheck::may_be_charged) };
    for (index, key) in keys.iter().enumerate() {
        key.test_max_states(plan, max_states)
            .map_err(|error| TooManyStates { key: index, ..error })?;
    }
    for key in keys.iter_mut() {
        key.consume(plan, decisions);
    }
    let conclusion = conclude(keys, denied, decisions);
    for key in keys.iter_mut() {
        key.finish(conclusion.summary.verdict);
    }
    Ok(conclusion)
}

/// The answer of all keys: the longest wait or block if the check is denied, else the
/// least remaining and the longest turn; the first of equals.
fn conclude(keys: &[KeyCheck<'_>], denied: bool, decisions: &mut [Decision]) -> Conclusion {
    let (mut summary, mut decider) = (Decision::UNDECIDED, None);
    let (mut turn_ms, mut passed_over) = (0, false);
    for (index, key) in keys.iter().enumerate() {
        let Some(own) = key.summary(denied, decisions) else { continue };
        turn_ms = longer(turn_ms, own.wait_ms);
        passed_over |= key.passed_over();
        let decides = match (denied, decider) {
            (_, None) => true,
            (true, Some(_)) => length(own.wait_ms) > length(summary.wait_ms),
            (false, Some(_)) => own.remaining < summary.remaining,
        };
        if decides {
            (summary, decider) = (own, Some(index));
        }
    }
    if !denied {
        summary.wait_ms = turn_ms;
    } else if passed_over {
        let checks = keys.iter().filter(|key| key.access().is_none());
        let checks = checks.map(|key| (&*key.limiter, key.check));
        summary.wait_ms = until_all_admit(checks, summary.wait_ms);
    }
    Conclusion { summary, decider }
}

impl<'a> KeyCheck<'a> {
    /// A key's value, empty if the key does not exist, and its check.
    pub fn new(limiter: &'a mut Limiter, check: Check<'a>) -> Self {
        Self {
            limiter,
            check,
            found: Found::Rules(Evaluation::default()),
            denied: false,
            change: Change::Nothing,
            ban: None,
            ban_shortened: false,
            decisions: 0..0,
        }
    }

    #[must_use]
    pub const fn check(&self) -> &Check<'a> {
        &self.check
    }

    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        self.limiter
    }

    /// What was done to the key.
    #[must_use]
    pub const fn change(&self) -> Change {
        self.change
    }

    /// Whether this key's block or rules denied the request.
    #[must_use]
    pub const fn denied(&self) -> bool {
        self.denied
    }

    /// The block that one of the key's rules set.
    #[must_use]
    pub const fn ban(&self) -> Option<Ban> {
        self.ban
    }

    /// Whether the key's ban ends earlier from now on.
    #[must_use]
    pub const fn ban_shortened(&self) -> bool {
        self.ban_shortened
    }

    /// Whether a block or an exemption answered, and no rule was evaluated.
    #[must_use]
    pub const fn access(&self) -> Option<Access> {
        match self.found {
            Found::Access(access, _) => Some(access),
            Found::Rules(_) => None,
        }
    }

    /// Where among the decisions this key's are.
    #[must_use]
    pub const fn decisions(&self) -> &Range<usize> {
        &self.decisions
    }

    const fn passed_over(&self) -> bool {
        matches!(self.found, Found::Rules(Evaluation { passed_over: true, .. }))
    }

    /// Nothing is charged if a key is blocked, nor for a cost that can never pass.
    fn may_be_charged(&self) -> bool {
        match self.found {
            Found::Access(access, _) => access == Access::Exempt,
            Found::Rules(_) => self.check.can_ever_pass(),
        }
    }

    fn evaluate(&mut self, decisions: &mut Vec<Decision>) {
        let start = decisions.len();
        self.found = match self.limiter.access_answer(self.check.now_us) {
            Some((access, answer)) => Found::Access(access, answer),
            None => {
                let show = |decision| decisions.push(decision);
                Found::Rules(Evaluation::of(self.limiter.states(), &self.check, show))
            }
        };
        self.denied = match self.found {
            Found::Access(access, _) => access == Access::Block,
            Found::Rules(evaluation) => evaluation.denies(),
        };
        self.decisions = start..decisions.len();
        // Before anything is charged: a rule that denies only because of the charge
        // does not ban.
        if self.denied {
            self.ban = self.check.ban(decisions.get(start..).unwrap_or_default());
        }
    }

    /// What a plan does to the states of this key.
    fn change_by(&self, plan: Plan) -> Change {
        let charged = plan.charges && self.check.rules.iter().any(Rule::counts_all);
        match self.found {
            Found::Rules(_) if self.check.cost == 0 => Change::Nothing,
            Found::Rules(_) if !plan.denied => Change::Admitted,
            Found::Rules(_) if charged => Change::Charged,
            Found::Rules(_) | Found::Access(..) => Change::Nothing,
        }
    }

    fn test_max_states(&self, plan: Plan, max_states: usize) -> Result<(), TooManyStates> {
        if self.limiter.may_exceed(self.check.rules.len(), max_states) {
            return self.limiter.test_max_states(&self.check, self.change_by(plan), max_states);
        }
        Ok(())
    }

    fn consume(&mut self, plan: Plan, decisions: &mut [Decision]) {
        self.change = self.change_by(plan);
        let decisions = decisions.get_mut(self.decisions.clone()).unwrap_or_default();
        match self.change {
            Change::Admitted => {
                self.limiter.record(&self.check, self.change);
                for decision in decisions {
                    decision.take(self.check.cost);
                }
            }
            Change::Charged => {
                self.limiter.record(&self.check, self.change);
                let mut slots = decisions.iter_mut();
                let show = |decision| {
                    if let Some(slot) = slots.next() {
                        *slot = decision;
                    }
                };
                self.found = Found::Rules(Evaluation::of(self.limiter.states(), &self.check, show));
            }
            Change::Nothing | Change::HistoryOnly(_) => {}
        }
    }

    /// This key's part of the answer, after everything was consumed; `None` if it is
    /// exempt or has only shadows.
    fn summary(&self, denied: bool, decisions: &mut [Decision]) -> Option<Decision> {
        let evaluation = match &self.found {
            Found::Access(Access::Exempt, _) => return None,
            Found::Access(Access::Block, answer) => return Some(*answer),
            Found::Rules(evaluation) => evaluation,
        };
        let decisions = decisions.get_mut(self.decisions.clone()).unwrap_or_default();
        let mut own = self.limiter.summary(&self.check, evaluation, denied, decisions)?;
        if let Some(ban) = self.ban {
            let ban_ms = Moment::At(ban.until_us).after(self.check.now_us).millis();
            own.wait_ms = longer(own.wait_ms, ban_ms);
            own.reset_ms = longer(own.reset_ms, ban_ms);
        }
        Some(own)
    }

    /// Shortens a ban that a step of the clock made longer, blocks the key if a rule
    /// bans it, and adds a check with `META` to the history even if it consumed nothing.
    fn finish(&mut self, verdict: Verdict) {
        if self.access().is_some() {
            self.ban_shortened = self.limiter.shorten_ban(self.check.now_us);
        }
        if self.change == Change::Nothing && self.check.meta.is_some() {
            self.change = Change::HistoryOnly(verdict);
            self.limiter.record(&self.check, self.change);
        }
        if let Some(ban) = self.ban
            && let Some(rule) = self.check.rules.get(ban.rule)
        {
            self.limiter.set_access(Some(AccessEntry::ban(rule, ban.until_us)));
        }
    }
}
