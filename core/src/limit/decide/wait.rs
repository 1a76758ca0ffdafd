//! The honest wait when a rule that does not deny now will deny later. Two rules do:
//!
//! - one whose state lies more than a window ahead of a clock that stepped back. The rule ignores
//!   the state, and sees it again once the clock has come near it.
//! - one of a key where the check repeats a hold. The rule is not evaluated before the hold ends.
//!
//! So the longest wait of the rules that deny now may end within such a denial:
//!
//! ```text
//! denies now     [========)
//! comes back          [=======)
//! comes back                      [====)
//!                now          ^ the wait
//! ```
//!
//! A rule that admits keeps admitting. So it denies in one interval: from when it is evaluated, or
//! its state comes back, until it admits. One look ahead at the key as it will be at the start of
//! the interval gives the interval's end. The wait ends at the first moment outside all intervals:
//! one sort and one pass find it, however many intervals overlap. The look is skipped for a key
//! with very many holds: the wait is then a lower bound, see `foresight`.

use super::decision::{length, longer};
use super::foresight::Foresight;
use crate::limit::exact::millis_up;
use crate::limit::holds::Holds;
use crate::limit::series::needs::Needs;
use crate::limit::value::check::{Check, Verdict};
use crate::limit::value::limiter::Limiter;
use crate::rule::MS_US;
use std::borrow::Cow;

/// A later denial: from the first wait until before the second; -1: for good.
#[derive(Clone, Copy, Debug)]
struct LaterDenial {
    from_ms: i64,
    until_ms: i64,
}

/// A key of a denied check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting<'a> {
    pub limiter: &'a Limiter,
    pub check: Check<'a>,
    /// When the hold that the check repeats ends, if it repeats one.
    pub repeats_until_us: Option<u64>,
}

/// The least wait, at least `first_ms`, after which every rule admits, including those that deny
/// only later.
pub(crate) fn until_all_admit<'a>(
    keys: impl Iterator<Item = Waiting<'a>>,
    first_ms: i64,
    foresight: &mut Foresight,
) -> i64 {
    let mut denials = Vec::new();
    for Waiting { limiter, check, repeats_until_us } in keys {
        match repeats_until_us {
            None => limiter.add_denials_of_passed_over(&check, 0, foresight, &mut denials),
            Some(end_us) => {
                limiter.add_denials_after_repeats(&check, end_us, foresight, &mut denials);
            }
        }
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

impl LaterDenial {
    /// A denial decided after `from_ms`, with this wait from then on; `None` if there is no wait.
    fn of(wait_ms: i64, from_ms: i64) -> Option<Self> {
        let until_ms = match wait_ms {
            0.. => from_ms.saturating_add(wait_ms),
            never => never,
        };
        (wait_ms != 0).then_some(Self { from_ms, until_ms })
    }
}

impl<'a> Check<'a> {
    /// The check when it is repeated at `at_us` or up to a millisecond later, and after how many
    /// milliseconds.
    fn asked_again(&self, at_us: u64) -> (Check<'a>, i64) {
        let after_ms = millis_up(at_us.saturating_sub(self.now_us));
        let now_us = self.now_us.saturating_add(after_ms.saturating_mul(MS_US));
        (Check { now_us, ..*self }, i64::try_from(after_ms).unwrap_or(i64::MAX))
    }
}

impl Limiter {
    /// Adds the denials of a key's rules from `end_us` on, when the hold ends that the check
    /// repeats.
    fn add_denials_after_repeats(
        &self,
        check: &Check<'_>,
        end_us: u64,
        foresight: &mut Foresight,
        denials: &mut Vec<LaterDenial>,
    ) {
        let (check, after_ms) = check.asked_again(end_us);
        let Some(then) = self.foresee_key(check.now_us, foresight) else { return };
        let answer = then.peek_within(&check, &mut Vec::new(), foresight).summary;
        if answer.verdict == Verdict::Limited {
            denials.extend(LaterDenial::of(answer.wait_ms, after_ms));
        }
        then.add_denials_of_passed_over(&check, after_ms, foresight, denials);
    }

    /// Adds the later denials of rules that ignore their state at the time of this check, which is
    /// made in `after_ms` milliseconds.
    fn add_denials_of_passed_over(
        &self,
        check: &Check<'_>,
        after_ms: i64,
        foresight: &mut Foresight,
        denials: &mut Vec<LaterDenial>,
    ) {
        let needs = Needs::of(check.rules);
        for rule in check.rules.iter().filter(|rule| !rule.is_shadow()) {
            let Some(state) = self.state_of(rule) else { continue };
            let window_us = needs.window_us_of(rule);
            let back_us = state.meter().last_us().saturating_sub(window_us);
            if back_us <= check.now_us {
                continue;
            }
            let (check, back_ms) = check.asked_again(back_us);
            let Some(then) = self.foresee_key(check.now_us, foresight) else { return };
            let admits = then.admits_with_lapses(rule, needs, &check, foresight);
            let wait_ms = admits.after(check.now_us).millis();
            denials.extend(LaterDenial::of(wait_ms, after_ms.saturating_add(back_ms)));
        }
    }

    /// The key as rules will read it at `at_us`; `None` if that exceeds the budget.
    fn foresee_key(&self, at_us: u64, foresight: &mut Foresight) -> Option<Cow<'_, Self>> {
        let charges = self.holds().map_or(0, Holds::rules);
        let may_copy = !self.lapse_matters(at_us) || foresight.may_copy(self.states(), charges);
        may_copy.then(|| self.as_of(at_us))
    }
}
