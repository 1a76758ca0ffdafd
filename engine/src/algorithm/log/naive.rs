//! Units with `t > now-W`, plus `c`, `<= L`, on a list of requests.

#![allow(clippy::arithmetic_side_effects, reason = "a model for tests")]

use crate::rule::{Kind, Rule};
use crate::tests::naive::Micros;

#[derive(Clone, Debug)]
pub struct Request {
    pub at: Micros,
    pub units: i128,
    /// A charged denial.
    pub denied: bool,
}

/// What one check needs the log to keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct NaiveNeeds {
    /// The longest window.
    pub window: Micros,
    /// The largest limit, plus what a settled hold consumed beyond it.
    pub units: i128,
    /// The largest limit, if any rule counts admitted requests only; else 0.
    admitted: i128,
}

impl NaiveNeeds {
    fn of(rules: &[Rule]) -> Self {
        let logs = || rules.iter().filter(|rule| rule.kind() == Kind::Log);
        let units = logs().map(|rule| rule.limit().into()).max().unwrap_or(0);
        let admitted = if logs().any(|rule| !rule.counts_all()) { units } else { 0 };
        Self { window: longest_window(rules), units, admitted }
    }

    fn covers(&self, other: &Self) -> bool {
        self.window >= other.window && self.units >= other.units && self.admitted >= other.admitted
    }
}

#[derive(Clone, Debug, Default)]
pub struct NaiveLog {
    /// By time; at equal times admitted requests come first.
    pub requests: Vec<Request>,
    /// The needs of the check that consumed last.
    pub latest: NaiveNeeds,
    /// The needs of earlier checks, and when each ends.
    pub past: Vec<(NaiveNeeds, Micros)>,
    /// If true, no request is ever dropped; for tests whose rules do not change.
    pub keeps_all: bool,
}

pub fn longest_window(rules: &[Rule]) -> Micros {
    let log_rules = rules.iter().filter(|rule| rule.kind() == Kind::Log);
    log_rules.map(|rule| rule.period_us().into()).max().unwrap_or(0)
}

impl NaiveLog {
    pub fn last(&self) -> Option<Micros> {
        self.requests.last().map(|request| request.at)
    }

    /// The longest window that any check needs.
    pub fn window(&self) -> Micros {
        self.all_needs().map(|needs| needs.window).max().unwrap_or(0)
    }

    fn all_needs(&self) -> impl Iterator<Item = NaiveNeeds> {
        self.past.iter().map(|&(needs, _)| needs).chain([self.latest])
    }

    /// When no check needs the log any longer.
    pub fn needed_until(&self) -> Micros {
        let latest = self.last().unwrap_or(0) + self.latest.window;
        self.past.iter().map(|&(_, until)| until).fold(latest, Micros::max)
    }

    pub fn used(&self, rule: &Rule, at: Micros) -> i128 {
        let counted = |request: &&Request| {
            request.at > at - i128::from(rule.period_us()) && (rule.counts_all() || !request.denied)
        };
        self.requests.iter().filter(counted).map(|request| request.units).sum()
    }

    /// True if a cost fits. Holds may keep more units in the log than the largest limit, but these
    /// must not deny a check of cost 0.
    pub fn fits(&self, rule: &Rule, at: Micros, cost: i128) -> bool {
        let limit = i128::from(rule.limit());
        let most = self.all_needs().map(|needs| needs.units).max().unwrap_or(0);
        cost == 0 && most <= limit || self.used(rule, at) + cost <= limit
    }

    pub fn take(&mut self, rules: &[Rule], at: Micros, cost: i128, denied: bool) {
        let needs = NaiveNeeds::of(rules);
        if !self.keeps_all && at >= self.needed_until() {
            self.clear();
        }
        if let Some(last) = self.last() {
            self.past.push((self.latest, last + self.latest.window));
            self.past.retain(|(past, until)| *until > at && !needs.covers(past));
        }
        self.latest = needs;
        self.requests.push(Request { at, units: cost, denied });
        self.requests.sort_by_key(|request| (request.at, request.denied));
        if !self.keeps_all {
            let window = self.window();
            self.requests.retain(|request| request.at > at - window);
            self.keep_newest();
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self { keeps_all: self.keeps_all, ..Self::default() };
    }

    /// Call this before a check consumes, if the clock has stepped back by more than the
    /// check's window. Moves the requests, which a longer window may need, out of the check's
    /// window.
    pub fn step_back(&mut self, window: Micros, now: Micros) {
        if self.last().is_none_or(|last| last - now > self.window()) || now < window {
            self.clear();
        }
        for request in &mut self.requests {
            request.at = request.at.min(now - window);
        }
        self.requests.sort_by_key(|request| (request.at, request.denied));
        for (needs, until) in &mut self.past {
            *until = (*until).min(now - window + needs.window);
        }
    }

    /// Keeps the newest units up to the largest limit. Also keeps the admitted units that rules
    /// without `count=all` need.
    fn keep_newest(&mut self) {
        let mut room = self.all_needs().map(|needs| needs.units).max().unwrap_or(0);
        let mut room_admitted = self.all_needs().map(|needs| needs.admitted).max().unwrap_or(0);
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

    /// Gives units back, newest first; at equal times from admitted requests first.
    pub fn refund(&mut self, window: Micros, at: Micros, units: i128) -> i128 {
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
