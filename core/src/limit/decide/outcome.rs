//! The answer to a check, and what the check did.

use super::decision::Decision;
use crate::limit::value::access::Access;
use crate::limit::value::bans::BanCount;
use crate::limit::value::check::{Change, Verdict};

/// A block set by a rule's `ban=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// Which of the check's rules set it.
    pub rule: usize,
    pub until_us: u64,
}

/// What a denial by a rule with `ban=` sets in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewBan {
    pub ban: Ban,
    pub length_us: u64,
    /// The key's count of bans from now on, if it has one.
    pub count: Option<BanCount>,
}

/// What a check did to a key, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer, which is that of all keys of the check.
    pub summary: Decision,
    /// This key's block or rules denied the request.
    pub denied: bool,
    pub change: Change,
    /// The denial also blocked the key.
    pub ban: Option<Ban>,
    /// The key's ban ends earlier from now on: the clock stepped back.
    pub ban_shortened: bool,
    /// A block or an exemption answered, and no rule was evaluated.
    pub access: Option<Access>,
    /// The check repeated a hold that lives, and no rule was charged.
    pub repeated: bool,
    /// The check took a hold.
    pub held: bool,
    /// The default cost as decided: of a range what was granted, if the check is allowed.
    pub cost: u32,
}

impl Outcome {
    /// An answer that did nothing to the key.
    pub const fn unchanged(summary: Decision, cost: u32, access: Option<Access>) -> Self {
        Self {
            summary,
            denied: !matches!(summary.verdict, Verdict::Allowed),
            change: Change::Nothing,
            ban: None,
            ban_shortened: false,
            access,
            repeated: false,
            held: false,
            cost,
        }
    }
    /// Whether the value of the key changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.change != Change::Nothing || self.ban_changed()
    }

    /// Whether the key got a ban, or its ban ends earlier.
    #[must_use]
    pub const fn ban_changed(&self) -> bool {
        self.ban.is_some() || self.ban_shortened
    }
}
