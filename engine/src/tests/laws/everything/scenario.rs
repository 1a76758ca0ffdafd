//! Groups of rules that share a key, and everything that can be done to the key.

use crate::rule::{Kind, MS_US, Rule, SECOND_US};
use crate::tests::laws::holds::traffic::{IDS, Terms, terms};
use crate::tests::rules_of_line;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::fmt;

/// Log rules, which share the key's log.
const LOGS: &[&str] = &[
    "3/s",
    "5/2s",
    "4/s,count=all",
    "2/s,shadow",
    "8/5s",
    "12/10s,name=free",
    "3/500ms",
    "6/3s,count=all",
];

/// Rules of the other algorithms. Four of them share a name.
const OTHERS: &[&str] = &[
    "fixed:5/2s",
    "window:6/s",
    "window:6/2s,res=3,count=all",
    "bucket:4/s,burst=6",
    "bucket:3/s,refill=interval",
    "leaky:5/s,queue=3",
    "fixed:4/s,align=first",
    "fixed:9/5s,cost=1",
    "slots:3",
    "bucket:5/s,name=x",
    "fixed:7/2s,name=x",
    "window:4/s,name=x",
    "window:4/2s,name=x",
];

/// Forms of rules that get any limit L and any period P, with a name or without. So rules of different
/// limits read one state. With one name, rules of different periods, shapes and algorithms do, too.
const FORMS: &[&str] = &[
    "L/P",
    "fixed:L/P",
    "fixed:L/P,align=first",
    "window:L/P",
    "window:L/P,res=3",
    "bucket:L/P,burst=6",
    "bucket:L/P,refill=interval",
    "leaky:L/P,queue=3",
];

/// Steps on a key, each after some time.
#[derive(Clone)]
pub struct Scenario {
    pub groups: Vec<Vec<Rule>>,
    pub steps: Vec<(i64, Step)>,
}

#[derive(Clone, Debug)]
pub enum Step {
    Check {
        group: usize,
        cost: u32,
        /// The units that the check may grant beyond the cost.
        more: Option<u32>,
        hold: Option<Ask>,
    },
    Settle(usize, Terms),
    /// The id of a hold, and its new length.
    Renew(usize, u64),
    /// Gives units back to all states.
    Refund(u32),
    Reset,
    /// The duration.
    Block(u64),
    Unblock,
    /// The duration.
    Pause(u64),
    Resume,
    /// The duration; `None`: endless.
    Plan(Option<u64>),
    Unplan,
    /// A group, one of its rules, and what the upstream says remains.
    Sync(usize, usize, u32),
    /// Saves and loads the key.
    Reload,
}

#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub id: usize,
    pub length_us: u64,
    pub refund: bool,
}

pub const START_US: u64 = 1_700_000_000_000_000;

/// A rule of one of the forms.
fn formed() -> impl Strategy<Value = String> {
    let period = select(&["500ms", "1s", "2s", "9s"][..]);
    let name = select(&["", ",name=x", ",name=x", ",name=y"][..]);
    (select(FORMS), 1..9u32, period, name).prop_map(|(form, limit, period, name)| {
        form.replace('L', &limit.to_string()).replace('P', period) + name
    })
}

fn group() -> impl Strategy<Value = Vec<Rule>> {
    let logs = subsequence(LOGS, 0..=3);
    let others = subsequence(OTHERS, 0..=2);
    (logs, others, vec(formed(), 0..=2)).prop_map(|(logs, others, formed)| {
        let formed = formed.iter().map(String::as_str);
        let texts: Vec<&str> = formed.chain(logs).chain(others).collect();
        let texts = if texts.is_empty() { LOGS[0].to_string() } else { texts.join(" ") };
        rules(&texts)
    })
}

/// The rules of a line, only the first of each identity.
fn rules(line: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for text in line.split(' ') {
        let rule = rules_of_line(text)[0];
        if !rules.iter().any(|other| other.same_identity(&rule)) {
            rules.push(rule);
        }
    }
    rules
}

fn gap_us() -> impl Strategy<Value = i64> {
    let (ms, s) = (MS_US.cast_signed(), SECOND_US.cast_signed());
    prop_oneof![
        6 => Just(0),
        8 => 0..200 * ms,
        5 => 0..3 * s / 2,
        2 => Just(s),
        2 => 0..12 * s,
        1 => prop_oneof![6 => -800 * ms..0, 2 => -4 * s..0, 1 => -25 * s..0],
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let cost = || prop_oneof![1 => Just(0), 6 => Just(1u32), 4 => 1..5u32, 1 => 0..12u32];
    let id = || 0..IDS.len() - 2;
    let length_us = || prop_oneof![4 => 1..8_000u64, 1 => 1..100u64].prop_map(|ms| ms * MS_US);
    let ask = (id(), length_us(), any::<bool>()).prop_map(|(id, length_us, refund)| Ask {
        id,
        length_us,
        refund,
    });
    prop_oneof![
        24 => (0..4usize, cost(), option::weighted(0.1, 0..4u32), option::weighted(0.5, ask))
            .prop_map(|(group, cost, more, hold)| Step::Check { group, cost, more, hold }),
        9 => (id(), terms(cost())).prop_map(|(id, terms)| Step::Settle(id, terms)),
        2 => (id(), length_us()).prop_map(|(id, length_us)| Step::Renew(id, length_us)),
        1 => (1..6u32).prop_map(Step::Refund),
        1 => prop_oneof![3 => Just(Step::Unblock), 1 => Just(Step::Reset)],
        1 => prop_oneof![1 => length_us().prop_map(Step::Block), 4 => Just(Step::Unblock)],
        1 => prop_oneof![1 => length_us().prop_map(Step::Pause), 2 => Just(Step::Resume)],
        1 => prop_oneof![2 => option::of(length_us()).prop_map(Step::Plan), 1 => Just(Step::Unplan)],
        2 => (0..4usize, 0..5usize, 0..9u32)
            .prop_map(|(group, rule, remaining)| Step::Sync(group, rule, remaining)),
        1 => Just(Step::Reload),
    ]
}

pub fn scenario() -> impl Strategy<Value = Scenario> {
    let steps = vec((gap_us(), step()), 1..50);
    (vec(group(), 2..=4), steps).prop_map(|(groups, steps)| Scenario { groups, steps })
}

/// True if a check by these rules must take a hold.
pub fn needs_hold(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| rule.kind() == Kind::Slots)
}

/// One line per step.
impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, group) in self.groups.iter().enumerate() {
            write!(f, "\ngroup {i}:")?;
            group.iter().try_for_each(|rule| write!(f, " {rule}"))?;
        }
        let mut at_us = 0;
        for (gap_us, step) in &self.steps {
            at_us += gap_us;
            write!(f, "\n{at_us} us: {step:?}")?;
        }
        Ok(())
    }
}
