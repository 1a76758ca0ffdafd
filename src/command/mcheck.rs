//! `RL.MCHECK`: may this request pass under several keys at once?
//!
//! All keys are opened before anything is decided, so a key of another type is
//! an error that changes nothing. What a check did is told key by key; the
//! server makes one transaction of it.

use super::answer::{self, Shown};
use super::check;
use super::effect::{self, Done};
use super::rule_args::RuleArgs;
use super::scratch::{self, Scratch};
use super::top;
use crate::datatype::{Held, LIMITER};
use crate::limit::{self, Check, KeyCheck};
use crate::parse::{Group, MCheckRequest};
use crate::rule::Rule;
use crate::server::{Args, Call, CommandError, KeysRequest, KeyspaceEvent, clock};
use crate::{config, metrics, parse};

/// `RL.MCHECK numkeys key [key ...] [COST n] [META text] [AT unix-us] [FULL]
/// rule [rule ...] [NEXT rule [rule ...]] ...`
pub fn mcheck(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, decisions, resolver, .. }| {
        let args = call.args().from(1).bytes();
        let request = parse::many(args, &config::limits(), resolver, rules)?;
        let names = call.args().from(2).first(request.keys);
        let clock_us = clock::now_us();
        let now_us = request.check.at_us.unwrap_or(clock_us);
        let asked = |index| Check {
            rules: rules_of(&request, rules, index),
            cost: request.check.cost,
            now_us,
            meta: request.check.meta,
        };

        let open = |name| Ok(Held::new(call.open_write(name, &LIMITER)?));
        let mut keys = names.iter().map(open).collect::<Result<Vec<_>, CommandError>>()?;
        let parts = keys.iter_mut().enumerate();
        let mut parts: Vec<_> =
            parts.map(|(index, key)| KeyCheck::new(key.limiter(), asked(index))).collect();
        let conclusion = limit::check_keys(&mut parts, config::max_states(), decisions)
            .map_err(|crowd| check::crowded(names, crowd))?;

        if request.check.full {
            for part in &parts {
                let decisions = decisions.get_mut(part.decisions().clone()).unwrap_or_default();
                part.limiter().fill_resets(part.check(), decisions);
            }
            let shown = |(part, name)| Shown {
                name: Some(name),
                rules: KeyCheck::check(part).rules,
                decisions: decisions.get(part.decisions().clone()).unwrap_or_default(),
                limiter: Some(part.limiter()),
            };
            let shown: Vec<_> = parts.iter().zip(names.iter()).map(shown).collect();
            answer::full(call, conclusion.summary, now_us, &shown, conclusion.decider);
        } else {
            answer::short(call, conclusion.summary);
        }

        let verdict = conclusion.summary.verdict;
        metrics::checked(verdict, clock_us);
        resolver.named.count(verdict);
        for (part, name) in parts.iter().zip(names.iter()) {
            let decisions = decisions.get(part.decisions().clone()).unwrap_or_default();
            metrics::looked_at(part.access(), part.ban().is_some(), part.check().rules, decisions);
            if part.denied() {
                top::denied(call, name, clock_us);
            }
        }

        let done = |(index, part): (usize, &KeyCheck<'_>)| Done {
            check: asked(index),
            change: part.change(),
            banned: part.ban().is_some() || part.ban_shortened(),
        };
        let done: Vec<Done<'_>> = parts.iter().enumerate().map(done).collect();
        drop(parts);
        let written = call.args().last(request.check.rule_args);
        for (index, ((key, name), done)) in keys.iter_mut().zip(names.iter()).zip(&done).enumerate()
        {
            if done.is_something() {
                key.keep()?;
                let mut words = None;
                let written = args_of(&request, written, index);
                effect::settle_check(call, key.key(), name, done, clock_us, || {
                    words.insert(RuleArgs::of(written, &resolver.named)).args()
                });
            }
        }

        drop(keys);
        for (name, done) in names.iter().zip(&done) {
            if done.banned {
                call.notify(KeyspaceEvent::Own(c"rl.ban"), name);
            }
        }
        Ok(())
    })
}

/// Where the keys are, for a server that cannot read it off the command's
/// description.
pub fn keys(request: &KeysRequest<'_>) {
    let count = request.args().get(1).and_then(|count| parse::digits(count.bytes()));
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    for position in 2..request.args().len().min(count.saturating_add(2)) {
        request.add(position);
    }
}

/// One group serves all keys, or each has its own.
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
