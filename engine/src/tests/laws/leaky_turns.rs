//! The turns of a leaky bucket keep their distance: two requests are never closer than W/L per
//! unit, except for rounding to the millisecond.

use super::rules::leaky;
use super::traffic::{Action, Call, Clock, steady};
use super::{cases, check, later};
use crate::key::{Limiter, Verdict};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn turns_never_come_too_close(traffic in steady(leaky(), 80, Clock::Forward)) {
        let mut limiter = Limiter::default();
        // When the queue is empty again, in 1/L us.
        let mut free = 0i128;
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else { continue };
            let summary = check(&mut limiter, rules, cost, now_us).0.summary;
            if summary.verdict == Verdict::Allowed && cost > 0 {
                let limit = i128::from(rules[0].limit());
                let Some(turn) = later(now_us, summary.wait_ms).map(i128::from) else { break };
                prop_assert!(turn * limit >= free, "a turn too early");
                prop_assert!(
                    summary.wait_ms == 0 || (turn - 1_000) * limit < free,
                    "a turn too late"
                );
                let begins = free.max(i128::from(now_us) * limit);
                free = begins + i128::from(cost) * i128::from(rules[0].period_us());
            }
        }
    }
}
