//! Tests that every sequence of a few steps, with up to four clients in line, gives the model's answers.

use super::driven::driven;
use super::naive::naive;
use super::world::{Ask, Step, rule_sets};

/// The unit of the clock: all waits of the rules are multiples of it.
const TICK_MS: u64 = 500;

fn ask(flow: &'static str, weight: u16, priority: u8, cost: u32, rules: usize) -> Step {
    let patience_ms = 5 * TICK_MS;
    Step::Ask(Ask { key: 0, cost, patience_ms, flow, weight, priority, rules, by_plan: false })
}

/// A client whose rules depend on the key's plan.
fn ask_by_plan(flow: &'static str, cost: u32, default: usize) -> Step {
    let Step::Ask(ask) = ask(flow, 1, 0, cost, default) else { unreachable!() };
    Step::Ask(Ask { by_plan: true, ..ask })
}

/// Calls a body with every sequence of `length` steps.
fn sequences(steps: &[(u64, Step)], length: u32, mut body: impl FnMut(&[(u64, Step)])) {
    for number in 0..steps.len().pow(length) {
        let digits = (0..length).map(|place| number / steps.len().pow(place) % steps.len());
        body(&digits.map(|digit| steps[digit]).collect::<Vec<_>>());
    }
}

/// How many steps a sequence has. Sequences of 7 take a minute.
fn length() -> u32 {
    std::env::var("RATELIMIT_LINE_STEPS").map_or(5, |steps| steps.parse().unwrap())
}

fn answers_as_the_model(rules: &[&str], steps: &[(u64, Step)]) {
    let rules = rule_sets(rules);
    sequences(steps, length(), |steps| {
        let (answers, _) = driven(steps, &rules, TICK_MS);
        assert_eq!(answers, naive(steps, &rules, TICK_MS), "{steps:?}");
    });
}

#[test]
fn every_order_of_holds_and_settlements_gives_the_models_answers() {
    let rules = ["slots:2 slots:1,name=a", "slots:2 slots:1,name=b", "slots:2"];
    answers_as_the_model(
        &rules,
        &[
            (0, ask("a", 1, 0, 1, 0)),
            (0, ask("b", 3, 0, 1, 1)),
            (0, ask("c", 1, 0, 2, 2)),
            (0, ask("c", 1, 1, 1, 2)),
            (0, Step::Settle(0, 0)),
            (1, Step::Settle(0, 1)),
            (1, Step::Leave(0)),
        ],
    );
}

#[test]
fn every_order_of_rates_and_pauses_gives_the_models_answers() {
    let rules = ["2/s 1/s,name=a", "1/s,name=a", "2/s", "2/s"];
    answers_as_the_model(
        &rules,
        &[
            (0, ask("a", 2, 0, 1, 0)),
            (0, ask("b", 1, 0, 1, 1)),
            (0, ask("c", 1, 0, 2, 2)),
            (0, ask("", 1, 2, 1, 3)),
            (1, Step::Policy),
            (0, Step::Pause(0, TICK_MS)),
            (1, Step::Leave(1)),
        ],
    );
}

#[test]
fn every_order_of_plans_and_their_ends_gives_the_models_answers() {
    let rules = ["slots:2,name=x", "bucket:2/h,name=b slots:2,name=x", "bucket:2/h,name=b"];
    answers_as_the_model(
        &rules,
        &[
            (0, ask_by_plan("a", 1, 0)),
            (0, ask_by_plan("b", 2, 1)),
            (0, ask("c", 1, 0, 1, 2)),
            (0, Step::Plan(0, 1, Some(2 * TICK_MS))),
            (1, Step::Plan(0, 0, Some(TICK_MS))),
            (0, Step::Pause(0, TICK_MS)),
            (1, Step::Leave(0)),
        ],
    );
}
