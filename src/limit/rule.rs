//! A rule: a limit per period under one algorithm, validated once.
//!
//! Everything that decides takes a [`Rule`], and a [`Rule`] can only be had
//! from [`RuleSpec::validate`], so no algorithm meets a period of zero, a
//! resolution out of bounds or an option that is not its own.
//!
//! A rule is a *view*: it says how much may be consumed. What was consumed is
//! the state's business, and which state a rule looks at is its *identity*:
//! the name if it has one, else the algorithm, the period and the options that
//! shape the state. The limit, the burst and the queue are no part of it, so
//! they can change from call to call without forgetting anything.

use std::fmt;

/// The largest limit, burst, queue and cost.
pub const MAX_UNITS: u32 = 1_000_000_000;
/// The longest period: 366 days, in microseconds.
pub const MAX_PERIOD_US: u64 = 366 * DAY_US;
/// The latest time a decision can be asked for: the end of the year 9999, in
/// Unix microseconds.
pub const MAX_TIME_US: u64 = 253_402_300_799_999_999;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 32;
/// The most sub-intervals a sliding window counter can have.
pub const MAX_RES: u8 = 60;
/// The most past windows a fixed window can keep.
pub const MAX_KEEP: u16 = 366;
/// The time zones furthest from UTC, in minutes.
pub const MAX_TZ_MIN: i16 = 14 * 60;

pub(crate) const MS_US: u64 = 1_000;
pub(crate) const SECOND_US: u64 = 1_000_000;
pub(crate) const MINUTE_US: u64 = 60 * SECOND_US;
pub(crate) const HOUR_US: u64 = 60 * MINUTE_US;
pub(crate) const DAY_US: u64 = 24 * HOUR_US;
pub(crate) const WEEK_US: u64 = 7 * DAY_US;
/// What a calendar month counts as where only its length matters.
pub(crate) const MONTH_US: u64 = 31 * DAY_US;

/// The unit a period was written in. Only `fixed` cares: its weeks start on
/// Monday and its months follow the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
}

impl Unit {
    /// Every unit with a length of its own, longest first.
    const PLAIN: [Self; 6] =
        [Self::Week, Self::Day, Self::Hour, Self::Minute, Self::Second, Self::Millisecond];

    /// The unit's length in microseconds; a month counts as 31 days.
    #[must_use]
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

    /// The unit as written in a rule.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Millisecond => "ms",
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
            Self::Day => "d",
            Self::Week => "w",
            Self::Month => "month",
        }
    }
}

/// `n` units of time, such as the `1m` of `20/1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub count: u64,
    pub unit: Unit,
}

impl Period {
    /// The length in microseconds, if it lies in 1 ms ..= 366 d.
    #[must_use]
    pub fn micros(self) -> Option<u64> {
        let us = self.count.checked_mul(self.unit.micros())?;
        (MS_US..=MAX_PERIOD_US).contains(&us).then_some(us)
    }
}

/// A length of time in the longest unit that divides it; in weeks only if asked.
fn write_period(f: &mut fmt::Formatter<'_>, us: u64, weeks: bool) -> fmt::Result {
    for unit in Unit::PLAIN {
        if unit == Unit::Week && !weeks {
            continue;
        }
        if us.checked_rem(unit.micros()) == Some(0) {
            let count = us.checked_div(unit.micros()).unwrap_or(0);
            return write!(f, "{count}{}", unit.symbol());
        }
    }
    write!(f, "{us}us")
}

/// The names of the algorithms, without their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Log,
    Window,
    Fixed,
    Bucket,
    Leaky,
}

impl Kind {
    /// All five, in the order the documentation lists them.
    pub const ALL: [Self; 5] = [Self::Log, Self::Window, Self::Fixed, Self::Bucket, Self::Leaky];

    /// The name as written in a rule.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Window => "window",
            Self::Fixed => "fixed",
            Self::Bucket => "bucket",
            Self::Leaky => "leaky",
        }
    }
}

