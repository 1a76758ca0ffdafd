//! The definition of settling: a history in which each check cost what its request
//! really cost. To read it, it is played from the start on naive states.

use super::traffic::{Deed, Step};
use crate::limit::tests::naive::Micros;
use crate::limit::tests::naive::model::Model;
use crate::limit::{Change, CheckOptions, Settlement};
use crate::rule::{Kind, Rule};
use std::collections::BTreeMap;

/// The checks under rules that stay, on a clock that does not step back.
#[derive(Clone, Debug)]
pub struct History<'a> {
    rules: &'a [Rule],
    entries: Vec<Entry>,
    holds: BTreeMap<&'a [u8], Hold>,
}

/// What was consumed at a time from each rule.
#[derive(Clone, Debug)]
pub struct Entry {
    pub now_us: u64,
    pub units: Vec<u32>,
    /// The excess of a settled hold, which no rule admitted.
    pub excess: bool,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    entry: usize,
    end_us: u64,
    refund: bool,
}

impl<'a> History<'a> {
    pub fn new(rules: &'a [Rule]) -> Self {
        Self { rules, entries: Vec::new(), holds: BTreeMap::new() }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether a hold lives.
    pub fn lives(&self, id: &[u8], now_us: u64) -> bool {
        self.holds.get(id).is_some_and(|hold| hold.end_us > now_us)
    }

    /// Holds that have reached their end by this time are gone; with `REFUND`, their checks
    /// cost nothing.
    pub fn lapse(&mut self, now_us: u64) {
        let Self { entries, holds, .. } = self;
        holds.retain(|_, hold| {
            let lapsed = hold.end_us <= now_us;
            if lapsed && hold.refund {
                entries[hold.entry].units.fill(0);
            }
            !lapsed
        });
    }

    /// Notes what a step did, if the limiter did this to the key.
    pub fn note(&mut self, step: &Step<'a>, change: Change) {
        let now_us = step.now_us;
        self.lapse(now_us);
        match step.deed {
            Deed::Check { cost, options: CheckOptions { hold, .. } } => match (change, hold) {
                (Change::Admitted, hold) => {
                    if let Some(hold) = hold {
                        let (end_us, refund) = (hold.end_us, hold.refund);
                        let entry = self.entries.len();
                        self.holds.insert(hold.id, Hold { entry, end_us, refund });
                    }
                    let own = |rule: &Rule| rule.cost().own().unwrap_or(cost);
                    let units = self.rules.iter().map(own).collect();
                    self.entries.push(Entry { now_us, units, excess: false });
                }
                (Change::Renewed, Some(hold)) => self.renew(hold.id, hold.end_us),
                (_, _) => {}
            },
            Deed::Settle { id, settlement } => self.settle(id, settlement, now_us),
            Deed::Renew { id, end_us } => self.renew(id, end_us),
            Deed::Peek(_) => {}
            Deed::Refund(..) | Deed::Reset => unreachable!("they know no holds"),
        }
    }

    fn renew(&mut self, id: &[u8], end_us: u64) {
        if let Some(hold) = self.holds.get_mut(id) {
            hold.end_us = end_us;
        }
    }

    fn settle(&mut self, id: &[u8], settlement: Settlement<'_>, now_us: u64) {
        let Some(hold) = self.holds.remove(id) else { return };
        let entry = &mut self.entries[hold.entry];
        let mut excess = Vec::new();
        for (rule, units) in self.rules.iter().zip(&mut entry.units) {
            let settled = settled_cost(self.rules, rule, *units, settlement);
            excess.push(settled.saturating_sub(*units));
            *units = settled.min(*units);
        }
        if excess.iter().any(|&units| units > 0) {
            self.entries.push(Entry { now_us, units: excess, excess: true });
        }
    }

    /// The naive states after this history.
    pub fn played(&self) -> Model {
        let mut model = Model::default();
        model.log.keeps_all = true;
        for Entry { now_us, units, excess } in &self.entries {
            let costed = |(rule, &units): (&Rule, &u32)| {
                let mut rule = *rule;
                rule.set_named_cost(units);
                rule
            };
            let rules: Vec<Rule> = self.rules.iter().zip(units).map(costed).collect();
            let now = Micros::from(*now_us);
            if *excess {
                model.consume_excess(&rules, now);
            } else {
                model.consume(&rules, 0, now, false);
            }
        }
        model
    }
}

/// What a settlement makes of what a rule was charged.
fn settled_cost(rules: &[Rule], rule: &Rule, charged: u32, settlement: Settlement<'_>) -> u32 {
    // All log rules read one log.
    let shares = |other: &&Rule| {
        std::ptr::eq(*other, rule) || rule.kind() == Kind::Log && other.kind() == Kind::Log
    };
    match settlement {
        Settlement::AsCharged => charged,
        Settlement::Refund => 0,
        Settlement::Costs { default, named } => {
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
