//! What each flow gets: the contract's examples and the law of shares.

use super::{place, request};
use crate::waiting::{Due, Queues, Request};
use proptest::prelude::*;

/// A line in which one unit is free at a time.
struct Line {
    queues: Queues<(&'static str, u32)>,
}

impl Line {
    const EMPTY: Self = Self { queues: Queues::EMPTY };

    fn join(&mut self, flow: &'static str, weight: u16, priority: u8, cost: u32, clients: usize) {
        for _ in 0..clients {
            let request = Request { weight, ..request(flow, priority, "slots:1") };
            self.queues.join(place("k", 0), request, u64::MAX, 1, (flow, cost));
        }
    }

    /// Serves the next.
    fn serve(&mut self) -> (&'static str, u32) {
        self.queues.key_changed(b"k");
        let Some(Due::Try(ticket)) = self.queues.due(0) else { panic!("nobody is tried") };
        let &(_, cost) = self.queues.waiter(ticket).unwrap();
        self.queues.admit(ticket, cost).unwrap()
    }

    fn served(&mut self, clients: usize) -> String {
        (0..clients).map(|_| self.serve().0).collect()
    }
}

#[test]
fn flows_take_turns() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, 1, 100);
    line.join("b", 1, 0, 1, 2);
    line.join("c", 1, 0, 1, 1);
    assert_eq!(line.served(7), "abcabaa");
}

#[test]
fn a_flow_of_weight_3_gets_three_of_four() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, 1, 10);
    line.join("b", 3, 0, 1, 10);
    let served = line.served(13);
    for eight in served.as_bytes().windows(8) {
        assert_eq!(eight.iter().filter(|&&flow| flow == b'b').count(), 6, "{served}");
    }
}

#[test]
fn a_higher_priority_goes_first() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, 1, 2);
    line.join("a", 1, 5, 1, 1);
    line.join("b", 1, 9, 1, 1);
    assert_eq!(line.served(4), "baaa");
}

#[test]
fn a_newcomer_gets_no_credit_for_the_past() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, 1, 100);
    line.served(50);
    line.join("b", 1, 0, 1, 50);
    assert_eq!(line.served(6), "ababab");
}

#[test]
fn a_flow_that_comes_again_and_again_does_not_starve_another() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, 1, 100);
    let mut served = String::new();
    for _ in 0..20 {
        line.join("b", 1_000, 0, 1, 1);
        served += &line.served(2);
    }
    assert_eq!(served, "ab".repeat(20));
}

#[test]
fn a_flow_that_was_passed_over_gets_no_credit_for_it() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, 1, 10);
    line.join("b", 1, 0, 1, 20);
    let Some(Due::Try(a)) = line.queues.due(0) else { panic!() };
    line.queues.deny(a, super::denied(9, "1/s,name=a"), 0);
    for _ in 0..10 {
        let Some(Due::Try(b)) = line.queues.due(0) else { panic!() };
        assert_eq!(line.queues.admit(b, 1).unwrap().0, "b");
    }
    assert_eq!(line.queues.due(9_000), Some(Due::Try(a)));
    assert_eq!(line.queues.admit(a, 1).unwrap().0, "a");
    assert_eq!(line.served(6), "ababab");
}

#[derive(Clone, Copy, Debug)]
struct Share {
    weight: u16,
    largest: u32,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// While flows have clients in line, admitted cost over weight differs by at most one largest
    /// request over weight of each, whatever others come and go.
    #[test]
    fn shares_are_right(
        shares in proptest::collection::vec((1..=1_000_u16, 1..=50_u32), 2..6),
        costs in proptest::collection::vec((any::<u32>(), any::<bool>()), 1..200),
    ) {
        const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let shares: Vec<_> =
            shares.into_iter().map(|(weight, largest)| Share { weight, largest }).collect();
        let mut line = Line::EMPTY;
        for (&Share { weight, largest }, name) in shares.iter().zip(NAMES) {
            for (cost, _) in &costs {
                line.join(name, weight, 0, cost % largest + 1, 1);
            }
        }
        let mut admitted = vec![0_f64; shares.len()];
        for &(cost, comes) in &costs {
            if comes {
                line.join("guest", 7, 0, cost % 50, 1);
            }
            let (name, cost) = line.serve();
            let Some(index) = NAMES.iter().position(|&of| of == name) else { continue };
            admitted[index] += f64::from(cost) / f64::from(shares[index].weight);
            let most = |index: usize| f64::from(shares[index].largest) / f64::from(shares[index].weight);
            for one in 0..shares.len() {
                for other in 0..one {
                    let apart = (admitted[one] - admitted[other]).abs();
                    let allowed = most(one) + most(other) + 1e-6;
                    prop_assert!(apart <= allowed, "{shares:?}: {admitted:?} after {name}");
                }
            }
        }
    }
}
