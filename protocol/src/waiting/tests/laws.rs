//! With any clients, steps and rules, the line gives the answers of its model.

use super::driven::driven;
use super::naive::naive;
use super::world::{Ask, RuleSets, Step, rule_sets};
use proptest::prelude::*;

const FLOWS: [&str; 4] = ["", "a", "b", "c"];

fn step(fair: bool) -> impl Strategy<Value = (u64, Step)> {
    let key = 0..2_u8;
    let patience_ms = prop_oneof![0..50_u64, 0..3_000_u64];
    let place =
        (0..if fair { 4_usize } else { 1 }, 1..4_u16, 0..if fair { 3_u8 } else { 1 }, 0..4_usize);
    let plan_ms = prop_oneof![Just(None), (1..1_500_u64).prop_map(Some)];
    let ask = (key.clone(), 1..4_u32, patience_ms, place, any::<bool>());
    let ask = ask.prop_map(|(key, cost, patience_ms, (flow, weight, priority, rules), by_plan)| {
        Ask { key, cost, patience_ms, flow: FLOWS[flow], weight, priority, rules, by_plan }
    });
    let what = prop_oneof![
        8 => ask.prop_map(Step::Ask),
        1 => any::<usize>().prop_map(Step::Leave),
        2 => (key.clone(), any::<usize>()).prop_map(|(key, index)| Step::Settle(key, index)),
        1 => (key.clone(), 1..4_u32).prop_map(|(key, units)| Step::Refund(key, units)),
        1 => (key.clone(), 1..3_u32).prop_map(|(key, cost)| Step::Take(key, cost)),
        1 => key.clone().prop_map(Step::Delete),
        1 => (key.clone(), 1..900_u64).prop_map(|(key, ms)| Step::Pause(key, ms)),
        1 => key.clone().prop_map(Step::Resume),
        1 => (key.clone(), 0..4_usize, plan_ms).prop_map(|(key, rules, ms)| Step::Plan(key, rules, ms)),
        1 => key.prop_map(Step::Unplan),
        1 => Just(Step::Policy),
    ];
    (prop_oneof![Just(0), 0..20_u64, 0..1_500_u64], what)
}

fn rules() -> impl Strategy<Value = RuleSets> {
    prop_oneof![
        Just(["3/s", "3/s", "3/s", "3/s"]),
        Just(["bucket:4/s,burst=3", "window:5/s", "fixed:3/s", "3/s fixed:5/2s"]),
        Just(["slots:4 slots:3,name=a", "slots:4 slots:3,name=b", "slots:4", "slots:4 3/s"]),
        Just(["3/s 4/2s,name=a", "4/2s,name=a", "3/s", "4/2s,name=a slots:3,name=b"]),
    ]
    .prop_map(|lines| rule_sets(&lines))
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(400) })]

    /// Flows take turns, clients pass only as the rules allow, and no client is lost or late.
    #[test]
    fn fair_lines_answer_as_their_model(
        steps in proptest::collection::vec(step(true), 1..60),
        rules in rules(),
    ) {
        let (answers, _) = driven(&steps, &rules, 1);
        prop_assert_eq!(answers, naive(&steps, &rules, 1));
    }

    /// Without flows and priorities, waiters are admitted in order of arrival.
    #[test]
    fn one_flow_answers_in_order_of_arrival(
        steps in proptest::collection::vec(step(false), 1..60),
        rules in rules(),
    ) {
        let (answers, looks) = driven(&steps, &rules, 1);
        prop_assert_eq!(&answers, &naive(&steps, &rules, 1));
        // Nothing is polled: each look has a cause.
        prop_assert!(looks <= 8 * steps.len(), "{looks} looks at {} steps", steps.len());
    }
}
