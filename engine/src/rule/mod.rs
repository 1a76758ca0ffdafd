//! A rule: a limit per period under one algorithm, validated once.
//!
//! Everything that decides takes a [`Rule`]. Only [`RuleSpec::validate`] makes a rule from a
//! text, so no algorithm meets a period of zero, a resolution out of bounds or an option of
//! another algorithm.
//!
//! A rule is a *view*: it says how much may be consumed. A state holds how much has been
//! consumed. The rule's *identity* says which state it reads. The identity is the rule's name
//! or, without a name, the algorithm, the period and the options that shape the state. The
//! limit, the burst, the queue and the cost are not part of the identity: they can change from
//! call to call, and the state stays.

mod clash;
mod divided;
mod error;
pub(crate) mod explain;
mod identity;
mod ladder;
mod meant;
pub(crate) mod memory;
mod option;
mod spec;
mod text;

pub use crate::algorithm::bucket::Refill;
pub use crate::algorithm::meter::Kind;
use crate::algorithm::{BucketParams, FixedParams, LeakyParams, Params};
use alloc::string::{String, ToString};
pub use clash::Clash;
use core::fmt;
use core::hash::{Hash, Hasher};
pub use error::{Excerpt, RuleError};
pub use explain::explain;
#[cfg(all(test, feature = "testing"))]
pub(crate) use explain::worst_in_period;
pub use identity::{Identity, identities};
pub use ladder::{Ladder, MAX_RUNGS};
pub use option::{CommonOption, OwnOption, RuleOption};
pub use spec::RuleSpec;
pub(crate) use spec::bounded;
pub(crate) use text::{DisplayPeriod, Number, write_option, write_period};
pub use text::{digits, looks_like_rule, span_us, split};

/// An enum, with the name of each value in a text. Each list is written once, so reading, printing and
/// errors cannot disagree.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $vis:vis enum $type:ident {
        $($(#[$about_value:meta])* $value:ident = $name:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $type { $($(#[$about_value])* $value,)+ }

        impl $type {
            /// Every value, in the order the documentation lists them.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The name as written in the text.
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$value => $name),+ }
            }

            /// The value with this name.
            $vis fn of_name(name: &[u8]) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name().as_bytes() == name)
            }
        }
    };
}
pub(crate) use named;

/// A millisecond, in microseconds.
pub const MS_US: u64 = 1_000;
/// A second, in microseconds.
pub const SECOND_US: u64 = 1_000_000;
pub(crate) const MINUTE_US: u64 = 60 * SECOND_US;
pub(crate) const HOUR_US: u64 = 60 * MINUTE_US;
pub(crate) const DAY_US: u64 = 24 * HOUR_US;
pub(crate) const WEEK_US: u64 = 7 * DAY_US;
/// The nominal length of a calendar month: 31 days.
pub(crate) const MONTH_US: u64 = 31 * DAY_US;
/// The longest period: 366 days, in microseconds.
pub const MAX_PERIOD_US: u64 = 366 * DAY_US;
/// The largest limit, burst, queue and cost.
pub const MAX_UNITS: u32 = 1_000_000_000;
/// The latest time of a decision: the end of the year 9999, in Unix microseconds.
pub const MAX_TIME_US: u64 = 253_402_300_799_999_999;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 32;
/// The most sub-intervals a sliding window counter can have.
pub const MAX_RES: u8 = 60;
/// The most past windows a fixed window can keep.
pub const MAX_KEEP: u16 = 366;
/// How far a time zone may be from UTC, in minutes.
pub const MAX_TZ_MIN: i16 = 14 * 60;

named! {
    /// The unit a period was written in, longest first. Only `fixed` cares: its weeks start on
    /// Monday and its months follow the calendar.
    pub enum Unit {
        /// Only `fixed` takes it.
        Month = "month",
        /// 7 days.
        Week = "w",
        /// 24 hours.
        Day = "d",
        /// 60 minutes.
        Hour = "h",
        /// 60 seconds.
        Minute = "m",
        /// 1000 milliseconds.
        Second = "s",
        /// The shortest unit.
        Millisecond = "ms",
    }
}

impl Unit {
    /// The unit's length in microseconds; a month counts as 31 days.
    pub const fn micros(self) -> u64 {
        match self {
            Self::Millisecond => MS_US,
            Self::Second => SECOND_US,
            Self::Minute => MINUTE_US,
            Self::Hour => HOUR_US,
            Self::Day => DAY_US,
            Self::Week => WEEK_US,
            Self::Month => MONTH_US,
        }
    }

    /// What the windows of `fixed` count from if their period is in this unit.
    pub(crate) const fn calendar(self) -> Calendar {
        match self {
            Self::Millisecond | Self::Second | Self::Minute | Self::Hour | Self::Day => {
                Calendar::Epoch
            }
            Self::Week => Calendar::Weeks,
            Self::Month => Calendar::Months,
        }
    }
}

