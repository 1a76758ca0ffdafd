//! Deciding: several rules of one key or of several keys, one answer, all or
//! nothing.
//!
//! ```text
//! each key    block or exemption?  -> answered, none of its rules is evaluated
//!             every rule reads
//! all keys    all admit: consume from all
//!             one denies: consume from none (but count=all)
//!             one would hold too many states: nothing is done (see `crowd`)
//! the deciding rule, or the longest block -> five integers
//! ```
//!
//! The honest wait: a rule's wait is the least time after which it admits the
//! cost if nothing else happens, so the longest wait of the rules that deny is
//! the check's. Each rule, once it admits, goes on admitting, with one
//! exception: a state forgotten because the clock stepped back by more than a
//! window counts again once the clock has come near it. Where there is such a
//! state, `wait` looks beyond it.

use super::crowd::Crowd;
use super::deciding::{Ban, longest_denier};
use super::decision::{Decision, Verdict, length, longer};
use super::wait::until_all_admit;
use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::reading::{Moment, Reading, effective_time};
use crate::limit::algorithm::state::State;
use crate::limit::series::needs::Needs;
use crate::limit::value::access::{Access, AccessEntry};
use crate::limit::value::limiter::{Change, Check, Limiter};
use crate::rule::{Kind, Rule};
use std::ops::Range;

/// The answer to a check of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub summary: Decision,
    pub change: Change,
    /// The denial also blocked the key.
    pub ban: Option<Ban>,
    /// The key's ban ends earlier from now on: the clock stepped back.
    pub ban_shortened: bool,
    /// A block or an exemption answered, no rule was looked at.
    pub access: Option<Access>,
}

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

/// What a key says before anything is consumed.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// A block or an exemption, and its answer.
    Answered(Access, Decision),
    Ruled(Evaluation),
}

/// What the rules of a key said.
#[derive(Clone, Copy, Debug, Default)]
struct Evaluation {
    /// What the rules need of the log together.
    needs: Needs,
    /// The rule with the longest wait of those that deny, and that wait.
    denier: Option<(usize, i64)>,
    /// A rule passed over a state from the future.
    forgot: bool,
}

/// The answer to a check of several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conclusion {
    pub summary: Decision,
    /// Which key's rule or block it is; none where no rule decided.
    pub decider: Option<usize>,
}

/// What happens to the keys of a check, settled before anything is changed.
#[derive(Clone, Copy, Debug)]
struct Plan {
    denied: bool,
    /// The denial is charged to the `count=all` rules.
    charges: bool,
}

