//! Deciding: several rules, one answer, all or nothing.
//!
//! ```text
//! block or exemption?  -> answered, no rule is evaluated
//! every rule reads     -> all admit: consume from all
//!                         one denies: consume from none (but count=all)
//! the deciding rule    -> five integers
//! ```
//!
//! The honest wait: a rule's wait is the least time after which it admits the
//! cost if nothing else happens, so the longest wait of the rules that deny is
//! the check's. Each rule, once it admits, goes on admitting, with one
//! exception: a state forgotten because the clock stepped back by more than a
//! window counts again once the clock has come near it. The wait is therefore
//! tried against all the rules, where there is such a state.

use super::limiter::{Change, Check, Limiter};
use super::log::Needs;
use super::overrule::{Override, OverrideKind};
use super::reading::{Moment, Reading, Span};
use super::rule::Rule;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Limited,
    Blocked,
}

impl Verdict {
    /// As replied: 0, 1 or 2.
    #[must_use]
    pub const fn code(self) -> i64 {
        match self {
            Self::Allowed => 0,
            Self::Limited => 1,
            Self::Blocked => 2,
        }
    }
}

/// What one rule, or a whole check, says: the five integers of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    pub verdict: Verdict,
    /// The most units that pass at once; -1 where no rule decided.
    pub limit: i64,
    /// Units that would be allowed right now; -1 where no rule decided.
    pub remaining: i64,
    /// Denied: ask again after this. Allowed: proceed after this. -1: never.
    pub wait_ms: i64,
    /// Until nothing is consumed; -1: never.
    pub reset_ms: i64,
}

impl Ruling {
    /// No rule had a say.
    const UNRULED: Self =
        Self { verdict: Verdict::Allowed, limit: -1, remaining: -1, wait_ms: 0, reset_ms: 0 };
}

/// The answer to a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub summary: Ruling,
    pub change: Change,
    /// The denial also blocked the key.
    pub ban: Option<Ban>,
    /// A block or an exemption answered, no rule was looked at.
    pub overruled: Option<OverrideKind>,
}

/// A block set by a rule's `ban=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// Which of the check's rules set it.
    pub rule: usize,
    pub until_us: u64,
}

/// What the rules said before anything was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Survey {
    /// What the rules need of the log together.
    needs: Needs,
    /// The rule with the longest wait of those that deny.
    denier: Option<usize>,
    /// A rule passed over a state from the future.
    forgot: bool,
}

/// Waits in order of length: never is longest.
const fn length(wait_ms: i64) -> i64 {
    if wait_ms < 0 { i64::MAX } else { wait_ms }
}

fn longer(a_ms: i64, b_ms: i64) -> i64 {
    if length(a_ms) >= length(b_ms) { a_ms } else { b_ms }
}