/// `n` units of time, such as the `1m` of `20/1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The number of units; [`Period::micros`] bounds it.
    pub count: u64,
    /// The unit as written; `60s` and `1m` differ only here.
    pub unit: Unit,
}

impl Period {
    /// The length in microseconds, if it lies in 1 ms ..= 366 d.
    pub fn micros(self) -> Option<u64> {
        let us = self.count.checked_mul(self.unit.micros())?;
        (MS_US..=MAX_PERIOD_US).contains(&us).then_some(us)
    }

    /// A length of time in the longest unit, up to `longest`, that divides it; `None` if no unit
    /// does.
    fn of_micros(us: u64, longest: Unit) -> Option<Self> {
        let divides = |unit: &Unit| *unit >= longest && us.is_multiple_of(unit.micros());
        let unit = Unit::ALL.into_iter().find(divides)?;
        Some(Self { count: us.checked_div(unit.micros())?, unit })
    }
}

/// What the windows of `fixed` count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Calendar {
    /// Multiples of the period since the epoch.
    Epoch,
    /// Multiples of the period since Monday 1970-01-05.
    Weeks,
    /// The first of each month.
    Months,
}

named! {
    /// When a window of `fixed` opens: the value of `align=`.
    pub(crate) enum Align {
        /// By the calendar.
        Epoch = "epoch",
        /// At the first request.
        First = "first",
    }
}

/// A rule's name: 1 to 32 bytes of `[A-Za-z0-9_.-]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The name, then zeros.
    bytes: [u8; MAX_NAME],
}

impl Name {
    /// The name, if these bytes make one.
    pub fn new(text: &[u8]) -> Option<Self> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"_.-".contains(b);
        if text.is_empty() || !text.iter().all(allowed) {
            return None;
        }
        let mut bytes = [0; MAX_NAME];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { bytes })
    }

    /// 1 ..= [`MAX_NAME`] bytes.
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(MAX_NAME);
        self.bytes.get(..len).unwrap_or_default()
    }

    /// 1 ..= [`MAX_NAME`] ASCII characters.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Whether this is the name that `RL.THROTTLE` gives its buckets.
    pub(crate) fn is_throttle(&self) -> bool {
        let after = self.bytes.strip_prefix(THROTTLE.as_bytes());
        after.is_some_and(|after| after.first() == Some(&0))
    }
}

/// The cost of a rule in any check, 0 ..= [`MAX_UNITS`]. The first of these that is given is the cost:
///
/// ```text
/// COST name=n    for the rule of this name
/// cost=n         in the rule's text
/// COST n         for all others, 1 if it is not given
/// ```
///
/// The fields are plain numbers, because with `Option`s a check of four rules needs 2 % more
/// instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cost {
    /// The cost in this check; [`NONE`](Self::NONE): the check's default.
    own: u32,
    /// The cost in the rule's text, if there is one.
    written: u32,
}

impl Cost {
    /// No cost: larger than any valid one.
    const NONE: u32 = u32::MAX;

    /// The cost of a rule with this `cost=`.
    fn new(written: Option<u32>) -> Self {
        let written = written.unwrap_or(Self::NONE);
        Self { own: written, written }
    }

    const fn named(self, cost: u32) -> Self {
        Self { own: cost, ..self }
    }

    /// The cost in a check with this default cost.
    #[inline(always)]
    pub const fn or(self, default: u32) -> u32 {
        if self.own == Self::NONE { default } else { self.own }
    }

    /// The cost that overrides the check's default.
    pub const fn own(self) -> Option<u32> {
        if self.own == Self::NONE { None } else { Some(self.own) }
    }

    /// The cost in the rule's text.
    pub const fn written(self) -> Option<u32> {
        if self.written == Self::NONE { None } else { Some(self.written) }
    }

    /// True if the request overrides the rule's `cost=`.
    pub const fn is_named(self) -> bool {
        self.own != self.written
    }
}

/// A cost for the rules with this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedCost {
    /// The name of the rules that cost this.
    pub name: Name,
    /// 0 ..= [`MAX_UNITS`].
    pub cost: u32,
}

/// The name that `RL.THROTTLE` gives its buckets.
pub const THROTTLE: &str = "throttle";

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Whether a rule is a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Trial {
    /// It denies.
    No,
    /// Its text says `shadow`.
    Written,
    /// The request observes its rules.
    Observed,
}

/// A validated rule. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    params: Params,
    limit: u32,
    capacity: u32,
    period_us: u64,
    name: Option<Name>,
    count_all: bool,
    cost: Cost,
    ban: Option<Ladder>,
    trial: Trial,
}

impl Rule {
    /// A rule of validated parts, without a name and without the options that every
    /// algorithm takes.
    pub(crate) fn new(params: Params, limit: u32, period_us: u64) -> Self {
        let capacity = if limit == 0 { 0 } else { params.capacity(limit) };
        let (name, count_all, cost, ban, trial) = (None, false, Cost::new(None), None, Trial::No);
        Self { params, limit, capacity, period_us, name, count_all, cost, ban, trial }
    }

