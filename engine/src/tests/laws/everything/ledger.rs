//! The ledger of a key: a list of charges, corrected when holds end.
//!
//! ```text
//! accounts   for each rule, the costs of the checks that contain the rule; these costs never
//!            exceed the rule's limit
//! log        what all checks cost the log; a log rule never denies a cost that fits beside this
//! ```
//!
//! The ledger has no needs, tracks or budgets. It reads one thing only from the limiter: the time of
//! a state, which stands still if the clock has stepped back behind it.

use super::scenario::Ask;
use crate::algorithm::State;
use crate::algorithm::bucket::BucketParams;
use crate::algorithm::fixed::FixedParams;
use crate::algorithm::meter::Params;
use crate::key::{Costs, Limiter, Settlement};
use crate::rule::{Calendar, Kind, Refill, Rule};
use crate::tests::laws::holds::history::{in_effect, settled_cost};
use crate::tests::naive::model::Model;
use crate::tests::naive::{Micros, effective_time};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: Vec<(Rule, Vec<Item>)>,
    log: Vec<Item>,
    holds: BTreeMap<usize, Hold>,
    /// The times and units that `RL.REFUND` took off the log.
    refunds: Vec<(Micros, i128)>,
    /// True once any state was refunded. From then on only the accounts of log rules are read.
    refunded: bool,
    /// True if a hold was settled after the log had dropped the hold's charge.
    unclear: bool,
    /// True if the clock ever stepped back.
    reeled: bool,
    /// Every rule that was checked.
    asked: Vec<Rule>,
    checks: usize,
}

/// Units consumed by one check.
#[derive(Clone, Copy, Debug)]
struct Item {
    check: usize,
    at: Micros,
    units: i128,
    /// A charged denial.
    denied: bool,
    /// Consumed by a hold that was settled for more than its charge.
    excess: bool,
}

#[derive(Clone, Debug)]
struct Hold {
    check: usize,
    end_us: u64,
    length_us: u64,
    refund: bool,
    rules: Vec<Rule>,
    /// What each rule was charged; `None` if its state is gone.
    charged: Vec<Option<u32>>,
}

impl Hold {
    fn lives(&self, now_us: u64) -> bool {
        in_effect(self.end_us, self.length_us, now_us)
    }
}

fn is_log(rule: &Rule) -> bool {
    rule.kind() == Kind::Log
}

fn period(rule: &Rule) -> Micros {
    rule.period_us().into()
}

fn longest_window(rules: &[Rule]) -> Micros {
    rules.iter().filter(|rule| is_log(rule)).map(period).max().unwrap_or(0)
}

/// When the state of a rule was last consumed from. A rule does not see a state of another
/// algorithm.
fn last(limiter: &Limiter, rule: &Rule) -> Option<Micros> {
    let meter = limiter.state_of(rule)?.meter();
    meter.is_of_kind(rule.kind()).then(|| meter.last_us().into())
}

/// True if the list of charges determines what is consumed. A window that opens with its first request
/// stays open when that request is refunded, so the list does not determine it.
fn is_list(rule: &Rule) -> bool {
    match rule.params() {
        Params::Fixed(FixedParams { calendar, .. }) => calendar == Some(Calendar::Epoch),
        Params::Bucket(BucketParams { refill, .. }) => refill == Refill::Even,
        Params::Log(_) | Params::Window(_) | Params::Leaky(_) => true,
        Params::Slots(_) => false,
    }
}

impl Ledger {
    /// True if a hold lives.
    pub fn lives(&self, id: usize, now_us: u64) -> bool {
        self.holds.get(&id).is_some_and(|hold| hold.lives(now_us))
    }

    /// Call this when the clock steps back from this time. Units that had left a window by then never
    /// come back into it.
    pub fn step_back(&mut self, from_us: u64) {
        self.reeled = true;
        self.age_log(from_us.into());
    }

    /// Drops the units that had left the windows of log rules by this time.
    fn age_log(&mut self, at: Micros) {
        for (rule, items) in self.accounts.iter_mut().filter(|(rule, _)| is_log(rule)) {
            items.retain(|item| item.at > at - period(rule));
        }
    }

