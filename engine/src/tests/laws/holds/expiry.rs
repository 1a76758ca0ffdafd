//! A key that has holds and expires at its deadline decides like a key that never expires. At the
//! deadline nothing is left: no hold is live, and each rule has reset.

use super::traffic::{CALLS, Deed, HoldTraffic, try_check, with_holds};
use crate::key::{Expiry, Limiter};
use crate::rule::Rule;
use crate::tests::laws::expiry::Key;
use crate::tests::laws::rules::rule_set;
use crate::tests::laws::traffic::{Clock, steady};
use crate::tests::laws::{cases, peek, unblocked};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

fn nothing_is_left(limiter: &Limiter, traffic: &HoldTraffic) -> TestCaseResult {
    let Expiry::At(at_ms) = limiter.deadline().expiry(0, 0, None) else { return Ok(()) };
    // No clock shows a time whose microseconds overflow.
    let Some(at_us) = at_ms.checked_mul(1_000) else { return Ok(()) };
    let mut limiter = unblocked(limiter);
    limiter.lapse(at_us);
    prop_assert!(limiter.holds().is_none());
    for step in traffic.steps() {
        let (_, decisions) = peek(&limiter, step.rules, 0, at_us);
        for decision in decisions {
            prop_assert_eq!(decision.remaining, decision.limit);
        }
    }
    Ok(())
}

fn expiring_changes_nothing(traffic: &HoldTraffic) -> TestCaseResult {
    let mut key = Key::default();
    let mut eternal = Limiter::default();
    for step in &traffic.steps() {
        key.expire(step.now_us);
        match step.deed {
            Deed::Check { .. } => {
                let check = step.check().unwrap();
                let ours = try_check(&mut key.limiter, &check);
                prop_assert_eq!(ours, try_check(&mut eternal, &check), "{:?}", step);
            }
            Deed::Settle { id, settlement } => {
                let ours = key.limiter.settle(id, settlement, step.now_us);
                prop_assert_eq!(ours, eternal.settle(id, settlement, step.now_us));
            }
            Deed::Peek(_) | Deed::Refund(..) | Deed::Reset | Deed::Renew { .. } => {
                step.act(&mut key.limiter);
                step.act(&mut eternal);
            }
        }
        key.settle(step.now_us, step.now_us);
    }
    nothing_is_left(&key.limiter, traffic)
}

/// Rules without limits of 0, under which an excess would never drain.
fn limited() -> impl Strategy<Value = Vec<Rule>> {
    rule_set(3).prop_filter("a limit of 0", |rules| rules.iter().all(|rule| rule.limit() > 0))
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn keys_with_holds_never_expire_early(
        traffic in with_holds(steady(limited(), CALLS, Clock::Forward))
    ) {
        expiring_changes_nothing(&traffic)?;
    }
}