/// Decides over several keys, and consumes from all of them if the answer says
/// so. No two parts may be one key, and all ask at one time, with one cost and
/// one text. `decisions` gets one decision a rule, part by part, and none of a part
/// that a block or an exemption answers for; their resets are left for
/// [`Limiter::fill_resets`].
///
/// # Errors
/// [`Crowd`], and nothing changed, if a key would come to hold more states than
/// `max_states`.
pub fn check(
    parts: &mut [KeyCheck<'_>],
    max_states: usize,
    decisions: &mut Vec<Decision>,
) -> Result<Conclusion, Crowd> {
    decisions.clear();
    for part in parts.iter_mut() {
        part.look(decisions);
    }
    let denied = parts.iter().any(KeyCheck::denied);
    let plan = Plan { denied, charges: denied && parts.iter().all(KeyCheck::may_be_charged) };
    for (index, part) in parts.iter().enumerate() {
        if part.limiter.is_near_crowd(part.check.rules.len(), max_states) {
            part.fits(plan, max_states).map_err(|crowd| Crowd { part: index, ..crowd })?;
        }
    }
    for part in parts.iter_mut() {
        part.consume(plan, decisions);
    }
    let conclusion = conclude(parts, denied, decisions);
    for part in parts.iter_mut() {
        part.finish(conclusion.summary.verdict);
    }
    Ok(conclusion)
}

fn conclude(parts: &[KeyCheck<'_>], denied: bool, decisions: &mut [Decision]) -> Conclusion {
    let (mut summary, mut decider) = (Decision::UNDECIDED, None);
    let (mut turn_ms, mut forgot) = (0, false);
    for (index, part) in parts.iter().enumerate() {
        let Some(own) = part.conclude(denied, decisions) else { continue };
        turn_ms = longer(turn_ms, own.wait_ms);
        forgot |= part.forgot();
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
    } else if forgot {
        let checks = parts.iter().filter(|part| part.is_ruled());
        let checks = checks.map(|part| (&*part.limiter, part.check));
        summary.wait_ms = until_all_admit(checks, summary.wait_ms);
    }
    Conclusion { summary, decider }
}

impl<'a> KeyCheck<'a> {
    /// A key's value, empty if there is none, and what is asked of it.
    pub fn new(limiter: &'a mut Limiter, check: Check<'a>) -> Self {
        Self {
            limiter,
            check,
            found: Found::Ruled(Evaluation::default()),
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

    /// Whether its own rules blocked the key.
    #[must_use]
    pub const fn ban(&self) -> Option<Ban> {
        self.ban
    }

    /// Whether its ban ends earlier from now on.
    #[must_use]
    pub const fn ban_shortened(&self) -> bool {
        self.ban_shortened
    }

    /// Whether a block or an exemption answered, and no rule was looked at.
    #[must_use]
    pub const fn access(&self) -> Option<Access> {
        match self.found {
            Found::Answered(kind, _) => Some(kind),
            Found::Ruled(_) => None,
        }
    }

    /// Where in the decisions this part's are.
    #[must_use]
    pub const fn decisions(&self) -> &Range<usize> {
        &self.decisions
    }

    const fn is_ruled(&self) -> bool {
        matches!(self.found, Found::Ruled(_))
    }

    const fn forgot(&self) -> bool {
        matches!(self.found, Found::Ruled(Evaluation { forgot: true, .. }))
    }

    /// Nothing is charged behind a block, nor by a cost that can never pass.
    fn may_be_charged(&self) -> bool {
        match self.found {
            Found::Answered(kind, _) => kind == Access::Exempt,
            Found::Ruled(_) => self.check.can_ever_pass(),
        }
    }

    fn look(&mut self, decisions: &mut Vec<Decision>) {
        let start = decisions.len();
        self.found = match self.limiter.access_answer(self.check.now_us) {
            Some((kind, answer)) => Found::Answered(kind, answer),
            None => Found::Ruled(
                self.limiter.evaluate(&self.check, |decision| decisions.push(decision)),
            ),
        };
        self.denied = match self.found {
            Found::Answered(kind, _) => kind == Access::Block,
            Found::Ruled(evaluate) => evaluate.denier.is_some(),
        };
        self.decisions = start..decisions.len();
        // Before anything is charged: whom a charge makes deny did not deny
        // this request.
        if self.denied {
            self.ban = self.check.ban(decisions.get(start..).unwrap_or_default());
        }
    }

    /// What a plan does to the states of this key.
    fn change_by(&self, plan: Plan) -> Change {
        let charged = plan.charges && self.check.rules.iter().any(Rule::counts_all);
        match self.found {
            Found::Ruled(_) if self.check.cost == 0 => Change::Nothing,
            Found::Ruled(_) if !plan.denied => Change::Admitted,
            Found::Ruled(_) if charged => Change::Charged,
            _ => Change::Nothing,
        }
    }

    fn fits(&self, plan: Plan, max_states: usize) -> Result<(), Crowd> {
        self.limiter.has_room(&self.check, self.change_by(plan), max_states)
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
                let mut places = decisions.iter_mut();
                self.found = Found::Ruled(self.limiter.evaluate(&self.check, |decision| {
                    if let Some(place) = places.next() {
                        *place = decision;
                    }
                }));
            }
            Change::Nothing | Change::HistoryOnly(_) => {}
        }
    }

    /// What this key says in the end; nothing if it is exempt, or has only
    /// shadows.
    fn conclude(&self, denied: bool, decisions: &mut [Decision]) -> Option<Decision> {
        let evaluate = match self.found {
            Found::Answered(Access::Exempt, _) => return None,
            Found::Answered(Access::Block, answer) => return Some(answer),
            Found::Ruled(evaluate) => evaluate,
        };
        let decisions = decisions.get_mut(self.decisions.clone()).unwrap_or_default();
        let mut own = self.limiter.conclude(&self.check, evaluate, denied, decisions)?;
        if let Some(ban) = self.ban {
            let ban_ms = Moment::At(ban.until_us).after(self.check.now_us).millis();
            own.wait_ms = longer(own.wait_ms, ban_ms);
            own.reset_ms = longer(own.reset_ms, ban_ms);
        }
        Some(own)
    }

    /// Shortens a ban that a step of the clock made longer, blocks the key if a rule
    /// bans it, and leaves a entry on the history for a check that consumed nothing.
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

impl Limiter {
    /// Decides, and consumes if the answer says so, of a key that may hold so
    /// many states, 1 or more. `decisions` gets one decision a rule, or none behind
    /// a block or an exemption; their resets are left for [`Self::fill_resets`].
    ///
    /// # Errors
    /// [`Crowd`], and nothing changed, if it would come to hold more.
    #[inline]
    pub fn check_within(
        &mut self,
        max_states: usize,
        asked: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Result<Outcome, Crowd> {
        // The short way ends with one state at most.
        match self.check_fast(asked, decisions) {
            Some(outcome) => Ok(outcome),
            None => self.check_general_within(max_states, asked, decisions),
        }
    }

    /// As [`Self::check_within`], always the long way.
    #[inline(never)]
    fn check_general_within(
        &mut self,
        max_states: usize,
        asked: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Result<Outcome, Crowd> {
        let mut parts = [KeyCheck::new(self, *asked)];
        let Conclusion { summary, .. } = check(&mut parts, max_states, decisions)?;
        let [part] = &parts;
        Ok(Outcome {
            summary,
            change: part.change(),
            ban: part.ban(),
            ban_shortened: part.ban_shortened(),
            access: part.access(),
        })
    }

    /// As [`Self::check_within`], of a key that may hold any number of states.
    #[cfg(test)]
    pub fn check(&mut self, asked: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        self.check_within(usize::MAX, asked, decisions).expect("room for any number")
    }

    /// As [`Self::check`], the long way.
    #[cfg(test)]
    pub(crate) fn check_general(
        &mut self,
        asked: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Outcome {
        self.check_general_within(usize::MAX, asked, decisions).expect("room for any number")
    }

    /// As [`Self::check_within`], without consuming.
    #[inline]
    pub fn peek(&self, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        self.peek_fast(check, decisions).unwrap_or_else(|| self.peek_general(check, decisions))
    }

    /// As [`Self::peek`], always the long way.
    #[inline(never)]
    pub(crate) fn peek_general(&self, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        decisions.clear();
        let answer = |summary, access| Outcome {
            summary,
            change: Change::Nothing,
            ban: None,
            ban_shortened: false,
            access,
        };
        if let Some((kind, summary)) = self.access_answer(check.now_us) {
            return answer(summary, Some(kind));
        }
        let evaluate = self.evaluate(check, |decision| decisions.push(decision));
        let denied = evaluate.denier.is_some();
        let own = self.conclude(check, evaluate, denied, decisions);
        let mut summary = own.unwrap_or(Decision::UNDECIDED);
        if denied && evaluate.forgot {
            summary.wait_ms = until_all_admit(std::iter::once((self, *check)), summary.wait_ms);
        }
        answer(summary, None)
    }

    /// The answer of a block or an exemption, if one is in force.
    pub(crate) fn access_answer(&self, now_us: u64) -> Option<(Access, Decision)> {
        let access = self.access_at(now_us)?;
        let answer = match access.kind {
            Access::Exempt => Decision::UNDECIDED,
            Access::Block => Decision::blocked(access.left_ms(now_us)),
        };
        Some((access.kind, answer))
    }

    /// Lets every rule read its state, and shows what each says.
    fn evaluate(&self, check: &Check<'_>, mut show: impl FnMut(Decision)) -> Evaluation {
        let needs = Needs::of(check.rules);
        let mut evaluate = Evaluation { needs, denier: None, forgot: false };
        let log = self.log_in_sight(needs, check.now_us, &mut evaluate.forgot);
        for (index, rule) in check.rules.iter().enumerate() {
            let reading = match (rule.kind(), log) {
                (Kind::Log, None) => None,
                (Kind::Log, Some((log, at_us))) => Some(log.read(rule, at_us, check.cost)),
                _ => self.reading(rule, check, &mut evaluate.forgot),
            };
            let reading = reading.unwrap_or_else(|| Reading::untouched(rule, check.now_us));
            let decision = Decision::of(rule, reading, check);
            show(decision);
            evaluate.denier = longest_denier(evaluate.denier, (index, rule, decision));
        }
        evaluate
    }

    /// The log that all log rules read, and the time it lives in; `None` if
    /// they see an untouched one.
    fn log_in_sight(&self, needs: Needs, now_us: u64, forgot: &mut bool) -> Option<(&Log, u64)> {
        if needs.window_us == 0 {
            return None;
        }
        let log = self.states().iter().find_map(State::log)?;
        let last_us = log.last_us();
        let at_us = effective_time(now_us, last_us, needs.window_us);
        *forgot |= at_us.is_none() && last_us > now_us;
        Some((log, at_us?))
    }

    /// What another rule reads; `None` if it sees an untouched state.
    fn reading(&self, rule: &Rule, check: &Check<'_>, forgot: &mut bool) -> Option<Reading> {
        let state = self.state_of(rule)?;
        let reading = state.read(rule, rule.period_us(), check.now_us, check.cost);
        *forgot |= reading.is_none() && state.meter().last_us() > check.now_us;
        reading
    }

    /// What the deciding rule says. None if all are shadows.
    fn conclude(
        &self,
        check: &Check<'_>,
        evaluate: Evaluation,
        denied: bool,
        decisions: &mut [Decision],
    ) -> Option<Decision> {
        let (rule, mut own) = check.deciding(evaluate.denier, denied, decisions)?;
        own.reset_ms = self.reset_ms(rule, evaluate.needs, check.now_us);
        Some(own)
    }

    /// Fills in each rule's reset, after the check: only a long answer says it.
    pub fn fill_resets(&self, check: &Check<'_>, decisions: &mut [Decision]) {
        let needs = Needs::of(check.rules);
        for (rule, decision) in check.rules.iter().zip(decisions) {
            decision.reset_ms = self.reset_ms(rule, needs, check.now_us);
        }
    }

    fn reset_ms(&self, rule: &Rule, needs: Needs, now_us: u64) -> i64 {
        let clears = self
            .state_of(rule)
            .map_or(Moment::At(0), |state| state.clears(rule, needs.window_us_of(rule), now_us));
        clears.after(now_us).millis()
    }
}
