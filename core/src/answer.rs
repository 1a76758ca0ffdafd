//! The answer to a check.

use crate::duration;
use crate::rule::Rule;
use core::time::Duration;
use ratelimit_engine::check;
use ratelimit_engine::check::Decision;
use ratelimit_engine::key::{Check, Verdict};
use ratelimit_engine::rule::Rule as EngineRule;

/// Whether a request may pass. Waits and resets are rounded up to a millisecond.
/// [`Limiter::peek_all`](crate::Limiter::peek_all) has the numbers of each rule.
///
/// ```
/// use ratelimit_core::{Answer, Limiter, Rules};
/// use std::time::Duration;
///
/// let rules: Rules = "bucket:1/s".parse()?;
/// let mut limiter = Limiter::new();
/// let now = Duration::from_secs(1_800_000_000);
/// assert!(limiter.check(&rules, now).is_allowed());
/// let Answer::Denied { wait, rule, .. } = limiter.check(&rules, now) else { unreachable!() };
/// assert_eq!((wait, rule), (Some(Duration::from_secs(1)), Some(0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request may not pass"]
pub enum Answer {
    /// The request may pass, and each rule has consumed its cost.
    #[non_exhaustive]
    Allowed {
        /// The units that would still pass under the rule that admits the fewest requests. After a
        /// peek this includes the cost asked for, because a peek consumes nothing. `None` if all
        /// rules are shadows.
        remaining: Option<u32>,
        /// How long until everything consumed under that rule has come back; `None`: never, under a
        /// limit of 0.
        reset: Option<Duration>,
        /// How long the request waits for its turn under a `leaky` rule; else zero.
        wait: Duration,
    },
    /// The request may not pass. It consumed nothing, except from rules with `count=all`.
    #[non_exhaustive]
    Denied {
        /// How long until it would pass, if nothing else happens; `None`: never.
        wait: Option<Duration>,
        /// The index of the rule that denies longest. `None` while an earlier denial bans the client
        /// (`ban=`): no rule decides then.
        rule: Option<usize>,
        /// The units that would pass now under that rule.
        remaining: u32,
        /// How long until everything consumed under that rule has come back, or until the ban ends;
        /// `None`: never.
        reset: Option<Duration>,
    },
}

impl Answer {
    /// Whether the request may pass.
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    /// Converts the engine's answer to a check, given the decisions of the check's rules.
    pub(super) fn new(check: &Check<'_>, answer: Decision, decisions: &[Decision]) -> Self {
        let (remaining, reset) = (u32::try_from(answer.remaining).ok(), duration(answer.reset_ms));
        let wait = duration(answer.wait_ms);
        match answer.verdict {
            Verdict::Allowed => Self::Allowed { remaining, reset, wait: wait.unwrap_or_default() },
            Verdict::Limited | Verdict::Blocked => {
                let deciding = check.deciding_rule(decisions).map(|(rule, _)| rule);
                let is_deciding =
                    |rule: &EngineRule| deciding.is_some_and(|other| core::ptr::eq(rule, other));
                let rule = check.rules.iter().position(is_deciding);
                Self::Denied { wait, rule, remaining: remaining.unwrap_or(0), reset }
            }
        }
    }
}

/// What one rule says about a request: the numbers for HTTP fields such as `RateLimit` and
/// `Retry-After`. Times are rounded up to a millisecond.
///
/// ```
/// use ratelimit_core::{Cost, Limiter, Rules};
/// use std::time::Duration;
///
/// let rules: Rules = "bucket:60/m,burst=5 1000/d,name=day".parse()?;
/// let (mut limiter, now) = (Limiter::new(), Duration::from_secs(1_800_000_000));
/// assert!(limiter.check_cost(&rules, Cost::new(2)?, now).is_allowed());
/// let [burst, day] = limiter.peek_all(&rules, Cost::ONE, now)[..] else { unreachable!() };
/// assert_eq!((burst.limit, burst.remaining, day.limit, day.remaining), (5, 3, 1000, 998));
/// assert_eq!(burst.next, Some(Duration::from_secs(1)));
/// assert_eq!(burst.reset, Some(Duration::from_secs(2)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleReport {
    /// The rule.
    pub rule: Rule,
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

impl RuleReport {
    /// Converts the engine's report.
    pub(super) fn new(report: check::RuleReport<'_>) -> Self {
        let check::RuleReport { rule, cost, decision, period_ms, next_ms } = report;
        let units = |units| u32::try_from(units).unwrap_or(u32::MAX);
        Self {
            rule: Rule(*rule),
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
