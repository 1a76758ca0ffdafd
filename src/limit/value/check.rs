//! A check: its arguments, and what it did.

use crate::rule::Rule;

/// A question: does this cost fit these rules at this time?
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// No two have the same identity.
    pub rules: &'a [Rule],
    pub cost: u32,
    /// Unix microseconds.
    pub now_us: u64,
    /// For the history.
    pub meta: Option<Meta<'a>>,
}

impl<'a> Check<'a> {
    /// A check without `META`. No two of the rules may have the same identity.
    #[must_use]
    pub const fn new(rules: &'a [Rule], cost: u32, now_us: u64) -> Self {
        Self { rules, cost, now_us, meta: None }
    }
}

/// The `META` of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    pub text: &'a [u8],
    /// How many checks the key's history keeps, at least 1.
    pub keep: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Limited,
    Blocked,
}

impl Verdict {
    /// As replied: 0, 1 or 2.
    #[must_use]
    pub const fn code(self) -> i64 {
        match self {
            Self::Allowed => 0,
            Self::Limited => 1,
            Self::Blocked => 2,
        }
    }
}

/// What a check did to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    /// The cost was consumed from every rule.
    Admitted,
    /// The request was denied, and charged to the `count=all` rules.
    Charged,
    /// Nothing was consumed, but the history got an entry.
    HistoryOnly(Verdict),
}

impl Change {
    /// The verdict that the history shows for the check.
    pub(super) const fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Nothing => None,
            Self::Admitted => Some(Verdict::Allowed),
            Self::Charged => Some(Verdict::Limited),
            Self::HistoryOnly(verdict) => Some(verdict),
        }
    }
}
