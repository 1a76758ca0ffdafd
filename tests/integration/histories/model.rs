//! Two keys and a policy, and what each call does to them. Time passes only in calls that give it:
//! see `call.rs`.

use std::collections::{BTreeMap, BTreeSet};

use todc_utils::Specification;

use super::call::cost_of_hold;
use super::call::{
    Call, Frees, HELD, KEYS, PAUSE_DAYS, PLANNED, POLICIES, POLICY, QUEUE, RULES, SLOTS,
};
use super::timed::{self, Charges};

/// The part of a reply that is compared. Waits are in days, rounded up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Ok,
    Number(i64),
    /// The milliseconds that a pause has left, as days.
    Days(i64),
    Decision {
        verdict: i64,
        limit: i64,
        remaining: i64,
        wait_days: i64,
        /// The key that `ANY` chose, or -1.
        chosen: Option<i64>,
    },
    /// The five integers of a call that gives its time.
    Timed([i64; 5]),
}

/// What a reply must be.
enum Expected {
    This(Reply),
    OneOf(Vec<Reply>),
    /// Anything, since the documents leave it open.
    Any,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of a key")]
struct Key {
    /// Units consumed under each rule, without slots.
    used: [i64; SLOTS],
    /// The charges under each rule of `timed.rs`.
    timed: [Charges; timed::COUNT],
    /// Whether anything was consumed since the last reset. A state whose units were all given back may
    /// be deleted, or stay.
    touched: bool,
    /// The cost of each hold, by its id.
    holds: BTreeMap<u8, i64>,
    blocked: bool,
    paused: bool,
    planned: bool,
}

/// The state of all that a history uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    keys: [Key; KEYS],
    policy: i64,
}

/// Units by rule.
pub type Counts = [Vec<i64>; KEYS];

/// How one rule of one key decides.
struct Opinion {
    limit: i64,
    remaining: i64,
    denial_days: Option<i64>,
    turn_days: i64,
}

const fn decision(verdict: i64, limit: i64, remaining: i64, wait_days: i64) -> Reply {
    Reply::Decision { verdict, limit, remaining, wait_days, chosen: None }
}

impl Expected {
    fn replies(self) -> Vec<Reply> {
        match self {
            Self::This(reply) => vec![reply],
            Self::OneOf(replies) => replies,
            Self::Any => Vec::new(),
        }
    }
}

/// Decisions of `RL.MCHECK` with `ANY`, which chose this key.
fn with_chosen(mut replies: Vec<Reply>, index: i64) -> Vec<Reply> {
    for reply in &mut replies {
        if let Reply::Decision { chosen, .. } = reply {
            *chosen = Some(index);
        }
    }
    replies
}

impl Key {
    fn used(&self, rule: usize) -> i64 {
        if rule == SLOTS { self.holds.values().sum() } else { self.used[rule] }
    }

    fn change(&mut self, rules: &[usize], units: i64) {
        self.touched = true;
        for &rule in rules.iter().filter(|&&rule| rule != SLOTS) {
            self.used[rule] += units;
        }
    }

    fn opinion(&self, rule: usize, policy: i64, cost: i64, charge: i64) -> Opinion {
        let limit = match rule {
            POLICY if self.planned => PLANNED,
            POLICY => policy,
            _ => RULES[rule].most,
        };
        let used = self.used(rule);
        let over = used + cost - limit;
        let days = match RULES[rule].frees {
            Frees::AtOnce(days) => days,
            Frees::Evenly(days) => days * over,
        };
        let turn_days = match RULES[rule].frees {
            Frees::Evenly(days) if rule == QUEUE => days * used,
            _ => 0,
        };
        let denial_days = (over > 0).then_some(days);
        let taken = if denial_days.is_none() { charge } else { 0 };
        Opinion { limit, remaining: (limit - used - taken).max(0), denial_days, turn_days }
    }
}

