//! Validates a parsed rule: every bound, and which algorithm takes an option.

use super::{
    Align, BucketParams, Cost, FixedParams, Kind, Ladder, LeakyParams, MAX_KEEP, MAX_RES,
    MAX_TZ_MIN, MAX_UNITS, Name, Params, Period, Refill, Rule, RuleError, RuleOption, Unit,
    WindowParams,
};

/// A rule as it was written, before validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSpec {
    /// The algorithm; options of any other are errors.
    pub kind: Kind,
    /// Units a period, 0 ..= [`MAX_UNITS`].
    pub limit: u64,
    /// `None`: none was written. Slots have no period.
    pub period: Option<Period>,
    /// Sub-intervals of a `window`, 1 ..= [`MAX_RES`]; `None`: 1.
    pub res: Option<u64>,
    /// When the windows of `fixed` open; `None`: by the calendar.
    pub align: Option<Align>,
    /// Minutes ahead of UTC under `fixed`, up to [`MAX_TZ_MIN`] either way; `None`: 0.
    pub tz_min: Option<i16>,
    /// Past windows that `fixed` keeps, 0 ..= [`MAX_KEEP`]; `None`: 0.
    pub keep: Option<u64>,
    /// The capacity of a `bucket`, 1 ..= [`MAX_UNITS`]; `None`: the limit.
    pub burst: Option<u64>,
    /// How a `bucket` refills; `None`: evenly.
    pub refill: Option<Refill>,
    /// Requests that can wait under `leaky`, 0 ..= [`MAX_UNITS`]; `None`: the limit.
    pub queue: Option<u64>,
    /// The rule's identity; `None`: its algorithm, period and shaping options identify it.
    pub name: Option<Name>,
    /// Whether denied requests are charged too; never for slots.
    pub count_all: bool,
    /// What each check costs, 0 ..= [`MAX_UNITS`]; `None`: the request's cost.
    pub cost: Option<u64>,
    /// How long denials block the key; `None`: they do not.
    pub ban: Option<Ladder>,
    /// Whether the rule is only reported and never denies.
    pub shadow: bool,
}

impl RuleSpec {
    /// A rule without options.
    pub fn new(kind: Kind, limit: u64, period: Period) -> Self {
        Self { kind, limit, period: Some(period), ..Self::default() }
    }

    /// Slots without options.
    pub fn slots(limit: u64) -> Self {
        Self { kind: Kind::Slots, limit, ..Self::default() }
    }

    /// Checks every bound and that each option belongs to the algorithm.
    ///
    /// # Errors
    /// [`RuleError`], which says what was wrong and what was expected.
    pub fn validate(&self) -> Result<Rule, RuleError> {
        self.refuse_foreign_options()?;
        let tz_min = self.tz_min.unwrap_or(0);
        if !(-MAX_TZ_MIN..=MAX_TZ_MIN).contains(&tz_min) {
            return Err(RuleError::TimeZone);
        }
        let limit = bounded("limit", self.limit, 0, MAX_UNITS)?;
        let period_us = self.period_us()?;
        if let Some(Period { count, unit: Unit::Month }) = self.period {
            if self.kind != Kind::Fixed {
                return Err(RuleError::MonthNeedsFixed);
            }
            if count != 1 {
                return Err(RuleError::SeveralMonths);
            }
            if self.align == Some(Align::First) {
                return Err(RuleError::MonthAlignFirst);
            }
        }
        let or_limit = |what, given: Option<u64>, min| match given {
            Some(given) => bounded(what, given, min, MAX_UNITS),
            None => Ok(limit),
        };
        let params = match self.kind {
            Kind::Log => Params::Log,
            Kind::Window => Params::Window(WindowParams {
                res: bounded("res", self.res.unwrap_or(1), 1, MAX_RES)?,
            }),
            Kind::Fixed => Params::Fixed(FixedParams {
                calendar: match self.align.unwrap_or(Align::Epoch) {
                    Align::Epoch => self.period.map(|period| period.unit.calendar()),
                    Align::First => None,
                },
                tz_min,
                keep: bounded("keep", self.keep.unwrap_or(0), 0, MAX_KEEP)?,
            }),
            Kind::Bucket => Params::Bucket(BucketParams {
                burst: or_limit("burst", self.burst, 1)?,
                refill: self.refill.unwrap_or(Refill::Even),
            }),
            Kind::Leaky => Params::Leaky(LeakyParams { queue: or_limit("queue", self.queue, 0)? }),
            Kind::Slots => Params::Slots,
        };
        if self.kind == Kind::Slots && self.count_all {
            return Err(RuleError::SlotsCountAll);
        }
        let cost = self.cost.map(|cost| bounded("cost", cost, 0, MAX_UNITS)).transpose()?;
        Ok(Rule {
            name: self.name,
            count_all: self.count_all,
            cost: Cost::new(cost),
            ban: self.ban,
            shadow: self.shadow,
            ..Rule::new(params, limit, period_us)
        })
    }

    /// The length of the period in microseconds; that of slots is 0.
    fn period_us(&self) -> Result<u64, RuleError> {
        match (self.kind == Kind::Slots, self.period) {
            (true, None) => Ok(0),
            (true, Some(_)) => Err(RuleError::SlotsPeriod),
            (false, period) => period.and_then(Period::micros).ok_or(RuleError::PeriodOutOfRange),
        }
    }

    /// Whether this option is given, if it is one that only one algorithm takes.
    const fn has_owned(&self, option: RuleOption) -> bool {
        match option {
            RuleOption::Res => self.res.is_some(),
            RuleOption::Align => self.align.is_some(),
            RuleOption::Tz => self.tz_min.is_some(),
            RuleOption::Keep => self.keep.is_some(),
            RuleOption::Burst => self.burst.is_some(),
            RuleOption::Refill => self.refill.is_some(),
            RuleOption::Queue => self.queue.is_some(),
            RuleOption::Name
            | RuleOption::Count
            | RuleOption::Cost
            | RuleOption::Ban
            | RuleOption::Shadow => false,
        }
    }

    fn refuse_foreign_options(&self) -> Result<(), RuleError> {
        let kind = self.kind;
        for option in RuleOption::ALL {
            let foreign = |owner: &Kind| *owner != kind && self.has_owned(option);
            if let Some(owner) = option.owner().filter(foreign) {
                return Err(RuleError::ForeignOption { option, owner, kind });
            }
        }
        Ok(())
    }
}

fn bounded<T: TryFrom<u64> + Into<u64>>(
    what: &'static str,
    given: u64,
    min: u32,
    max: T,
) -> Result<T, RuleError> {
    let max = max.into();
    let within = (u64::from(min)..=max).contains(&given).then(|| T::try_from(given).ok());
    within.flatten().ok_or(RuleError::OutOfRange { what, given, min, max })
}
