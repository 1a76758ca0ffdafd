//! `RL.THROTTLE`, also called `CL.THROTTLE`: what redis-cell's command says, of
//! a token bucket.
//!
//! ```text
//! 1 limited       0 allowed, 1 limited or blocked
//! 2 limit         max_burst + 1, whatever the outcome
//! 3 remaining     units that would be allowed right now
//! 4 retry_after   seconds; -1: allowed; 2147483647: never, or not in 68 years
//! 5 reset_after   seconds; -1: never
//! ```
//!
//! Seconds are rounded up: who waits that long waits long enough. An exempt key
//! looks like an untouched one.

use super::rule_text_cache::RuleTextCache;
use super::scratch::{self, Scratch};
use super::{check, effect};
use crate::datatype::{self, LIMITER};
use crate::limit::{Access, Change, Check, Decision, Limiter, Outcome, Verdict};
use crate::parse::{self, Quantity};
use crate::rule::Rule;
use crate::server::{Arg, Call, CommandError, Details, WriteKey, clock};
use crate::{config, metrics};

/// `RL.THROTTLE key max_burst count_per_period period_s [quantity]`
pub fn throttle(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { decisions, buckets, rule_texts, .. }| {
        let name = call.key_name()?;
        let now_us = clock::now_us();
        let key = call.open_write(name, &LIMITER);
        // What the key holds comes from memory while the request is read.
        let request = parse::throttle(call.after_key().bytes(), buckets)?;
        let mut at =
            At { call, name, key: key?, now_us, rule: &[request.rule], decisions, rule_texts };
        let outcome = match request.quantity {
            Quantity::Take(cost) => at.take(cost)?,
            Quantity::Refund(units) => at.give_back(units),
        };
        call.reply_integers(&reply(request.limit.into(), &outcome));
        Ok(())
    })
}

/// A key, opened, the time, and the rule.
struct At<'c, 's> {
    call: &'c Call<'c>,
    name: Arg<'c>,
    key: WriteKey<'c, Limiter>,
    now_us: u64,
    rule: &'s [Rule; 1],
    decisions: &'s mut Vec<Decision>,
    rule_texts: &'s mut RuleTextCache,
}

impl At<'_, '_> {
    /// Decides, and consumes if the answer says so.
    fn take(&mut self, cost: u32) -> Result<Outcome, CommandError> {
        let check = Check::new(self.rule, cost, self.now_us);
        let max_states = config::max_states();
        let outcome = datatype::try_update(&mut self.key, |limiter| {
            let decided = limiter.check_within(max_states, &check, self.decisions);
            decided.map_err(|crowd| check::crowded(self.call.args().from(1), crowd))
        })?;
        if outcome.change != Change::Nothing {
            self.settle("admit", cost);
        } else if outcome.ban_shortened {
            effect::settle_ban(self.call, &mut self.key, self.name, self.now_us);
        }
        check::count(self.call, self.name, &outcome, self.rule, self.decisions, self.now_us);
        Ok(outcome)
    }

    /// Gives units back, and says what a quantity of 0 would then be told.
    fn give_back(&mut self, units: u32) -> Outcome {
        let (rules, now_us) = (self.rule, self.now_us);
        let given = self.key.value().map_or(0, |limiter| limiter.refund(units, now_us, rules));
        if given > 0 {
            self.settle("refund", units);
            metrics::refunded(given);
        }
        let check = Check::new(rules, 0, now_us);
        self.key.value().unwrap_or(&mut Limiter::default()).peek(&check, self.decisions)
    }

    fn settle(&mut self, word: &'static str, units: u32) {
        let Self { call, name, key, now_us, rule: [rule], rule_texts, .. } = self;
        effect::settle(call, key, *name, *now_us, *now_us, || {
            (word, Details::Units { units: units.into(), rules: rule_texts.args(rule) })
        });
    }
}

/// When a request can pass that never can: clients read -1 as allowed, or sleep
/// for it. The largest number that each of them can hold.
const NEVER_S: i64 = i32::MAX as i64;

/// The five integers in redis-cell's words.
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

/// Milliseconds in seconds, rounded up; never stays -1.
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
