//! What callers can ask of holds.

use crate::key::Length;
use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, NamedCost};

/// The `HOLD` of a check before the time of the check is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldOption<'a> {
    /// 1 ..= [`MAX_ID`] bytes.
    pub id: &'a [u8],
    /// How long it lasts from the time of the check: 1 ms ..= [`MAX_PERIOD_US`].
    pub hold_us: u64,
    /// Whether the charges come back when the hold lapses.
    pub refund: bool,
}

impl<'a> HoldOption<'a> {
    /// The hold that a check at this time asks for.
    pub const fn at(self, now_us: u64) -> HoldRequest<'a> {
        HoldRequest { id: self.id, end_us: hold_end_us(self.hold_us, now_us), refund: self.refund }
    }
}

/// The end of a hold that is taken or renewed at this time.
pub const fn hold_end_us(hold_us: u64, now_us: u64) -> u64 {
    let end_us = now_us.saturating_add(hold_us);
    if end_us < MAX_END_US { end_us } else { MAX_END_US }
}

/// The latest end of a hold or of a ban: the longest period after the latest time.
pub const MAX_END_US: u64 = MAX_TIME_US.saturating_add(MAX_PERIOD_US);

/// The `HOLD` of a check: the hold to take if the check is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRequest<'a> {
    /// 1 ..= [`MAX_ID`] bytes.
    pub id: &'a [u8],
    /// When the hold lapses unless it is settled first, Unix microseconds.
    pub end_us: u64,
    /// True if its charges are given back when it lapses.
    pub refund: bool,
}

impl HoldRequest<'_> {
    /// How long the hold lasts if it is taken or renewed at `now_us`.
    pub(crate) fn length_from(&self, now_us: u64) -> Length {
        Length::new(self.end_us.saturating_sub(now_us))
    }
}

/// The longest id of a hold, in bytes.
pub const MAX_ID: usize = 64;

/// How settling a hold corrects its charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement<'a> {
    /// All charges stand.
    AsCharged,
    /// All charges are given back.
    Refund,
    /// Charges are corrected to what the request really cost; those without a new cost stand.
    Costs {
        /// For charges of the default cost.
        default: Option<u32>,
        /// For charges of rules with these names; names that the hold lacks are ignored.
        named: &'a [NamedCost],
    },
}
