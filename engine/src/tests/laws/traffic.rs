//! Traffic for the laws: calls at explicit times, under rules that sometimes change, on a clock
//! that can step back.

use super::rules::{Limits, any_limits, cost, rule_set};
use crate::rule::{MAX_TIME_US, Rule};
use proptest::prelude::*;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Check(u32),
    Peek(u32),
    /// To the states of the rules if `true`, else to all states.
    Refund(u32, bool),
    Reset,
}

/// How much time passes: a share of one rule's window, plus a jitter.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// Thousandths of a window; negative: the clock steps back.
    pub mille: i64,
    /// The index of that rule.
    pub of: usize,
    pub jitter_us: i64,
}

#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub gap: Gap,
    /// The index of the rule set.
    pub rules: usize,
    pub action: Action,
}

/// Rule sets, and calls made under them.
#[derive(Clone)]
pub struct Traffic {
    pub start_us: u64,
    pub rule_sets: Vec<Vec<Rule>>,
    pub steps: Vec<Step>,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub rules: &'a [Rule],
    pub now_us: u64,
    pub action: Action,
}

impl Traffic {
    pub fn calls(&self) -> Vec<Call<'_>> {
        let mut now_us = self.start_us;
        let call = |step: &Step| {
            let rules = self.rule_sets[step.rules % self.rule_sets.len()].as_slice();
            let window_us = rules[step.gap.of % rules.len()].period_us().cast_signed();
            // Divides first, so that no product overflows.
            let gap_us = window_us / 1_000 * step.gap.mille
                + window_us % 1_000 * step.gap.mille / 1_000
                + step.gap.jitter_us;
            now_us = now_us.saturating_add_signed(gap_us).min(MAX_TIME_US);
            Call { rules, now_us, action: step.action }
        };
        self.steps.iter().map(call).collect()
    }
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        24 => cost().prop_map(Action::Check),
        2 => cost().prop_map(Action::Peek),
        3 => (cost(), any::<bool>()).prop_map(|(units, of_rules)| Action::Refund(units, of_rules)),
        1 => prop::bool::weighted(0.2)
            .prop_map(|reset| if reset { Action::Reset } else { Action::Check(1) }),
    ]
}

/// What the clock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Forward,
    /// Sometimes a step back, short or long.
    StepsBack,
    /// A step back as often as a step forward.
    Reels,
}

fn gap(clock: Clock) -> impl Strategy<Value = Gap> {
    let forward = prop_oneof![
        4 => Just(0i64),
        8 => 0..=100i64,
        6 => 0..=1_000i64,
        2 => Just(1_000i64),
        2 => 0..=5_000i64,
    ];
    let back = prop_oneof![
        4 => -500..=0i64,
        1 => Just(-1_000i64),
        1 => -4_000..=0i64,
    ];
    let steps_back = match clock {
        Clock::Forward => 0,
        Clock::StepsBack => 1,
        Clock::Reels => 12,
    };
    let mille = prop_oneof![12 => forward, steps_back => back];
    let jitter = prop_oneof![
        3 => Just(0i64),
        2 => 0..=1i64,
        1 => 0..=5_000i64,
        steps_back => -3_000..=0i64,
    ];
    (mille, 0..4usize, jitter).prop_map(|(mille, of, jitter_us)| Gap { mille, of, jitter_us })
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => 0..10_000_000u64,
        6 => 1_600_000_000_000_000..1_900_000_000_000_000u64,
        // The first days of March of a leap year.
        1 => 1_709_164_800_000_000..1_709_424_000_000_000u64,
        1 => 0..MAX_TIME_US / 2,
    ]
}

/// Traffic under these sets of rules, mostly under the first.
pub fn under(
    rule_sets: impl Strategy<Value = Vec<Vec<Rule>>>,
    most: usize,
    clock: Clock,
) -> impl Strategy<Value = Traffic> {
    let step = (gap(clock), prop_oneof![3 => Just(0usize), 1 => 0..4usize], action())
        .prop_map(|(gap, rules, action)| Step { gap, rules, action });
    (rule_sets, start(), prop::collection::vec(step, 1..most))
        .prop_map(|(rule_sets, start_us, steps)| Traffic { start_us, rule_sets, steps })
}

/// Traffic under one set of rules.
pub fn steady(
    rules: impl Strategy<Value = Vec<Rule>>,
    most: usize,
    clock: Clock,
) -> impl Strategy<Value = Traffic> {
    under(rules.prop_map(|rules| vec![rules]), most, clock)
}

/// Traffic under one rule at a time, mostly under the first.
pub fn one_at_a_time(
    rules: impl Strategy<Value = Vec<Rule>>,
    most: usize,
) -> impl Strategy<Value = Traffic> {
    one_at_a_time_on(rules, most, Clock::StepsBack)
}

pub fn one_at_a_time_on(
    rules: impl Strategy<Value = Vec<Rule>>,
    most: usize,
    clock: Clock,
) -> impl Strategy<Value = Traffic> {
    let singly = |rules: Vec<Rule>| rules.into_iter().map(|rule| vec![rule]).collect();
    under(rules.prop_map(singly), most, clock)
}

/// Traffic under rules that change: mostly their limits, sometimes everything.
pub fn changing(most_rules: usize, most: usize) -> impl Strategy<Value = Traffic> {
    changing_on(most_rules, most, Clock::StepsBack)
}

pub fn changing_on(most_rules: usize, most: usize, clock: Clock) -> impl Strategy<Value = Traffic> {
    changing_between((rule_set(most_rules), rule_set(most_rules)), most, clock)
}

/// Traffic under two sets of rules, and under the first set with other limits.
pub fn changing_between(
    both: impl Strategy<Value = (Vec<Rule>, Vec<Rule>)>,
    most: usize,
    clock: Clock,
) -> impl Strategy<Value = Traffic> {
    let other_limits = prop::collection::vec(any_limits(), 8);
    let rule_sets = (both, other_limits).prop_map(|((rules, others), limits)| {
        let relimited = |limits: &[Limits]| -> Vec<Rule> {
            rules.iter().zip(limits).map(|(rule, limits)| limits.of(rule)).collect()
        };
        vec![rules.clone(), relimited(&limits[..4]), relimited(&limits[4..]), others]
    });
    under(rule_sets, most, clock)
}

/// One line per call.
impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Call { rules, now_us, action } in self.calls() {
            let after_us = i128::from(now_us) - i128::from(self.start_us);
            write!(f, "\n{} us {after_us:+}: {action:?}", self.start_us)?;
            for rule in rules {
                write!(f, " {rule}")?;
            }
        }
        Ok(())
    }
}
