//! The honest wait behind a clock that stepped back.
//!
//! A state that lies more than a window ahead of the clock is forgotten, and
//! counts again once the clock has come near it. A rule then denies again, so
//! the longest wait of the rules that deny now may end in the midst of that:
//!
//! ```text
//! denies now     [========)
//! comes back          [=======)
//! comes back                      [====)
//!                now          ^ the wait
//! ```
//!
//! Each rule, once it admits, goes on admitting. So it denies in one interval:
//! from when its state comes back to when it admits. One reading at the former
//! tells both ends, and the wait ends where no interval goes on: a sort and one
//! pass, however many states bring the next one back.

use super::decision::{Decision, Verdict, length, longer};
use crate::limit::algorithm::exact::millis_up;
use crate::limit::series::needs::Needs;
use crate::limit::value::limiter::{Check, Limiter};

/// A rule denies again, from the one wait to before the other.
#[derive(Clone, Copy, Debug)]
struct Denial {
    from_ms: i64,
    until_ms: i64,
}

/// The wait, from this one on, after which every rule admits, those included
/// whose state is forgotten now but will count then.
pub(crate) fn until_all_admit<'a>(
    checks: impl Iterator<Item = (&'a Limiter, Check<'a>)>,
    first_ms: i64,
) -> i64 {
    let mut denials = Vec::new();
    for (limiter, check) in checks {
        limiter.add_denials_to_come(&check, &mut denials);
    }
    denials.sort_unstable_by_key(|denial| denial.from_ms);
    let mut wait_ms = first_ms;
    for Denial { from_ms, until_ms } in denials {
        if from_ms > length(wait_ms) {
            break;
        }
        wait_ms = longer(wait_ms, until_ms);
    }
    wait_ms
}

impl Limiter {
    /// What rules will deny whose state is forgotten now.
    fn add_denials_to_come(&self, check: &Check<'_>, denials: &mut Vec<Denial>) {
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
            let Some(reading) = state.read(rule, window_us, now_us, check.cost) else { continue };
            let decision = Decision::of(rule, reading, &Check { now_us, ..*check });
            if decision.verdict == Verdict::Limited {
                let from_ms = i64::try_from(back_ms).unwrap_or(i64::MAX);
                let until_ms = from_ms.saturating_add(length(decision.wait_ms));
                denials.push(Denial { from_ms, until_ms });
            }
        }
    }
}
