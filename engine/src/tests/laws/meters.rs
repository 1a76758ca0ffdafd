//! Meters: a check consumes nothing, or consumes from each rule exactly what a check of that rule alone
//! would consume. The log rules count as one, since they share one log.

use super::traffic::{Action, Call, changing};
use super::{cases, check, cost_of, peek};
use crate::algorithm::state::State;
use crate::key::{Change, Check, Limiter};
use crate::rule::{Kind, Rule};
use proptest::prelude::*;

/// For each state: the rules that read it, and their cost in a check of this default cost.
fn meters(rules: &[Rule], cost: u32) -> Vec<(Vec<Rule>, u32)> {
    let (logs, others): (Vec<Rule>, Vec<Rule>) =
        rules.iter().partition(|rule| rule.kind() == Kind::Log);
    let named = |rule: &Rule, cost| {
        let mut rule = *rule;
        rule.set_named_cost(cost);
        rule
    };
    let meter = |of: &[Rule]| {
        let cost = cost_of(of.first()?, cost);
        Some((of.iter().map(|rule| named(rule, cost)).collect(), cost))
    };
    std::iter::once(&*logs).chain(others.chunks(1)).filter_map(meter).collect()
}

fn state_of<'a>(limiter: &'a Limiter, rules: &[Rule]) -> Option<&'a State> {
    limiter.state_of(&rules[0])
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn each_rule_is_charged_as_if_alone(traffic in changing(5, 50)) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else { continue };
            let before = limiter.clone();
            let (outcome, _) = check(&mut limiter, rules, cost, now_us);
            if outcome.change == Change::Nothing {
                prop_assert_eq!(limiter.states(), before.states());
                continue;
            }
            for (rules, cost) in meters(rules, cost) {
                let mut alone = before.clone();
                alone.record(&Check::new(&rules, cost, now_us), outcome.change);
                prop_assert_eq!(state_of(&limiter, &rules), state_of(&alone, &rules), "{:?}", rules);
            }
        }
    }

    #[test]
    fn each_rule_decides_as_if_alone(traffic in changing(5, 50)) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else { continue };
            if limiter.access_at(now_us).is_none() {
                let (_, decisions) = peek(&limiter, rules, cost, now_us);
                for (of_meter, cost) in meters(rules, cost) {
                    let (_, alone) = peek(&limiter, &of_meter, cost, now_us);
                    for (rule, alone) in of_meter.iter().zip(alone) {
                        let index = rules.iter().position(|other| other.same_identity(rule));
                        let decision = decisions[index.unwrap()];
                        prop_assert_eq!(
                            (decision.verdict, decision.limit, decision.remaining, decision.reset_ms),
                            (alone.verdict, alone.limit, alone.remaining, alone.reset_ms),
                            "{}", rule
                        );
                    }
                }
            }
            check(&mut limiter, rules, cost, now_us);
        }
    }
}
