//! What one client has consumed.

use crate::answer::{Answer, RuleReport};
use crate::cost::Cost;
use crate::hold::{Hold, HoldError};
use crate::micros;
use crate::room::{FEW, Room};
use crate::rules::{MAX_RULES, Rules};
use alloc::vec::Vec;
use core::time::Duration;
use ratelimit_engine::check::{Bounds, Budget, Decisions};
use ratelimit_engine::key::{self, Check, CheckOptions, Costs, MOST_HOLDS, Settlement};

/// What one client has consumed, under any rules.
///
/// Each call gets the time: a `Duration` since the Unix epoch, because the windows of `fixed`
/// follow the calendar. Times are whole microseconds, up to the end of the year 9999. If the clock
/// steps back by up to a rule's period, time stands still for that rule until the clock has caught
/// up. If the clock steps back further, the rule starts with nothing consumed.
///
/// A check or a peek allocates nothing, except for what it is the first to consume.
///
/// ```
/// use ratelimit_core::{Cost, Limiter, Rules};
/// use std::collections::HashMap;
/// use std::time::Duration;
///
/// let rules: Rules = "5/m".parse()?;
/// let mut clients: HashMap<&str, Limiter> = HashMap::new();
/// let (now, three) = (Duration::from_secs(1_800_000_000), Cost::new(3)?);
/// assert!(clients.entry("ann").or_default().check_cost(&rules, three, now).is_allowed());
/// assert!(!clients.entry("ann").or_default().peek(&rules, three, now).is_allowed());
///
/// let later = now + Duration::from_secs(60);
/// clients.retain(|_, limiter| !limiter.is_idle(later));
/// assert!(clients.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(all(test, feature = "testing"), derive(PartialEq, Eq))]
pub struct Limiter(pub(super) key::Limiter);

impl Limiter {
    /// A limiter with nothing consumed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides a request of one unit. If it may pass, every rule consumes one unit, or the `cost=` of
    /// its text.
    ///
    /// Slots need a [hold](Self::hold): if one of [`HeldRules`](crate::HeldRules) has slots, the request
    /// never passes, and the answer names that rule.
    pub fn check<const HELD: bool>(&mut self, rules: &Rules<HELD>, now: Duration) -> Answer {
        self.check_cost(rules, Cost::ONE, now)
    }

    /// Decides a request of this cost as [`check`](Self::check) does.
    pub fn check_cost<const HELD: bool>(
        &mut self,
        rules: &Rules<HELD>,
        cost: Cost,
        now: Duration,
    ) -> Answer {
        let refused = |rule| Answer::Denied { wait: None, rule, remaining: 0, reset: None };
        match rules.slots() {
            // Only holds and bounds refuse a check; this one has neither.
            None => self.decide(&rules.check(cost, now)).unwrap_or(refused(None)),
            slots => refused(slots),
        }
    }

    /// Decides a request as [`check_cost`](Self::check_cost) or [`hold`](Self::hold) would, but
    /// consumes nothing.
    pub fn peek<const HELD: bool>(&self, rules: &Rules<HELD>, cost: Cost, now: Duration) -> Answer {
        let check = rules.check(cost, now);
        match check.rules.len() {
            ..=FEW => self.peek_in(&mut Room::<FEW>::new(), &check),
            _ => self.peek_in(&mut Room::<MAX_RULES>::new(), &check),
        }
    }

    /// What each rule says about a request of this cost, in the order of the rules. Consumes
    /// nothing. Empty while an earlier denial bans the client (`ban=`), because no rule decides then.
    pub fn peek_all<const HELD: bool>(
        &self,
        rules: &Rules<HELD>,
        cost: Cost,
        now: Duration,
    ) -> Vec<RuleReport> {
        let (check, budget) = (rules.check(cost, now), Budget::of_command());
        let (limiter, mut room) = (self.0.as_of(check.now_us), Room::<MAX_RULES>::new());
        let _ = limiter.peek(&check, &mut room);
        limiter.fill_resets(&check, &mut room, &budget);
        limiter.rule_reports(&check, &room, &budget).map(RuleReport::new).collect()
    }

    /// Gives back up to `units` of what these rules consumed last; slots come back with their holds
    /// alone. Returns the largest number of units that came back under one rule.
    pub fn refund<const HELD: bool>(
        &mut self,
        rules: &Rules<HELD>,
        units: Cost,
        now: Duration,
    ) -> u32 {
        let returned = self.0.refund(units.units(), micros(now), rules.engine());
        u32::try_from(returned).unwrap_or(units.units())
    }

    /// Decides a request of this cost. If the request may pass, takes a hold on the units:
    /// [`settle`](Self::settle) can then correct the cost. While the hold lives, the same call is
    /// allowed again, consumes nothing and moves the hold's end.
    ///
    /// ```
    /// use ratelimit_core::{Cost, HeldRules, Hold, Limiter, Settlement};
    /// use std::time::Duration;
    ///
    /// let rules: HeldRules = "slots:1".parse()?;
    /// let mut pool = Limiter::new();
    /// let now = Duration::from_secs(1_800_000_000);
    /// let job = |id| Hold::new(id, Duration::from_secs(30));
    /// assert!(pool.hold(&rules, Cost::ONE, &job("job-1")?, now)?.is_allowed());
    /// assert!(!pool.hold(&rules, Cost::ONE, &job("job-2")?, now)?.is_allowed());
    /// assert!(pool.settle("job-1", Settlement::AsCharged, now));
    /// assert!(pool.hold(&rules, Cost::ONE, &job("job-2")?, now)?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HoldError::OtherCost`] if a live hold with this id was taken at another cost,
    /// [`HoldError::Full`] if there are 50,000 holds. Nothing has changed then.
    pub fn hold<const HELD: bool>(
        &mut self,
        rules: &Rules<HELD>,
        cost: Cost,
        hold: &Hold<'_>,
        now: Duration,
    ) -> Result<Answer, HoldError> {
        let hold = hold.0.at(micros(now));
        let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
        self.decide(&rules.check(cost, now).with(&options))
    }

    /// Ends a hold, and corrects what it was charged. Returns false, and changes nothing, if no
    /// hold with this id lives.
    pub fn settle<I: AsRef<[u8]> + ?Sized>(
        &mut self,
        id: &I,
        settlement: Settlement<Cost>,
        now: Duration,
    ) -> bool {
        let costs = |cost: Cost| Costs { default: Some(cost.units()), named: &[] };
        self.0.settle(id.as_ref(), settlement.map(costs), micros(now))
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
        match check.rules.len() {
            ..=FEW => self.decide_in(&mut Room::<FEW>::new(), check),
            _ => self.decide_in(&mut Room::<MAX_RULES>::new(), check),
        }
    }

    fn decide_in(
        &mut self,
        room: &mut impl Decisions,
        check: &Check<'_>,
    ) -> Result<Answer, HoldError> {
        const BOUNDS: Bounds = Bounds { max_holds: MOST_HOLDS, ..Bounds::ANY };
        let outcome = self.0.check_within(BOUNDS, check, room);
        let answer = outcome.map_err(|error| HoldError::of(error.why))?.summary;
        Ok(Answer::new(check, answer, room))
    }

    fn peek_in(&self, room: &mut impl Decisions, check: &Check<'_>) -> Answer {
        let answer = self.0.peek(check, room).summary;
        Answer::new(check, answer, room)
    }
}