    /// Drops the holds that have reached their end: no clock brings them back.
    pub fn end(&mut self, now_us: u64) {
        self.drop_holds(|hold| hold.end_us <= now_us);
    }

    /// Drops the holds that have lapsed, as a write does.
    pub fn lapse(&mut self, now_us: u64) {
        self.drop_holds(|hold| !hold.lives(now_us));
    }

    /// Drops holds. With `REFUND`, their checks cost nothing.
    fn drop_holds(&mut self, lapsed: impl Fn(&Hold) -> bool) {
        while let Some((&id, hold)) = self.holds.iter().find(|(_, hold)| lapsed(hold)) {
            if hold.refund {
                for rule in 0..hold.rules.len() {
                    self.lower(id, rule, 0);
                }
            }
            self.holds.remove(&id);
        }
    }

    fn account(&mut self, rule: &Rule) -> &mut Vec<Item> {
        let found = self.accounts.iter().position(|(known, _)| known == rule);
        let index = found.unwrap_or_else(|| {
            self.accounts.push((*rule, Vec::new()));
            self.accounts.len() - 1
        });
        &mut self.accounts[index].1
    }

    fn items(&self, rule: &Rule) -> &[Item] {
        self.accounts.iter().find(|(known, _)| known == rule).map_or(&[], |(_, items)| items)
    }

    /// Lowers the charge of a hold on one of its rules to at most `units`.
    fn lower(&mut self, id: usize, rule: usize, units: u32) {
        let Hold { check, rules, charged, .. } = &self.holds[&id];
        let (check, rule, dropped) = (*check, rules[rule], charged[rule].is_none());
        let units = i128::from(units);
        let mut times = Vec::new();
        if !dropped {
            for item in self.account(&rule).iter_mut().filter(|item| item.check == check) {
                item.units = item.units.min(units);
                times.push(item.at);
            }
        }
        if is_log(&rule) {
            if !dropped && !self.reeled {
                for item in self.log.iter_mut().filter(|item| item.check == check) {
                    item.units = item.units.min(units);
                }
            }
            // A refund may already have taken these units; then the units of another check come
            // back.
            if self.refunded {
                for (_, items) in self.accounts.iter_mut().filter(|(rule, _)| is_log(rule)) {
                    items.retain(|item| !times.contains(&item.at));
                }
            }
        }
    }

    /// Settles a live hold.
    pub fn settle(
        &mut self,
        id: usize,
        settlement: Settlement<Costs<'_>>,
        now_us: u64,
        before: &Limiter,
    ) {
        let Hold { rules, charged, .. } = self.holds[&id].clone();
        let (mut logged, now) = (false, Micros::from(now_us));
        self.checks += 1;
        for (index, rule) in rules.iter().enumerate() {
            let Some(first) = charged[index] else {
                // An excess may count for rules with longer windows than those of the hold.
                self.unclear |= is_log(rule);
                continue;
            };
            let settled = settled_cost(&rules, rule, first, settlement);
            if settled < first {
                self.lower(id, index, settled);
                continue;
            }
            let window = if is_log(rule) { longest_window(&rules) } else { period(rule) };
            let last = last(before, rule).unwrap_or(now);
            let units = (settled - first).into();
            let item = |at| Item { check: self.checks, at, units, denied: false, excess: true };
            if units > 0 && is_log(rule) && !logged {
                self.log.push(item(now.max(last)));
                logged = true;
            }
            if let (true, Some(at)) = (units > 0, effective_time(now, last, window)) {
                let item = item(at);
                self.account(rule).push(item);
            }
        }
        self.holds.remove(&id);
    }

    pub fn renew(&mut self, id: usize, length_us: u64, now_us: u64) {
        if let Some(hold) = self.holds.get_mut(&id) {
            (hold.end_us, hold.length_us) = (now_us + length_us, length_us);
        }
    }

