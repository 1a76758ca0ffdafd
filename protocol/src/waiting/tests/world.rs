//! Keys with real limits, and clients that ask them.

use crate::waiting::{Cause, Denial, Flow, HoldId, PlanEnd, Request, Rules};
use ratelimit_engine::key::{Check, CheckOptions, HoldRequest, Limiter, Plan, Settlement};
use ratelimit_engine::rule::{Identity, Kind, Name, Rule};

pub const START_US: u64 = 1_000_000_000;
pub const MS_US: u64 = 1_000;
/// How long holds last.
const HOLD_MS: u64 = 1_000;

/// A client that waits at most `patience_ms`. Clients of the same flow and priority are served in
/// order of arrival.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub key: u8,
    pub cost: u32,
    pub patience_ms: u64,
    pub flow: &'static str,
    pub weight: u16,
    pub priority: u8,
    /// The index of its rules.
    pub rules: usize,
    /// Whether the rules of the key's plan, if it has one, replace its rules.
    pub by_plan: bool,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ask(Ask),
    /// A waiter leaves. The number chooses which one.
    Leave(usize),
    /// A hold is settled. The number chooses which one.
    Settle(u8, usize),
    /// Units come back to a key.
    Refund(u8, u32),
    /// A client that does not queue takes units.
    Take(u8, u32),
    Delete(u8),
    Pause(u8, u64),
    Resume(u8),
    /// A key gets a plan, which names the rules with this index. The milliseconds until its end follow.
    Plan(u8, usize, Option<u64>),
    Unplan(u8),
    /// A policy that no client here uses changes.
    Policy,
}

/// A client in line.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    pub number: u64,
    pub ask: Ask,
    pub deadline_us: u64,
}

impl Asker {
    pub fn new(number: u64, ask: Ask, now_us: u64) -> Self {
        Self { number, ask, deadline_us: now_us + ask.patience_ms * MS_US }
    }
}

/// An answer: the client's number, the time, and whether the client is admitted.
pub type Answer = (u64, u64, bool);

/// Sets of rules. Each client has one of them; clients that do not queue have the last one.
pub type RuleSets = Vec<Vec<Rule>>;

pub fn rule_sets(lines: &[&str]) -> RuleSets {
    lines.iter().map(|line| ratelimit_engine::testing::rules_of_line(line)).collect()
}

/// How a client would be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Passes(u32),
    Later(Denial),
    Never,
}

/// What happened to a key.
#[derive(Clone, Debug)]
pub enum Happened {
    /// The rules with this index consumed. The number of the client follows if it took a hold.
    Consumed(usize, Option<u64>),
    Returned(Vec<Identity>),
    Changed,
}

impl Happened {
    /// Tells a line the cause.
    pub fn tell(&self, rules: &[Vec<Rule>], mut to: impl FnMut(Cause<'_>)) {
        match self {
            Self::Consumed(of, hold) => {
                let id = hold.map(u64::to_be_bytes);
                let hold = id.as_ref().map(|id| &id[..]);
                to(Cause::Consumed { rules: &rules[*of], hold });
            }
            Self::Returned(states) => to(Cause::Returned(states)),
            Self::Changed => to(Cause::Changed),
        }
    }
}

fn takes_hold(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| rule.kind() == Kind::Slots)
}

#[derive(Clone, Debug)]
pub struct Keys<'a> {
    limiters: [Limiter; 2],
    holds: [Vec<u64>; 2],
    pub rules: &'a [Vec<Rule>],
}

impl<'a> Keys<'a> {
    pub fn new(rules: &'a [Vec<Rule>]) -> Self {
        Self { limiters: Default::default(), holds: Default::default(), rules }
    }

    /// The plan of a key: the index of its rules, and its end.
    pub fn plan(&self, key: u8, now_us: u64) -> Option<(usize, Option<u64>)> {
        let plan = self.limiters[usize::from(key)].plan_at(now_us)?;
        Some((plan.name.as_str().parse().unwrap(), plan.until_us))
    }

    /// The index of the rules that a client has now.
    fn index(&self, ask: &Ask, now_us: u64) -> usize {
        let plan = self.plan(ask.key, now_us).filter(|_| ask.by_plan);
        plan.map_or(ask.rules, |(rules, _)| rules)
    }

