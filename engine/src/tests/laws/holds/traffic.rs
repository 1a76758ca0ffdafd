//! Traffic with holds: some checks take a hold, and holds are settled and renewed between the
//! calls.

use crate::check::{Bounds, Budget, Decision, Outcome};
use crate::key::{Check, CheckOptions, Costs, HoldRequest, Limiter, Settlement};
use crate::rule::{DAY_US, MAX_PERIOD_US, MS_US, Name, NamedCost, Rule, SECOND_US};
use crate::tests::laws::rules::cost;
use crate::tests::laws::traffic::{Action, Call, Traffic};
use proptest::option;
use proptest::prelude::*;
use std::fmt;

/// Only a few ids, so that many of them are live. Three have 1 byte. The others have 22 bytes, the
/// most that are stored inline; 23 bytes; and 64 bytes, the most that an id may have.
pub const IDS: [&[u8]; 6] = [b"a", b"b", b"c", &[b'p'; 22], &[b'q'; 23], &[0xFF; 64]];

/// The most calls of traffic with holds.
pub const CALLS: usize = 60;

/// Calls, and what happens to holds with each call.
#[derive(Clone)]
pub struct HoldTraffic {
    pub traffic: Traffic,
    pub extras: Vec<Extra>,
}

#[derive(Clone, Debug)]
pub struct Extra {
    /// What happens before the call.
    pub ending: Option<Ending>,
    /// The hold of the call, if it is a check.
    pub hold: Option<Ask>,
}

#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub id: usize,
    pub length: Length,
    pub refund: bool,
}

/// A length of time: thousandths of the first rule's window, and a jitter.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    pub mille: u64,
    pub jitter_us: u64,
}

#[derive(Clone, Debug)]
pub enum Ending {
    Settle(usize, Terms),
    Renew(usize, Length),
}

/// A settlement.
#[derive(Clone, Debug)]
pub enum Terms {
    AsCharged,
    Refund,
    Costs { default: Option<u32>, named: Vec<NamedCost> },
}

impl Terms {
    pub fn settlement(&self) -> Settlement<Costs<'_>> {
        match self {
            Self::AsCharged => Settlement::AsCharged,
            Self::Refund => Settlement::Refund,
            Self::Costs { default, named } => Settlement::Cost(Costs { default: *default, named }),
        }
    }
}

/// What happens at one time.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub rules: &'a [Rule],
    pub now_us: u64,
    pub deed: Deed<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Deed<'a> {
    Check {
        cost: u32,
        options: CheckOptions<'a>,
    },
    Peek(u32),
    /// To the states of the rules if `true`, else to all states.
    Refund(u32, bool),
    Reset,
    Settle {
        id: &'a [u8],
        settlement: Settlement<Costs<'a>>,
    },
    Renew {
        id: &'a [u8],
        end_us: u64,
    },
}

impl Step<'_> {
    /// This step at a later time.
    #[must_use]
    pub fn later_by(mut self, us: u64) -> Self {
        self.now_us += us;
        match &mut self.deed {
            Deed::Check {
                options: CheckOptions { hold: Some(HoldRequest { end_us, .. }), .. },
                ..
            }
            | Deed::Renew { end_us, .. } => *end_us += us,
            Deed::Check { options: CheckOptions { hold: None, .. }, .. }
            | Deed::Peek(_)
            | Deed::Refund(..)
            | Deed::Reset
            | Deed::Settle { .. } => {}
        }
        self
    }

    /// The check of this step, if the step is a check.
    pub fn check(&self) -> Option<Check<'_>> {
        let Self { rules, now_us, ref deed } = *self;
        match *deed {
            Deed::Check { cost, ref options } => {
                Some(Check::new(rules, cost, now_us).with(options))
            }
            Deed::Peek(_)
            | Deed::Refund(..)
            | Deed::Reset
            | Deed::Settle { .. }
            | Deed::Renew { .. } => None,
        }
    }

    /// Does the step and ignores the answer.
    pub fn act(&self, limiter: &mut Limiter) {
        let Self { rules, now_us, deed } = *self;
        match deed {
            Deed::Check { .. } => drop(self.check().and_then(|check| try_check(limiter, &check))),
            Deed::Peek(cost) => drop(super::super::peek(limiter, rules, cost, now_us)),
            Deed::Refund(units, of_rules) => {
                limiter.refund(units, now_us, if of_rules { rules } else { &[] });
            }
            Deed::Reset => drop(limiter.reset(now_us)),
            Deed::Settle { id, settlement } => drop(limiter.settle(id, settlement, now_us)),
            Deed::Renew { id, end_us } => drop(limiter.renew(id, end_us, now_us)),
        }
    }
}

/// A check, with each rule's decision; `None` if it repeats a hold with another cost.
pub fn try_check(limiter: &mut Limiter, check: &Check<'_>) -> Option<(Outcome, Vec<Decision>)> {
    let mut decisions = Vec::new();
    let outcome = limiter.check_within(Bounds::ANY, check, &mut decisions).ok()?;
    limiter.fill_resets(check, &mut decisions, &Budget::of_command());
    Some((outcome, decisions))
}

