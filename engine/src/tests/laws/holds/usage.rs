//! If no hold is settled for more than it was charged, the final costs of checks obey the rules. They
//! are at most the limit in any window, and at most the burst plus the refill in any interval.

use super::history::{Entry, History};
use super::traffic::{CALLS, Deed, HoldTraffic, Step, try_check, with_holds};
use crate::key::{Change, Costs, Limiter, Settlement};
use crate::rule::{Kind, Rule};
use crate::tests::laws::cases;
use crate::tests::laws::rules::settled_exactly;
use crate::tests::laws::traffic::{Clock, steady};
use crate::tests::naive::capacity;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// The most that a rule admits between two times, in fractions of a unit; `None` if there is no bound.
fn most(rule: &Rule, from_us: u64, to_us: u64) -> Option<i128> {
    let period = i128::from(rule.period_us());
    match rule.kind() {
        Kind::Log if to_us - from_us >= rule.period_us() => None,
        Kind::Log => Some(i128::from(rule.limit()) * period),
        Kind::Bucket => {
            let refilled = i128::from(to_us - from_us) * i128::from(rule.limit());
            Some(capacity(rule) * period + refilled)
        }
        // `window` only estimates, and `fixed` admits twice the limit around a boundary. The laws
        // `turns` and `slots` test the other two.
        Kind::Window | Kind::Fixed | Kind::Leaky | Kind::Slots => None,
    }
}

fn obeys(rules: &[Rule], entries: &[Entry<'_>]) -> TestCaseResult {
    for (i, rule) in rules.iter().enumerate() {
        for (first, from) in entries.iter().enumerate() {
            let mut used = 0;
            for to in &entries[first..] {
                used += i128::from(to.units[i]) * i128::from(rule.period_us());
                let Some(most) = most(rule, from.now_us, to.now_us) else { break };
                prop_assert!(used <= most, "{rule}: {used} of {most} until {}", to.now_us);
            }
        }
    }
    Ok(())
}

/// Tests traffic in which no hold is settled for more than it was charged.
fn usage_obeys(traffic: &HoldTraffic) -> TestCaseResult {
    let steps = traffic.steps();
    let Some(&Step { rules, .. }) = steps.first() else { return Ok(()) };
    let (mut limiter, mut history) = (Limiter::default(), History::default());
    for step in steps {
        let mut change = Change::Nothing;
        match step.deed {
            Deed::Check { .. } => {
                let check = step.check().unwrap();
                let checked = try_check(&mut limiter, &check);
                change = checked.map_or(Change::Nothing, |(outcome, _)| outcome.change);
            }
            Deed::Settle { settlement: Settlement::Cost(Costs { .. }), .. } => {
                let mut after = history.clone();
                after.note(&step, Change::Nothing);
                if after.entries().iter().any(|entry| entry.excess) {
                    continue;
                }
                step.act(&mut limiter);
            }
            Deed::Settle { .. } | Deed::Renew { .. } => step.act(&mut limiter),
            Deed::Peek(_) | Deed::Refund(..) | Deed::Reset => continue,
        }
        history.note(&step, change);
    }
    obeys(rules, history.entries())
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn settled_usage_obeys_the_rules(
        traffic in with_holds(steady(settled_exactly(3), CALLS, Clock::Forward))
    ) {
        usage_obeys(&traffic)?;
    }
}
