//! What each rule says about a request.

use super::duration;
use crate::check;
use crate::key::Verdict;
use crate::rule::Rule;
use core::time::Duration;

/// What one rule says about a request: the numbers for HTTP fields such as `RateLimit` and
/// `Retry-After`. Times are rounded up to a millisecond.
///
/// ```
/// use ratelimit_core::{Limiter, Rules};
/// use std::time::Duration;
///
/// let rules: Rules = "bucket:60/m,burst=5 1000/d,name=day".parse()?;
/// let (mut limiter, now) = (Limiter::new(), Duration::from_secs(1_800_000_000));
/// assert!(limiter.check_cost(&rules, 2, now).is_allowed());
/// let [burst, day] = limiter.peek_all(&rules, 1, now)[..] else { unreachable!() };
/// assert_eq!((burst.limit, burst.remaining, day.limit, day.remaining), (5, 3, 1000, 998));
/// assert_eq!(burst.next, Some(Duration::from_secs(1)));
/// assert_eq!(burst.reset, Some(Duration::from_secs(2)));
/// # Ok::<(), ratelimit_core::RulesError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleReport<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// What the request costs the rule, in units.
    pub cost: u32,
    /// True if the rule denies the request. A shadow may deny, but that decides nothing.
    pub denies: bool,
    /// The most units that pass at once.
    pub limit: u32,
    /// The units that would pass now.
    pub remaining: u32,
    /// The rule's period. For calendar months it is the length of the present month; for slots it
    /// is 0.
    pub period: Duration,
    /// How long until the rule lets the request pass, or until its turn under a `leaky` rule;
    /// `None`: never.
    pub wait: Option<Duration>,
    /// How long until more units would pass; zero if all units would pass now, `None`: never.
    pub next: Option<Duration>,
    /// How long until everything consumed has come back; `None`: never.
    pub reset: Option<Duration>,
}

impl<'a> From<check::RuleReport<'a>> for RuleReport<'a> {
    fn from(report: check::RuleReport<'a>) -> Self {
        let check::RuleReport { rule, cost, decision, period_ms, next_ms } = report;
        let units = |units| u32::try_from(units).unwrap_or(u32::MAX);
        Self {
            rule,
            cost,
            denies: decision.verdict != Verdict::Allowed,
            limit: units(decision.limit),
            remaining: units(decision.remaining),
            period: duration(period_ms).unwrap_or_default(),
            wait: duration(decision.wait_ms),
            next: duration(next_ms),
            reset: duration(decision.reset_ms),
        }
    }
}
