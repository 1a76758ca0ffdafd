//! Everything at once. Groups of rules of all algorithms share a key. Holds are taken for any
//! cost. They lapse, or are settled for less or more, refunded, renewed or repeated. There are
//! refunds, resets, blocks, pauses, plans, syncs and restarts. The clock steps back, sometimes by
//! more than the length of a hold or pause.
//!
//! The [`ledger`] is a list of charges, and each rule is compared with it. The rule never admits more
//! than its limit, if each check that contains the rule counts at its settled cost. The rule never
//! denies without a reason. The wait is honest as well, and a replica stays equal.

mod ledger;
mod scenario;

use self::ledger::Ledger;
use self::scenario::{Ask, START_US, Scenario, Step, needs_hold, scenario};
use super::cases;
use super::holds::history::in_effect;
use super::holds::replica::replicate;
use super::holds::traffic::{Deed, IDS, Step as Deeds};
use super::honest_wait::is_honest;
use crate::algorithm::log::series::Series;
use crate::check::Bounds;
use crate::key::{
    Access, AccessEntry, Change, Check, CheckOptions, HoldRequest, Limiter, Plan, Verdict, decode,
    encode,
};
use crate::rule::{Kind, Name, Rule};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// A key on two servers, and its ledger.
#[derive(Default)]
struct Key {
    primary: Limiter,
    replica: Limiter,
    ledger: Ledger,
    /// The end and the length of the pause.
    pause: Option<(u64, u64)>,
    /// The plan, whose end may have passed.
    plan: Option<Plan>,
    now_us: u64,
    latest_us: u64,
}

/// A check and its hold.
#[derive(Clone, Copy)]
struct Asked<'a> {
    rules: &'a [Rule],
    cost: u32,
    more: Option<u32>,
    hold: Option<Ask>,
}

impl Key {
    /// Moves the clock.
    fn pass(&mut self, gap_us: i64) {
        self.now_us = self.now_us.saturating_add_signed(gap_us);
        if self.now_us < self.latest_us {
            self.ledger.step_back(self.latest_us);
            // A write has stored these lapses, so a step back does not undo them.
            self.ledger.end(self.latest_us);
            self.primary.lapse(self.latest_us);
            self.replica.lapse(self.latest_us);
        }
        self.ledger.end(self.now_us);
        self.latest_us = self.latest_us.max(self.now_us);
    }

    /// Acts on the primary, and applies to the replica what the primary propagates.
    fn act(&mut self, rules: &[Rule], deed: Deed<'_>) -> TestCaseResult {
        let step = Deeds { rules, now_us: self.now_us, deed };
        replicate(&step, &mut self.primary, &mut self.replica)
    }

    /// Acts alike on the primary and on the replica.
    fn both(&mut self, act: impl Fn(&mut Limiter)) {
        act(&mut self.primary);
        act(&mut self.replica);
    }

    fn is_paused(&self) -> bool {
        self.pause.is_some_and(|(end_us, length_us)| in_effect(end_us, length_us, self.now_us))
    }

    /// Pauses the key. Of two pauses in effect, the one that ends later stands.
    fn pause(&mut self, length_us: u64) {
        let (now_us, until_us) = (self.now_us, self.now_us + length_us);
        let paused_until = self.pause.filter(|_| self.is_paused()).map(|(end_us, _)| end_us);
        if paused_until.is_none_or(|end_us| end_us < until_us) {
            self.pause = Some((until_us, length_us));
        }
        self.both(|limiter| {
            limiter.pause_until(until_us, now_us, b"429");
        });
    }

    fn bind(&mut self, plan: Option<&Plan>) {
        self.plan = plan.cloned();
        self.both(|limiter| limiter.set_plan(plan.cloned()));
    }

    /// Tests that the limiter has the plan. A write may have dropped a plan that has ended.
    fn test_plan(&mut self) -> TestCaseResult {
        let lasts = |plan: &&Plan| plan.until_us.is_none_or(|until_us| until_us > self.now_us);
        prop_assert_eq!(self.primary.plan_at(self.now_us), self.plan.as_ref().filter(lasts));
        if self.primary.plan().is_none() {
            self.plan = None;
        }
        Ok(())
    }

    /// Tests that the limiter has the pause. A write may have dropped a pause that is not in effect.
    fn test_pause(&mut self) -> TestCaseResult {
        let paused_until = self.pause.filter(|_| self.is_paused()).map(|(end_us, _)| end_us);
        let until_us = self.primary.pause_at(self.now_us).map(|pause| pause.until_us);
        prop_assert_eq!(until_us, paused_until);
        self.pause = self.pause.filter(|_| self.primary.pause().is_some());
        Ok(())
    }

