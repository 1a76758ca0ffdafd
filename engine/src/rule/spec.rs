//! Validates a parsed rule: every bound, and which algorithm takes an option.

use super::{
    Cost, Kind, Ladder, MAX_UNITS, Name, Period, Rule, RuleError, RuleOption, Trial, Unit,
};
use crate::algorithm::{MOST_OWN, OptionValues, Params};

/// A rule as it was written, before validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSpec {
    /// The algorithm; options of any other algorithm are errors.
    pub kind: Kind,
    /// Units per period, 0 ..= [`MAX_UNITS`].
    pub limit: u64,
    /// `None`: none was written. Slots have no period.
    pub period: Option<Period>,
    /// The values of the options that only this algorithm takes, in their order.
    pub(crate) own: [Option<i128>; MOST_OWN],
    /// The first option that only another algorithm takes.
    pub(crate) foreign: Option<RuleOption>,
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

    /// Sets an option that only one algorithm takes.
    #[cfg(feature = "testing")]
    #[allow(clippy::expect_used, reason = "for tests")]
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<i128>) -> Self {
        self.set(RuleOption::of_name(name.as_bytes()).expect("an option"), value.into());
        self
    }

    /// Sets an option that only one algorithm takes. If the rule has another algorithm, notes the
    /// option as foreign.
    pub fn set(&mut self, option: RuleOption, value: i128) {
        let of_kind = self.kind.options().iter().position(|own| own.name == option.name());
        match of_kind.and_then(|place| self.own.get_mut(place)) {
            Some(own) => *own = Some(value),
            None => self.foreign = self.foreign.or(Some(option)),
        }
    }

    /// Checks every bound and that each option belongs to the algorithm.
    ///
    /// # Errors
    /// [`RuleError`], which says what was wrong and what was expected.
    pub fn validate(&self) -> Result<Rule, RuleError> {
        let kind = self.kind;
        if let Some((option, owner)) = self.foreign.and_then(|it| Some((it, it.owner()?))) {
            return Err(RuleError::ForeignOption { option, owner, kind });
        }
        let limit = bounded("limit", self.limit, 0, MAX_UNITS)?;
        let period_us = self.period_us()?;
        if let Some(Period { count, unit: Unit::Month }) = self.period {
            if kind != Kind::Fixed {
                return Err(RuleError::MonthNeedsFixed);
            }
            if count != 1 {
                return Err(RuleError::SeveralMonths);
            }
        }
        let words = OptionValues { limit, period: self.period, options: self.own };
        let params = Params::read(kind, &words)?;
        if kind == Kind::Slots && self.count_all {
            return Err(RuleError::SlotsCountAll);
        }
        let cost = self.cost.map(|cost| bounded("cost", cost, 0, MAX_UNITS)).transpose()?;
        Ok(Rule {
            name: self.name,
            count_all: self.count_all,
            cost: Cost::new(cost),
            ban: self.ban,
            trial: if self.shadow { Trial::Written } else { Trial::No },
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
}

/// A number within its bounds.
pub(crate) fn bounded<T: TryFrom<u64> + Into<u64>>(
    what: &'static str,
    given: u64,
    min: u32,
    max: T,
) -> Result<T, RuleError> {
    let max = max.into();
    let within = (u64::from(min)..=max).contains(&given).then(|| T::try_from(given).ok());
    within.flatten().ok_or(RuleError::OutOfRange { what, given, min, max })
}
