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

use super::opened::{EffectArgs, Opened, event, refused};
use super::refund::give_back;
use super::request::{self, Scratch};
use crate::config::{self, Enforcement};
use crate::metrics;
use crate::server::{Call, CommandError, Texts};
use ratelimit_engine::check::{Decision, Outcome};
use ratelimit_engine::key::{Access, Check, CheckOptions, Limiter, Verdict};
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::parse::{self, Bucket, ParseError, ThrottleRequest};
use std::cell::OnceCell;
use std::slice;

/// `RL.THROTTLE`
pub fn throttle(call: &Call<'_>) -> Result<(), CommandError> {
    request::with(call, |Scratch { decisions, buckets, .. }| {
        // The prefetch of the key's value runs while the request is parsed.
        let opened = Opened::first(call, None);
        let ThrottleRequest { bucket, quantity } = parse::throttle(call.after_key().bytes())?;
        let make = || Ok::<_, ParseError>((bucket, (bucket.rule()?, OnceCell::new())));
        let is_cached = |cached: &Bucket| *cached == bucket;
        let (rule, text) = buckets.get_or_try_insert(bucket.numbers(), is_cached, make)?;
        let text = || text.get_or_init(|| Texts::new([rule.to_string()].iter())).args();
        let mut opened = opened?;
        if config::enforcement() == Enforcement::Observe {
            return observe(opened, &bucket, *rule, quantity, decisions);
        }
        let args = || EffectArgs::Borrowed(text());
        let outcome = decide(&mut opened, rule, None, quantity, decisions, args)?;
        call.reply_integers(&reply(bucket.limit.into(), &outcome));
        opened.close(event(&outcome));
        Ok(())
    })
}

/// Decides a request under a rule, and propagates it with the rule's text.
#[inline(always)]
fn decide<'e>(
    opened: &mut Opened<'_>,
    rule: &'e Rule,
    options: Option<&'e CheckOptions<'e>>,
    quantity: i32,
    decisions: &mut Vec<Decision>,
    text: impl FnOnce() -> EffectArgs<'e>,
) -> Result<Outcome, CommandError> {
    let (now_us, rules) = (opened.at_us, slice::from_ref(rule));
    opened.lapse();
    if quantity < 0 {
        give_back(opened, quantity.unsigned_abs(), rules, text);
        let check = Check::new(rules, 0, now_us);
        return Ok(opened.key.value().unwrap_or(&Limiter::default()).peek(&check, decisions));
    }
    let check = Check { options, ..Check::new(rules, quantity.unsigned_abs(), now_us) };
    let mut new = Limiter::default();
    let limiter = opened.key.value_mut().unwrap_or(&mut new);
    let outcome = limiter
        .check_within(config::bounds(), &check, decisions)
        .map_err(|error| refused(opened.key.call().args().from(1), &error))?;
    opened.store(new)?;
    metrics::count_check(outcome.summary.verdict, now_us);
    if opened.after_check(&check, decisions, &outcome, text) {
        metrics::UNENFORCED.add(opened.spared(&check, decisions, &outcome).into());
    }
    Ok(outcome)
}

/// Decides a request under the rule as a shadow, and replies as for an exempt key.
#[cold]
fn observe(
    mut opened: Opened<'_>,
    bucket: &Bucket,
    mut rule: Rule,
    quantity: i32,
    decisions: &mut Vec<Decision>,
) -> Result<(), CommandError> {
    rule.observe();
    let options = CheckOptions { observes: true, ..CheckOptions::default() };
    let text = || EffectArgs::Copied(Texts::new([format!("{rule:#}")].iter()));
    let outcome = decide(&mut opened, &rule, Some(&options), quantity, decisions, text)?;
    reply_exempt(opened.key.call(), bucket);
    opened.close(event(&outcome));
    Ok(())
}

/// Replies as for an exempt key.
pub fn reply_exempt(call: &Call<'_>, bucket: &Bucket) {
    let limit = bucket.limit.into();
    call.reply_integers(&[0, limit, limit, -1, 0]);
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
