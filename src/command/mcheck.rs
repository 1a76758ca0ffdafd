//! `RL.MCHECK`: may this request pass under several keys at once?
//!
//! All keys are opened before anything is decided, so a key of another type causes an error and
//! changes nothing. Each changed key has one effect; the server propagates them as one transaction.

use super::answer::{self, Shown};
use super::changed::Changed;
use super::checked::{Checked, event, refused};
use super::rule_args::RuleArgs;
use super::scratch::{self, Scratch};
use crate::datatype::{self, LIMITER};
use crate::server::{Args, Call, CommandError, KeysRequest, KeyspaceEvent, clock};
use crate::{config, metrics};
use ratelimit_core::limit::{self, Check, Foresight, KeyCheck, Limiter, Outcome};
use ratelimit_core::parse;
use ratelimit_core::parse::{Group, MCheckRequest};
use ratelimit_core::rule::{Rule, digits};
use std::mem;

/// `RL.MCHECK numkeys key [key ...] [COST n|a..b|name=n ...] [META text]
/// [HOLD id EX s|PX ms [REFUND]] [AT unix-us] [FULL]
/// rule [rule ...] [NEXT rule [rule ...]] ...`
pub fn mcheck(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, decisions, resolver, .. }| {
        let args = call.args().from(1).bytes();
        let request = parse::mcheck(args, &config::limits(), resolver, rules)?;
        let names = call.args().from(2).first(request.keys);
        let clock_us = clock::now_us();
        let now_us = request.check.at_us.unwrap_or(clock_us);
        let options = request.check.options_at(now_us);
        let check_of = |index| Check {
            rules: rules_of(&request, rules, index),
            cost: request.check.cost,
            now_us,
            options: options.as_ref(),
        };

        // Each key, with the value to store if it is missing.
        let open = |name| Ok((call.open_write(name, &LIMITER)?, Limiter::default()));
        let mut keys = names.iter().map(open).collect::<Result<Vec<_>, CommandError>>()?;
        for ((key, _), name) in keys.iter_mut().zip(names.iter()) {
            Changed { call, name, at_us: now_us, clock_us }.lapse(key);
        }
        let limiters = keys.iter_mut().map(|(key, new)| key.value().unwrap_or(new));
        let key_checks = limiters.enumerate();
        let mut key_checks: Vec<_> =
            key_checks.map(|(index, limiter)| KeyCheck::new(limiter, check_of(index))).collect();
        let decider = limit::check_keys(&mut key_checks, config::bounds(), decisions)
            .map_err(|error| refused(names, &error))?;
        let done = key_checks.iter().map(|key| (*key.outcome(), key.decisions().clone()));
        let done: Vec<_> = done.collect();
        drop(key_checks);
        let Some(&(Outcome { summary, cost, .. }, _)) = done.first() else { return Ok(()) };
        let check_of = |index| Check { cost, ..check_of(index) };

        metrics::checked(summary.verdict, clock_us);
        resolver.named.count(summary.verdict);
        let written = call.args().last(request.check.rule_args);
        let stored = keys.iter_mut().zip(names.iter()).zip(&done);
        for (index, (((key, new), name), (outcome, own))) in stored.enumerate() {
            if outcome.changed() {
                datatype::store(key, mem::take(new))?;
            }
            let decisions = decisions.get(own.clone()).unwrap_or_default();
            let checked = Checked { check: check_of(index), decisions, outcome };
            let mut rule_args = None;
            checked.finish(call, key, name, clock_us, || {
                let written = args_of(&request, written, index);
                rule_args
                    .insert(RuleArgs::of_check(written, &resolver.named, checked.check.rules))
                    .args()
            });
        }

        if request.check.full {
            let foresight = &Foresight::of_command();
            let limiters = keys.iter_mut().map(|(key, new)| &*key.value().unwrap_or(new));
            let limiters: Vec<_> = limiters.collect();
            let checks: Vec<_> = (0..limiters.len()).map(check_of).collect();
            for ((limiter, check), (_, own)) in limiters.iter().zip(&checks).zip(&done) {
                let decisions = decisions.get_mut(own.clone()).unwrap_or_default();
                limiter.fill_resets(check, decisions, foresight);
            }
            let answers = limiters.iter().zip(&checks).zip(&done).zip(names.iter());
            let shown = answers.map(|(((limiter, check), (_, own)), name)| {
                let decisions = decisions.get(own.clone()).unwrap_or_default();
                Shown::new(Some(name), check, decisions, Some(limiter), foresight)
            });
            let shown: Vec<_> = shown.collect();
            answer::full(call, summary, now_us, &shown, decider);
        } else {
            answer::short(call, summary, check_of(0).granted(summary.verdict));
        }

        drop(keys);
        for (name, (outcome, _)) in names.iter().zip(&done) {
            if let Some(event) = event(outcome) {
                call.notify(KeyspaceEvent::Own(event), name);
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

/// The rules of a key: all keys share one group, or each has its own.
fn group_of<'r>(request: &'r MCheckRequest<'_>, index: usize) -> Option<&'r Group> {
    match request.groups.as_slice() {
        [group] => Some(group),
        groups => groups.get(index),
    }
}

fn rules_of<'r>(request: &MCheckRequest<'_>, rules: &'r [Rule], index: usize) -> &'r [Rule] {
    group_of(request, index).and_then(|group| rules.get(group.rules.clone())).unwrap_or_default()
}

fn args_of<'a>(request: &MCheckRequest<'_>, written: Args<'a>, index: usize) -> Args<'a> {
    let group = group_of(request, index).map(|group| group.args.clone()).unwrap_or_default();
    written.from(group.start).first(group.len())
}
