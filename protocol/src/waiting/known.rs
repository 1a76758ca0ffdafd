//! What the tries of a wake have shown, so that no later try has to show it again.

use super::rules::Entry;
use ratelimit_core::rule::Identity;
use std::collections::{BTreeMap, BTreeSet};

/// How many rules and states are known at most. There must be a bound, because a line calls `forget`
/// only when nothing is due.
const MOST: usize = 4_096;

/// What has changed, and what rules have denied, since the line last had nothing due.
#[derive(Debug, Default)]
pub struct Known {
    /// For the state and the text of a rule: the least cost that the rule denies, and until when.
    denied: BTreeMap<(Identity, u64), (u32, u64)>,
    /// The states that got something back.
    returned: BTreeSet<Identity>,
    /// Whether something else changed, which may let any rule admit.
    changed: bool,
}

impl Known {
    /// Notes that a state got something back.
    pub fn note_return(&mut self, state: Identity) {
        self.returned.insert(state);
        if self.returned.len() > MOST {
            self.returned.clear();
            self.note_change();
        }
        let of_state = self.denied.range((state, 0)..=(state, u64::MAX)).map(|(&rule, _)| rule);
        for rule in of_state.collect::<Vec<_>>() {
            self.denied.remove(&rule);
        }
    }

    /// Notes that any rule may admit.
    pub fn note_change(&mut self) {
        self.changed = true;
        self.denied.clear();
    }

    /// Notes that a rule denies a cost until `until_us`.
    pub fn note_denial(&mut self, rule: &Entry, cost: u32, until_us: u64, now_us: u64) {
        if self.denied.len() >= MOST {
            self.denied.clear();
        }
        let of_rule = self.denied.entry((rule.state, rule.text)).or_insert((cost, until_us));
        if cost <= of_rule.0 || of_rule.1 <= now_us {
            *of_rule = (cost, until_us);
        }
    }

    /// The time until which a rule is known to deny a cost; `None` if no try has shown that it does.
    pub fn denies_until(&self, rule: &Entry, cost: u32, now_us: u64) -> Option<u64> {
        let &(least, until_us) = self.denied.get(&(rule.state, rule.text))?;
        (cost >= least && until_us > now_us).then_some(until_us)
    }

    /// Whether a rule that denied a cost may admit it.
    pub fn may_admit(&self, rule: &Entry) -> bool {
        self.changed || self.returned.contains(&rule.state)
    }

    /// Forgets everything, because all heads that may pass have been tried.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::Rules;
    use ratelimit_core::testing::rules_of_line;

    #[test]
    fn memory_is_bounded_for_any_number_of_rules() {
        let mut known = Known::default();
        for n in 0..3 * MOST {
            let rules = Rules::of(&rules_of_line(&format!("bucket:9/s,name=n{n}")));
            let rule = rules.iter().next().unwrap();
            known.note_denial(rule, 1, 9, 0);
            assert_eq!(known.denies_until(rule, 1, 0), Some(9));
            known.note_return(rules_of_line(&format!("bucket:9/s,name=r{n}"))[0].state());
            assert!(known.denied.len() <= MOST && known.returned.len() <= MOST);
        }
        assert!(known.changed, "a forgotten rule may admit");
    }
}