    /// Syncs a rule other than slots. Like a check, the sync only lowers what remains.
    fn sync(&mut self, mut rule: Rule, remaining: u32) -> TestCaseResult {
        let (now_us, asked) = (self.now_us, rule);
        if self.primary.lapse_if_due(now_us) {
            self.replica.lapse(now_us);
        }
        self.ledger.lapse(now_us);
        let before = self.primary.clone();
        let units = self.primary.sync(Bounds::ANY, &mut rule, remaining, now_us).unwrap();
        let (had, remaining) = (left(&before, asked, now_us), i64::from(remaining));
        prop_assert_eq!(i64::from(units), (had - remaining).max(0));
        prop_assert_eq!(left(&self.primary, asked, now_us), had.min(remaining));
        if units > 0 {
            self.replica.record(&Check::new(&[rule], units, now_us), Change::Admitted);
            let times = self.ledger.open(&[asked], &[units], now_us, &before, true);
            // The log has dropped what a shadow admitted beyond its limit.
            let admits = asked.is_shadow() || self.ledger.admits(&asked, units, times[0], now_us);
            prop_assert!(admits, "{asked}: {units}");
            self.ledger.charge(&[asked], &[units], &times, None, false);
        }
        Ok(())
    }

    fn step(&mut self, groups: &[Vec<Rule>], step: &Step) -> TestCaseResult {
        let now_us = self.now_us;
        match *step {
            Step::Check { group, cost, more, mut hold } => {
                let rules = groups[group % groups.len()].as_slice();
                if needs_hold(rules) && hold.is_none() {
                    hold = Some(Ask { id: 0, length_us: 500_000, refund: true });
                }
                self.check(Asked { rules, cost, more: more.filter(|_| cost > 0), hold })
            }
            Step::Settle(id, ref terms) => {
                let (before, settlement) =
                    (self.primary.as_of(now_us).into_owned(), terms.settlement());
                let lives = self.ledger.lives(id, now_us);
                prop_assert_eq!(before.live_hold(IDS[id], now_us).is_some(), lives);
                if lives {
                    self.ledger.lapse(now_us);
                    self.ledger.settle(id, settlement, now_us, &before);
                }
                self.act(&[], Deed::Settle { id: IDS[id], settlement })
            }
            Step::Renew(id, length_us) => {
                if self.ledger.lives(id, now_us) {
                    self.ledger.lapse(now_us);
                    self.ledger.renew(id, length_us, now_us);
                }
                self.act(&[], Deed::Renew { id: IDS[id], end_us: now_us + length_us })
            }
            Step::Refund(units) => {
                let before = logged(&self.primary.as_of(now_us));
                self.act(&[], Deed::Refund(units, false))?;
                self.ledger.lapse(now_us);
                self.ledger.refund(before - logged(&self.primary));
                Ok(())
            }
            Step::Reset => {
                self.ledger.reset();
                self.act(&[], Deed::Reset)
            }
            Step::Block(length_us) => {
                let (kind, until_us) = (Access::Block, Some(now_us + length_us));
                let block = AccessEntry::new(kind, until_us, b"");
                self.both(|limiter| limiter.set_access(Some(block.clone())));
                Ok(())
            }
            Step::Unblock => {
                self.both(|limiter| limiter.set_access(None));
                Ok(())
            }
            Step::Pause(length_us) => {
                self.pause(length_us);
                Ok(())
            }
            Step::Resume => {
                self.pause = None;
                self.both(Limiter::resume);
                Ok(())
            }
            Step::Plan(length_us) => {
                let until_us = length_us.map(|length_us| now_us + length_us);
                let name = Name::new(b"pro").expect("a name");
                self.bind(Some(&Plan { name, until_us }));
                Ok(())
            }
            Step::Unplan => {
                self.bind(None);
                Ok(())
            }
            Step::Sync(group, rule, remaining) => {
                let rules = &groups[group % groups.len()];
                let rule = rules[rule % rules.len()];
                if rule.kind() == Kind::Slots { Ok(()) } else { self.sync(rule, remaining) }
            }
            Step::Reload => {
                if !self.primary.is_empty() {
                    let reloaded = decode(&encode(&self.primary));
                    prop_assert_eq!(reloaded.as_ref(), Ok(&self.primary));
                    self.primary = reloaded.unwrap();
                }
                Ok(())
            }
        }
    }

    /// Tests that a check changes nothing if the key has no room for it.
    fn fails_without_a_trace(&self, check: &Check<'_>) -> TestCaseResult {
        let lapsed = self.primary.as_of(check.now_us).into_owned();
        for (max_states, max_holds) in [(1, 1), (2, usize::MAX), (usize::MAX, 1)] {
            let (mut key, bounds) = (lapsed.clone(), Bounds { max_states, max_holds });
            if key.check_within(bounds, check, &mut Vec::new()).is_err() {
                prop_assert_eq!(&key, &lapsed);
            }
        }
        Ok(())
    }

