//! A rule: from its text, or built from its parts.

use crate::cost::Cost;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use ratelimit_engine::rule::{
    self as engine, Clash, CommonOption, Kind, Ladder, Name, RuleOption, RuleSpec, Unit,
};
use thiserror::Error;

/// A limit under one algorithm, with its options.
///
/// It is read from its text, or [built](RuleBuilder), and prints a text that parses to an equal rule:
///
/// ```
/// use ratelimit_core::Rule;
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let rule = Rule::bucket(100, minute).burst(20).name("search").build()?;
/// assert_eq!(rule, "bucket:100/m,burst=20,name=search".parse()?);
/// assert_eq!((rule.limit(), rule.name()), (100, Some("search")));
/// # Ok::<(), ratelimit_core::RuleError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule(pub(crate) engine::Rule);

impl Rule {
    /// At most `limit` units in any stretch of time that is a period long, exact.
    pub fn log(limit: u32, period: impl Into<Period>) -> RuleBuilder {
        RuleBuilder::rate(Kind::Log, limit, period.into())
    }

    /// About `limit` units in any period, counted by sub-intervals.
    pub fn window(limit: u32, period: impl Into<Period>) -> RuleBuilder {
        RuleBuilder::rate(Kind::Window, limit, period.into())
    }

    /// At most `limit` units in each window. Windows follow the calendar, or open at the first request.
    pub fn fixed(limit: u32, period: impl Into<Period>) -> RuleBuilder {
        RuleBuilder::rate(Kind::Fixed, limit, period.into())
    }

    /// A token bucket that gets `limit` tokens in a period.
    pub fn bucket(limit: u32, period: impl Into<Period>) -> RuleBuilder {
        RuleBuilder::rate(Kind::Bucket, limit, period.into())
    }

    /// A leaky bucket: `limit` requests in a period proceed, evenly spaced, and others wait for their
    /// turn.
    pub fn leaky(limit: u32, period: impl Into<Period>) -> RuleBuilder {
        RuleBuilder::rate(Kind::Leaky, limit, period.into())
    }

    /// At most `limit` units at once, each with a [hold](crate::Limiter::hold).
    pub fn slots(limit: u32) -> RuleBuilder {
        RuleBuilder { spec: RuleSpec::slots(limit.into()), error: None }
    }

    /// The value of `name=`.
    pub fn name(&self) -> Option<&str> {
        self.0.name().map(Name::as_str)
    }

    /// Units in a period, 0 to a billion.
    pub const fn limit(&self) -> u32 {
        self.0.limit()
    }

    /// The period; a calendar month counts as 31 days. `None` for slots.
    pub fn period(&self) -> Option<Duration> {
        let us = self.0.period_us();
        (us > 0).then(|| Duration::from_micros(us))
    }

    /// True if the rule is only reported and never denies.
    pub const fn is_shadow(&self) -> bool {
        self.0.is_shadow()
    }

    /// What the rule means, its worst burst and its memory, in sentences.
    pub fn explain(&self) -> String {
        engine::explain(&self.0)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        engine::Rule::from_text(text.as_bytes())
            .map(Self)
            .map_err(|error| RuleError(Fault::Rule(error)))
    }
}

/// The canonical text.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({self})")
    }
}

/// The period of a rule: whole milliseconds, 1 ms to 366 days.
///
/// A `Duration` is one. Only [`Rule::fixed`] cares for weeks and months: its weeks begin on Monday, its
/// months on the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(engine::Period);

impl Period {
    /// A calendar month, for [`Rule::fixed`] alone.
    pub const MONTH: Self = Self(engine::Period { count: 1, unit: Unit::Month });

    /// Weeks of seven days.
    #[must_use]
    pub const fn weeks(count: u8) -> Self {
        Self(engine::Period { count: count as u64, unit: Unit::Week })
    }
}

impl From<Duration> for Period {
    fn from(length: Duration) -> Self {
        let count = whole_us(length).map_or(0, |us| us / engine::MS_US);
        Self(engine::Period { count, unit: Unit::Millisecond })
    }
}

/// The microseconds of whole milliseconds.
fn whole_us(length: Duration) -> Option<u64> {
    u64::try_from(length.as_micros()).ok().filter(|us| {
        us.is_multiple_of(engine::MS_US) && length.subsec_nanos().is_multiple_of(1_000)
    })
}