    /// Call this before a check is admitted, or charged as a denial. Drops what the definition
    /// allows the states to drop, and returns the time of each rule's state.
    pub fn open(
        &mut self,
        rules: &[Rule],
        costs: &[u32],
        now_us: u64,
        before: &Limiter,
        admitted: bool,
    ) -> Vec<Micros> {
        let now = Micros::from(now_us);
        let mut times = Vec::new();
        for (rule, &cost) in rules.iter().zip(costs) {
            if !self.asked.contains(rule) {
                self.asked.push(*rule);
            }
            // A log rule also drops a state that has its name and another algorithm.
            if admitted {
                self.forget(|other| !is_log(other) && other.same_identity(rule) && other != rule);
            }
            let window = if is_log(rule) { longest_window(rules) } else { period(rule) };
            let last = last(before, rule).unwrap_or(now);
            let at = effective_time(now, last, window);
            times.push(at.unwrap_or(now));
            // The limiter drops a state that has not mattered for two windows. The state stays gone
            // even if the clock steps back. So do the units of a window that has closed, if the
            // units of the window after it came back and left the state empty.
            let is_empty =
                |state: &State| !state.meter().is_of_kind(Kind::Slots) && state.meter().is_empty();
            let stale = self.reeled && before.state_of(rule).is_none_or(is_empty);
            if cost > 0 && (at.is_none() || stale) && !is_log(rule) {
                self.forget(|other| other == rule);
            }
        }
        let logs = || rules.iter().zip(costs).zip(&times).filter(|((rule, _), _)| is_log(rule));
        if let Some(((rule, _), &at)) = logs().find(|((_, cost), _)| **cost > 0) {
            let last = last(before, rule).unwrap_or(now);
            if effective_time(now, last, longest_window(rules)).is_none() {
                self.step_log_back(last, now, longest_window(rules));
            }
            self.age_log(at);
        }
        times
    }

    /// Call this if the clock stepped back behind the log by more than the longest window of a check.
    fn step_log_back(&mut self, last: Micros, now: Micros, window: Micros) {
        let ahead = last - now;
        for (rule, items) in self.accounts.iter_mut().filter(|(rule, _)| is_log(rule)) {
            items.retain(|_| period(rule) >= ahead);
            for item in items {
                item.at = item.at.min(now - window);
            }
        }
        for hold in self.holds.values_mut().filter(|hold| longest_window(&hold.rules) < ahead) {
            for (rule, charged) in hold.rules.iter().zip(&mut hold.charged) {
                charged.take_if(|_| is_log(rule));
            }
        }
    }

    /// Drops the states of some rules.
    fn forget(&mut self, of: impl Fn(&Rule) -> bool) {
        self.accounts.retain(|(rule, _)| !of(rule));
        for hold in self.holds.values_mut() {
            for (rule, charged) in hold.rules.iter().zip(&mut hold.charged) {
                charged.take_if(|_| of(rule));
            }
        }
    }

    /// Notes what a check consumed at these times.
    pub fn charge(
        &mut self,
        rules: &[Rule],
        costs: &[u32],
        times: &[Micros],
        hold: Option<(Ask, u64)>,
        denied: bool,
    ) {
        self.checks += 1;
        let mut logged = false;
        for ((rule, &cost), &at) in rules.iter().zip(costs).zip(times) {
            if cost == 0 || denied && !rule.counts_all() {
                continue;
            }
            let (check, units) = (self.checks, cost.into());
            let item = Item { check, at, units, denied, excess: false };
            self.account(rule).push(item);
            if is_log(rule) && !logged {
                self.log.push(item);
                logged = true;
            }
        }
        if let Some((ask, end_us)) = hold {
            let charged = costs.iter().map(|&cost| Some(cost)).collect();
            let (check, rules) = (self.checks, rules.to_vec());
            let Ask { id, length_us, refund } = ask;
            self.holds.insert(id, Hold { check, end_us, length_us, refund, rules, charged });
        }
    }

