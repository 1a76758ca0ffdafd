//! `RL.MCHECK`: may this request pass under several keys at once, or through any of them?
//!
//! All keys are opened before anything is decided, so a key of another type causes an error and
//! changes nothing. Each changed key has one effect; the server propagates them as one transaction.
//! `any` has what `ANY` does instead.

use super::answer::{self, Shown};
use super::any;
use super::effect_args::EffectArgs;
use super::opened::{Opened, event, refused};
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::policy::Resolver;
use crate::server::{Arg, Args, Call, CommandError, KeysRequest, clock};
use crate::{config, metrics};
use ratelimit_core::check::{self, Decision, KeyCheck, Outcome};
use ratelimit_core::key::{Check, CheckOptions, Limiter, Verdict};
use ratelimit_core::rule::{Rule, digits};
use ratelimit_protocol::parse::{self, MCheckRequest};
use std::mem;
use std::ops::Range;

/// `RL.MCHECK`
pub fn mcheck(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, decisions, resolver, .. }| {
        let args = call.args().from(1).bytes();
        let request = &parse::mcheck(args, &config::limits(), resolver, rules)?;
        let clock_us = clock::now_us();
        let now_us = request.check.at_us.unwrap_or(clock_us);
        let options = request.check.options_at(now_us);
        let asked = Asked { call, request, rules, options: options.as_ref(), now_us, clock_us };
        match request.any {
            None => all(&asked, decisions, resolver),
            Some(choice) => any::decide(&asked, choice, decisions, resolver),
        }
    })
}

/// What was asked of several keys.
pub struct Asked<'a> {
    pub call: &'a Call<'a>,
    pub request: &'a MCheckRequest<'a>,
    rules: &'a [Rule],
    options: Option<&'a CheckOptions<'a>>,
    now_us: u64,
    clock_us: u64,
}

/// A key of a check, with the value to store if it is missing.
pub struct Asking<'a> {
    pub index: usize,
    pub opened: Opened<'a>,
    new: Limiter,
    /// With the cost that was decided, once it is.
    pub check: Check<'a>,
}

/// What a check did to a key, and where its decisions are.
pub type Done = (Outcome, Range<usize>);

impl<'a> Asked<'a> {
    pub fn names(&self) -> Args<'a> {
        self.call.args().from(2).first(self.request.keys)
    }

    /// Whether the check takes a hold, or repeats one.
    pub fn takes_hold(&self) -> bool {
        self.options.is_some_and(|options| options.hold.is_some())
    }

    /// Opens a key, and ends its lapsed holds.
    pub fn open(&self, (index, name): (usize, Arg<'a>)) -> Result<Asking<'a>, CommandError> {
        let key = self.call.open_write(name, &LIMITER)?;
        let mut opened = Opened { key, at_us: self.now_us, clock_us: self.clock_us };
        opened.lapse();
        let check = Check {
            rules: self.rules.get(self.group(index).0).unwrap_or_default(),
            cost: self.request.check.cost,
            now_us: self.now_us,
            options: self.options,
        };
        Ok(Asking { index, opened, new: Limiter::default(), check })
    }

    /// Opens all keys.
    pub fn open_all(&self) -> Result<Vec<Asking<'a>>, CommandError> {
        self.names().iter().enumerate().map(|key| self.open(key)).collect()
    }

    /// Where the rules of a key are, and their arguments: all keys share one group, or each has its own.
    fn group(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let group = match self.request.groups.as_slice() {
            [group] => Some(group),
            groups => groups.get(index),
        };
        group.map(|group| (group.rules.clone(), group.args.clone())).unwrap_or_default()
    }

    /// Counts what was decided, and applies the consequences of the changes of the keys.
    pub fn checked(
        &self,
        keys: &mut [Asking<'a>],
        done: &[Done],
        verdict: Verdict,
        decisions: &[Decision],
        resolver: &Resolver,
    ) -> Result<(), CommandError> {
        metrics::checked(verdict, self.clock_us);
        resolver.count(verdict);
        let written = self.call.args().last(self.request.check.rule_args);
        for (Asking { index, opened, new, check }, (outcome, own)) in keys.iter_mut().zip(done) {
            if outcome.changed() {
                opened.store(mem::take(new))?;
            }
            check.cost = outcome.cost;
            let decisions = decisions.get(own.clone()).unwrap_or_default();
            opened.checked(check, decisions, outcome, || {
                let group = self.group(*index).1;
                let written = written.from(group.start).first(group.len());
                EffectArgs::of_check(written, resolver, check.rules)
            });
        }
        Ok(())
    }

    /// Closes the keys, which follow each other, then publishes their events.
    pub fn close(&self, keys: Vec<Asking<'a>>, done: &[Done]) {
        let first = keys.first().map_or(0, |key| key.index);
        drop(keys);
        for (name, (outcome, _)) in self.names().from(first).iter().zip(done) {
            if let Some(event) = event(outcome) {
                self.call.notify(event, name);
            }
        }
    }
}

impl<'a> Asking<'a> {
    pub fn limiter(&self) -> &Limiter {
        self.opened.key.value().unwrap_or(&self.new)
    }

    pub fn limiter_mut(&mut self) -> &mut Limiter {
        self.opened.key.value_mut().unwrap_or(&mut self.new)
    }

    /// The key in the long reply.
    pub fn shown(&self, (_, decisions): &Done) -> Shown<'_> {
        let (name, limiter) = (Some(self.opened.key.name()), Some(self.limiter()));
        Shown { name, check: self.check, decisions: decisions.clone(), limiter }
    }
}

/// The keys, to be decided together.
pub fn key_checks<'k, 'a>(keys: &'k mut [Asking<'a>]) -> Vec<KeyCheck<'k, &'k mut Limiter>>
where
    'a: 'k,
{
    let key_check = |key: &'k mut Asking<'a>| {
        let check = key.check;
        KeyCheck::new(key.limiter_mut(), check)
    };
    keys.iter_mut().map(key_check).collect()
}

/// What was done to the keys.
pub fn done(keys: &[KeyCheck<'_>]) -> Vec<Done> {
    keys.iter().map(|key| (*key.outcome(), key.decisions().clone())).collect()
}

/// Asks for all keys at once.
fn all(
    asked: &Asked<'_>,
    decisions: &mut Vec<Decision>,
    resolver: &Resolver,
) -> Result<(), CommandError> {
    let mut keys = asked.open_all()?;
    let mut checks = key_checks(&mut keys);
    let decider = check::check_keys(&mut checks, config::bounds(), decisions)
        .map_err(|error| refused(asked.names(), &error))?;
    let done = done(&checks);
    let Some(&(Outcome { summary, .. }, _)) = done.first() else { return Ok(()) };
    asked.checked(&mut keys, &done, summary.verdict, decisions, resolver)?;
    if asked.request.check.full {
        let shown: Vec<_> = keys.iter().zip(&done).map(|(key, done)| key.shown(done)).collect();
        answer::full(asked.call, summary, decisions, &shown, decider, None);
    } else {
        let check = keys.first().map(|key| key.check);
        let granted = check.and_then(|check| check.granted(summary.verdict));
        answer::short(asked.call, summary, granted);
    }
    asked.close(keys, &done);
    Ok(())
}

/// Reports the positions of the keys to a server that cannot derive them from the command's
/// description.
pub fn keys(request: &KeysRequest<'_>) {
    let count = request.args().get(1).and_then(|count| digits(count.bytes()));
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    for position in 2..request.args().len().min(count.saturating_add(2)) {
        request.add(position);
    }
}
