//! What a rule reads in a state at a time.

use crate::exact::millis_up;
use crate::rule::Rule;

/// When something happens: at a time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Unix microseconds; in the past if it has happened.
    At(u64),
    Never,
}

impl Moment {
    /// Milliseconds from `now_us` until then, rounded up; -1: never.
    pub fn ms_after(self, now_us: u64) -> i64 {
        match self {
            Self::At(us) => i64::try_from(millis_up(us.saturating_sub(now_us))).unwrap_or(i64::MAX),
            Self::Never => -1,
        }
    }
}

/// A rule's view of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When the state was read, see [`effective_time`].
    pub at_us: u64,
    /// Units that would be admitted now.
    pub remaining: u64,
    /// When the cost is admitted; `at_us` or earlier if it is admitted now.
    pub admits: Moment,
    /// When an admitted request may proceed if it has to queue (`leaky`), else 0.
    pub turn_us: u64,
}

impl Reading {
    /// What a rule reads from an untouched state.
    pub fn untouched(rule: &Rule, now_us: u64) -> Self {
        Self { at_us: now_us, remaining: rule.capacity(), admits: Moment::At(now_us), turn_us: 0 }
    }

    /// Corrects the reading of a state that ends at `end`, in the future. The state is empty from then
    /// on, so nothing waits longer.
    #[must_use]
    pub fn until(self, end: Moment) -> Self {
        let turn_us =
            if let Moment::At(end_us) = end { self.turn_us.min(end_us) } else { self.turn_us };
        Self { admits: self.admits.min(end), turn_us, ..self }
    }

    /// What a rule reads if `used` of `limit` units count. If the cost does not fit now, it is
    /// admitted at `later()`.
    #[inline(always)]
    pub fn of_used(
        at_us: u64,
        (used, limit): (u64, u64),
        cost: u32,
        later: impl FnOnce() -> Moment,
    ) -> Self {
        let fits = used.saturating_add(u64::from(cost)) <= limit;
        let admits = if fits { Moment::At(at_us) } else { later() };
        Self { at_us, remaining: limit.saturating_sub(used), admits, turn_us: 0 }
    }
}

/// The time of a state in which nothing is consumed. It lies ahead of no clock, so such a state is
/// read and consumed from at the clock's own time.
pub const NO_TIME_US: u64 = 0;

/// The time at which a state is read when the clock shows `now_us`: never before the state's own
/// time.
///
/// A state's time is that of its last consumption and never runs backwards; a state in which nothing
/// is consumed has [no time](NO_TIME_US). If the clock stepped
/// back by up to a window, the state is read at its own time until the clock has caught up. If it
/// stepped back by more, the rule does not wait but sees an untouched state: `None`.
pub fn effective_time(now_us: u64, last_us: u64, window_us: u64) -> Option<u64> {
    match last_us.checked_sub(now_us) {
        None | Some(0) => Some(now_us),
        Some(behind_us) if behind_us <= window_us => Some(last_us),
        Some(_) => None,
    }
}

/// The earliest time at which a pause or a hold of this length that ends at `end_us` is in effect.
///
/// A pause or hold starts one length before its end. The clock may then step back by up to one more
/// length: the pause or hold stays in effect until the clock reaches its end. After a longer step
/// back, the pause or hold is over.
pub const fn not_before_us(end_us: u64, length_us: u64) -> u64 {
    end_us.saturating_sub(length_us.saturating_mul(2))
}
