//! The words of `bucket`.
//!
//! The worst burst within a period is `B + L - ceil(L/W)`. The first and the last microsecond of a
//! window are `W-1` apart, and meanwhile `L*(W-1)/W` tokens come back.
//!
//! With `refill=interval` it is `2B - 1`: `B - 1` just before the tokens come back, and `B` just
//! after. All `B` tokens can be taken before the refill too. But taking the first of them began the
//! period that ends with the refill, so that token lies a whole period back and does not count.

use crate::algorithm::{OptionValues, RuleText, debt};
use crate::rule::explain::{amount, at_worst, constant, per, requests, share, time};
use crate::rule::{
    Kind, MAX_UNITS, Number, OwnOption, Period, Rule, RuleError, RuleSpec, Unit, write_option,
    write_period,
};
use alloc::string::String;
use core::fmt;

/// How a token bucket gets its tokens back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refill {
    /// One by one, evenly.
    Even,
    /// All at once, one period after the first was taken.
    Interval,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketParams {
    /// The capacity in tokens, 1 ..= [`MAX_UNITS`]; 0 only with a limit of 0.
    pub burst: u32,
    pub refill: Refill,
}

const BURST: OwnOption = OwnOption::number("burst", "an integer 1..1000000000");
const REFILL: OwnOption = OwnOption {
    name: "refill",
    value: "interval",
    read: |text| (text == b"interval").then_some(1),
};

impl RuleSpec {
    /// A token bucket of this burst.
    pub fn bucket(limit: u64, period: Period, burst: u32) -> Self {
        Self { own: [Some(burst.into()), None, None], ..Self::new(Kind::Bucket, limit, period) }
    }
}

impl RuleText for BucketParams {
    fn options() -> &'static [OwnOption] {
        &[BURST, REFILL]
    }

    fn read(words: &OptionValues) -> Result<Self, RuleError> {
        let burst = match words.options {
            // The default is the limit, which may be 0.
            [None, ..] => words.limit,
            _ => words.within((0, &BURST), words.limit, 1, MAX_UNITS)?,
        };
        let refill = if words.of(1, 0) == 1 { Refill::Interval } else { Refill::Even };
        Ok(Self { burst, refill })
    }

    fn shape(&self) -> u32 {
        u32::from(self.refill == Refill::Interval)
    }

    fn capacity(&self, _limit: u32) -> u32 {
        self.burst
    }

    fn divided(self, part: impl Fn(u32) -> u32) -> Self {
        Self { burst: part(self.burst), ..self }
    }

    fn write(&self, rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { burst, refill } = *self;
        write_period(f, rule, Unit::Week)?;
        write_option(f, BURST.name, (burst != rule.limit()).then_some(Number(burst)))?;
        write_option(f, REFILL.name, (refill == Refill::Interval).then_some("interval"))
    }

    fn worst_in_period(&self, rule: &Rule) -> u64 {
        match self.refill {
            Refill::Even => debt::worst_in_period(rule),
            Refill::Interval => rule.capacity().saturating_mul(2).saturating_sub(1),
        }
    }

    fn identity(&self) -> Option<(&'static str, &'static str)> {
        Some(("algorithm, period and refill", "limit and burst"))
    }

    fn explain(&self, rule: &Rule) -> String {
        let Self { burst, refill } = *self;
        let (burst, us) = (u64::from(burst), rule.period_us());
        let back = match refill {
            Refill::Even => {
                format!("they come back evenly, one in {}", share(us.into(), rule.limit().into()))
            }
            Refill::Interval => {
                format!("all come back at once, {} after the first was taken", time(us))
            }
        };
        let worst = at_worst(rule, |worst| match refill {
            Refill::Even => {
                format!("{} at once, and up to {worst} in one {}", requests(burst), per(us))
            }
            Refill::Interval => format!(
                "{} within a moment, {} just before the tokens come back and {burst} just after",
                requests(worst),
                worst.saturating_sub(burst)
            ),
        });
        format!(
            "a bucket of {}, full at first; a request takes one, and {back} (token bucket). \
         Worst burst: {worst}. Memory: {}.",
            amount(burst, "token"),
            constant(),
        )
    }
}
