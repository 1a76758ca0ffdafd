//! Traffic of several keys: checks of some of them at once, and calls to a single key in
//! between.

use super::{Asked, CALLS, KEYS, Keys};
use crate::key::{Access, AccessEntry, Check, CheckOptions, Limiter, Meta};
use crate::rule::Rule;
use crate::tests::laws::rules::rule_set;
use crate::tests::laws::traffic::{Action, Call, Traffic, changing};
use proptest::prelude::*;
use std::fmt;

/// Traffic of several keys. The first key has the rules of the call, the others have rules that
/// stay.
#[derive(Clone, Debug)]
pub struct Scenario {
    traffic: Traffic,
    own: [Option<Vec<Rule>>; KEYS],
    turns: Vec<Turn>,
}

/// What a call has besides the traffic's action.
#[derive(Clone, Copy)]
pub struct Turn {
    asked: [bool; KEYS],
    options: CheckOptions<'static>,
    /// Before the call, sets or lifts a block or an exemption of a key.
    pub access: Option<(usize, Option<Access>, Option<u64>)>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let kind = prop::sample::select(&[Some(Access::Block), Some(Access::Exempt), None]);
    let access = (0..KEYS, kind, prop::option::weighted(0.8, 1..10_000u64));
    (
        prop::array::uniform4(prop::bool::weighted(0.6)),
        prop::option::weighted(0.1, 1..6u32),
        prop::option::weighted(0.2, access),
    )
        .prop_map(|(asked, keep, access)| {
            let meta = keep.map(|keep| Meta { text: &[1, 2, 3][..keep as usize % 4], keep });
            Turn { asked, options: CheckOptions { meta, ..CheckOptions::default() }, access }
        })
}

pub fn scenario(
    traffic: impl Strategy<Value = Traffic>,
    rules: impl Strategy<Value = Vec<Rule>>,
) -> impl Strategy<Value = Scenario> {
    let own = prop::array::uniform4(prop::option::of(rules));
    (traffic, own, prop::collection::vec(turn(), CALLS))
        .prop_map(|(traffic, own, turns)| Scenario { traffic, own, turns })
}

pub fn any_scenario() -> impl Strategy<Value = Scenario> {
    scenario(changing(3, CALLS), rule_set(3))
}

impl Scenario {
    pub fn calls(&self) -> impl Iterator<Item = (Call<'_>, &Turn)> {
        self.traffic.calls().into_iter().zip(&self.turns)
    }

    /// The rules of a key. The first key has the rules of the call.
    pub fn rules<'a>(&'a self, key: usize, call: &Call<'a>) -> &'a [Rule] {
        self.own[key].as_deref().filter(|_| key > 0).unwrap_or(call.rules)
    }

    pub fn asked<'a>(&'a self, call: &Call<'a>, turn: &'a Turn, cost: u32) -> Asked<'a> {
        let none = turn.asked == [false; KEYS];
        std::array::from_fn(|key| {
            let rules = self.rules(key, call);
            let check = Check::new(rules, cost, call.now_us).with(&turn.options);
            (none || turn.asked[key]).then_some(check)
        })
    }
}

impl Turn {
    pub fn access(&self, keys: &mut Keys, now_us: u64) {
        if let Some((key, kind, until_ms)) = self.access {
            let until_us = until_ms.map(|ms| now_us + ms * 1_000);
            keys[key].set_access(kind.map(|kind| AccessEntry::new(kind, until_us, &[7; 3])));
        }
    }

    /// The key of a call to a single key.
    pub fn alone(&self) -> usize {
        self.asked.iter().position(|&asked| asked).unwrap_or(0)
    }
}

/// Refunds units to one key, or evicts it.
pub fn aside(limiter: &mut Limiter, rules: &[Rule], now_us: u64, action: Action) {
    match action {
        Action::Check(_) | Action::Peek(_) => {}
        Action::Refund(units, of_rules) => {
            limiter.refund(units, now_us, if of_rules { rules } else { &[] });
        }
        Action::Reset => *limiter = Limiter::default(),
    }
}

/// Prints a turn on one line.
impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, options, access } = self;
        write!(f, "asked {asked:?}, META {:?}, access {access:?}", options.meta)
    }
}
