//! A check of several keys: opens them, applies the consequences of their changes, and closes them.

use super::answer::Shown;
use super::opened::{EffectArgs, Opened, event};
use crate::datatype::LIMITER;
use crate::metrics;
use crate::policy::Resolver;
use crate::server::{Arg, Args, Call, CommandError};
use ratelimit_engine::check::{Decision, KeyCheck, Outcome};
use ratelimit_engine::key::{Check, CheckOptions, Limiter, Verdict};
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::parse::{Group, MCheckRequest};
use std::mem;
use std::ops::Range;

/// A request to check several keys.
pub struct MultiCheck<'a> {
    pub call: &'a Call<'a>,
    pub request: &'a MCheckRequest<'a>,
    pub rules: &'a [Rule],
    pub options: Option<&'a CheckOptions<'a>>,
    pub now_us: u64,
    pub clock_us: u64,
}

/// A key of a check, with the value to store if the key is missing.
pub struct CheckedKey<'a> {
    pub index: usize,
    pub opened: Opened<'a>,
    new: Limiter,
    /// The check; after the decision, with the decided cost.
    pub check: Check<'a>,
}

/// What a check did to a key, and where its decisions are.
pub type KeyOutcome = (Outcome, Range<usize>);

impl<'a> MultiCheck<'a> {
    pub fn names(&self) -> Args<'a> {
        self.call.args().from(2).first(self.request.keys)
    }

    /// Whether the check takes a hold, or repeats one.
    pub fn takes_hold(&self) -> bool {
        self.options.is_some_and(|options| options.hold.is_some())
    }

    /// Opens a key, and ends its lapsed holds.
    pub fn open(&self, (index, name): (usize, Arg<'a>)) -> Result<CheckedKey<'a>, CommandError> {
        let key = self.call.open_write(name, &LIMITER)?;
        let mut opened = Opened { key, at_us: self.now_us, clock_us: self.clock_us };
        opened.lapse();
        Ok(CheckedKey { index, opened, new: Limiter::default(), check: self.check_of(index) })
    }

    /// The check of a key.
    pub fn check_of(&self, index: usize) -> Check<'a> {
        let group = self.group(index);
        Check {
            rules: group.and_then(|group| self.rules.get(group.rules.clone())).unwrap_or_default(),
            cost: self.request.check.cost,
            now_us: self.now_us,
            options: self.options,
        }
    }

    /// Opens all keys.
    pub fn open_all(&self) -> Result<Vec<CheckedKey<'a>>, CommandError> {
        let mut keys = Vec::with_capacity(self.request.keys);
        for key in self.names().iter().enumerate() {
            keys.push(self.open(key)?);
        }
        Ok(keys)
    }

    /// The rules of a key: all keys share one group, or each has its own.
    fn group(&self, index: usize) -> Option<&Group> {
        match self.request.groups.as_slice() {
            [group] => Some(group),
            groups => groups.get(index),
        }
    }

    /// The arguments that are the rules of a key.
    fn written(&self, index: usize) -> Args<'a> {
        let written = self.call.args().last(self.request.check.rule_args);
        let args = self.group(index).map_or(0..0, |group| group.args.clone());
        written.from(args.start).first(args.len())
    }

    /// Counts the decision, and applies the consequences of each key's change.
    pub fn after_check(
        &self,
        keys: &mut [CheckedKey<'a>],
        outcomes: &[KeyOutcome],
        verdict: Verdict,
        decisions: &[Decision],
        resolver: &Resolver<'_>,
    ) -> Result<(), CommandError> {
        metrics::count_check(verdict, self.clock_us);
        match self.request.any {
            None => resolver.count(verdict, self.clock_us),
            // Each key was checked by itself, or passed over.
            Some(_) => {
                resolver.note_use(self.clock_us);
                for (key, (outcome, _)) in keys.iter().zip(outcomes) {
                    let written = self.written(key.index).bytes();
                    resolver.count_of_key(key.index, written, outcome.summary.verdict);
                }
            }
        }
        let mut may_be_spared = false;
        for (CheckedKey { index, opened, new, check }, (outcome, own)) in
            keys.iter_mut().zip(outcomes)
        {
            if outcome.changed() {
                opened.store(mem::take(new))?;
            }
            check.cost = outcome.cost;
            let decisions = decisions.get(own.clone()).unwrap_or_default();
            may_be_spared |= opened.after_check(check, decisions, outcome, || {
                EffectArgs::of_check(self.written(*index), resolver, *index, check.rules)
            });
        }
        if may_be_spared {
            self.count_spared(keys, outcomes, decisions, resolver);
        }
        Ok(())
    }

    /// Counts what shadows or the setting `enforce` kept from being denied.
    #[cold]
    fn count_spared(
        &self,
        keys: &[CheckedKey<'_>],
        outcomes: &[KeyOutcome],
        decisions: &[Decision],
        resolver: &Resolver<'_>,
    ) {
        let (mut spared, mut policies) = (false, Vec::new());
        for (CheckedKey { index, opened, check, .. }, (outcome, own)) in keys.iter().zip(outcomes) {
            let decisions = decisions.get(own.clone()).unwrap_or_default();
            spared |= opened.spared(check, decisions, outcome);
            let of_key = resolver.of_key(*index, self.written(*index).bytes());
            policies.extend(of_key.filter(|policy| policy.shadows(check, decisions)));
        }
        policies.sort_unstable_by_key(|policy| policy.name);
        policies.dedup_by_key(|policy| policy.name);
        policies.iter().for_each(|policy| policy.count_shadowed());
        metrics::UNENFORCED.add(spared.into());
    }

    /// Closes the keys, which have consecutive indexes, then publishes their events.
    pub fn close(&self, keys: Vec<CheckedKey<'a>>, outcomes: &[KeyOutcome]) {
        let first = keys.first().map_or(0, |key| key.index);
        drop(keys);
        for (name, (outcome, _)) in self.names().from(first).iter().zip(outcomes) {
            if let Some(event) = event(outcome) {
                self.call.notify(event, name);
            }
        }
    }
}

impl CheckedKey<'_> {
    pub fn limiter(&self) -> &Limiter {
        self.opened.key.value().unwrap_or(&self.new)
    }

    pub fn limiter_mut(&mut self) -> &mut Limiter {
        self.opened.key.value_mut().unwrap_or(&mut self.new)
    }

    /// The key in the long reply.
    pub fn shown(&self, (_, decisions): &KeyOutcome) -> Shown<'_> {
        let (name, limiter) = (Some(self.opened.key.name()), Some(self.limiter()));
        Shown { name, check: self.check, decisions: decisions.clone(), limiter }
    }
}

/// One check for each key, to decide them together.
pub fn key_checks<'k, 'a>(keys: &'k mut [CheckedKey<'a>]) -> Vec<KeyCheck<'k, &'k mut Limiter>>
where
    'a: 'k,
{
    let key_check = |key: &'k mut CheckedKey<'a>| {
        let check = key.check;
        KeyCheck::new(key.limiter_mut(), check)
    };
    keys.iter_mut().map(key_check).collect()
}

/// What the checks did to their keys.
pub fn outcomes_of(keys: &[KeyCheck<'_>]) -> Vec<KeyOutcome> {
    keys.iter().map(|key| (*key.outcome(), key.decisions().clone())).collect()
}