    /// The rules that a client has now.
    pub fn rules_of(&self, ask: &Ask, now_us: u64) -> &'a [Rule] {
        &self.rules[self.index(ask, now_us)]
    }

    /// When the plan ends on which a client's rules depend.
    pub fn plan_end(&self, ask: &Ask, now_us: u64) -> Option<PlanEnd> {
        let until_us = self.plan(ask.key, now_us).and_then(|(_, until_us)| until_us);
        ask.by_plan.then_some(until_us.map_or(PlanEnd::Never, PlanEnd::At))
    }

    pub fn request(&self, asker: &Asker, now_us: u64) -> Request {
        let Asker { number, ask, .. } = asker;
        let flow = Flow { priority: ask.priority, name: ask.flow.as_bytes().into() };
        let rules = self.rules_of(ask, now_us);
        let hold = takes_hold(rules).then(|| HoldId::of(&number.to_be_bytes()));
        let (rules, plan_end) = (Rules::of(rules), self.plan_end(ask, now_us));
        Request { flow, weight: ask.weight, rules, plan_end, hold }
    }

    fn check<T>(
        &mut self,
        asker: &Asker,
        now_us: u64,
        body: impl FnOnce(&mut Limiter, &Check<'_>) -> T,
    ) -> T {
        let rules = self.rules_of(&asker.ask, now_us);
        let id = asker.number.to_be_bytes();
        let end_us = now_us + HOLD_MS * MS_US;
        let hold = HoldRequest { id: &id, end_us, refund: false };
        let hold = takes_hold(rules).then_some(hold);
        let options = CheckOptions { hold, ..CheckOptions::default() };
        let check = Check::new(rules, asker.ask.cost, now_us).with(&options);
        body(&mut self.limiters[usize::from(asker.ask.key)], &check)
    }

    pub fn look(&mut self, asker: &Asker, now_us: u64) -> Look {
        self.check(asker, now_us, |limiter, check| {
            let mut decisions = Vec::new();
            let summary = limiter.peek(check, &mut decisions).summary;
            match (summary.verdict.code(), u64::try_from(summary.wait_ms)) {
                (0, _) => Look::Passes(check.greatest_cost()),
                (_, Ok(wait_ms)) => {
                    Look::Later(Denial::of(wait_ms, check, &decisions, Some(limiter)))
                }
                (_, Err(_)) => Look::Never,
            }
        })
    }

    /// Takes what a client asks for. Its rules must admit it.
    pub fn take(&mut self, asker: &Asker, now_us: u64) -> Happened {
        let admitted = self.check(asker, now_us, |limiter, check| {
            limiter.check(check, &mut Vec::new()).summary.verdict.code() == 0
        });
        assert!(admitted, "{asker:?} is admitted by its rules");
        self.holds[usize::from(asker.ask.key)].push(asker.number);
        let rules = self.index(&asker.ask, now_us);
        let hold = takes_hold(&self.rules[rules]).then_some(asker.number);
        Happened::Consumed(rules, hold)
    }

    /// Takes a step that changes a key. Returns the key, and what happened to it.
    pub fn change(&mut self, step: &Step, now_us: u64) -> Option<(u8, Happened)> {
        let (Step::Settle(key, _)
        | Step::Refund(key, _)
        | Step::Take(key, _)
        | Step::Delete(key)
        | Step::Pause(key, _)
        | Step::Resume(key)
        | Step::Plan(key, ..)
        | Step::Unplan(key)) = *step
        else {
            return None;
        };
        let rules = self.rules.last().unwrap();
        let limiter = &mut self.limiters[usize::from(key)];
        let happened = match *step {
            Step::Settle(_, index) => {
                let holds = &mut self.holds[usize::from(key)];
                if holds.is_empty() {
                    return None;
                }
                let id = holds.remove(index % holds.len()).to_be_bytes();
                let states = limiter.states_settled(&id, Settlement::AsCharged);
                limiter.settle(&id, Settlement::AsCharged, now_us);
                Happened::Returned(states)
            }
            Step::Refund(_, units) => {
                limiter.refund(units, now_us, rules);
                Happened::Returned(rules.iter().map(Rule::state).collect())
            }
            Step::Take(_, cost) => {
                limiter.check(&Check::new(rules, cost, now_us), &mut Vec::new());
                Happened::Consumed(self.rules.len() - 1, None)
            }
            Step::Delete(_) => {
                *limiter = Limiter::default();
                Happened::Changed
            }
            Step::Pause(_, ms) => {
                limiter.pause_until(now_us + ms * MS_US, now_us, b"");
                Happened::Changed
            }
            Step::Resume(_) => {
                limiter.resume();
                Happened::Changed
            }
            Step::Plan(_, rules, ms) => {
                let name = Name::new(rules.to_string().as_bytes()).unwrap();
                let until_us = ms.map(|ms| now_us + ms * MS_US);
                limiter.set_plan(Some(Plan { name, until_us }));
                Happened::Changed
            }
            Step::Unplan(_) => {
                limiter.set_plan(None);
                Happened::Changed
            }
            Step::Ask(_) | Step::Leave(_) | Step::Policy => return None,
        };
        Some((key, happened))
    }
}
