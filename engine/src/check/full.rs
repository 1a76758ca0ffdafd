//! What the reply to `FULL` shows. Only this reply has each rule's reset and period, and says when the
//! rule lets one more unit pass.
//!
//! A rule with `r` units remaining has one more unit as soon as it admits a cost of `r + 1`. So the
//! algorithms need no second formula: each reads its state with that cost.

use super::{Budget, Decision, View};
use crate::algorithm::{Anchor, Moment, Params};
use crate::key::{Access, AccessEntry, Check, Limiter, Plan};
use crate::rule::{MS_US, Rule};
use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::Range;

/// A key in the reply to `FULL`. `N` is a name.
#[derive(Clone, Debug)]
pub struct Shown<'a, N> {
    /// Its name, if the command takes several keys.
    pub name: Option<N>,
    /// Its check, with the decided cost.
    pub check: Check<'a>,
    /// Where its decisions are: one per rule, or none if a block or an exemption answered.
    pub decisions: Range<usize>,
    /// Its value without lapsed holds, if it has one.
    pub limiter: Option<&'a Limiter>,
}

/// What the reply to `FULL` shows beside the verdict and the wait.
#[derive(Clone, Debug)]
pub struct FullReport<'a, N> {
    /// What an allowed check of a range was granted.
    pub granted: Option<u32>,
    /// The name of the deciding key, if the command takes several keys.
    pub key: Option<N>,
    /// The plan of the only key, or of the deciding key.
    pub plan: Option<&'a Plan>,
    /// The rules of all keys, each with the name of its key.
    pub rules: Vec<(Option<N>, RuleReport<'a>)>,
    /// The block in effect that ends last, with the name of its key. Of several that end together, the
    /// first.
    pub block: Option<(Option<N>, &'a AccessEntry)>,
}

impl<'a, N: Copy> FullReport<'a, N> {
    /// The report on a check of these keys. `decider` is the index of the deciding key. Fills in the
    /// resets of the decisions.
    pub fn of(
        summary: Decision,
        decisions: &mut [Decision],
        keys: &[Shown<'a, N>],
        decider: Option<usize>,
    ) -> Self {
        let budget = &Budget::of_command();
        for key in keys {
            if let Some(limiter) = key.limiter {
                let decisions = decisions.get_mut(key.decisions.clone()).unwrap_or_default();
                limiter.fill_resets(&key.check, decisions, budget);
            }
        }
        let (untouched, mut rules) = (Limiter::default(), Vec::new());
        for key in keys {
            let limiter = key.limiter.unwrap_or(&untouched);
            let decisions = decisions.get(key.decisions.clone()).unwrap_or_default();
            let reports = limiter.rule_reports(&key.check, decisions, budget);
            rules.extend(reports.map(|report| (key.name, report)));
        }
        let decider = decider.and_then(|decider| keys.get(decider));
        let planned = if let [only] = keys { Some(only) } else { decider };
        let block_of = |key: &Shown<'a, N>| {
            let access = key.limiter?.access_at(key.check.now_us)?;
            (access.kind == Access::Block).then_some((key.name, access))
        };
        let blocks = keys.iter().rev().filter_map(block_of);
        Self {
            granted: keys.first().and_then(|key| key.check.granted(summary.verdict)),
            key: decider.and_then(|key| key.name),
            plan: planned.and_then(|key| key.limiter?.plan_at(key.check.now_us)),
            rules,
            block: blocks.max_by_key(|(_, block)| block.until_us.unwrap_or(u64::MAX)),
        }
    }
}

/// What a reply to `FULL` shows of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleReport<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// What the check costs it, in units.
    pub cost: u32,
    /// What it decides, with its reset.
    pub decision: Decision,
    /// The period. For calendar months it is the length of the present month; for slots it is 0.
    pub period_ms: i64,
    /// Milliseconds until `remaining` has grown by at least one if nothing else happens; 0 if all
    /// units remain, -1: never.
    pub next_ms: i64,
}

/// The value of a field of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// A number.
    Integer(i64),
    /// Nothing: the rule has no such text.
    Null,
}

impl<'a> RuleReport<'a> {
    /// The fields of the reply, in its order.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, Field<'a>); 12] {
        let Self { rule, cost, decision, period_ms, next_ms } = *self;
        let name = rule.name().map_or(Field::Null, |name| Field::Text(name.as_str().into()));
        [
            ("rule", Field::Text(rule.to_string().into())),
            ("name", name),
            ("cost", Field::Integer(cost.into())),
            ("verdict", Field::Integer(decision.verdict.code())),
            ("limit", Field::Integer(decision.limit)),
            ("quota", Field::Integer(rule.limit().into())),
            ("period_ms", Field::Integer(period_ms)),
            ("remaining", Field::Integer(decision.remaining)),
            ("wait_ms", Field::Integer(decision.wait_ms)),
            ("next_ms", Field::Integer(next_ms)),
            ("reset_ms", Field::Integer(decision.reset_ms)),
            ("shadow", Field::Integer(rule.is_shadow().into())),
        ]
    }
}