    fn check(&mut self, asked: Asked<'_>) -> TestCaseResult {
        let Asked { rules, cost, more, hold } = asked;
        let now_us = self.now_us;
        let before = self.primary.as_of(now_us).into_owned();
        let mut decisions = Vec::new();
        let peeked = before.peek(&Check::new(rules, cost, now_us), &mut decisions).summary;

        let ask = hold.map(|ask| (ask, now_us + ask.length_us));
        let request =
            ask.map(|(Ask { id, refund, .. }, end_us)| HoldRequest { id: IDS[id], end_us, refund });
        let up_to = more.map(|more| cost + more);
        let options = CheckOptions { up_to, hold: request, ..CheckOptions::default() };
        let check = Check::new(rules, cost, now_us).with(&options);
        let mut answered = self.primary.clone();
        answered.lapse_if_due(now_us);
        let outcome = answered.check_within(Bounds::ANY, &check, &mut Vec::new());
        self.act(rules, Deed::Check { cost, options })?;
        // A refused check also lets holds lapse.
        self.ledger.lapse(now_us);
        self.fails_without_a_trace(&check)?;
        let Ok(outcome) = outcome else {
            prop_assert!(hold.is_some_and(|ask| self.ledger.lives(ask.id, now_us)));
            return Ok(());
        };
        prop_assert_eq!(&self.primary, &answered);

        let blocked = self.primary.access_at(now_us).is_some();
        let repeated = hold.is_some_and(|ask| self.ledger.lives(ask.id, now_us)) && !blocked;
        prop_assert_eq!(outcome.repeated, repeated);
        if let (true, Some((ask, _))) = (repeated, ask) {
            self.ledger.renew(ask.id, ask.length_us, now_us);
            return Ok(());
        }
        if blocked {
            prop_assert_eq!(outcome.summary.verdict, Verdict::Blocked);
            return Ok(());
        }
        prop_assert_eq!(outcome.summary.verdict, peeked.verdict);
        if self.is_paused() {
            let denial = (Verdict::Limited, Change::Nothing, false);
            prop_assert_eq!((outcome.summary.verdict, outcome.change, outcome.denied), denial);
            return is_honest(&self.primary, rules, cost, now_us, outcome.summary.wait_ms);
        }
        let granted = Check::new(rules, outcome.cost, now_us);
        let costs: Vec<u32> = rules.iter().map(|rule| granted.cost_of(rule)).collect();
        if outcome.summary.verdict == Verdict::Allowed {
            let times = self.ledger.open(rules, &costs, now_us, &before, true);
            for ((rule, &cost), &at) in rules.iter().zip(&costs).zip(&times) {
                if cost > 0 && !rule.is_shadow() {
                    let admits = self.ledger.admits(rule, cost, at, now_us);
                    prop_assert!(
                        admits,
                        "{rule} admits {cost} too many at {now_us}\n{:#?}",
                        self.ledger
                    );
                }
            }
            self.ledger.charge(rules, &costs, &times, ask, false);
            return Ok(());
        }
        for ((rule, decision), &cost) in rules.iter().zip(&decisions).zip(&costs) {
            let denied = decision.verdict == Verdict::Limited && !rule.is_shadow();
            if denied && rule.can_ever_admit(cost) {
                let cause = self.ledger.denies(rule, cost, now_us.into(), now_us);
                prop_assert!(cause, "{rule} denies {cost} at {now_us}\n{:#?}", self.ledger);
            }
        }
        if outcome.change == Change::Charged {
            let charged = |rule: &Rule| rule.counts_all();
            let charges: Vec<u32> = (rules.iter().zip(&costs))
                .map(|(rule, &cost)| if charged(rule) { cost } else { 0 })
                .collect();
            let times = self.ledger.open(rules, &charges, now_us, &before, false);
            self.ledger.charge(rules, &charges, &times, None, true);
        }
        is_honest(&self.primary, rules, cost, now_us, outcome.summary.wait_ms)
    }
}

/// What would remain under a rule if the key were neither blocked nor paused.
fn left(limiter: &Limiter, rule: Rule, now_us: u64) -> i64 {
    let mut limiter = limiter.clone();
    limiter.set_access(None);
    limiter.resume();
    let mut decisions = Vec::new();
    limiter.peek(&Check::new(&[rule], 0, now_us), &mut decisions);
    decisions[0].remaining
}

/// The units in the log.
fn logged(limiter: &Limiter) -> u64 {
    let log = limiter.states().iter().find_map(|state| state.log());
    log.map_or(0, |log| log.admitted().units() + log.charged().map_or(0, Series::units))
}

fn holds_throughout(scenario: &Scenario) -> TestCaseResult {
    let mut key = Key { now_us: START_US, latest_us: START_US, ..Key::default() };
    for (gap_us, step) in &scenario.steps {
        key.pass(*gap_us);
        key.step(&scenario.groups, step)?;
        key.test_pause()?;
        key.test_plan()?;
        prop_assert_eq!(&key.primary, &key.replica, "{:?}", step);
        prop_assert_eq!(encode(&key.primary), encode(&key.replica), "{:?}", step);
        prop_assert_eq!(key.primary.deadline(), key.replica.deadline());
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn every_rule_keeps_its_limit_in_every_mix(scenario in scenario()) {
        holds_throughout(&scenario)?;
    }
}
