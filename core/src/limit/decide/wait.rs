//! The honest wait where a rule that does not deny now denies later. There are two such rules:
//!
//! - one whose state lies more than a window ahead of a clock that stepped back. The rule
//!   passes over the state, and sees it again once the clock has come near it.
//! - one of a key where the check repeats a hold. The rule is not asked before the hold ends.
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
//! Each rule, once it admits, goes on admitting. So it denies in one interval: from
//! when it is asked, or its state comes back, to when it admits. One look at the start of the
//! interval, at the key as it will be then, gives its end. The wait ends at the first moment
//! outside all intervals: a sort and one pass find it, however many intervals overlap in a chain.
//! A look at a key with very many holds may be left out: the wait is then a lower bound, see
//! `foresight`.

use super::decision::{length, longer};
use super::foresight::Foresight;
use crate::limit::exact::millis_up;
use crate::limit::holds::Holds;
use crate::limit::value::check::{Check, Verdict};
use crate::limit::value::limiter::Limiter;
use crate::rule::MS_US;
use std::borrow::Cow;

/// A rule denies later, from the first wait until before the second; -1: for good.
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
    /// When the hold ends that the check repeats, if it does.
    pub repeats_until_us: Option<u64>,
}

/// The least wait, `first_ms` or longer, after which every rule admits, also those that deny
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
    /// A denial with this wait, which is decided after some time; `None` if there is no wait.
    fn of(wait_ms: i64, from_ms: i64) -> Option<Self> {
        let until_ms = match wait_ms {
            0.. => from_ms.saturating_add(wait_ms),
            never => never,
        };
        (wait_ms != 0).then_some(Self { from_ms, until_ms })
    }
}

impl<'a> Check<'a> {
    /// The check as it is asked again at a time or up to a millisecond later, and after how
    /// many milliseconds.
    fn asked_again(&self, at_us: u64) -> (Check<'a>, i64) {
        let after_ms = millis_up(at_us.saturating_sub(self.now_us));
        let now_us = self.now_us.saturating_add(after_ms.saturating_mul(MS_US));
        (Check { now_us, ..*self }, i64::try_from(after_ms).unwrap_or(i64::MAX))
    }
}

impl Limiter {
    /// The denials of the rules of a key where the check repeats a hold until it ends.
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

    /// The denials of rules whose state is passed over at the time of a check, which is asked
    /// after some time.
    fn add_denials_of_passed_over(
        &self,
        check: &Check<'_>,
        after_ms: i64,
        foresight: &mut Foresight,
        denials: &mut Vec<LaterDenial>,
    ) {
        for rule in check.rules.iter().filter(|rule| !rule.is_shadow()) {
            let Some(state) = self.state_of(rule) else { continue };
            let back_us = state.meter().last_us().saturating_sub(check.window_us_of(rule));
            if back_us <= check.now_us {
                continue;
            }
            let (check, back_ms) = check.asked_again(back_us);
            let Some(then) = self.foresee_key(check.now_us, foresight) else { return };
            let admits = then.admits_with_lapses(rule, &check, foresight);
            let wait_ms = admits.after(check.now_us).millis();
            denials.extend(LaterDenial::of(wait_ms, after_ms.saturating_add(back_ms)));
        }
    }

    /// The key as rules will read it at a time, unless that is too much to foresee.
    fn foresee_key(&self, at_us: u64, foresight: &mut Foresight) -> Option<Cow<'_, Self>> {
        let charges = self.holds().map_or(0, Holds::rules);
        let may_copy = !self.lapse_matters(at_us) || foresight.may_copy(self.states(), charges);
        may_copy.then(|| self.as_of(at_us))
    }
}