impl Limiter {
    /// Fills in each rule's reset after the check.
    pub fn fill_resets(&self, check: &Check<'_>, decisions: &mut [Decision], budget: &Budget) {
        let view = View { limiter: self, check, budget };
        for (rule, decision) in check.rules.iter().zip(decisions) {
            decision.reset_ms = view.reset_ms(rule);
        }
    }

    /// A report on each rule that has decided; none if a block or an exemption answered. Call
    /// [`Self::fill_resets`] first.
    pub fn rule_reports<'a, 'r>(
        &'a self,
        check: &'a Check<'r>,
        decisions: &'a [Decision],
        budget: &'a Budget,
    ) -> impl Iterator<Item = RuleReport<'r>> + use<'a, 'r> {
        let view = View { limiter: self, check, budget };
        check.rules.iter().zip(decisions).map(move |(rule, decision)| RuleReport {
            rule,
            cost: check.cost_of(rule),
            decision: *decision,
            period_ms: i64::try_from(window_us(rule, check.now_us) / MS_US).unwrap_or(i64::MAX),
            next_ms: view.next(rule).ms_after(check.now_us),
        })
    }
}

impl View<'_> {
    /// When `remaining` has grown by at least one.
    fn next(self, rule: &Rule) -> Moment {
        let (remaining, capacity) = (self.read(rule).remaining, rule.capacity());
        if capacity == 0 {
            return Moment::Never;
        }
        if remaining >= capacity {
            return Moment::At(self.check.now_us);
        }
        let mut one_more = *rule;
        one_more.set_named_cost(u32::try_from(remaining.saturating_add(1)).unwrap_or(u32::MAX));
        if self.has_few_refunding_holds() {
            self.admits_with_lapses(&one_more)
        } else {
            self.admits(&one_more)
        }
    }
}

/// The length of a rule's window at a time: its period, or the length of the calendar month.
fn window_us(rule: &Rule, at_us: u64) -> u64 {
    let Params::Fixed(params) = rule.params() else { return rule.period_us() };
    let anchor = Anchor::new(params.calendar, params.tz_min);
    let start_us = anchor.start(rule.period_us(), at_us);
    anchor.end(rule.period_us(), start_us).abs_diff(start_us)
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::key::Change;
    use crate::tests::rules_of_line;

    /// 2024-02-10 12:00 UTC.
    const NOW_US: u64 = 1_707_566_400_000_000;
    const DAY_MS: i64 = 86_400_000;

    /// The period and the next unit of the only rule.
    fn outlook(limiter: &Limiter, rules: &[Rule], now_us: u64) -> (i64, i64) {
        let (check, budget) = (Check::new(rules, 0, now_us), Budget::of_command());
        let mut reports = limiter.rule_reports(&check, &[Decision::UNDECIDED], &budget);
        let RuleReport { period_ms, next_ms, .. } = reports.next().unwrap();
        (period_ms, next_ms)
    }

    #[test]
    fn windows_that_start_before_the_epoch_have_the_full_period() {
        for rule in
            ["5/w", "fixed:5/w", "fixed:5/d,tz=+14:00", "fixed:5/d,align=first", "leaky:5/d"]
        {
            let rules = rules_of_line(rule);
            let period_ms = rules[0].period_us().cast_signed() / 1_000;
            assert_eq!(outlook(&Limiter::default(), &rules, 1), (period_ms, 0), "{rule}");
        }
    }

    #[test]
    fn each_algorithm_says_when_one_more_unit_is_free() {
        for (rule, consumed, later_us, expected) in [
            ("log:5/m", 2, 1_000_000, (60_000, 59_000)),
            ("window:60/m", 1, 0, (60_000, 120_000)),
            ("window:60/m", 60, 60_000_000, (60_000, 1_000)),
            ("fixed:5/h", 2, 0, (3_600_000, 3_600_000)),
            ("bucket:60/m,burst=90", 10, 0, (60_000, 1_000)),
            ("bucket:60/m,burst=90", 10, 500_000, (60_000, 500)),
            ("bucket:60/m,refill=interval", 10, 500_000, (60_000, 59_500)),
            ("leaky:2/s,queue=3", 4, 0, (1_000, 500)),
            // A shadow consumed more than its limit.
            ("log:5/m,shadow", 9, 0, (60_000, 60_000)),
            ("log:5/m", 0, 0, (60_000, 0)),
            ("log:0/m", 0, 0, (60_000, -1)),
            ("bucket:0/m,burst=9", 0, 0, (60_000, -1)),
            // February of a leap year, with 19.5 of its days to go.
            ("fixed:5/month", 1, 0, (29 * DAY_MS, 19 * DAY_MS + DAY_MS / 2)),
            // By then it is March.
            ("fixed:5/month", 0, 20 * 86_400_000_000, (31 * DAY_MS, 0)),
        ] {
            let (mut limiter, rules) = (Limiter::default(), rules_of_line(rule));
            limiter.record(&Check::new(&rules, consumed, NOW_US), Change::Admitted);
            let outlook = outlook(&limiter, &rules, NOW_US + later_us);
            assert_eq!(outlook, expected, "{rule} {consumed}");
        }
    }
}
