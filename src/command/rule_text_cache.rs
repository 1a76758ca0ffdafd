//! Rules as text, for the effects of `RL.THROTTLE`, whose callers write no rules.

use crate::server::{Args, Texts};
use ratelimit_core::direct_mapped::DirectMapped;
use ratelimit_core::rule::Rule;
use std::convert::Infallible;

/// A cache of canonical texts by their rules. A rule has one canonical text, so
/// an entry is never out of date.
#[derive(Debug, Default)]
pub struct RuleTextCache {
    texts: DirectMapped<Rule, Texts>,
}

impl RuleTextCache {
    /// The rule as one argument.
    pub fn args(&mut self, rule: &Rule) -> Args<'_> {
        let print = || Ok::<_, Infallible>(Texts::new([rule.to_string()].iter()));
        let Ok(texts) = self.texts.get_or_try_insert(*rule, print);
        texts.args()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratelimit_core::direct_mapped::SLOTS;

    #[test]
    fn rules_use_every_slot() {
        let mut cache = RuleTextCache::default();
        for n in 1..200 {
            let text = format!("bucket:{}/{}s,burst={n}", n % 3, n % 5 + 1);
            cache.args(&Rule::from_text(text.as_bytes()).unwrap());
        }
        assert_eq!(cache.texts.entries(), SLOTS, "some slots stay empty");
    }
}
