//! The laws: properties of every rule, every combination of rules and all traffic.
//!
//! ```text
//! rules, traffic   the input of the laws
//! models           every algorithm equals its naive model
//! all_or_nothing   a check consumes from all rules or from none
//! shared_log       no caller of a log erases what another caller needs
//! honest_wait      a denied request is allowed after its wait, and not before
//! meters           each rule is charged its cost in the check
//! leaky_turns      the turns of a leaky bucket keep their distance
//! exact_numbers    `remaining`, `reset_ms` and `next_ms` are exact
//! refund           a refund restores what was consumed
//! mcheck           the laws hold over several keys at once
//! pools            which key a check through one of several keys takes, and what it answers
//! everything       groups of all rules share a key, with holds, refunds and a clock that steps
//! holds            holds change no decision, settle as if the check had cost less, and return
//!                  no unit twice
//! ladders          the count of a key's bans chooses the rung, and is forgotten after its time
//! fast_path        the fast path answers as the general path does
//! replica          a replica that records what was decided stays equal
//! max_states       a key never holds more states than it may
//! codec            decode(encode(x)) = x, and decoding is total
//! expiry           expiry is never early, and a state that has ended is empty for every rule
//! clock            steps of the clock neither lock a client out nor let a flood through
//! drift            nothing drifts in ten million requests
//! examples         the worked examples of the documentation
//! ```

mod all_or_nothing;
mod clock;
mod clock_of_holds;
mod codec;
mod drift;
mod everything;
mod exact_numbers;
mod examples;
mod expiry;
mod fast_path;
pub mod holds;
mod honest_wait;
mod ladders;
mod leaky_turns;
mod max_states;
mod mcheck;
mod meters;
pub mod models;
mod pools;
mod refund;
mod replica;
pub mod rules;
mod shared_log;
pub mod traffic;

use self::traffic::Action;
use crate::check::{Budget, Decision, Outcome};
use crate::key::{Check, Limiter, Verdict};
use crate::rule::Kind;
use crate::rule::{Period, Rule, RuleSpec, Unit};
use proptest::test_runner::Config;
use proptest::test_runner::FileFailurePersistence::Direct;

/// Makes a law try this number of cases, or without `RATELIMIT_LONG` half of them if these are thousands.
/// `PROPTEST_CASES` overrides both. Before them, each law tries the seeds with which any law has failed.
pub fn cases(number: u32) -> Config {
    let chosen = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let is_long = number < 1_000 || std::env::var_os("RATELIMIT_LONG").is_some();
    let number = if is_long { number } else { number / 2 };
    Config {
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(Direct("proptest-regressions.txt"))),
        ..Config::with_cases(chosen.unwrap_or(number))
    }
}

/// `limit` units per `count` units of time.
fn spec(kind: Kind, limit: u64, count: u64, unit: Unit) -> RuleSpec {
    RuleSpec::new(kind, limit, Period { count, unit })
}

fn rule(kind: Kind, limit: u64, count: u64, unit: Unit) -> Rule {
    spec(kind, limit, count, unit).validate().unwrap()
}

/// A peek, with each rule's decision.
fn peek(limiter: &Limiter, rules: &[Rule], cost: u32, now_us: u64) -> (Outcome, Vec<Decision>) {
    let mut decisions = Vec::new();
    let check = Check::new(rules, cost, now_us);
    let outcome = limiter.peek(&check, &mut decisions);
    limiter.as_of(now_us).fill_resets(&check, &mut decisions, &Budget::of_command());
    (outcome, decisions)
}

/// A check, with each rule's decision.
fn check(
    limiter: &mut Limiter,
    rules: &[Rule],
    cost: u32,
    now_us: u64,
) -> (Outcome, Vec<Decision>) {
    let mut decisions = Vec::new();
    let check = Check::new(rules, cost, now_us);
    let outcome = limiter.check(&check, &mut decisions);
    limiter.fill_resets(&check, &mut decisions, &Budget::of_command());
    (outcome, decisions)
}

/// Makes a call and ignores its answer.
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

/// The cost of a rule in a check of this default cost.
fn cost_of(rule: &Rule, cost: u32) -> u32 {
    Check::new(&[], cost, 0).cost_of(rule)
}

/// True if a check of this default cost can never pass.
fn hopeless(rules: &[Rule], cost: u32) -> bool {
    rules.iter().any(|rule| !rule.is_shadow() && !rule.can_ever_admit(cost_of(rule, cost)))
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

/// The time after a wait; `None` if the time in microseconds overflows.
fn later(now_us: u64, ms: i64) -> Option<u64> {
    let ms = u64::try_from(ms).ok().filter(|&ms| ms < 100_000_000_000_000)?;
    Some(now_us + ms * 1_000)
}
