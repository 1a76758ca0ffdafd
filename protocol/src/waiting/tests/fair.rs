//! What each flow gets: the examples of docs/guide/waiting.md, and the law of shares.

use super::{place, request};
use crate::waiting::{Cause, Due, Queues, Request};
use proptest::prelude::*;

/// A line in which one unit is free at a time.
struct Line {
    queues: Queues<(&'static str, u32)>,
}

impl Line {
    const EMPTY: Self = Self { queues: Queues::EMPTY };

    fn join(&mut self, flow: &'static str, weight: u16, priority: u8, cost: u32, clients: usize) {
        let request = Request { weight, ..request(flow, priority, "slots:1") };
        (0..clients).for_each(|_| self.join_as(request.clone(), flow, cost));
    }

    fn join_as(&mut self, request: Request, flow: &'static str, cost: u32) {
        self.queues.join(place("k", 0), request, u64::MAX, 1, (flow, cost));
    }

    /// Serves the next client.
    fn serve(&mut self) -> (&'static str, u32) {
        self.queues.key_changed(b"k", Cause::Changed);
        let Some(Due::Try(ticket)) = self.queues.due(9_000) else { panic!("nobody is tried") };
        let &(_, cost) = self.queues.waiter(ticket).unwrap();
        self.queues.leave(ticket, Some(cost)).unwrap()
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
#[expect(clippy::naive_bytecount, reason = "of eight bytes")]
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
    for priority in [0, 5] {
        let mut line = Line::EMPTY;
        line.join("a", 1, priority, 1, 100);
        line.served(50);
        line.join("b", 1, priority, 1, 50);
        assert_eq!(line.served(6), "ababab");
    }
}

#[test]
fn costs_near_the_maximum_do_not_overflow() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, u32::MAX, 2);
    line.join("b", 1, 0, u32::MAX / 2, 5);
    assert_eq!(line.served(7), "abbbabb");
}

/// More flows than are remembered after they have left.
fn many_names() -> Vec<&'static str> {
    (0..150).map(|number| &*format!("b{number}").leak()).collect()
}

#[test]
fn flows_that_return_do_not_starve_another() {
    for others in [&["b"][..], &["b", "c"], &many_names()] {
        let mut line = Line::EMPTY;
        line.join("a", 1, 0, 1, 100);
        others.iter().for_each(|&flow| line.join(flow, 1, 0, 1, 1));
        let mut served = Vec::new();
        for _ in 0..20 * (others.len() + 1) {
            let (flow, _) = line.serve();
            if flow != "a" {
                line.join(flow, 1, 0, 1, 1);
            }
            served.push(flow);
        }
        for &flow in others.iter().chain([&"a"]) {
            let times = served.iter().filter(|&&of| of == flow).count();
            assert_eq!(times, 20, "{flow} of {served:?}");
        }
    }
}

#[test]
fn a_newcomer_does_not_pay_for_many_that_left() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, 1, 100);
    many_names().iter().for_each(|&flow| line.join(flow, 1, 0, 100, 1));
    line.served(151);
    line.join("c", 1, 0, 1, 1);
    assert_eq!(line.served(5), "aacaa");
}

#[test]
fn a_flow_that_left_is_charged_what_it_was_served() {
    let mut line = Line::EMPTY;
    line.join("a", 1, 0, 1, 20);
    line.join("b", 1, 0, 5, 1);
    assert_eq!(line.served(2), "ab");
    line.join("c", 1, 0, 1, 1);
    line.join("b", 1, 0, 1, 1);
    assert_eq!(line.served(7), "acaaaab");
}

#[test]
fn a_flow_that_was_passed_over_gets_no_credit_for_it() {
    let mut line = Line::EMPTY;
    (0..10).for_each(|_| line.join_as(request("a", 0, "slots:1 1/s,name=a"), "a", 1));
    line.join("b", 1, 0, 1, 20);
    let Some(Due::Try(a)) = line.queues.due(0) else { panic!() };
    line.queues.deny(a, super::denied(9, "1/s,name=a"), 0);
    for _ in 0..10 {
        let Some(Due::Try(b)) = line.queues.due(0) else { panic!() };
        assert_eq!(line.queues.leave(b, Some(1)).unwrap().0, "b");
    }
    assert_eq!(line.queues.due(9_000), Some(Due::Try(a)));
    assert_eq!(line.queues.leave(a, Some(1)).unwrap().0, "a");
    assert_eq!(line.served(6), "ababab");
}

#[derive(Clone, Copy, Debug)]
struct Share {
    weight: u16,
    largest: u32,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// While two flows have clients in line, their values of `admitted cost / weight` differ by at most
    /// the sum of their values of `largest cost / weight`. A guest, whose clients come and go, may get
    /// less, but exceeds the others by no more than that.
    #[test]
    fn shares_are_in_proportion_to_weights(
        shares in proptest::collection::vec((1..=1_000_u16, 1..=50_u32), 4..8),
        costs in proptest::collection::vec((any::<u32>(), any::<bool>()), 1..200),
    ) {
        const NAMES: [&str; 8] = ["guest", "other guest", "a", "b", "c", "d", "e", "f"];
        let is_guest = |index: usize| index < 2;
        let shares: Vec<_> =
            shares.into_iter().map(|(weight, largest)| Share { weight, largest }).collect();
        let mut line = Line::EMPTY;
        let join = |line: &mut Line, index: usize, cost: u32| {
            let Share { weight, largest } = shares[index];
            line.join(NAMES[index], weight, 0, cost % largest + 1, 1);
        };
        for index in 2..shares.len() {
            costs.iter().for_each(|&(cost, _)| join(&mut line, index, cost));
        }
        let mut admitted = vec![0_f64; shares.len()];
        for &(cost, comes) in &costs {
            if comes {
                join(&mut line, usize::from(cost % 3 == 0), cost);
            }
            let (name, cost) = line.serve();
            let index = NAMES.iter().position(|&of| of == name).unwrap();
            admitted[index] += f64::from(cost) / f64::from(shares[index].weight);
            let most = |index: usize| f64::from(shares[index].largest) / f64::from(shares[index].weight);
            for (one, other) in (0..shares.len()).flat_map(|one| (2..shares.len()).map(move |other| (one, other))) {
                let apart = admitted[one] - admitted[other];
                let apart = if is_guest(one) { apart } else { apart.abs() };
                let allowed = most(one) + most(other) + 1e-6;
                prop_assert!(apart <= allowed, "{shares:?}: {admitted:?} after {name}");
            }
        }
    }
}
