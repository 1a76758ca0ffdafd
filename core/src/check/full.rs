//! What only the reply to `FULL` shows of each rule: its reset, how long its period is, and
//! when it lets one more unit pass.
//!
//! A rule that has `r` units remaining has one more as soon as it admits a cost of
//! `r + 1`. So the algorithms need no second formula: each reads its state with that
//! cost.

use super::{Budget, Decision, View};
use crate::algorithm::{Meter, Moment};
use crate::key::{Check, Limiter};
use crate::rule::{MS_US, Rule};

/// What a reply to `FULL` adds for one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The period; of a calendar month, the length of the present one; of slots, 0.
    pub period_ms: i64,
    /// Until `remaining` is larger by at least one if nothing else happens; 0 if
    /// nothing is consumed, -1: never.
    pub next_ms: i64,
}

impl Limiter {
    /// Fills in each rule's reset after the check.
    pub fn fill_resets(&self, check: &Check<'_>, decisions: &mut [Decision], budget: &Budget) {
        let view = View { limiter: self, check, budget };
        for (rule, decision) in check.rules.iter().zip(decisions) {
            decision.reset_ms = view.reset_ms(rule);
        }
    }

    /// What a reply to `FULL` adds for each rule of a check, after it.
    pub fn full<'a>(
        &'a self,
        check: &'a Check<'_>,
        budget: &'a Budget,
    ) -> impl Iterator<Item = Full> + 'a {
        let view = View { limiter: self, check, budget };
        check.rules.iter().map(move |rule| Full {
            period_ms: i64::try_from(window_us(rule, check.now_us) / MS_US).unwrap_or(i64::MAX),
            next_ms: view.next(rule).ms_after(check.now_us),
        })
    }
}

impl View<'_> {
    /// When `remaining` is larger by at least one.
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

/// The length of a rule's window at a time: its period, or the days of that month.
fn window_us(rule: &Rule, at_us: u64) -> u64 {
    Meter::of_units(rule, at_us, 0).window_of(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Change;
    use crate::tests::rules_of_line;

    /// 2024-02-10 12:00 UTC.
    const NOW_US: u64 = 1_707_566_400_000_000;
    const DAY_MS: i64 = 86_400_000;

    fn period_and_next(text: &str, consumed: u32, later_us: u64) -> (i64, i64) {
        let (mut limiter, rules) = (Limiter::default(), rules_of_line(text));
        limiter.record(&Check::new(&rules, consumed, NOW_US), Change::Admitted);
        let full = limiter
            .full(&Check::new(&rules, 0, NOW_US + later_us), &Budget::of_command())
            .next()
            .unwrap();
        (full.period_ms, full.next_ms)
    }

    #[test]
    fn a_period_is_whole_in_the_first_windows_too() {
        for rule in
            ["5/w", "fixed:5/w", "fixed:5/d,tz=+14:00", "fixed:5/d,align=first", "leaky:5/d"]
        {
            let rules = rules_of_line(rule);
            let full = Limiter::default()
                .full(&Check::new(&rules, 0, 1), &Budget::of_command())
                .next()
                .unwrap();
            let period_ms = rules[0].period_us().cast_signed() / 1_000;
            assert_eq!((full.period_ms, full.next_ms), (period_ms, 0), "{rule}");
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
            // More was consumed than the limit is now.
            ("log:5/m,shadow", 9, 0, (60_000, 60_000)),
            ("log:5/m", 0, 0, (60_000, 0)),
            ("log:0/m", 0, 0, (60_000, -1)),
            ("bucket:0/m,burst=9", 0, 0, (60_000, -1)),
            // February of a leap year, with 19.5 of its days to go.
            ("fixed:5/month", 1, 0, (29 * DAY_MS, 19 * DAY_MS + DAY_MS / 2)),
            // By then it is March.
            ("fixed:5/month", 0, 20 * 86_400_000_000, (31 * DAY_MS, 0)),
        ] {
            assert_eq!(period_and_next(rule, consumed, later_us), expected, "{rule} {consumed}");
        }
    }
}
