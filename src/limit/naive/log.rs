//! Units with `t > now-W`, plus `c`, `<= L`: on a list of requests.

use super::Micros;
use crate::limit::rule::{Kind, Rule};

#[derive(Clone, Debug)]
pub struct Request {
    pub at: Micros,
    pub units: i128,
    /// Denied, and charged all the same.
    pub denied: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Log {
    /// In order of time; of one time, the admitted first.
    pub requests: Vec<Request>,
    /// The longest window of the check that consumed last.
    pub window: Micros,
    /// Never forgets a request; for rules that do not change.
    pub keeps_all: bool,
}

pub fn longest_window(rules: &[Rule]) -> Micros {
    let log_rules = rules.iter().filter(|rule| rule.kind() == Kind::Log);
    log_rules.map(|rule| rule.period_us().into()).max().unwrap_or(0)
}

fn largest_limit<'a>(rules: impl Iterator<Item = &'a Rule>) -> i128 {
    rules.filter(|rule| rule.kind() == Kind::Log).map(|rule| rule.limit().into()).max().unwrap_or(0)
}

impl Log {
    pub fn last(&self) -> Option<Micros> {
        self.requests.last().map(|request| request.at)
    }

    pub fn used(&self, rule: &Rule, at: Micros) -> i128 {
        let counted = |request: &&Request| {
            request.at > at - i128::from(rule.period_us()) && (rule.counts_all() || !request.denied)
        };
        self.requests.iter().filter(counted).map(|request| request.units).sum()
    }

    pub fn take(&mut self, rules: &[Rule], at: Micros, cost: i128, denied: bool) {
        self.requests.push(Request { at, units: cost, denied });
        self.requests.sort_by_key(|request| (request.at, request.denied));
        self.window = longest_window(rules);
        if !self.keeps_all {
            self.requests.retain(|request| request.at > at - self.window);
            self.keep_newest(rules);
        }
    }

    /// The newest units up to the largest limit, and of the admitted ones no
    /// fewer than rules need that do not count the denied.
    fn keep_newest(&mut self, rules: &[Rule]) {
        let mut room = largest_limit(rules.iter());
        let mut room_admitted = largest_limit(rules.iter().filter(|rule| !rule.counts_all()));
        for request in self.requests.iter_mut().rev() {
            let mut kept = request.units.min(room);
            room -= kept;
            if !request.denied {
                kept = kept.max(request.units.min(room_admitted));
                room_admitted -= kept.min(room_admitted);
            }
            request.units = kept;
        }
        self.requests.retain(|request| request.units > 0);
    }

    /// Newest first; of one time, the admitted first.
    pub fn give_back(&mut self, window: Micros, at: Micros, units: i128) -> i128 {
        let mut left = units;
        self.requests.sort_by_key(|request| (request.at, !request.denied));
        for request in self.requests.iter_mut().rev().filter(|request| request.at > at - window) {
            let back = left.min(request.units);
            request.units -= back;
            left -= back;
        }
        self.requests.retain(|request| request.units > 0);
        self.requests.sort_by_key(|request| (request.at, request.denied));
        units - left
    }
}
