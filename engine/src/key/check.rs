//! A check: its arguments and its effect.

use super::{HoldOption, HoldRequest};
use crate::algorithm::Needs;
use crate::rule::{Kind, Rule};

/// A question: does this cost fit these rules at this time?
///
/// Callers keep to these bounds, which no check tests again. No two rules have the same identity, and
/// all log rules cost the same. Rules of `slots` come with a hold, except in a peek: without one, they
/// admit and count nothing. Costs are at most [`MAX_UNITS`](crate::rule::MAX_UNITS), because a log adds
/// them up in 32 bits. The time is at most [`MAX_TIME_US`](crate::rule::MAX_TIME_US), or the saved form
/// of the key could not be read.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The rules, in the order of the request.
    pub rules: &'a [Rule],
    /// The cost of rules without their own cost: the lower bound if it is a range. Shown in the
    /// history.
    pub cost: u32,
    /// Unix microseconds.
    pub now_us: u64,
    /// Options that few checks have. `None` keeps the check small and is quick to test.
    pub options: Option<&'a CheckOptions<'a>>,
}

/// Options that few checks have. Before the time of the check is known, `H` is a [`HoldOption`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions<'a, H = HoldRequest<'a>> {
    /// The upper bound, if the cost is a range.
    pub up_to: Option<u32>,
    /// The text for the history.
    pub meta: Option<Meta<'a>>,
    /// The hold to take if the check is allowed.
    pub hold: Option<H>,
    /// Whether blocks and pauses are ignored. The rules are shadows then ([`Rule::observe`]).
    pub observes: bool,
}

impl<H> Default for CheckOptions<'_, H> {
    fn default() -> Self {
        Self { up_to: None, meta: None, hold: None, observes: false }
    }
}

impl<'a> CheckOptions<'a, HoldOption<'a>> {
    /// The options of a check at this time.
    pub fn at(&self, now_us: u64) -> CheckOptions<'a> {
        let Self { up_to, meta, hold, observes } = *self;
        CheckOptions { up_to, meta, hold: hold.map(|hold| hold.at(now_us)), observes }
    }
}

impl<'a> Check<'a> {
    /// A check without options, within the bounds of [`Check`].
    pub const fn new(rules: &'a [Rule], cost: u32, now_us: u64) -> Self {
        Self { rules, cost, now_us, options: None }
    }

    /// Adds options.
    #[must_use]
    pub const fn with(self, options: &'a CheckOptions<'a>) -> Self {
        Self { options: Some(options), ..self }
    }

    /// The upper bound, if the cost is a range.
    #[inline(always)]
    pub fn up_to(&self) -> Option<u32> {
        self.options?.up_to
    }

    /// The text for the history.
    #[inline(always)]
    pub fn meta(&self) -> Option<Meta<'a>> {
        self.options?.meta
    }

    /// The hold to take if the check is allowed.
    #[inline(always)]
    pub fn hold(&self) -> Option<HoldRequest<'a>> {
        self.options?.hold
    }

    /// Whether the check ignores blocks and pauses.
    pub fn observes(&self) -> bool {
        self.options.is_some_and(|options| options.observes)
    }

    /// What the check costs a rule.
    #[inline(always)]
    pub const fn cost_of(&self, rule: &Rule) -> u32 {
        rule.cost().or(self.cost)
    }

    /// The greatest cost of the check for any one rule.
    pub fn greatest_cost(&self) -> u32 {
        let rules = self.rules.iter().filter(|rule| !rule.is_shadow());
        rules.map(|rule| self.cost_of(rule)).max().unwrap_or(0)
    }

    /// How far the clock may step back before `rule` ignores its state: the length of the rule's
    /// window. For a log rule, it is the longest window of the check's log rules, because they share
    /// the log.
    pub(crate) fn window_us_of(&self, rule: &Rule) -> u64 {
        if rule.kind() == Kind::Log { Needs::of(self.rules).window_us } else { rule.period_us() }
    }

    /// The granted cost in a reply, if the cost is a range. `cost` must be the cost that was
    /// decided.
    pub fn granted(&self, verdict: Verdict) -> Option<u32> {
        self.up_to().map(|_| if verdict == Verdict::Allowed { self.cost } else { 0 })
    }

    /// True if `change` consumes from `rule`. A cost of 0 consumes nothing, but a hold needs the
    /// state, because settling it may consume.
    pub(crate) fn consumes_from(&self, rule: &Rule, change: Change) -> bool {
        match change {
            Change::Admitted => self.cost_of(rule) > 0 || self.hold().is_some(),
            Change::Charged => self.cost_of(rule) > 0 && rule.counts_all(),
            Change::Nothing | Change::Renewed | Change::HistoryOnly(_) => false,
        }
    }
}

/// The `META` of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// What the entry of the check shows in the history.
    pub text: &'a [u8],
    /// The number of checks that the key's history keeps; at least 1.
    pub keep: u32,
}

/// The answer to a check, without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every rule admitted it, or the key is exempt.
    Allowed = 0,
    /// A rule or a pause denied it.
    Limited = 1,
    /// The key is blocked or banned, and no rule was evaluated.
    Blocked = 2,
}

impl Verdict {
    /// The code in replies and in the saved form: 0, 1 or 2.
    pub const fn code(self) -> i64 {
        self as i64
    }
}

/// What a check did to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its value is unchanged.
    Nothing,
    /// The cost was consumed from every rule.
    Admitted,
    /// The request was denied, and charged to the `count=all` rules.
    Charged,
    /// The check repeated a hold and moved its end.
    Renewed,
    /// Nothing was consumed, but the history got an entry.
    HistoryOnly(Verdict),
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::tests::rules_of_line;

    #[test]
    fn the_greatest_cost_may_be_the_default_or_a_rules_own() {
        let rules = rules_of_line("window:9/m window:9/h,cost=3");
        assert_eq!([2, 4].map(|cost| Check::new(&rules, cost, 0).greatest_cost()), [3, 4]);
        assert_eq!(Check::new(&[], 2, 0).greatest_cost(), 0);
    }
}