    /// Notes what a refund took off the log, newest units first.
    pub fn refund(&mut self, units: u64) {
        self.refunded = true;
        self.accounts.retain(|(rule, _)| is_log(rule));
        let exact = !self.reeled && !self.log.iter().any(|item| item.denied);
        let mut left = i128::from(units);
        for item in self.log.iter_mut().rev() {
            let back = left.min(item.units);
            left -= back;
            self.refunds.push((item.at, back));
            if exact {
                item.units -= back;
            }
            for (_, items) in &mut self.accounts {
                for own in items.iter_mut().filter(|own| own.check == item.check) {
                    own.units -= back.min(own.units);
                }
            }
        }
        if !exact {
            // The ledger cannot know which units the refund took: that depends on how many charged
            // denials the log had kept.
            self.accounts.clear();
        }
    }

    pub fn reset(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        *self = Self { checks: self.checks, reeled: self.reeled, asked, ..Self::default() };
    }

    /// True if a rule may admit a cost at a time, given the checks that contain the rule.
    pub fn admits(&self, rule: &Rule, cost: u32, at: Micros, now_us: u64) -> bool {
        let (limit, cost) = (i128::from(rule.limit()), i128::from(cost));
        match rule.kind() {
            Kind::Slots => self.slots_in_use(rule, now_us) + cost <= limit,
            Kind::Log => {
                let in_window = |time: Micros| time > at - period(rule);
                let items = self.items(rule).iter().filter(|item| in_window(item.at));
                let used: i128 = items.map(|item| item.units).sum();
                let refunds = self.refunds.iter().filter(|refund| in_window(refund.0));
                used + cost <= limit + refunds.map(|refund| refund.1).sum::<i128>()
            }
            Kind::Window | Kind::Fixed | Kind::Bucket | Kind::Leaky => {
                self.refunded || !is_list(rule) || self.fits(rule, cost, at)
            }
        }
    }

    /// True if a rule has a reason to deny a cost, or if the list cannot tell.
    pub fn denies(&self, rule: &Rule, cost: u32, at: Micros, now_us: u64) -> bool {
        let (limit, units) = (i128::from(rule.limit()), i128::from(cost));
        match rule.kind() {
            Kind::Slots => self.slots_in_use(rule, now_us) + units > limit,
            Kind::Log => {
                let since = Micros::from(now_us) - period(rule);
                let counts = |item: &&Item| item.at > since && (rule.counts_all() || !item.denied);
                let used = self.log.iter().filter(counts).map(|item| item.units);
                self.unclear || used.sum::<i128>() + units > limit
            }
            // A leaky bucket gives back only its last turn.
            Kind::Leaky => true,
            Kind::Window | Kind::Fixed | Kind::Bucket => {
                let shares = |other: &Rule| other.same_identity(rule) && other != rule;
                let shared = rule.name().is_some() || self.asked.iter().any(shares);
                let unclear = self.reeled || self.refunded || shared;
                unclear || !is_list(rule) || !self.fits(rule, units, at)
            }
        }
    }

    fn slots_in_use(&self, rule: &Rule, now_us: u64) -> i128 {
        let live = self.holds.values().filter(|hold| hold.lives(now_us));
        let of_hold = |hold: &Hold| {
            let own = hold.rules.iter().zip(&hold.charged).find(|(other, _)| *other == rule);
            own.and_then(|(_, charged)| *charged).map_or(0, i128::from)
        };
        live.map(of_hold).sum()
    }

    /// True if a cost fits beside the listed charges, by the definition of the algorithm.
    fn fits(&self, rule: &Rule, cost: i128, at: Micros) -> bool {
        let mut model = Model::default();
        let mut items: Vec<&Item> = self.items(rule).iter().filter(|item| item.units > 0).collect();
        items.sort_by_key(|item| item.at);
        for item in items {
            let mut charged = *rule;
            charged.set_named_cost(u32::try_from(item.units).unwrap());
            if item.excess {
                model.consume_excess(&[charged], item.at);
            } else {
                model.consume(&[charged], 0, item.at, false);
            }
        }
        model.fits(&[*rule], rule, cost, at)
    }
}