/// The ids of the live holds.
pub fn live_ids(limiter: &Limiter, now_us: u64) -> impl Iterator<Item = &'static [u8]> {
    IDS.into_iter().filter(move |id| limiter.live_hold(id, now_us).is_some())
}

impl Length {
    /// Commands give lengths in milliseconds. A long hold's length is stored in seconds.
    fn end_us(self, now_us: u64, rules: &[Rule]) -> u64 {
        let window_us = rules.first().map_or(0, Rule::period_us);
        let length_us = window_us / 1_000 * self.mille + self.jitter_us;
        let grain_us = if length_us < 24 * DAY_US { MS_US } else { SECOND_US };
        now_us + length_us.next_multiple_of(grain_us).clamp(MS_US, MAX_PERIOD_US)
    }
}

impl HoldTraffic {
    pub fn steps(&self) -> Vec<Step<'_>> {
        let calls = self.traffic.calls().into_iter().zip(&self.extras);
        calls.flat_map(|(call, extra)| extra.steps(call)).collect()
    }
}

impl Extra {
    fn steps<'a>(&'a self, Call { rules, now_us, action }: Call<'a>) -> Vec<Step<'a>> {
        let ending = self.ending.as_ref().map(|ending| match ending {
            Ending::Settle(id, terms) => {
                Deed::Settle { id: IDS[*id], settlement: terms.settlement() }
            }
            Ending::Renew(id, length) => {
                Deed::Renew { id: IDS[*id], end_us: length.end_us(now_us, rules) }
            }
        });
        let hold = self.hold.map(|Ask { id, length, refund }| HoldRequest {
            id: IDS[id],
            end_us: length.end_us(now_us, rules),
            refund,
        });
        let call = match action {
            Action::Check(cost) => {
                Deed::Check { cost, options: CheckOptions { hold, ..CheckOptions::default() } }
            }
            Action::Peek(cost) => Deed::Peek(cost),
            Action::Refund(units, of_rules) => Deed::Refund(units, of_rules),
            Action::Reset => Deed::Reset,
        };
        let deeds = ending.into_iter().chain([call]);
        deeds.map(|deed| Step { rules, now_us, deed }).collect()
    }
}

fn length() -> impl Strategy<Value = Length> {
    let mille = prop_oneof![2 => 0..100u64, 4 => 0..1_000u64, 1 => Just(1_000), 3 => 0..5_000u64];
    let jitter_us = prop_oneof![2 => Just(0), 1 => 0..2_000u64];
    (mille, jitter_us).prop_map(|(mille, jitter_us)| Length { mille, jitter_us })
}

fn id() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0..3usize, 1 => 0..IDS.len()]
}

pub fn terms(cost: impl Strategy<Value = u32> + Clone + 'static) -> impl Strategy<Value = Terms> {
    let name = prop::sample::select(&["free", "x", "throttle", "other"][..]);
    let name = name.prop_map(|text| Name::new(text.as_bytes()).unwrap());
    let named = (name, cost.clone()).prop_map(|(name, cost)| NamedCost { name, cost });
    let costs = (option::weighted(0.8, cost), prop::collection::vec(named, 0..3));
    prop_oneof![
        1 => Just(Terms::AsCharged),
        3 => Just(Terms::Refund),
        8 => costs.prop_map(|(default, named)| Terms::Costs { default, named }),
    ]
}

/// Traffic in which holds are settled for any cost.
pub fn with_holds(traffic: impl Strategy<Value = Traffic>) -> impl Strategy<Value = HoldTraffic> {
    with_holds_settled_for(traffic, cost().boxed())
}

/// Traffic in which holds are settled for these costs.
pub fn with_holds_settled_for(
    traffic: impl Strategy<Value = Traffic>,
    cost: impl Strategy<Value = u32> + Clone + 'static,
) -> impl Strategy<Value = HoldTraffic> {
    let ending = prop_oneof![
        4 => (id(), terms(cost)).prop_map(|(id, terms)| Ending::Settle(id, terms)),
        1 => (id(), length()).prop_map(|(id, length)| Ending::Renew(id, length)),
    ];
    let ask =
        (id(), length(), any::<bool>()).prop_map(|(id, length, refund)| Ask { id, length, refund });
    let extra = (option::weighted(0.4, ending), option::weighted(0.6, ask))
        .prop_map(|(ending, hold)| Extra { ending, hold });
    (traffic, prop::collection::vec(extra, CALLS))
        .prop_map(|(traffic, extras)| HoldTraffic { traffic, extras })
}

/// One line per step.
impl fmt::Debug for HoldTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Step { rules, now_us, deed } in self.steps() {
            write!(f, "\n{now_us} us: {deed:?}")?;
            for rule in rules {
                write!(f, " {rule}")?;
            }
        }
        Ok(())
    }
}
