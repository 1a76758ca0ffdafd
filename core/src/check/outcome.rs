//! The answer to a check, and what the check did.

use super::{Ban, Decision};
use crate::key::{Change, Standing, Verdict};

/// The answer to a check, and what it did to one key.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent answer")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer for all keys of the check.
    pub summary: Decision,
    /// This key's block or rules denied the request.
    pub denied: bool,
    /// What the check did to states, holds or history.
    pub change: Change,
    /// The denial also blocked the key.
    pub ban: Option<Ban>,
    /// The key's ban now ends earlier, because the clock stepped back.
    pub ban_shortened: bool,
    /// A block or an exemption answered, and no rule was evaluated.
    pub standing: Option<Standing>,
    /// The check repeated a live hold, and no rule was charged.
    pub repeated: bool,
    /// The check took a hold.
    pub held: bool,
    /// The default cost that was decided: for an allowed check of a range, what was granted.
    pub cost: u32,
}

impl Outcome {
    /// The answer of a check that left the key unchanged.
    pub const fn unchanged(summary: Decision, cost: u32, standing: Option<Standing>) -> Self {
        Self {
            summary,
            denied: !matches!(summary.verdict, Verdict::Allowed),
            change: Change::Nothing,
            ban: None,
            ban_shortened: false,
            standing,
            repeated: false,
            held: false,
            cost,
        }
    }

    /// True if the key's value changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        !matches!(self.change, Change::Nothing) || self.ban_changed()
    }

    /// True if the key got a ban, or its ban ends earlier.
    #[must_use]
    pub const fn ban_changed(&self) -> bool {
        self.ban.is_some() || self.ban_shortened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_or_a_ban_changes_the_key() {
        let none = Outcome::unchanged(Decision::UNDECIDED, 1, None);
        let ban = Some(Ban { rule: 0, until_us: 9 });
        for (outcome, changed) in [
            (none, (false, false)),
            (Outcome { change: Change::Renewed, ..none }, (true, false)),
            (Outcome { ban, ..none }, (true, true)),
            (Outcome { ban_shortened: true, ..none }, (true, true)),
        ] {
            assert_eq!((outcome.changed(), outcome.ban_changed()), changed, "{outcome:?}");
        }
    }
}
