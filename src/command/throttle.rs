//! `RL.THROTTLE`, also called `CL.THROTTLE`: redis-cell's command and replies, on this module's
//! token bucket.
//!
//! ```text
//! 1 limited       0 allowed, 1 limited or blocked
//! 2 limit         max_burst + 1, whatever the outcome
//! 3 remaining     units that would be allowed right now
//! 4 retry_after   seconds; -1: allowed; 2147483647: never, or not in 68 years
//! 5 reset_after   seconds; -1: never
//! ```
//!
//! Seconds are rounded up, so a client that waits for them does not come back too early. An exempt
//! key looks like one that was never checked.

use super::bucket_cache::CachedRule;
use super::changed::Changed;
use super::checked::{Checked, refused};
use super::scratch::{self, Scratch};
use crate::datatype::{self, LIMITER};
use crate::server::{Arg, Call, CommandError, KeyspaceEvent, WriteKey, clock};
use crate::{config, metrics};
use ratelimit_core::effect::{Action, BAN_EVENT};
use ratelimit_core::limit::{Access, Check, Decision, Limiter, Outcome, Verdict};
use ratelimit_core::parse::{self, ParseError, Quantity, ThrottleRequest};
use std::slice;

/// `RL.THROTTLE key max_burst count_per_period period_s [quantity]`
pub fn throttle(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { decisions, buckets, .. }| {
        let name = call.key_name()?;
        let now_us = clock::now_us();
        let key = call.open_write(name, &LIMITER);
        // The prefetch of the key's value runs while the request is parsed.
        let ThrottleRequest { bucket, quantity } = parse::throttle(call.after_key().bytes())?;
        let make = || Ok::<_, ParseError>((bucket, CachedRule::new(bucket.rule()?)));
        let rule = buckets.get_or_try_insert(bucket.numbers(), |cached| *cached == bucket, make)?;
        let limit = bucket.limit.into();
        let mut bucket = Opened { call, name, key: key?, now_us, rule, decisions };
        let changed = Changed { call, name, at_us: now_us, clock_us: now_us };
        changed.lapse(&mut bucket.key);
        let outcome = match quantity {
            Quantity::Take(cost) => bucket.take(cost)?,
            Quantity::Refund(units) => bucket.refund(units),
        };
        call.reply_integers(&reply(limit, &outcome));
        drop(bucket);
        if outcome.ban_shortened {
            call.notify(KeyspaceEvent::Own(BAN_EVENT), name);
        }
        Ok(())
    })
}

/// The open key of a call, and the bucket rule to check it under.
struct Opened<'c, 's> {
    call: &'c Call<'c>,
    name: Arg<'c>,
    key: WriteKey<'c, Limiter>,
    now_us: u64,
    rule: &'s CachedRule,
    decisions: &'s mut Vec<Decision>,
}

impl Opened<'_, '_> {
    /// Decides, and consumes if the request is allowed.
    fn take(&mut self, cost: u32) -> Result<Outcome, CommandError> {
        let Self { call, name, key, now_us, rule, decisions } = self;
        let check = Check::new(slice::from_ref(&rule.rule), cost, *now_us);
        let mut new = Limiter::default();
        let limiter = key.value().unwrap_or(&mut new);
        let outcome = limiter
            .check_within(config::bounds(), &check, decisions)
            .map_err(|error| refused(call.args().from(1), &error))?;
        datatype::store(key, new)?;
        metrics::checked(outcome.summary.verdict, *now_us);
        let checked = Checked { check, decisions, outcome: &outcome };
        checked.finish(call, key, *name, *now_us, || rule.args());
        Ok(outcome)
    }

    /// Gives units back, then decides for a quantity of 0.
    fn refund(&mut self, units: u32) -> Outcome {
        let Self { call, name, key, now_us, rule, decisions } = self;
        let rules = slice::from_ref(&rule.rule);
        let refunded = key.value().map_or(0, |limiter| limiter.refund(units, *now_us, rules));
        if refunded > 0 {
            let changed = Changed { call, name: *name, at_us: *now_us, clock_us: *now_us };
            changed.finish(key, || (Action::Refund { units }, rule.args()));
            metrics::refunded(refunded);
        }
        let check = Check::new(rules, 0, *now_us);
        key.value().unwrap_or(&mut Limiter::default()).peek(&check, decisions)
    }
}

/// The wait of a request that can never pass: the largest number that every client can store.
/// Clients would take -1 for allowed, or try to sleep for -1 seconds.
const NEVER_S: i64 = i32::MAX as i64;

/// The five integers in redis-cell's form.
fn reply(limit: i64, outcome: &Outcome) -> [i64; 5] {
    let decision = outcome.summary;
    if outcome.access == Some(Access::Exempt) {
        return [0, limit, limit, -1, 0];
    }
    let (limited, retry_after) = match decision.verdict {
        Verdict::Allowed => (0, -1),
        Verdict::Limited | Verdict::Blocked if decision.wait_ms < 0 => (1, NEVER_S),
        Verdict::Limited | Verdict::Blocked => (1, seconds(decision.wait_ms).min(NEVER_S)),
    };
    [limited, limit, decision.remaining, retry_after, seconds(decision.reset_ms)]
}

/// Converts milliseconds to seconds, rounded up; -1 (never) stays -1.
const fn seconds(ms: i64) -> i64 {
    let whole = ms / 1_000;
    if ms % 1_000 > 0 {
        whole.saturating_add(1)
    } else if ms < 0 {
        -1
    } else {
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (ms, s) in [
            (0, 0),
            (1, 1),
            (999, 1),
            (1_000, 1),
            (1_001, 2),
            (i64::MAX, i64::MAX / 1_000 + 1),
            (-1, -1),
        ] {
            assert_eq!(seconds(ms), s, "{ms}");
        }
    }
}
