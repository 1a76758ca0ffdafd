//! What a rule sees when it looks at a state at one moment.

use crate::limit::exact::millis_up;
use crate::rule::Rule;

/// When something happens: at a time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Unix microseconds; what has happened already has a time in the past.
    At(u64),
    Never,
}

impl Moment {
    /// How long after `now_us` this is, in microseconds.
    pub fn after(self, now_us: u64) -> Span {
        match self {
            Self::At(us) => Span::Micros(us.saturating_sub(now_us)),
            Self::Never => Span::Forever,
        }
    }
}

/// A length of time that may have no end. Ordered: nothing is longer than
/// forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    Micros(u64),
    Forever,
}

impl Span {
    /// As replied: whole milliseconds rounded up, -1 for ever.
    pub fn millis(self) -> i64 {
        match self {
            Self::Micros(us) => i64::try_from(millis_up(us)).unwrap_or(i64::MAX),
            Self::Forever => -1,
        }
    }
}

/// A rule's view of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The time read at: the clock's, or the one a state stands still in.
    pub at_us: u64,
    /// Units that would be admitted at once.
    pub remaining: u64,
    /// When the cost asked for is admitted; not after `at_us` if it is
    /// admitted now.
    pub admits: Moment,
    /// When an admitted request may proceed, if it has to queue (`leaky`);
    /// else 0.
    pub turn_us: u64,
}

impl Reading {
    /// What a rule sees where nothing was consumed.
    pub fn untouched(rule: &Rule, now_us: u64) -> Self {
        Self { at_us: now_us, remaining: rule.capacity(), admits: Moment::At(now_us), turn_us: 0 }
    }
}

/// The time a state lives in when the clock shows `now_us`.
///
/// A state's time is that of its last consumption and never runs backwards:
/// if the clock stepped back, time stands still until the clock has caught up.
/// A step back of more than a window is not waited for: `None`, the state is
/// forgotten.
pub fn effective_time(now_us: u64, last_us: u64, window_us: u64) -> Option<u64> {
    match last_us.checked_sub(now_us) {
        None | Some(0) => Some(now_us),
        Some(behind_us) if behind_us <= window_us => Some(last_us),
        Some(_) => None,
    }
}
