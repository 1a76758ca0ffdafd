//! A replica that records what its primary did with holds stays equal to it. Saving and loading
//! changes neither.

use super::traffic::{CALLS, Deed, HoldTraffic, Step, with_holds};
use crate::check::Bounds;
use crate::key::{Check, Limiter, decode, encode};
use crate::tests::laws::cases;
use crate::tests::laws::traffic::changing;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// The limiter of a server after a restart.
fn reloaded(limiter: &Limiter) -> Limiter {
    decode(&encode(limiter)).unwrap_or_default()
}

/// Does a step on the primary, and applies to the replica what the primary propagates.
pub fn replicate(step: &Step<'_>, primary: &mut Limiter, replica: &mut Limiter) -> TestCaseResult {
    let Step { rules, now_us, deed } = *step;
    match deed {
        Deed::Check { .. } => {
            if primary.lapse_if_due(now_us) {
                replica.lapse(now_us);
            }
            let check = step.check().unwrap();
            let outcome = primary.check_within(Bounds::ANY, &check, &mut Vec::new());
            let Ok(outcome) = outcome else { return Ok(()) };
            // A range is propagated as the cost that was granted.
            replica.record(&Check { cost: outcome.cost, ..check }, outcome.change);
            if outcome.ban.is_some() || outcome.ban_shortened {
                let ban = primary.access().unwrap().clone();
                replica.set_ban(ban, primary.bans().copied());
            }
        }
        Deed::Peek(_) => {}
        Deed::Refund(units, of_rules) => {
            let rules = if of_rules { rules } else { &[] };
            if primary.lapse_if_due(now_us) {
                replica.lapse(now_us);
            }
            // A refund of nothing is not propagated.
            if primary.refund(units, now_us, rules) > 0 {
                replica.refund(units, now_us, rules);
            }
        }
        Deed::Reset => {
            if primary.reset(now_us) {
                replica.reset(now_us);
            }
        }
        Deed::Settle { id, settlement } => {
            if primary.settle(id, settlement, now_us) {
                prop_assert!(replica.settle(id, settlement, now_us));
            }
        }
        Deed::Renew { id, end_us } => {
            if primary.renew(id, end_us, now_us) {
                prop_assert!(replica.renew(id, end_us, now_us));
            }
        }
    }
    Ok(())
}

pub fn stay_equal(traffic: &HoldTraffic, resync: usize, restart: usize) -> TestCaseResult {
    let (mut primary, mut replica) = (Limiter::default(), Limiter::default());
    for (i, step) in traffic.steps().iter().enumerate() {
        replicate(step, &mut primary, &mut replica)?;
        prop_assert_eq!(&primary, &replica, "{:?}", step);
        prop_assert_eq!(encode(&primary), encode(&replica), "{:?}", step);
        prop_assert_eq!(primary.deadline(), replica.deadline());
        if i % resync == 0 {
            replica = reloaded(&primary);
        }
        if i % restart == 0 {
            primary = reloaded(&primary);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_replica_with_holds_equals_its_primary(
        traffic in with_holds(changing(4, CALLS)),
        resync in 1..40usize,
        restart in 1..40usize,
    ) {
        stay_equal(&traffic, resync, restart)?;
    }
}
