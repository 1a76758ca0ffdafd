//! `RL.MCHECK`: may this request pass under several keys at once?
//!
//! All keys are opened before anything is decided, so a key of another type causes an error and
//! changes nothing. Each changed key has one effect; the server propagates them as one transaction.

use super::answer::{self, Shown};
use super::effect_args::EffectArgs;
use super::opened::{Opened, event, refused};
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, KeysRequest, clock};
use crate::{config, metrics};
use ratelimit_core::check::{self, KeyCheck, Outcome};
use ratelimit_core::key::{Check, Limiter};
use ratelimit_core::rule::digits;
use ratelimit_protocol::parse::{self, MCheckRequest};
use std::mem;
use std::ops::Range;

/// `RL.MCHECK`
pub fn mcheck(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, decisions, resolver, .. }| {
        let args = call.args().from(1).bytes();
        let request = parse::mcheck(args, &config::limits(), resolver, rules)?;
        let names = call.args().from(2).first(request.keys);
        let clock_us = clock::now_us();
        let now_us = request.check.at_us.unwrap_or(clock_us);
        let options = request.check.options_at(now_us);
        let check_of = |index| Check {
            rules: rules.get(group_of(&request, index).0).unwrap_or_default(),
            cost: request.check.cost,
            now_us,
            options: options.as_ref(),
        };

        // Each key, with the value to store if it is missing.
        let open = |name| {
            let key = call.open_write(name, &LIMITER)?;
            Ok((Opened { key, at_us: now_us, clock_us }, Limiter::default()))
        };
        let mut keys = names.iter().map(open).collect::<Result<Vec<_>, CommandError>>()?;
        keys.iter_mut().for_each(|(opened, _)| opened.lapse());
        let limiters = keys.iter_mut().map(|(opened, new)| opened.key.value_mut().unwrap_or(new));
        let mut key_checks: Vec<_> = limiters
            .enumerate()
            .map(|(index, limiter)| KeyCheck::new(limiter, check_of(index)))
            .collect();
        let decider = check::check_keys(&mut key_checks, config::bounds(), decisions)
            .map_err(|error| refused(names, &error))?;
        let done = key_checks.iter().map(|key| (*key.outcome(), key.decisions().clone()));
        let done: Vec<_> = done.collect();
        let Some(&(Outcome { summary, cost, .. }, _)) = done.first() else { return Ok(()) };
        let check_of = |index| Check { cost, ..check_of(index) };

        metrics::checked(summary.verdict, clock_us);
        resolver.count(summary.verdict);
        let written = call.args().last(request.check.rule_args);
        for (index, ((opened, new), (outcome, own))) in keys.iter_mut().zip(&done).enumerate() {
            if outcome.changed() {
                opened.store(mem::take(new))?;
            }
            let (check, (_, group)) = (check_of(index), group_of(&request, index));
            let decisions = decisions.get(own.clone()).unwrap_or_default();
            opened.checked(&check, decisions, outcome, || {
                let written = written.from(group.start).first(group.len());
                EffectArgs::of_check(written, resolver, check.rules)
            });
        }

        if request.check.full {
            let shown = keys.iter().zip(&done).enumerate().map(|(index, ((opened, new), done))| {
                let limiter = Some(opened.key.value().unwrap_or(new));
                let (check, decisions) = (check_of(index), done.1.clone());
                Shown { name: Some(opened.key.name()), check, decisions, limiter }
            });
            answer::full(call, summary, decisions, &shown.collect::<Vec<_>>(), decider);
        } else {
            answer::short(call, summary, check_of(0).granted(summary.verdict));
        }

        drop(keys);
        for (name, (outcome, _)) in names.iter().zip(&done) {
            if let Some(event) = event(outcome) {
                call.notify(event, name);
            }
        }
        Ok(())
    })
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

/// Where the rules of a key are, and their arguments: all keys share one group, or each has its own.
fn group_of(request: &MCheckRequest<'_>, index: usize) -> (Range<usize>, Range<usize>) {
    let group = match request.groups.as_slice() {
        [group] => Some(group),
        groups => groups.get(index),
    };
    group.map(|group| (group.rules.clone(), group.args.clone())).unwrap_or_default()
}
