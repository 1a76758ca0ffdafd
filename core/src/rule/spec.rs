//! Validates a parsed rule: every bound, and which algorithm takes an option.

use super::{
    Algorithm, Align, BucketParams, Cost, FixedParams, Kind, Ladder, LeakyParams, MAX_KEEP,
    MAX_RES, MAX_TZ_MIN, MAX_UNITS, Name, Period, Refill, Rule, RuleError, RuleOption, Unit,
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
    #[must_use]
    pub fn new(kind: Kind, limit: u64, period: Period) -> Self {
        Self { kind, limit, period: Some(period), ..Self::default() }
    }

    /// Slots without options.
    #[must_use]
    pub fn slots(limit: u64) -> Self {
        Self { kind: Kind::Slots, limit, ..Self::default() }
    }

    /// Checks every bound and that each option belongs to the algorithm.
    ///
    /// # Errors
    /// [`RuleError`], which says what was wrong and what was expected.
    pub fn validate(&self) -> Result<Rule, RuleError> {
        self.refuse_foreign_options()?;
        let limit = bounded("limit", self.limit, 0, MAX_UNITS)?;
        let (period, period_us) = self.period_and_micros()?;
        if period.unit == Unit::Month {
            if self.kind != Kind::Fixed {
                return Err(RuleError::MonthNeedsFixed);
            }
            if period.count != 1 {
                return Err(RuleError::SeveralMonths);
            }
            if self.align == Some(Align::First) {
                return Err(RuleError::MonthAlignFirst);
            }
        }
        let algorithm = match self.kind {
            Kind::Log => Algorithm::Log,
            Kind::Window => Algorithm::Window(WindowParams {
                res: bounded("res", self.res.unwrap_or(1), 1, MAX_RES)?,
            }),
            Kind::Fixed => Algorithm::Fixed(FixedParams {
                calendar: match self.align.unwrap_or(Align::Epoch) {
                    Align::Epoch => Some(period.unit.calendar()),
                    Align::First => None,
                },
                tz_min: self.tz_min.unwrap_or(0),
                keep: bounded("keep", self.keep.unwrap_or(0), 0, MAX_KEEP)?,
            }),
            Kind::Bucket => Algorithm::Bucket(BucketParams {
                burst: match self.burst {
                    Some(burst) => bounded("burst", burst, 1, MAX_UNITS)?,
                    None => limit,
                },
                refill: self.refill.unwrap_or(Refill::Even),
            }),
            Kind::Leaky => Algorithm::Leaky(LeakyParams {
                queue: match self.queue {
                    Some(queue) => bounded("queue", queue, 0, MAX_UNITS)?,
                    None => limit,
                },
            }),
            Kind::Slots => Algorithm::Slots,
        };
        if self.kind == Kind::Slots && self.count_all {
            return Err(RuleError::SlotsCountAll);
        }
        let cost = self.cost.map(|cost| bounded("cost", cost, 0, MAX_UNITS)).transpose()?;
        Ok(Rule {
            algorithm,
            limit,
            capacity: algorithm.capacity(limit),
            period_us,
            name: self.name,
            count_all: self.count_all,
            cost: Cost::new(cost),
            ban: self.ban,
            shadow: self.shadow,
        })
    }

    /// The period, and its length in microseconds; that of slots is 0.
    fn period_and_micros(&self) -> Result<(Period, u64), RuleError> {
        match (self.kind == Kind::Slots, self.period) {
            (true, None) => Ok((Period { count: 0, unit: Unit::Millisecond }, 0)),
            (true, Some(_)) => Err(RuleError::SlotsPeriod),
            (false, Some(period)) => {
                Ok((period, period.micros().ok_or(RuleError::PeriodOutOfRange)?))
            }
            (false, None) => Err(RuleError::PeriodOutOfRange),
        }
    }

    const fn has(&self, option: RuleOption) -> bool {
        match option {
            RuleOption::Res => self.res.is_some(),
            RuleOption::Align => self.align.is_some(),
            RuleOption::Tz => self.tz_min.is_some(),
            RuleOption::Keep => self.keep.is_some(),
            RuleOption::Burst => self.burst.is_some(),
            RuleOption::Refill => self.refill.is_some(),
            RuleOption::Queue => self.queue.is_some(),
            RuleOption::Name => self.name.is_some(),
            RuleOption::Count => self.count_all,
            RuleOption::Cost => self.cost.is_some(),
            RuleOption::Ban => self.ban.is_some(),
            RuleOption::Shadow => self.shadow,
        }
    }

    fn refuse_foreign_options(&self) -> Result<(), RuleError> {
        for option in RuleOption::ALL {
            match option.owner() {
                Some(owner) if owner != self.kind && self.has(option) => {
                    return Err(RuleError::ForeignOption { option, owner, kind: self.kind });
                }
                _ => {}
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
