//! Partial grants: the most that passes, between two bounds (`COST a..b`).
//!
//! A check whose cost is a range is decided for the lower bound. If that is allowed, it is granted
//! the largest cost in the range that every rule with the default cost admits: the least of their
//! `remaining`, which is exact. A rule with its own cost must admit that cost, and a shadow never
//! lowers the grant.

use super::decision::Decision;
use crate::limit::value::check::Check;
use crate::rule::Rule;

impl Check<'_> {
    /// The cost granted to an allowed check, from its rules' decisions. There are none if an
    /// exemption answers.
    pub(crate) fn granted_by<'d>(&self, decisions: impl Iterator<Item = &'d Decision>) -> u32 {
        let Some(up_to) = self.up_to() else { return self.cost };
        let lowers = |rule: &Rule| !rule.is_shadow() && rule.cost().own().is_none();
        let least = self
            .rules
            .iter()
            .zip(decisions)
            .filter(|(rule, _)| lowers(rule))
            .filter_map(|(_, decision)| u32::try_from(decision.remaining).ok())
            .min();
        least.map_or(up_to, |least| least.clamp(self.cost, up_to))
    }

    /// True if the check could be granted `cost`.
    pub(crate) fn accepts(&self, cost: u32) -> bool {
        (self.cost..=self.up_to().unwrap_or(self.cost)).contains(&cost)
    }
}
