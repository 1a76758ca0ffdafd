//! What callers can ask of holds.

use crate::key::Length;
use crate::rule::NamedCost;

/// The `HOLD` of a check: the receipt to take if it is allowed.
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