/// What the windows of `fixed` count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calendar {
    /// Multiples of the period since the epoch.
    Epoch,
    /// Multiples of the period since Monday 1970-01-05.
    Weeks,
    /// The first of each month.
    Months,
}

/// When a window of `fixed` opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// By the calendar.
    Epoch,
    /// At the first request.
    First,
}

/// How a token bucket gets its tokens back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// One by one, evenly.
    Even,
    /// All at once, a period after the first was taken.
    Interval,
}

/// An algorithm with the options of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Log,
    Window { res: u8 },
    Fixed { align: Align, calendar: Calendar, tz_min: i16, keep: u16 },
    Bucket { burst: u32, refill: Refill },
    Leaky { queue: u32 },
}

/// A rule's name: 1 to 32 bytes of `[A-Za-z0-9_.-]`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; MAX_NAME],
    len: u8,
}

impl Name {
    /// The name, if these bytes make one.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"_.-".contains(b);
        if text.is_empty() || !text.iter().all(allowed) {
            return None;
        }
        let mut bytes = [0; MAX_NAME];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { bytes, len: u8::try_from(text.len()).ok()? })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        let text = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A rule as it was written, before anything was checked against anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSpec {
    pub kind: Kind,
    pub limit: u64,
    pub period: Period,
    pub res: Option<u64>,
    pub align: Option<Align>,
    pub tz_min: Option<i16>,
    pub keep: Option<u64>,
    pub burst: Option<u64>,
    pub refill: Option<Refill>,
    pub queue: Option<u64>,
    pub name: Option<Name>,
    pub count_all: bool,
    pub ban: Option<Period>,
    pub shadow: bool,
}

impl RuleSpec {
    /// A rule without options.
    #[must_use]
    pub const fn new(kind: Kind, limit: u64, period: Period) -> Self {
        Self {
            kind,
            limit,
            period,
            res: None,
            align: None,
            tz_min: None,
            keep: None,
            burst: None,
            refill: None,
            queue: None,
            name: None,
            count_all: false,
            ban: None,
            shadow: false,
        }
    }

    /// Checks every bound and that each option belongs to the algorithm.
    ///
    /// # Errors
    /// [`RuleError`], naming the fault and what was expected.
    pub fn validate(&self) -> Result<Rule, RuleError> {
        self.refuse_foreign_options()?;
        let limit = bounded("limit", self.limit, 0, MAX_UNITS)?;
        let period_us = self.period.micros().ok_or(RuleError::Period)?;
        if self.period.unit == Unit::Month {
            if self.kind != Kind::Fixed {
                return Err(RuleError::MonthNeedsFixed);
            }
            if self.period.count != 1 {
                return Err(RuleError::SeveralMonths);
            }
            if self.align == Some(Align::First) {
                return Err(RuleError::MonthAlignFirst);
            }
        }
        let algorithm = match self.kind {
            Kind::Log => Algorithm::Log,
            Kind::Window => {
                Algorithm::Window { res: bounded("res", self.res.unwrap_or(1), 1, MAX_RES)? }
            }
            Kind::Fixed => Algorithm::Fixed {
                align: self.align.unwrap_or(Align::Epoch),
                calendar: match self.period.unit {
                    // A window opened by a request knows no Monday.
                    Unit::Week if self.align != Some(Align::First) => Calendar::Weeks,
                    Unit::Month => Calendar::Months,
                    _ => Calendar::Epoch,
                },
                tz_min: self.tz_min.unwrap_or(0),
                keep: bounded("keep", self.keep.unwrap_or(0), 0, MAX_KEEP)?,
            },
            Kind::Bucket => Algorithm::Bucket {
                burst: match self.burst {
                    Some(burst) => bounded("burst", burst, 1, MAX_UNITS)?,
                    None => limit,
                },
                refill: self.refill.unwrap_or(Refill::Even),
            },
            Kind::Leaky => Algorithm::Leaky {
                queue: match self.queue {
                    Some(queue) => bounded("queue", queue, 0, MAX_UNITS)?,
                    None => limit,
                },
            },
        };
        let ban_us = match self.ban {
            None => None,
            Some(ban) if ban.unit == Unit::Month => return Err(RuleError::Ban),
            Some(ban) => Some(ban.micros().ok_or(RuleError::Ban)?),
        };
        Ok(Rule {
            algorithm,
            limit,
            period_us,
            name: self.name,
            count_all: self.count_all,
            ban_us,
            shadow: self.shadow,
        })
    }

