//! The definition of settling: a history in which each check cost what its request really cost.
//! It is evaluated by playing it from the start on naive states.

use super::traffic::{Deed, Step};
use crate::key::{Change, CheckOptions, Costs, Settlement};
use crate::rule::{Kind, Rule};
use crate::tests::naive::Micros;
use crate::tests::naive::model::Model;
use std::collections::BTreeMap;

/// The checks under rules that keep their identities.
#[derive(Clone, Debug, Default)]
pub struct History<'a> {
    entries: Vec<Entry<'a>>,
    holds: BTreeMap<&'a [u8], Hold>,
}

/// What was consumed at a time from each rule.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub now_us: u64,
    rules: &'a [Rule],
    pub units: Vec<u32>,
    /// What each rule was charged when the check passed.
    charged: Vec<u32>,
    /// The time at which each rule's state counted it.
    at_us: Vec<u64>,
    /// True for the excess of a settled hold, which no rule admitted.
    pub excess: bool,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    entry: usize,
    end_us: u64,
    length_us: u64,
    refund: bool,
}

/// True if a hold or a pause with this length and this end is in effect. The clock may step back
/// behind the start by at most the length.
pub fn in_effect(end_us: u64, length_us: u64, now_us: u64) -> bool {
    let start_us = end_us - length_us;
    now_us < end_us && now_us + length_us >= start_us
}

impl<'a> History<'a> {
    pub fn entries(&self) -> &[Entry<'a>] {
        &self.entries
    }

    /// True if a hold is live.
    pub fn lives(&self, id: &[u8], now_us: u64) -> bool {
        let hold = self.holds.get(id);
        hold.is_some_and(|hold| in_effect(hold.end_us, hold.length_us, now_us))
    }

    /// Drops the holds that have lapsed at this time. With `REFUND`, their checks cost nothing.
    pub fn lapse(&mut self, now_us: u64) {
        let Self { entries, holds, .. } = self;
        holds.retain(|_, hold| {
            let lapsed = !in_effect(hold.end_us, hold.length_us, now_us);
            if lapsed && hold.refund {
                entries[hold.entry].units.fill(0);
            }
            !lapsed
        });
    }

    /// Notes a step and how it changed the limiter, on a clock that does not step back.
    pub fn note(&mut self, step: &Step<'a>, change: Change) {
        self.note_at(step, change, vec![step.now_us; step.rules.len()]);
    }

    /// Notes a step and how it changed the limiter. `at_us` has the time of the state of each of the
    /// step's rules.
    pub fn note_at(&mut self, step: &Step<'a>, change: Change, at_us: Vec<u64>) {
        let Step { rules, now_us, deed } = *step;
        self.lapse(now_us);
        match deed {
            Deed::Check { cost, options: CheckOptions { hold, .. } } => match (change, hold) {
                (Change::Admitted, hold) => {
                    if let Some(hold) = hold {
                        let (end_us, refund) = (hold.end_us, hold.refund);
                        let (entry, length_us) = (self.entries.len(), end_us - now_us);
                        self.holds.insert(hold.id, Hold { entry, end_us, length_us, refund });
                    }
                    let own = |rule: &Rule| rule.cost().own().unwrap_or(cost);
                    let units: Vec<u32> = rules.iter().map(own).collect();
                    let (charged, excess) = (units.clone(), false);
                    self.entries.push(Entry { now_us, rules, units, charged, at_us, excess });
                }
                (Change::Renewed, Some(hold)) => self.renew(hold.id, hold.end_us, now_us),
                (_, _) => {}
            },
            Deed::Settle { id, settlement } => self.settle(id, settlement, now_us, at_us),
            Deed::Renew { id, end_us } => self.renew(id, end_us, now_us),
            Deed::Peek(_) => {}
            Deed::Refund(..) | Deed::Reset => unreachable!("not part of a history"),
        }
    }

    fn renew(&mut self, id: &[u8], end_us: u64, now_us: u64) {
        if let Some(hold) = self.holds.get_mut(id) {
            (hold.end_us, hold.length_us) = (end_us, end_us - now_us);
        }
    }

    fn settle(
        &mut self,
        id: &[u8],
        settlement: Settlement<Costs<'_>>,
        now_us: u64,
        at_us: Vec<u64>,
    ) {
        let Some(hold) = self.holds.remove(id) else { return };
        let entry = &mut self.entries[hold.entry];
        let rules = entry.rules;
        let mut excess = Vec::new();
        for (rule, units) in rules.iter().zip(&mut entry.units) {
            let settled = settled_cost(rules, rule, *units, settlement);
            excess.push(settled.saturating_sub(*units));
            *units = settled.min(*units);
        }
        if excess.iter().any(|&units| units > 0) {
            let (units, charged, excess) = (excess.clone(), excess, true);
            self.entries.push(Entry { now_us, rules, units, charged, at_us, excess });
        }
    }

    /// The naive states after this history.
    pub fn played(&self) -> Model {
        let mut model = Model::default();
        model.log.keeps_all = true;
        for Entry { rules, units, charged, at_us, excess, .. } in &self.entries {
            // The check drained the debt at the rule's limit, even if it cost nothing in the end.
            let costs = units.iter().zip(charged);
            for (i, _) in costs.enumerate().filter(|(_, (now, first))| **now == 0 && **first > 0) {
                model.drain(&rules[i], at_us[i].into());
            }
            let mut times = at_us.clone();
            times.sort_unstable();
            times.dedup();
            for time_us in times {
                let costed = |((rule, &units), &at_us): ((&Rule, &u32), &u64)| {
                    let mut rule = *rule;
                    rule.set_named_cost(if at_us == time_us { units } else { 0 });
                    rule
                };
                let rules: Vec<Rule> = rules.iter().zip(units).zip(at_us).map(costed).collect();
                let now = Micros::from(time_us);
                if *excess {
                    model.consume_excess(&rules, now);
                } else {
                    model.consume(&rules, 0, now, false);
                }
            }
        }
        model
    }
}

/// The charge of a rule after a settlement.
pub fn settled_cost(
    rules: &[Rule],
    rule: &Rule,
    charged: u32,
    settlement: Settlement<Costs<'_>>,
) -> u32 {
    // All log rules share one log.
    let shares = |other: &&Rule| {
        std::ptr::eq(*other, rule) || rule.kind() == Kind::Log && other.kind() == Kind::Log
    };
    match settlement {
        Settlement::AsCharged => charged,
        Settlement::Refund => 0,
        Settlement::Cost(Costs { default, named }) => {
            let names = || rules.iter().filter(shares).filter_map(Rule::name);
            let by_name = named.iter().find(|named| names().any(|name| *name == named.name));
            match (by_name, default) {
                (Some(named), _) => named.cost,
                (None, Some(default)) if rule.cost().own().is_none() => default,
                (None, _) => charged,
            }
        }
    }
}
