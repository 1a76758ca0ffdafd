//! No unit is returned twice, under any algorithm. Settling a hold returns at most its charge.
//! Settling it again or too late returns nothing.

use super::traffic::{CALLS, Deed, HoldTraffic, Step, with_holds};
use crate::key::holds::Hold;
use crate::key::{Costs, Limiter, Settlement, encode};
use crate::rule::{Kind, Rule};
use crate::tests::laws::rules::rule_set;
use crate::tests::laws::traffic::{Clock, changing, steady};
use crate::tests::laws::{cases, unblocked};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// The units that each rule's state has consumed.
fn used(limiter: &Limiter, rules: &[Rule], now_us: u64) -> Vec<u64> {
    let of_rule = |rule: &Rule| {
        let meter = limiter.state_of(rule)?.meter();
        Some(meter.consumed(now_us.max(meter.last_us())))
    };
    rules.iter().map(|rule| of_rule(rule).unwrap_or(0)).collect()
}

pub fn returns_once(traffic: &HoldTraffic) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for step in &traffic.steps() {
        let Step { rules, now_us, deed } = *step;
        limiter = unblocked(&limiter);
        let Deed::Settle { id, settlement } = deed else {
            step.act(&mut limiter);
            continue;
        };
        let lived = limiter.live_hold(id, now_us).is_some();
        let before = limiter.clone();
        limiter.lapse(now_us);
        let used_before = used(&limiter, rules, now_us);
        let charged = limiter.holds().and_then(|holds| holds.find(id)).map_or(0, Hold::units);
        limiter = before.clone();
        prop_assert_eq!(limiter.settle(id, settlement, now_us), lived);
        if !lived {
            prop_assert_eq!(&limiter, &before);
            prop_assert_eq!(encode(&limiter), encode(&before));
        }
        let settled = limiter.clone();
        prop_assert!(!limiter.settle(id, Settlement::Refund, now_us));
        prop_assert!(!limiter.renew(id, now_us + 1_000_000, now_us));
        prop_assert_eq!(encode(&limiter), encode(&settled));
        let states = rules.iter().zip(used_before.into_iter().zip(used(&limiter, rules, now_us)));
        for (rule, (used, left)) in states {
            // Before a higher cost is added, the debt drains at the hold's limit, which may exceed
            // the rule's present limit. So more may come back than was charged.
            let drains = matches!(rule.kind(), Kind::Bucket | Kind::Leaky);
            if drains && matches!(settlement, Settlement::Cost(Costs { .. })) {
                continue;
            }
            let most = match settlement {
                Settlement::AsCharged => 0,
                Settlement::Refund | Settlement::Cost(Costs { .. }) => u64::from(charged),
            };
            prop_assert!(left + most >= used, "{used} became {left}, charged {charged}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn units_return_once(traffic in with_holds(steady(rule_set(4), CALLS, Clock::StepsBack))) {
        returns_once(&traffic)?;
    }

    #[test]
    fn units_return_once_under_changing_rules(traffic in with_holds(changing(4, CALLS))) {
        returns_once(&traffic)?;
    }
}
