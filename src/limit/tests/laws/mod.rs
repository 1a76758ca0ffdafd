//! What holds for every rule, every combination of rules and all traffic.
//!
//! ```text
//! rules, traffic   what the properties are tried on
//! models           every algorithm equals its naive model
//! atomic           all or nothing
//! callers          no caller erases what another needs
//! wait             the honest wait
//! turns            a queue's turns keep their distance
//! room             `remaining` and `reset_ms` are exact
//! refund           a refund restores what was
//! many             all of it over several keys at once
//! straight         the short way to an answer is as good as the long one
//! replica          recording what was decided gives an equal limiter
//! crowd            how many states a key may hold
//! codec            decode(encode(x)) = x, and decoding is total
//! expiry           expiry is never early
//! drift            nothing drifts in ten million requests
//! examples         the worked examples of the documentation
//! ```

mod atomic;
mod callers;
mod codec;
mod crowd;
mod drift;
mod examples;
mod expiry;
mod fast;
mod mcheck;
mod models;
mod refund;
mod replica;
mod room;
mod rules;
mod traffic;
mod turns;
mod wait;

use self::traffic::Action;
use crate::limit::{Check, Decision, Limiter, Outcome, Verdict};
use crate::rule::Kind;
use crate::rule::{Period, Rule, RuleSpec, Unit};
use proptest::test_runner::Config;

/// How often a property is tried; `PROPTEST_CASES` asks for another number.
fn cases(number: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    Config { max_shrink_iters: 20_000, ..Config::with_cases(asked.unwrap_or(number)) }
}

/// `limit` units in `count` of a unit of time.
fn spec(kind: Kind, limit: u64, count: u64, unit: Unit) -> RuleSpec {
    RuleSpec::new(kind, limit, Period { count, unit })
}

fn rule(kind: Kind, limit: u64, count: u64, unit: Unit) -> Rule {
    spec(kind, limit, count, unit).validate().unwrap()
}

/// A peek, with what each rule says.
fn peek(limiter: &Limiter, rules: &[Rule], cost: u32, now_us: u64) -> (Outcome, Vec<Decision>) {
    let mut decisions = Vec::new();
    let check = Check::new(rules, cost, now_us);
    let outcome = limiter.peek(&check, &mut decisions);
    limiter.fill_resets(&check, &mut decisions);
    (outcome, decisions)
}

/// A check, with what each rule says.
fn check(
    limiter: &mut Limiter,
    rules: &[Rule],
    cost: u32,
    now_us: u64,
) -> (Outcome, Vec<Decision>) {
    let mut decisions = Vec::new();
    let check = Check::new(rules, cost, now_us);
    let outcome = limiter.check(&check, &mut decisions);
    limiter.fill_resets(&check, &mut decisions);
    (outcome, decisions)
}

/// Makes a call, whatever it answers.
fn act(limiter: &mut Limiter, rules: &[Rule], now_us: u64, action: Action) {
    match action {
        Action::Check(cost) => drop(check(limiter, rules, cost, now_us)),
        Action::Peek(cost) => drop(peek(limiter, rules, cost, now_us)),
        Action::Refund(units, of_rules) => {
            limiter.refund(units, now_us, if of_rules { rules } else { &[] });
        }
        Action::Reset => drop(limiter.reset(now_us)),
    }
}

fn would_pass(limiter: &Limiter, rules: &[Rule], cost: u32, now_us: u64) -> bool {
    peek(limiter, rules, cost, now_us).0.summary.verdict == Verdict::Allowed
}

/// The limiter without its block or exemption.
fn unblocked(limiter: &Limiter) -> Limiter {
    let mut limiter = limiter.clone();
    limiter.set_access(None);
    limiter
}

/// A time after a time, if the wait is one that arithmetic can reach.
fn later(now_us: u64, ms: i64) -> Option<u64> {
    let ms = u64::try_from(ms).ok().filter(|&ms| ms < 100_000_000_000_000)?;
    Some(now_us + ms * 1_000)
}
