//! Shares equal rules between clients, so that they take memory once.

use super::rules::Rules;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug)]
pub struct SharedRules {
    rules: BTreeSet<Arc<Rules>>,
    bytes: usize,
}

impl SharedRules {
    pub const NONE: Self = Self { rules: BTreeSet::new(), bytes: 0 };

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// How many bytes all rules take.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many more bytes these rules would take.
    pub fn bytes_of(&self, rules: &Rules) -> usize {
        if self.rules.contains(rules) { 0 } else { rules.bytes() }
    }

    /// Returns the one allocation of these rules that clients share.
    pub fn share(&mut self, rules: Rules) -> Arc<Rules> {
        if let Some(shared) = self.rules.get(&rules) {
            return Arc::clone(shared);
        }
        self.bytes = self.bytes.saturating_add(rules.bytes());
        let rules = Arc::new(rules);
        self.rules.insert(Arc::clone(&rules));
        rules
    }

    /// Drops rules that only the caller still has.
    pub fn unshare(&mut self, rules: &Arc<Rules>) {
        if Arc::strong_count(rules) == 2 && self.rules.remove(rules) {
            self.bytes = self.bytes.saturating_sub(rules.bytes());
        }
    }
}