    fn refuse_foreign_options(&self) -> Result<(), RuleError> {
        let options = [
            ("res", Kind::Window, self.res.is_some()),
            ("align", Kind::Fixed, self.align.is_some()),
            ("tz", Kind::Fixed, self.tz_min.is_some()),
            ("keep", Kind::Fixed, self.keep.is_some()),
            ("burst", Kind::Bucket, self.burst.is_some()),
            ("refill", Kind::Bucket, self.refill.is_some()),
            ("queue", Kind::Leaky, self.queue.is_some()),
        ];
        for (option, owner, given) in options {
            if given && owner != self.kind {
                return Err(RuleError::ForeignOption { option, owner, kind: self.kind });
            }
        }
        match self.tz_min {
            Some(tz) if !(-MAX_TZ_MIN..=MAX_TZ_MIN).contains(&tz) => Err(RuleError::TimeZone),
            _ => Ok(()),
        }
    }
}

fn bounded<T: TryFrom<u64> + Into<u64> + Copy>(
    what: &'static str,
    given: u64,
    min: u32,
    max: T,
) -> Result<T, RuleError> {
    let max_units: u64 = max.into();
    if given < u64::from(min) || given > max_units {
        return Err(RuleError::OutOfRange { what, given, min, max: max_units });
    }
    T::try_from(given).map_err(|_| RuleError::OutOfRange { what, given, min, max: max_units })
}

/// What can be wrong with a rule whose text could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleError {
    OutOfRange { what: &'static str, given: u64, min: u32, max: u64 },
    Period,
    Ban,
    MonthNeedsFixed,
    SeveralMonths,
    MonthAlignFirst,
    TimeZone,
    ForeignOption { option: &'static str, owner: Kind, kind: Kind },
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { what, given, min, max } => {
                write!(f, "{what} is {given}, expected {min}..{max}")
            }
            Self::Period => f.write_str("the period is out of range, expected 1ms..366d"),
            Self::Ban => f.write_str("ban is out of range, expected a period of 1ms..366d"),
            Self::MonthNeedsFixed => {
                f.write_str("the period 'month' belongs to fixed, expected ms, s, m, h, d or w")
            }
            Self::SeveralMonths => f.write_str("a period of several months, expected 'month'"),
            Self::MonthAlignFirst => {
                f.write_str("'month' with align=first, expected align=epoch or a period in days")
            }
            Self::TimeZone => f.write_str("tz is out of range, expected -14:00..+14:00"),
            Self::ForeignOption { option, owner, kind } => {
                write!(f, "option '{option}' belongs to {}, not to {}", owner.name(), kind.name())
            }
        }
    }
}

impl std::error::Error for RuleError {}

/// A rule that was checked. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    algorithm: Algorithm,
    limit: u32,
    period_us: u64,
    name: Option<Name>,
    count_all: bool,
    ban_us: Option<u64>,
    shadow: bool,
}