impl State {
    /// What a check of some keys replies, and whether it is admitted.
    fn decide(&self, keys: &[usize], rules: &[usize], cost: i64, peek: bool) -> (Expected, bool) {
        if keys.iter().any(|&key| self.keys[key].blocked) {
            return (Expected::This(decision(2, 0, 0, -1)), false);
        }
        let charge = if peek { 0 } else { cost };
        let opinions = |charge| -> Vec<Opinion> {
            let one = |key: &Key, rule| key.opinion(rule, self.policy, cost, charge);
            keys.iter()
                .flat_map(|&key| rules.iter().map(move |&rule| (key, rule)))
                .map(|(key, rule)| one(&self.keys[key], rule))
                .collect()
        };
        let denials: Vec<(i64, Opinion)> = opinions(0)
            .into_iter()
            .filter_map(|one| one.denial_days.map(|days| (days, one)))
            .collect();
        let pause = keys.iter().any(|&key| self.keys[key].paused).then_some(PAUSE_DAYS);
        let longest = denials.iter().map(|&(days, _)| days).chain(pause).max();
        if let Some(longest) = longest {
            let deciding = denials.iter().filter(|(days, _)| *days == longest);
            let mut replies: Vec<Reply> =
                deciding.map(|(days, one)| decision(1, one.limit, one.remaining, *days)).collect();
            if pause == Some(longest) {
                replies.push(decision(1, 0, 0, longest));
            }
            return (Expected::OneOf(replies), false);
        }
        let opinions = opinions(charge);
        let least = opinions.iter().map(|one| one.remaining).min().unwrap_or(0);
        let wait = opinions.iter().map(|one| one.turn_days).max().unwrap_or(0);
        let deciding = opinions.iter().filter(|one| one.remaining == least);
        (
            Expected::OneOf(
                deciding.map(|one| decision(0, one.limit, one.remaining, wait)).collect(),
            ),
            true,
        )
    }

    /// What a check at a time replies. A peek charges 0.
    fn check_at(
        &mut self,
        ms: i64,
        keys: &[usize],
        rules: &[usize],
        cost: i64,
        charge: i64,
    ) -> Reply {
        let each = || keys.iter().flat_map(|&key| rules.iter().map(move |&rule| (key, rule)));
        let charges = |(key, rule): (usize, usize)| (rule, self.keys[key].timed[rule].clone());
        let before: Vec<_> = each().map(charges).collect();
        let (reply, after) = timed::decide(&before, ms, cost, charge);
        if reply[0] == 0 && charge > 0 {
            for ((key, _), (rule, charges)) in each().zip(after) {
                self.keys[key].timed[rule] = charges;
                self.keys[key].touched = true;
            }
        }
        Reply::Timed(reply)
    }

    /// The units that each rule of each key counts.
    pub fn counts(&self) -> Counts {
        self.keys.each_ref().map(|key| {
            let timed = key.timed.iter().map(Charges::units);
            key.used.iter().copied().chain(timed).collect()
        })
    }

    /// The holds by key and id.
    pub fn holds(&self) -> BTreeSet<(usize, u8)> {
        let of = |(key, one): (usize, &Key)| one.holds.keys().map(move |&id| (key, id)).collect();
        self.keys.iter().enumerate().flat_map(|one| -> Vec<_> { of(one) }).collect()
    }

    fn check(&mut self, keys: &[usize], rules: &[usize], cost: i64) -> Expected {
        let (reply, admitted) = self.decide(keys, rules, cost, false);
        if admitted {
            keys.iter().for_each(|&key| self.keys[key].change(rules, cost));
        }
        reply
    }

    /// A check through the first key that admits it, or through the key with the most units left.
    fn check_any(&mut self, rules: &[usize], cost: i64, most: bool) -> Expected {
        let mut chosen = None::<(i64, usize)>;
        let mut denials = Vec::new();
        for key in 0..KEYS {
            let (expected, admitted) = self.decide(&[key], rules, cost, false);
            let replies = expected.replies();
            let &Reply::Decision { remaining, wait_days, .. } = &replies[0] else { continue };
            if !admitted {
                let days = if wait_days < 0 { i64::MAX } else { wait_days };
                denials.push((days, replies));
            } else if chosen.is_none_or(|(best, _)| most && remaining > best) {
                chosen = Some((remaining, key));
            }
        }
        if let Some((_, key)) = chosen {
            let (expected, _) = self.decide(&[key], rules, cost, false);
            self.keys[key].change(rules, cost);
            return Expected::OneOf(with_chosen(expected.replies(), key as i64));
        }
        // Two waits of the same number of days may differ by hours.
        let least = denials.iter().map(|(days, _)| *days).min();
        let denials = denials.into_iter().filter(|(days, _)| Some(*days) == least);
        Expected::OneOf(with_chosen(denials.flat_map(|(_, replies)| replies).collect(), -1))
    }

