//! What one client has consumed.

use crate::answer::{Answer, RuleReport};
use crate::hold::{Hold, HoldError, Settlement};
use crate::micros;
use crate::rules::Rules;
use alloc::vec::Vec;
use core::time::Duration;
use ratelimit_engine::check::{Bounds, Budget};
use ratelimit_engine::key::MOST_HOLDS;
use ratelimit_engine::key::{self, Check, CheckOptions};
use ratelimit_engine::rule::MAX_UNITS;

/// What one client has consumed, under any rules.
///
/// Each call gets the time: a `Duration` since the Unix epoch, because the windows of `fixed`
/// follow the calendar. Times are whole microseconds, up to the end of the year 9999. If the clock
/// steps back by up to a rule's period, time stands still for that rule until the clock has caught
/// up. If the clock steps back further, the rule starts with nothing consumed.
///
/// Costs and refunds are in units, 0 to [`MAX_UNITS`]. A higher number counts as [`MAX_UNITS`], a
/// billion.
///
/// ```
/// use ratelimit_core::{Limiter, Rules};
/// use std::collections::HashMap;
/// use std::time::Duration;
///
/// let rules: Rules = "5/m".parse()?;
/// let mut clients: HashMap<&str, Limiter> = HashMap::new();
/// let now = Duration::from_secs(1_800_000_000);
/// assert!(clients.entry("ann").or_default().check_cost(&rules, 3, now).is_allowed());
/// assert!(!clients.entry("ann").or_default().peek(&rules, 3, now).is_allowed());
///
/// let later = now + Duration::from_secs(60);
/// clients.retain(|_, limiter| !limiter.is_idle(later));
/// assert!(clients.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct Limiter(pub(super) key::Limiter);

impl Limiter {
    /// A limiter with nothing consumed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides a request of one unit. If it may pass, every rule consumes one unit, or the `cost=` of
    /// its text.
    pub fn check(&mut self, rules: &Rules, now: Duration) -> Answer {
        self.check_cost(rules, 1, now)
    }

    /// Decides a request of `cost` units.
    pub fn check_cost(&mut self, rules: &Rules, cost: u32, now: Duration) -> Answer {
        let check = check_of(rules, cost, now);
        // Only holds and bounds refuse a check; this one has neither.
        self.decide(&check).unwrap_or(Answer::Denied {
            wait: None,
            rule: None,
            remaining: 0,
            reset: None,
        })
    }

    /// Decides a request as [`check_cost`](Self::check_cost) does, but consumes nothing.
    pub fn peek<const HELD: bool>(&self, rules: &Rules<HELD>, cost: u32, now: Duration) -> Answer {
        let check = check_of(rules, cost, now);
        let mut decisions = Vec::new();
        let outcome = self.0.peek(&check, &mut decisions);
        Answer::new(&check, outcome.summary, &decisions)
    }

    /// What each rule says about a request of `cost` units, in the order of the rules. Consumes
    /// nothing. Empty while an earlier denial bans the client (`ban=`), because no rule decides then.
    pub fn peek_all<'r, const HELD: bool>(
        &self,
        rules: &'r Rules<HELD>,
        cost: u32,
        now: Duration,
    ) -> Vec<RuleReport<'r>> {
        let (check, budget) = (check_of(rules, cost, now), Budget::of_command());
        let limiter = self.0.as_of(check.now_us);
        let mut decisions = Vec::new();
        let _ = limiter.peek(&check, &mut decisions);
        limiter.fill_resets(&check, &mut decisions, &budget);
        limiter.rule_reports(&check, &decisions, &budget).map(RuleReport::from).collect()
    }

    /// Gives back up to `units` of what these rules consumed last. Returns the largest number of
    /// units that came back under one rule.
    pub fn refund(&mut self, rules: &Rules, units: u32, now: Duration) -> u32 {
        let returned = self.0.refund(units.min(MAX_UNITS), micros(now), rules.as_slice());
        u32::try_from(returned).unwrap_or(units)
    }

    /// Decides a request of `cost` units. If the request may pass, takes a hold on the units:
    /// [`settle`](Self::settle) can then correct the cost. While the hold lives, the same call is
    /// allowed again, consumes nothing and moves the hold's end.
    ///
    /// ```
    /// use ratelimit_core::{HeldRules, Hold, Limiter, Settlement};
    /// use std::time::Duration;
    ///
    /// let rules: HeldRules = "slots:1".parse()?;
    /// let mut pool = Limiter::new();
    /// let now = Duration::from_secs(1_800_000_000);
    /// let job = |id| Hold::new(id, Duration::from_secs(30));
    /// assert!(pool.hold(&rules, 1, &job("job-1")?, now)?.is_allowed());
    /// assert!(!pool.hold(&rules, 1, &job("job-2")?, now)?.is_allowed());
    /// assert!(pool.settle("job-1", Settlement::AsCharged, now));
    /// assert!(pool.hold(&rules, 1, &job("job-2")?, now)?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HoldError::Refused`] if a live hold with this id was taken with another cost, or if there
    /// are 50,000 holds. Nothing has changed then.
    pub fn hold<const HELD: bool>(
        &mut self,
        rules: &Rules<HELD>,
        cost: u32,
        hold: &Hold<'_>,
        now: Duration,
    ) -> Result<Answer, HoldError> {
        let hold = hold.0.at(micros(now));
        let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
        self.decide(&check_of(rules, cost, now).with(&options))
    }

    /// Ends a hold, and corrects what it was charged. Returns false, and changes nothing, if no
    /// hold with this id lives.
    pub fn settle<I: AsRef<[u8]> + ?Sized>(
        &mut self,
        id: &I,
        settlement: Settlement,
        now: Duration,
    ) -> bool {
        self.0.settle(id.as_ref(), settlement.of_engine(), micros(now))
    }

    /// Moves the end of a hold to now plus the length of `hold`. Returns false, and changes nothing,
    /// if no hold with its id lives.
    pub fn renew(&mut self, hold: &Hold<'_>, now: Duration) -> bool {
        let hold = hold.0.at(micros(now));
        self.0.renew(hold.id, hold.end_us, micros(now))
    }

    /// The time since the Unix epoch at which the limiter becomes [idle](Self::is_idle) if nothing
    /// consumes before then; `None`: never, under a limit of 0.
    #[must_use]
    pub fn expires(&self) -> Option<Duration> {
        self.0.deadline().until_us().map(Duration::from_micros)
    }

    /// True if the limiter answers like a new one, so that a map of limiters can drop it.
    #[must_use]
    pub fn is_idle(&self, now: Duration) -> bool {
        self.expires().is_some_and(|expires| expires <= now)
    }

    fn decide(&mut self, check: &Check<'_>) -> Result<Answer, HoldError> {
        const BOUNDS: Bounds = Bounds { max_holds: MOST_HOLDS, ..Bounds::ANY };
        let mut decisions = Vec::new();
        let outcome = self.0.check_within(BOUNDS, check, &mut decisions);
        let answer = outcome.map_err(|error| HoldError::Refused(error.why))?.summary;
        Ok(Answer::new(check, answer, &decisions))
    }
}

/// The engine relies on the bound of costs, because a log adds them up in 32 bits. If the sum wrapped,
/// a refund from the log would not end.
fn check_of<const HELD: bool>(rules: &Rules<HELD>, cost: u32, now: Duration) -> Check<'_> {
    Check::new(rules.as_slice(), cost.min(MAX_UNITS), micros(now))
}