    pub(crate) fn named(self, name: Option<Name>) -> Self {
        Self { name, ..self }
    }

    pub(crate) const fn params(&self) -> Params {
        self.params
    }

    /// The algorithm without its options.
    pub const fn kind(&self) -> Kind {
        self.params.kind()
    }

    /// Units per period, 0 ..= [`MAX_UNITS`].
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// True if a debt never changes under this rule: at a limit of 0, nothing drains and nothing is
    /// added.
    #[inline]
    pub(crate) const fn never_drains(&self) -> bool {
        let is_debt = matches!(
            self.params,
            Params::Leaky(_) | Params::Bucket(BucketParams { refill: Refill::Even, .. })
        );
        is_debt && self.limit == 0
    }

    /// The period in microseconds; a calendar month counts as 31 days, and slots have 0.
    pub const fn period_us(&self) -> u64 {
        self.period_us
    }

    /// The value of `name=`.
    pub const fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// Its name, or without one its canonical text.
    pub fn label(&self) -> String {
        self.name.map_or_else(|| self.to_string(), |name| name.as_str().to_string())
    }

    /// Whether denied requests are charged too.
    pub const fn counts_all(&self) -> bool {
        self.count_all
    }

    /// What a check costs the rule.
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// Sets the cost that a request gives the rule by its name.
    pub const fn set_named_cost(&mut self, cost: u32) {
        self.cost = self.cost.named(cost);
    }

    /// How long denials by this rule block the key.
    pub const fn ban(&self) -> Option<&Ladder> {
        self.ban.as_ref()
    }

    /// Whether the rule is a shadow, which is reported but never denies.
    pub const fn is_shadow(&self) -> bool {
        !matches!(self.trial, Trial::No)
    }

    /// Makes the rule a shadow for one request.
    pub const fn observe(&mut self) {
        if matches!(self.trial, Trial::No) {
            self.trial = Trial::Observed;
        }
    }

    /// Whether its text says `shadow`.
    pub(crate) const fn is_written_shadow(&self) -> bool {
        matches!(self.trial, Trial::Written)
    }

    /// Whether [`Self::observe`] made the rule a shadow.
    pub const fn is_observed(&self) -> bool {
        matches!(self.trial, Trial::Observed)
    }

    /// Whether the request gave the rule a cost or made it a shadow, which its text does not say.
    pub const fn differs_from_text(&self) -> bool {
        self.cost.is_named() || self.is_observed()
    }

    /// Whether a denial by this rule changes the key: it is charged, or blocks the key.
    #[inline]
    pub(crate) const fn denial_changes_key(&self) -> bool {
        self.count_all || self.ban.is_some()
    }

    /// A hash of everything that decides which costs fit: rules with equal hashes admit the same
    /// costs. Ignores whether the rule is a shadow.
    pub fn hash_of_limit(&self, mut hasher: impl Hasher) -> u64 {
        // Lists every field: a new field does not compile until it is hashed or left out here.
        let Self {
            params,
            limit,
            capacity: _,
            period_us,
            name,
            count_all,
            cost: _,
            ban: _,
            trial: _,
        } = self;
        (params, limit, period_us, name, count_all).hash(&mut hasher);
        hasher.finish()
    }

    /// The burst of a token bucket or the queue of a leaky one.
    #[inline(always)]
    pub(crate) const fn burst_or_queue(&self) -> u32 {
        match self.params {
            Params::Bucket(BucketParams { burst, .. }) => burst,
            Params::Leaky(LeakyParams { queue }) => queue,
            _ => 0,
        }
    }

    /// The number of past windows that a fixed window keeps.
    #[inline(always)]
    pub(crate) const fn kept_windows(&self) -> u16 {
        match self.params {
            Params::Fixed(FixedParams { keep, .. }) => keep,
            _ => 0,
        }
    }

    /// The most units the rule can ever let pass at once.
    pub fn capacity(&self) -> u64 {
        u64::from(self.capacity)
    }

    /// Whether a cost fits an untouched state. A cost of 0 always fits; a cost that does
    /// not fit never passes.
    pub(crate) fn can_ever_admit(&self, cost: u32) -> bool {
        cost == 0 || u64::from(cost) <= self.capacity()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn a_named_cost_overrides_the_text_and_the_text_overrides_the_default() {
        for (cost, of_check, own, written) in [
            (Cost::new(None), 9, None, None),
            (Cost::new(Some(2)), 2, Some(2), Some(2)),
            (Cost::new(None).named(3), 3, Some(3), None),
            (Cost::new(Some(2)).named(0), 0, Some(0), Some(2)),
            (Cost::new(Some(2)).named(0).named(4), 4, Some(4), Some(2)),
        ] {
            assert_eq!((cost.or(9), cost.own(), cost.written()), (of_check, own, written));
        }
    }
}
