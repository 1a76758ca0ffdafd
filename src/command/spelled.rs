//! Rules in words, for the effects of commands whose callers write none.

use crate::limit::Rule;
use crate::parse::place_of;
use crate::server::{Args, Texts};

/// Rules told lately, each with its words: applications send the same few again
/// and again. A rule has one spelling, so what was spelled out once need not be
/// again.
#[derive(Debug, Default)]
pub struct Spelled {
    places: Box<[Option<Entry>]>,
}

#[derive(Debug)]
struct Entry {
    rule: Rule,
    words: Texts,
}

impl Spelled {
    const PLACES: usize = 32;

    /// The rule as one argument.
    pub fn words(&mut self, rule: &Rule) -> Args<'_> {
        if self.places.is_empty() {
            self.places = (0..Self::PLACES).map(|_| None).collect();
        }
        let Some(place) = self.places.get_mut(Self::place(rule)) else { return Args::default() };
        if place.as_ref().is_none_or(|entry| entry.rule != *rule) {
            *place = None;
        }
        let spell = || Entry { rule: *rule, words: Texts::new([rule.to_string()].iter()) };
        place.get_or_insert_with(spell).words.args()
    }

    /// The numbers of a rule tell most rules apart.
    fn place(rule: &Rule) -> usize {
        let numbers = [rule.limit().into(), rule.period_us(), rule.capacity()];
        place_of(numbers, Self::PLACES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::rule;

    #[test]
    fn a_place_has_the_rule_that_came_last() {
        let mut spelled = Spelled::default();
        for n in 1..200 {
            let rule =
                rule(format!("bucket:{}/{}s,burst={n}", n % 3, n % 5 + 1).as_bytes()).unwrap();
            for _ in 0..2 {
                spelled.words(&rule);
                let kept = spelled.places[Spelled::place(&rule)].as_ref().unwrap();
                assert_eq!(kept.rule, rule);
            }
        }
        assert!(spelled.places.iter().all(Option::is_some), "some places are of no use");
    }
}