    fn hold(&mut self, key: usize, id: u8) -> Expected {
        if self.keys[key].holds.contains_key(&id) {
            // A repeat: allowed, and charged nothing.
            return Expected::Any;
        }
        let cost = cost_of_hold(id);
        let (reply, admitted) = self.decide(&[key], &HELD, cost, false);
        if admitted {
            self.keys[key].change(&HELD, cost);
            self.keys[key].holds.insert(id, cost);
        }
        reply
    }

    /// Executes a call. `reply` is the reply that the client got, if any.
    fn perform(&mut self, call: &Call, reply: Option<&Reply>) -> Expected {
        let bit = |is: bool| Expected::This(Reply::Number(is.into()));
        match call {
            Call::Check { key, cost, rules } => self.check(&[*key], rules, *cost),
            Call::Peek { key, cost, rules } => self.decide(&[*key], rules, *cost, true).0,
            Call::CheckAll { cost, rules } => {
                self.check(&(0..KEYS).collect::<Vec<_>>(), rules, *cost)
            }
            Call::CheckAny { cost, rules, most } => self.check_any(rules, *cost, *most),
            Call::Hold { key, id } => self.hold(*key, *id),
            // A client behind others is denied at its deadline, even if its rules admit it.
            Call::Wait { .. } if matches!(reply, Some(Reply::Decision { verdict: 1, .. })) => {
                Expected::Any
            }
            Call::Wait { key, id } => self.hold(*key, *id),
            Call::Settle { key, id, cost } => {
                let key = &mut self.keys[*key];
                let held = key.holds.remove(id);
                if let Some(held) = held {
                    key.change(&HELD, cost.unwrap_or(held) - held);
                }
                bit(held.is_some())
            }
            Call::Refund { key, units } => {
                let key = &mut self.keys[*key];
                let back = key.used.map(|used| used.min(*units));
                key.used.iter_mut().zip(back).for_each(|(used, back)| *used -= back);
                Expected::This(Reply::Number(back.into_iter().max().unwrap_or(0)))
            }
            Call::Reset { key } => {
                let key = &mut self.keys[*key];
                let (blocked, paused, planned) = (key.blocked, key.paused, key.planned);
                let was = std::mem::take(key);
                (key.blocked, key.paused, key.planned) = (blocked, paused, planned);
                let holds_something =
                    was.used.iter().any(|&used| used > 0) || !was.holds.is_empty();
                match (holds_something, was.touched) {
                    (false, true) => Expected::Any,
                    (holds_something, _) => bit(holds_something),
                }
            }
            Call::Block { key } => {
                self.keys[*key].blocked = true;
                Expected::This(Reply::Ok)
            }
            Call::Unblock { key } => bit(std::mem::take(&mut self.keys[*key].blocked)),
            Call::Pause { key } => {
                self.keys[*key].paused = true;
                Expected::This(Reply::Days(PAUSE_DAYS))
            }
            Call::Resume { key } => bit(std::mem::take(&mut self.keys[*key].paused)),
            Call::At { ms, keys, cost, rules, peek } => {
                let charge = if *peek { 0 } else { *cost };
                Expected::This(self.check_at(*ms, keys, rules, *cost, charge))
            }
            Call::Plan { key } => {
                self.keys[*key].planned = true;
                Expected::This(Reply::Ok)
            }
            Call::Unplan { key } => bit(std::mem::take(&mut self.keys[*key].planned)),
            Call::SetPolicy { limit } => {
                self.policy = *limit;
                Expected::This(Reply::Ok)
            }
        }
    }
}

/// The model, for the checker.
pub struct Model;

impl Specification for Model {
    type State = State;
    type Operation = (Call, Option<Reply>);

    fn init() -> State {
        State { keys: Default::default(), policy: POLICIES[0] }
    }

    fn apply((call, reply): &Self::Operation, state: &State) -> (bool, State) {
        let mut next = state.clone();
        let expected = next.perform(call, reply.as_ref());
        let fits = match (reply, &expected) {
            (None, _) | (_, Expected::Any) => true,
            (Some(reply), Expected::This(expected)) => reply == expected,
            (Some(reply), Expected::OneOf(replies)) => replies.contains(reply),
        };
        if fits { (true, next) } else { (false, state.clone()) }
    }
}