fn units(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Limiter {
    /// Decides, and consumes if the answer says so. `rulings` gets one ruling
    /// a rule, or none behind a block or an exemption.
    pub fn check(&mut self, check: &Check<'_>, rulings: &mut Vec<Ruling>) -> Outcome {
        if let Some((kind, summary)) = self.overruled(check.now_us, rulings) {
            let change = check.marked(summary.verdict);
            self.record(check, change);
            return Outcome { summary, change, ban: None, overruled: Some(kind) };
        }
        let mut survey = self.survey(check, rulings);
        // Whom a charge makes deny did not deny this request.
        let ban = check.ban(rulings);
        let change = if survey.denier.is_none() {
            if check.cost > 0 { Change::Admitted } else { check.marked(Verdict::Allowed) }
        } else if check.cost > 0 && check.charges_denials() {
            Change::Charged
        } else {
            check.marked(Verdict::Limited)
        };
        self.record(check, change);
        if change == Change::Charged {
            survey = self.survey(check, rulings);
        } else if survey.denier.is_none() {
            for ruling in rulings.iter_mut() {
                ruling.remaining = ruling.remaining.saturating_sub(check.cost.into()).max(0);
            }
        }
        let mut summary = self.conclude(check, survey, rulings);
        if let Some(ban) = ban
            && let Some(rule) = check.rules.get(ban.rule)
        {
            self.set_override(Some(Override::ban(rule, ban.until_us)));
            let ban_ms = Moment::At(ban.until_us).after(check.now_us).millis();
            summary.wait_ms = longer(summary.wait_ms, ban_ms);
            summary.reset_ms = longer(summary.reset_ms, ban_ms);
        }
        Outcome { summary, change, ban, overruled: None }
    }

    /// Decides without consuming.
    pub fn peek(&self, check: &Check<'_>, rulings: &mut Vec<Ruling>) -> Outcome {
        let (overruled, summary) = match self.overruled(check.now_us, rulings) {
            Some((kind, summary)) => (Some(kind), summary),
            None => {
                let survey = self.survey(check, rulings);
                (None, self.conclude(check, survey, rulings))
            }
        };
        Outcome { summary, change: Change::Nothing, ban: None, overruled }
    }

    /// The answer of a block or an exemption, if one is in force.
    fn overruled(&self, now_us: u64, rulings: &mut Vec<Ruling>) -> Option<(OverrideKind, Ruling)> {
        rulings.clear();
        let overrule = self.override_at(now_us)?;
        let left_ms = overrule.left_ms(now_us);
        let summary = match overrule.kind {
            OverrideKind::Exempt => Ruling::UNRULED,
            OverrideKind::Block => Ruling {
                verdict: Verdict::Blocked,
                limit: 0,
                remaining: 0,
                wait_ms: left_ms,
                reset_ms: left_ms,
            },
        };
        Some((overrule.kind, summary))
    }

    /// Lets every rule read its state. Resets are left for later: they depend
    /// on what is consumed.
    fn survey(&self, check: &Check<'_>, rulings: &mut Vec<Ruling>) -> Survey {
        rulings.clear();
        let needs = Needs::of(check.rules);
        let mut survey = Survey { needs, denier: None, forgot: false };
        let mut longest_ms = 0;
        for (index, rule) in check.rules.iter().enumerate() {
            let reading = self.reading(rule, needs, check, &mut survey.forgot);
            let ruling = rule_on(rule, reading, check);
            rulings.push(ruling);
            let denies = ruling.verdict == Verdict::Limited && !rule.is_shadow();
            if denies && (survey.denier.is_none() || length(ruling.wait_ms) > length(longest_ms)) {
                survey.denier = Some(index);
                longest_ms = ruling.wait_ms;
            }
        }
        survey
    }

    fn reading(&self, rule: &Rule, needs: Needs, check: &Check<'_>, forgot: &mut bool) -> Reading {
        let window_us = needs.window_us_of(rule);
        let untouched = Reading::untouched(rule, check.now_us);
        let Some(state) = self.state_of(rule) else { return untouched };
        let reading = state.read(rule, window_us, check.now_us, check.cost);
        *forgot |= reading.is_none() && state.last_us() > check.now_us;
        reading.unwrap_or(untouched)
    }

    /// Fills in the resets, and finds the deciding rule.
    fn conclude(&self, check: &Check<'_>, survey: Survey, rulings: &mut [Ruling]) -> Ruling {
        let mut turn_ms = 0;
        let mut least: Option<Ruling> = None;
        for (rule, ruling) in check.rules.iter().zip(rulings.iter_mut()) {
            let clears = self.state_of(rule).map_or(Moment::At(0), |state| {
                state.clears(rule, survey.needs.window_us_of(rule), check.now_us)
            });
            ruling.reset_ms = clears.after(check.now_us).millis();
            if survey.denier.is_some() && ruling.verdict == Verdict::Allowed {
                ruling.wait_ms = 0;
            }
            if !rule.is_shadow() {
                turn_ms = longer(turn_ms, ruling.wait_ms);
                if least.is_none_or(|least| ruling.remaining < least.remaining) {
                    least = Some(*ruling);
                }
            }
        }
        match survey.denier.and_then(|denier| rulings.get(denier)) {
            Some(&ruling) if survey.forgot => {
                Ruling { wait_ms: self.tried_wait(check, ruling.wait_ms), ..ruling }
            }
            Some(&ruling) => ruling,
            None => least.map_or(Ruling::UNRULED, |least| Ruling { wait_ms: turn_ms, ..least }),
        }
    }

    /// The wait after which every rule admits, those included whose state is
    /// forgotten now but will count then.
    fn tried_wait(&self, check: &Check<'_>, first_ms: i64) -> i64 {
        let mut wait_ms = first_ms;
        let mut rulings = Vec::with_capacity(check.rules.len());
        // Every round but the last brings back a state that was forgotten.
        for _ in 0..=check.rules.len() {
            let Ok(ms) = u64::try_from(wait_ms) else { return wait_ms };
            let now_us = check.now_us.saturating_add(ms.saturating_mul(1_000));
            let survey = self.survey(&Check { now_us, ..*check }, &mut rulings);
            match survey.denier.and_then(|denier| rulings.get(denier)) {
                Some(ruling) if ruling.wait_ms >= 0 => {
                    wait_ms = wait_ms.saturating_add(ruling.wait_ms);
                }
                Some(_) => return -1,
                None => return wait_ms,
            }
        }
        wait_ms
    }
}

impl Check<'_> {
    /// The change of a check that consumes nothing.
    fn marked(&self, verdict: Verdict) -> Change {
        if self.meta.is_some() { Change::Marked(verdict) } else { Change::Nothing }
    }

    /// Whether a denial is charged to anyone: some rule counts all, and the
    /// cost could pass at another time.
    fn charges_denials(&self) -> bool {
        self.rules.iter().any(Rule::counts_all)
            && self.rules.iter().all(|rule| rule.is_shadow() || rule.can_ever_admit(self.cost))
    }

    /// The longest ban of the rules that deny.
    fn ban(&self, rulings: &[Ruling]) -> Option<Ban> {
        let mut longest: Option<Ban> = None;
        for (rule, (index, ruling)) in self.rules.iter().zip(rulings.iter().enumerate()) {
            if ruling.verdict != Verdict::Limited || rule.is_shadow() {
                continue;
            }
            let Some(ban_us) = rule.ban_us() else { continue };
            let until_us = self.now_us.saturating_add(ban_us);
            if longest.is_none_or(|longest| until_us > longest.until_us) {
                longest = Some(Ban { rule: index, until_us });
            }
        }
        longest
    }
}

/// What a rule says of a cost, given what it read.
fn rule_on(rule: &Rule, reading: Reading, check: &Check<'_>) -> Ruling {
    let admits = if !rule.can_ever_admit(check.cost) {
        Moment::Never
    } else if rule.limit() == 0 {
        Moment::At(check.now_us)
    } else {
        reading.admits
    };
    let wait = match admits {
        // A state that stands still admits at a time the clock has yet to
        // reach: now.
        Moment::At(us) if us <= reading.at_us => Span::Micros(0),
        moment => moment.after(check.now_us),
    };
    // With a limit of 0 only nothing passes, and nothing queues for no turn.
    let turn_us = if rule.limit() == 0 { 0 } else { reading.turn_us };
    let (verdict, wait) = match wait {
        Span::Micros(0) => (Verdict::Allowed, Moment::At(turn_us).after(check.now_us)),
        wait => (Verdict::Limited, wait),
    };
    Ruling {
        verdict,
        limit: units(rule.capacity()),
        remaining: units(if rule.limit() == 0 { 0 } else { reading.remaining }),
        wait_ms: wait.millis(),
        reset_ms: 0,
    }
}