impl Rule {
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self.algorithm {
            Algorithm::Log => Kind::Log,
            Algorithm::Window { .. } => Kind::Window,
            Algorithm::Fixed { .. } => Kind::Fixed,
            Algorithm::Bucket { .. } => Kind::Bucket,
            Algorithm::Leaky { .. } => Kind::Leaky,
        }
    }

    /// Units a period, 0 ..= [`MAX_UNITS`].
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The period in microseconds; a calendar month counts as 31 days.
    #[must_use]
    pub const fn period_us(&self) -> u64 {
        self.period_us
    }

    #[must_use]
    pub const fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// Whether denied requests are charged too.
    #[must_use]
    pub const fn counts_all(&self) -> bool {
        self.count_all
    }

    /// How long a denial by this rule blocks the key, microseconds.
    #[must_use]
    pub const fn ban_us(&self) -> Option<u64> {
        self.ban_us
    }

    /// Whether the rule is on trial: reported, never denying.
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// The most units the rule can ever let pass at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self.algorithm {
            _ if self.limit == 0 => 0,
            Algorithm::Bucket { burst, .. } => u64::from(burst),
            Algorithm::Leaky { queue } => u64::from(queue).saturating_add(1),
            _ => u64::from(self.limit),
        }
    }

    /// Whether a cost fits an untouched state. A cost that does not, never
    /// passes; a cost of 0 always does.
    #[must_use]
    pub fn can_ever_admit(&self, cost: u32) -> bool {
        cost == 0 || u64::from(cost) <= self.capacity()
    }

    /// Whether two rules look at the same state, or would.
    #[must_use]
    pub fn same_identity(&self, other: &Self) -> bool {
        match (&self.name, &other.name) {
            (Some(a), Some(b)) => a == b,
            (None, None) => self.same_shape(other),
            _ => false,
        }
    }

    fn same_shape(&self, other: &Self) -> bool {
        self.period_us == other.period_us
            && match (self.algorithm, other.algorithm) {
                (Algorithm::Log, Algorithm::Log)
                | (Algorithm::Leaky { .. }, Algorithm::Leaky { .. }) => true,
                (Algorithm::Window { res: a }, Algorithm::Window { res: b }) => a == b,
                (Algorithm::Bucket { refill: a, .. }, Algorithm::Bucket { refill: b, .. }) => {
                    a == b
                }
                (
                    Algorithm::Fixed { align: a, calendar: c, tz_min: z, .. },
                    Algorithm::Fixed { align: b, calendar: d, tz_min: y, .. },
                ) => a == b && c == d && z == y,
                _ => false,
            }
    }
}

/// The canonical text: the algorithm always named, the period in its longest
/// unit, options in one order and only where they differ from the default.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/", self.kind().name(), self.limit)?;
        match self.algorithm {
            Algorithm::Fixed { calendar: Calendar::Months, .. } => f.write_str("1month")?,
            Algorithm::Fixed { calendar: Calendar::Epoch, .. } => {
                write_period(f, self.period_us, false)?;
            }
            _ => write_period(f, self.period_us, true)?,
        }
        match self.algorithm {
            Algorithm::Log => {}
            Algorithm::Window { res } if res > 1 => write!(f, ",res={res}")?,
            Algorithm::Window { .. } => {}
            Algorithm::Fixed { align, tz_min, keep, .. } => {
                if align == Align::First {
                    f.write_str(",align=first")?;
                }
                if tz_min != 0 {
                    let sign = if tz_min < 0 { '-' } else { '+' };
                    let (h, m) = (tz_min.unsigned_abs() / 60, tz_min.unsigned_abs() % 60);
                    write!(f, ",tz={sign}{h:02}:{m:02}")?;
                }
                if keep != 0 {
                    write!(f, ",keep={keep}")?;
                }
            }
            Algorithm::Bucket { burst, refill } => {
                if burst != self.limit {
                    write!(f, ",burst={burst}")?;
                }
                if refill == Refill::Interval {
                    f.write_str(",refill=interval")?;
                }
            }
            Algorithm::Leaky { queue } if queue != self.limit => write!(f, ",queue={queue}")?,
            Algorithm::Leaky { .. } => {}
        }
        if let Some(name) = &self.name {
            write!(f, ",name={}", name.as_str())?;
        }
        if self.count_all {
            f.write_str(",count=all")?;
        }
        if let Some(ban_us) = self.ban_us {
            f.write_str(",ban=")?;
            write_period(f, ban_us, true)?;
        }
        if self.shadow {
            f.write_str(",shadow")?;
        }
        Ok(())
    }
}
