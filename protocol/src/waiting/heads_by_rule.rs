//! How many heads of a line have each rule.

use super::rules::{Rules, hash_of_limit, reads_log};
use ratelimit_core::rule::{Identity, Rule};
use std::collections::BTreeMap;

/// The heads that have rules of one identity.
#[derive(Debug)]
struct Heads {
    number: usize,
    /// The hash of their rules' text; `None` if these rules have had several texts.
    text: Option<u64>,
}

/// The rules of all heads, by identity.
#[derive(Debug, Default)]
pub struct HeadsByRule {
    heads: BTreeMap<Identity, Heads>,
    /// How many log rules the heads have.
    logs: usize,
}

impl HeadsByRule {
    /// How many heads have this rule.
    pub fn heads(&self, rule: &Identity) -> usize {
        self.heads.get(rule).map_or(0, |heads| heads.number)
    }

    /// Adds `heads` to the number of each rule: 1 for a new head, -1 for a head that leaves.
    pub fn count(&mut self, rules: &Rules, heads: isize) {
        for rule in rules.iter() {
            if rule.reads_log() {
                self.logs = self.logs.saturating_add_signed(heads);
            }
            let new = || Heads { number: 0, text: Some(rule.text) };
            let of_rule = self.heads.entry(rule.identity).or_insert_with(new);
            of_rule.number = of_rule.number.saturating_add_signed(heads);
            of_rule.text.take_if(|text| *text != rule.text);
            if of_rule.number == 0 {
                self.heads.remove(&rule.identity);
            }
        }
    }

    /// The states of these rules that some head reads by a rule with another text.
    pub fn states_of_other_texts(&self, rules: &[Rule]) -> Vec<Identity> {
        let (mut states, mut reads, mut logs) = (Vec::new(), false, 0_usize);
        for rule in rules {
            let of_rule = self.heads.get(&rule.identity());
            let like = of_rule.filter(|heads| heads.text == Some(hash_of_limit(rule)));
            if of_rule.is_some() && like.is_none() {
                states.push(rule.identity());
            }
            if reads_log(rule) {
                reads = true;
                logs = logs.saturating_add(like.map_or(0, |heads| heads.number));
            }
        }
        if reads && logs != self.logs {
            states.push(Identity::LOG);
        }
        states
    }
}
