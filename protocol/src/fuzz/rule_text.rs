//! Rule text: a rule that was read can be printed, and the printed text gives an equal rule.

use super::assert_printable;
use crate::parse::RuleCache;
use ratelimit_engine::rule::{Rule, explain, looks_like_rule};

pub fn run(data: &[u8]) {
    let read = Rule::from_text(data);
    match &read {
        Ok(rule) => {
            assert!(looks_like_rule(data));
            let text = rule.to_string();
            let again = Rule::from_text(text.as_bytes());
            assert_eq!(again.as_ref(), Ok(rule), "{text}");
            assert_eq!(again.unwrap().to_string(), text);
            assert_printable(&explain(rule));
        }
        Err(error) => assert_printable(error),
    }
    if !looks_like_rule(data) {
        return;
    }
    // From an empty cache, and from one that holds the rule.
    let mut cache = RuleCache::default();
    for _ in 0..2 {
        let mut rules = Vec::new();
        let cached = cache.add(data, &mut rules);
        assert_eq!(cached.err().as_ref(), read.as_ref().err());
        assert_eq!(rules.first(), read.as_ref().ok());
    }
}