/// Builds a [`Rule`], option by option. Options that are not given have their defaults.
#[derive(Clone, Debug)]
#[must_use = "only `build` makes a rule"]
pub struct RuleBuilder {
    spec: RuleSpec,
    /// The first wrong value.
    error: Option<engine::RuleError>,
}

impl RuleBuilder {
    fn rate(kind: Kind, limit: u32, Period(period): Period) -> Self {
        Self { spec: RuleSpec::new(kind, limit.into(), period), error: None }
    }

    /// Sets an option that only one algorithm takes.
    fn own(mut self, name: &str, value: impl Into<i128>) -> Self {
        if let Some(option) = RuleOption::of_name(name.as_bytes()) {
            self.spec.set(option, value.into());
        }
        self
    }

    fn wrong(&mut self, option: CommonOption, given: &str) {
        let error = engine::RuleError::of_value(RuleOption::Common(option), given.as_bytes());
        self.error.get_or_insert(error);
    }

    /// Of a bucket: the most tokens, 1 to a billion; the limit if it is not given.
    pub fn burst(self, tokens: u32) -> Self {
        self.own("burst", tokens)
    }

    /// Of a bucket: all tokens come back at once, a period after the first was taken.
    pub fn refill_at_once(self) -> Self {
        self.own("refill", 1)
    }

    /// Of a leaky bucket: how many units wait for their turn, 0 to a billion; the limit if it is not given.
    pub fn queue(self, units: u32) -> Self {
        self.own("queue", units)
    }

    /// Of a window: the number of sub-intervals, 1 to 60; 1 if it is not given.
    pub fn resolution(self, parts: u8) -> Self {
        self.own("res", parts)
    }

    /// Of a fixed window: it opens at the first request, not by the calendar.
    pub fn align_first(self) -> Self {
        self.own("align", 1)
    }

    /// Of a fixed window: the minutes that its calendar is ahead of UTC, up to 14 hours either way.
    pub fn time_zone(self, minutes: i16) -> Self {
        self.own("tz", minutes)
    }

    /// Of a fixed window: the number of past windows to keep, 0 to 366.
    pub fn keep(self, windows: u16) -> Self {
        self.own("keep", windows)
    }

    /// Tells rules apart that would count in one state: 1 to 32 of `A-Z a-z 0-9 _ . -`.
    pub fn name(mut self, name: &str) -> Self {
        match Name::new(name.as_bytes()) {
            Some(name) => self.spec.name = Some(name),
            None => self.wrong(CommonOption::Name, name),
        }
        self
    }

    /// Denied requests are charged too; not for slots.
    pub fn count_all(mut self) -> Self {
        self.spec.count_all = true;
        self
    }

    /// What each request costs the rule, whatever the cost of the check.
    pub fn cost(mut self, cost: Cost) -> Self {
        self.spec.cost = Some(cost.units().into());
        self
    }

    /// How long denials ban the client: the first time, the second, and so on. 1 to 8 lengths of whole
    /// milliseconds, 1 ms to 366 days each.
    pub fn ban(mut self, lengths: &[Duration]) -> Self {
        let next = |ladder: Option<Ladder>, length: &Duration| match (ladder, whole_us(*length)?) {
            (None, us) => Some(Some(Ladder::new(us)?)),
            (Some(ladder), us) => Some(Some(ladder.and(us)?)),
        };
        match lengths.iter().try_fold(None, next).flatten() {
            Some(ladder) => self.spec.ban = Some(ladder),
            None => self.wrong(CommonOption::Ban, &alloc::format!("{lengths:?}")),
        }
        self
    }

    /// The rule is only reported and never denies.
    pub fn shadow(mut self) -> Self {
        self.spec.shadow = true;
        self
    }

    /// Tests the parts and makes the rule.
    ///
    /// # Errors
    /// [`RuleError`] about the first part that is out of bounds, or belongs to another algorithm.
    pub fn build(self) -> Result<Rule, RuleError> {
        match self.error {
            Some(error) => Err(error),
            None => self.spec.validate().map(Rule),
        }
        .map_err(|error| RuleError(Fault::Rule(error)))
    }
}

/// Why a text or a [`RuleBuilder`] is not a rule, or why a rule cannot stand beside others.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct RuleError(pub(crate) Fault);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Rule(engine::RuleError),
    #[error(transparent)]
    Clash(Clash),
    #[error("slots are held, expected HeldRules and a hold")]
    Unheld,
}
