//! The turns of a leaky bucket keep their distance, whatever holds give back: only the request that
//! queued last frees its turn.

use super::traffic::{CALLS, Deed, HoldTraffic, Step, try_check, with_holds};
use crate::key::{Change, CheckOptions, Costs, Limiter, Settlement, Verdict};
use crate::tests::laws::rules::leaky;
use crate::tests::laws::traffic::{Clock, steady};
use crate::tests::laws::{cases, later};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::BTreeMap;

/// A queue, computed from its turns. Times are in 1/L us.
#[derive(Default)]
struct Queue<'a> {
    /// When the queue is empty again.
    free: i128,
    /// The hold of the request that queued last.
    last: Option<&'a [u8]>,
    /// The cost and the end of each hold, and whether it has `REFUND`.
    holds: BTreeMap<&'a [u8], (u32, u64, bool)>,
}

impl Queue<'_> {
    fn end(&mut self, id: &[u8], settled: u32, now: i128, period: i128) {
        let Some((charged, ..)) = self.holds.remove(id) else { return };
        let left = (self.free - now).max(0);
        if settled > charged {
            self.free = now + left + i128::from(settled - charged) * period;
            self.last = None;
        } else if self.last == Some(id) {
            let surplus = i128::from(charged - settled) * period;
            self.free = self.free.min(now + left - surplus.min(left));
            self.last = None;
        }
    }

    fn lapse(&mut self, now_us: u64, limit: i128, period: i128) {
        let holds = self.holds.iter();
        let mut lapsed: Vec<_> = holds.map(|(&id, &(_, end_us, _))| (end_us, id)).collect();
        lapsed.retain(|&(end_us, _)| end_us <= now_us);
        lapsed.sort_unstable();
        for (end_us, id) in lapsed {
            let Some(&(charged, _, refund)) = self.holds.get(id) else { continue };
            let settled = if refund { 0 } else { charged };
            self.end(id, settled, i128::from(end_us) * limit, period);
        }
    }
}

fn turns_keep_distance(traffic: &HoldTraffic) -> TestCaseResult {
    let mut limiter = Limiter::default();
    let mut queue = Queue::default();
    let steps = traffic.steps();
    for step in &steps {
        let Step { rules, now_us, deed } = *step;
        let (limit, period) = (i128::from(rules[0].limit()), i128::from(rules[0].period_us()));
        let now = i128::from(now_us) * limit;
        queue.lapse(now_us, limit, period);
        match deed {
            Deed::Check { cost, options: CheckOptions { hold, .. } } => {
                let check = step.check().unwrap();
                let Some((outcome, _)) = try_check(&mut limiter, &check) else { continue };
                if outcome.change == Change::Renewed
                    && let Some(hold) = hold
                    && let Some((_, end_us, _)) = queue.holds.get_mut(hold.id)
                {
                    *end_us = hold.end_us;
                }
                if outcome.change != Change::Admitted {
                    prop_assert!(
                        outcome.repeated
                            || outcome.summary.verdict != Verdict::Allowed
                            || cost == 0
                    );
                    continue;
                }
                let Some(turn_us) = later(now_us, outcome.summary.wait_ms) else { break };
                let turn = i128::from(turn_us) * limit;
                prop_assert!(turn >= queue.free, "a turn too early: {:?}", step);
                let early = outcome.summary.wait_ms == 0 || turn - 1_000 * limit < queue.free;
                prop_assert!(early, "a turn too late: {:?}", step);
                if cost > 0 {
                    queue.free = queue.free.max(now) + i128::from(cost) * period;
                    queue.last = hold.map(|hold| hold.id);
                }
                if let Some(hold) = hold {
                    queue.holds.insert(hold.id, (cost, hold.end_us, hold.refund));
                }
            }
            Deed::Settle { id, settlement } => {
                let charged = queue.holds.get(id).map(|&(charged, ..)| charged);
                prop_assert_eq!(limiter.settle(id, settlement, now_us), charged.is_some());
                let charged = charged.unwrap_or(0);
                let settled = match settlement {
                    Settlement::AsCharged => charged,
                    Settlement::Refund => 0,
                    Settlement::Cost(Costs { default, .. }) => default.unwrap_or(charged),
                };
                queue.end(id, settled, now, period);
            }
            Deed::Renew { id, end_us } => {
                prop_assert_eq!(limiter.renew(id, end_us, now_us), queue.holds.contains_key(id));
                if let Some((_, ends_us, _)) = queue.holds.get_mut(id) {
                    *ends_us = end_us;
                }
            }
            Deed::Peek(_) | Deed::Refund(..) | Deed::Reset => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn no_turn_is_given_twice(traffic in with_holds(steady(leaky(), CALLS, Clock::Forward))) {
        turns_keep_distance(&traffic)?;
    }
}
