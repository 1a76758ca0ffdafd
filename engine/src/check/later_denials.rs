//! The honest wait when something that does not deny now will deny later. Four things do:
//!
//! - A rule whose state lies more than a window ahead of a clock that stepped back. The rule ignores
//!   the state, and sees it again once the clock has come near it.
//! - A pause that lies ahead of the clock by more than its length. It comes back in the same way.
//! - A rule of a key where the check repeats a hold. The rule is not evaluated before the hold ends.
//! - A hold that lies ahead of the clock by more than its length. A check stores that the hold has
//!   lapsed, but a peek does not. So after a peek, the hold comes back in the same way.
//!
//! Holds that come back may also make rules admit earlier, because they then give their charges back
//! at their ends. So they divide the wait into spans: in each span other holds live, and the wait is
//! found on the key as it is when the span starts. The first span in which the key admits has the
//! honest wait.
//!
//! Within a span, the longest wait of the rules that deny now may end within such a denial:
//!
//! ```text
//! denies now     [========)
//! comes back          [=======)
//! comes back                      [====)
//!                now          ^ the wait
//! ```
//!
//! A rule that admits keeps admitting. So each rule denies in one interval. The interval starts when
//! the rule is evaluated again or its state comes back, and ends when the rule admits. To find the
//! end, the command looks ahead once, at the key as it will be when the interval starts. The wait
//! ends at the first moment outside all intervals: one sort and one pass find that moment, however
//! many intervals overlap. A look that exceeds the budget is skipped: the wait is then a lower
//! bound, see `budget`.

use super::{View, length, longer};
use crate::algorithm::Moment;
use crate::exact::millis_up;
use crate::key::{Check, Holds, Limiter, Verdict};
use crate::rule::MS_US;
use alloc::{borrow::Cow, vec::Vec};

/// The milliseconds until a denial starts, and its wait from then on; -1: never.
type LaterDenial = (i64, i64);

/// The least wait, at least `wait_ms`, after which every rule of these keys admits, including those
/// that deny only later.
pub(crate) fn until_all_admit<'a>(keys: impl Iterator<Item = View<'a>>, mut wait_ms: i64) -> i64 {
    let mut denials = Vec::new();
    keys.for_each(|key| key.add_later_denials(&mut denials));
    denials.sort_unstable();
    for (from_ms, then_ms) in denials {
        if from_ms > length(wait_ms) {
            break;
        }
        let until_ms = if then_ms < 0 { then_ms } else { from_ms.saturating_add(then_ms) };
        wait_ms = longer(wait_ms, until_ms);
    }
    wait_ms
}

impl<'a> View<'a> {
    fn add_later_denials(self, denials: &mut Vec<LaterDenial>) {
        let Some(end_us) = self.limiter.repeats_until(self.check) else {
            return self.add_denials_from_ahead(0, denials);
        };
        let Some((limiter, check, after_ms)) = self.later(end_us) else { return };
        let then = View { limiter: &limiter, check: &check, ..self };
        let answer = limiter.peek_within(&check, &mut Vec::new(), self.budget).summary;
        if answer.verdict == Verdict::Limited {
            denials.push((after_ms, answer.wait_ms));
        }
        then.add_denials_from_ahead(after_ms, denials);
    }

    /// Adds the later denials of a pause and of states that lie ahead of the clock at the time of
    /// this check. The check is made in `after_ms` milliseconds.
    fn add_denials_from_ahead(self, after_ms: i64, denials: &mut Vec<LaterDenial>) {
        let now_us = self.check.now_us;
        if let Some(pause) = self.limiter.pause().filter(|it| it.not_before_us() > now_us) {
            let back_ms = Moment::At(pause.not_before_us()).ms_after(now_us);
            let wait_ms = pause.left_ms(now_us).saturating_sub(back_ms);
            denials.push((after_ms.saturating_add(back_ms), wait_ms));
        }
        for rule in self.check.rules.iter().filter(|rule| !rule.is_shadow()) {
            let Some(state) = self.limiter.state_of(rule) else { continue };
            let back_us = state.meter().last_us().saturating_sub(self.check.window_us_of(rule));
            if back_us <= self.check.now_us {
                continue;
            }
            let Some((limiter, check, back_ms)) = self.later(back_us) else { return };
            let then = View { limiter: &limiter, check: &check, ..self };
            let wait_ms = then.admits_with_lapses(rule).ms_after(check.now_us);
            denials.push((after_ms.saturating_add(back_ms), wait_ms));
        }
    }

    /// The key and the check as they are at `at_us` or up to a millisecond later, and the number of
    /// milliseconds until then. `None` if copying the key exceeds the budget.
    pub(super) fn later(self, at_us: u64) -> Option<(Cow<'a, Limiter>, Check<'a>, i64)> {
        let Self { limiter, check, budget } = self;
        let after_ms = millis_up(at_us.saturating_sub(check.now_us));
        let now_us = check.now_us.saturating_add(after_ms.saturating_mul(MS_US));
        let charges = limiter.holds().map_or(0, Holds::rules);
        let may_copy = !limiter.lapse_is_due(now_us) || budget.may_copy(limiter.states(), charges);
        let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
        may_copy.then(|| (limiter.as_of(now_us), Check { now_us, ..*check }, after_ms))
    }
}
