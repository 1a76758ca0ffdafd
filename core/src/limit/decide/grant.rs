//! Partial grants: as much as passes, between two bounds (`COST a..b`).
//!
//! A check whose cost is a range is decided for the least of it. If that is allowed, the
//! grant is the largest cost in the range that every rule with the default cost admits: the
//! least `remaining` of them, which is exact. Rules with a cost of their own must admit that,
//! and shadows do not lower the grant.

use super::decision::Decision;
use crate::limit::value::check::Check;
use crate::rule::Rule;

impl Check<'_> {
    /// What an allowed check is granted by its rules' decisions; none are given if an
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

    /// Whether a cost lies in the range that the check asks for.
    pub(crate) fn accepts(&self, cost: u32) -> bool {
        (self.cost..=self.up_to().unwrap_or(self.cost)).contains(&cost)
    }
}
