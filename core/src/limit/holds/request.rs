//! What callers ask of holds.

use crate::rule::NamedCost;

/// The `HOLD` of a check: the receipt that it takes if it is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRequest<'a> {
    /// 1 ..= [`MAX_ID`] bytes.
    pub id: &'a [u8],
    /// When the hold lapses unless it is settled before, Unix microseconds.
    pub end_us: u64,
    /// Whether its charges come back when it lapses.
    pub refund: bool,
}

/// The longest id of a hold, in bytes.
pub const MAX_ID: usize = 64;

/// How settling a hold corrects its charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement<'a> {
    /// All charges stand.
    AsCharged,
    /// All charges come back.
    Refund,
    /// Charges become what the request really cost; those without a new cost stand.
    Costs {
        /// For the charges that took the default cost.
        default: Option<u32>,
        /// For the charges of rules with these names; a name that the hold lacks is ignored.
        named: &'a [NamedCost],
    },
}
