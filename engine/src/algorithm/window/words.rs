//! The words of `window`.
//!
//! The worst burst of a sliding window counter is `2L - ceil(L*g/w)`, with `w = W/res` and
//! `g = 1 + gcd(W, res)/res`.
//!
//! Let the current sub-interval be `e` old. The true window still covers `w-e` of the oldest
//! counted sub-interval, so the rule counts `(w-e)/w` of that sub-interval's units. If all `L`
//! units came at the very end of that sub-interval, they all lie in the true window, and the rule
//! admits `L*e/w` more. Nothing else is miscounted. The sum `L + floor(L*e/w)` grows with `e`. But
//! the covered part must contain a whole microsecond, so `w-e` is at least `g`: the shortest distance
//! of at least a microsecond that a time can have from a boundary. More sub-intervals do not lower the
//! sum. They only move the second half of the burst away from the first. The `res-1` sub-intervals
//! before the current one are counted in full, so no stretch of `W - w` admits more than `L`.

use crate::algorithm::{OptionValues, RuleText};
use crate::rule::explain::{at_worst, per, requests, share, time};
use crate::rule::{MAX_RES, OwnOption, Rule, RuleError, Unit, memory, write_option, write_period};
use alloc::string::String;
use core::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowParams {
    /// The number of sub-intervals per window, 1 ..= [`MAX_RES`].
    pub res: u8,
}

const RES: OwnOption = OwnOption::number("res", "an integer 1..60");

impl RuleText for WindowParams {
    fn options() -> &'static [OwnOption] {
        &[RES]
    }

    fn read(words: &OptionValues) -> Result<Self, RuleError> {
        Ok(Self { res: words.within((0, &RES), 1, 1, MAX_RES)? })
    }

    fn shape(&self) -> u32 {
        self.res.into()
    }

    fn write(&self, rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_period(f, rule, Unit::Week)?;
        write_option(f, RES.name, (self.res != 1).then_some(self.res))
    }

    fn worst_in_period(&self, rule: &Rule) -> u64 {
        worst(rule.limit().into(), rule.period_us().max(1), self.res)
    }

    fn identity(&self) -> Option<(&'static str, &'static str)> {
        Some(("algorithm, period and res", "limit"))
    }

    fn explain(&self, rule: &Rule) -> String {
        let Self { res } = *self;
        let (limit, period_us, parts) = (rule.limit(), rule.period_us(), u64::from(res));
        let (period, counters) = (per(period_us), parts.saturating_add(1));
        let part = share(period_us.into(), parts);
        let worst = at_worst(rule, |worst| {
            let crowds = format!(
                "{} at once, and up to {worst} in one {period}, if they crowd at the end of a \
             sub-interval and again {} later",
                requests(limit.into()),
                time(period_us)
            );
            if res == 1 {
                return crowds;
            }
            // W - w: exact where it is a whole number, else rounded down.
            let us = u128::from(period_us).saturating_mul(parts.saturating_sub(1).into());
            format!("{crowds}, but never more than {limit} in {}", share(us, parts))
        });
        format!(
            "about {} in any {period}, counted by sub-intervals of {part}: the oldest counts with \
         the share of it that is still in the window, as if its requests had come evenly \
         (sliding window counter). \
         Worst burst: {worst}. \
         Memory: {} bytes, and {} for each of {counters} counters.",
            requests(limit.into()),
            memory::WINDOW_KEY,
            memory::WINDOW_COUNTER,
        )
    }
}

/// The most units that can pass within one period.
pub fn worst(limit: u64, period_us: u64, res: u8) -> u64 {
    let (limit, period_us, res) = (u128::from(limit), u128::from(period_us), u128::from(res));
    // g/w = (res + gcd) / W
    let gap = res.saturating_add(gcd(period_us, res));
    let missing = limit.saturating_mul(gap).div_ceil(period_us.max(1));
    u64::try_from(limit.saturating_mul(2).saturating_sub(missing)).unwrap_or(u64::MAX)
}

fn gcd(a: u128, b: u128) -> u128 {
    a.checked_rem(b).map_or(a, |rest| gcd(b, rest))
}
