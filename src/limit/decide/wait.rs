//! The honest wait behind a clock that stepped back.
//!
//! A rule passes over a state that lies more than a window ahead of the clock, and
//! sees it again once the clock has come near it. The rule may then deny again, so the
//! longest wait of the rules that deny now may end within such a denial:
//!
//! ```text
//! denies now     [========)
//! comes back          [=======)
//! comes back                      [====)
//!                now          ^ the wait
//! ```
//!
//! Each rule, once it admits, goes on admitting. So it denies in one interval: from
//! when its state comes back to when it admits. One reading at the start of the
//! interval gives its end. The wait ends at the first moment outside all intervals: a
//! sort and one pass find it, however many intervals overlap in a chain.

use super::decision::{Decision, length, longer};
use crate::limit::exact::millis_up;
use crate::limit::series::needs::Needs;
use crate::limit::value::check::{Check, Verdict};
use crate::limit::value::limiter::Limiter;

/// A rule denies again, from the first wait until before the second.
#[derive(Clone, Copy, Debug)]
struct LaterDenial {
    from_ms: i64,
    until_ms: i64,
}

/// The least wait, `first_ms` or longer, after which every rule admits, also those
/// whose state is passed over now and counts then.
pub(crate) fn until_all_admit<'a>(
    checks: impl Iterator<Item = (&'a Limiter, Check<'a>)>,
    first_ms: i64,
) -> i64 {
    let mut denials = Vec::new();
    for (limiter, check) in checks {
        limiter.add_later_denials(&check, &mut denials);
    }
    denials.sort_unstable_by_key(|denial| denial.from_ms);
    let mut wait_ms = first_ms;
    for LaterDenial { from_ms, until_ms } in denials {
        if from_ms > length(wait_ms) {
            break;
        }
        wait_ms = longer(wait_ms, until_ms);
    }
    wait_ms
}

impl Limiter {
    /// The denials of rules whose state is passed over now.
    fn add_later_denials(&self, check: &Check<'_>, denials: &mut Vec<LaterDenial>) {
        let needs = Needs::of(check.rules);
        for rule in check.rules.iter().filter(|rule| !rule.is_shadow()) {
            let Some(state) = self.state_of(rule) else { continue };
            let window_us = needs.window_us_of(rule);
            let back_us = state.meter().last_us().saturating_sub(window_us);
            if back_us <= check.now_us {
                continue;
            }
            let back_ms = millis_up(back_us.saturating_sub(check.now_us));
            let now_us = check.now_us.saturating_add(back_ms.saturating_mul(1_000));
            let cost = check.cost_of(rule);
            let Some(reading) = state.read(rule, window_us, now_us, cost) else { continue };
            let decision = Decision::of(rule, reading, &Check { now_us, ..*check });
            if decision.verdict == Verdict::Limited {
                let from_ms = i64::try_from(back_ms).unwrap_or(i64::MAX);
                let until_ms = from_ms.saturating_add(length(decision.wait_ms));
                denials.push(LaterDenial { from_ms, until_ms });
            }
        }
    }
}
