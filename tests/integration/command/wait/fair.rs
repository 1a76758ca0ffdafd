//! Flows, weights, priorities, and who passes whom.

use redis::{Connection, Value};

use crate::support::client::{ask, refusal, verdict};
use crate::support::clock::let_server_act;
use crate::support::server::{self, Server, eventually};
use crate::support::waiters::{WaitingClient, wait_in_line, waiting};

/// Clients in line for one slot, which the hold `first` has. Each client's hold has a number as id.
struct Line<'a> {
    server: &'a Server,
    c: Connection,
    waiters: Vec<(char, usize, Option<WaitingClient>)>,
    holder: String,
}

impl<'a> Line<'a> {
    fn new(server: &'a Server) -> Self {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD first EX 3000 slots:1"), 0);
        Self { server, c, waiters: Vec::new(), holder: "first".into() }
    }

    fn join(&mut self, clients: usize, flow: char, options: &str) {
        for _ in 0..clients {
            let id = self.waiters.len();
            let line = format!("RL.WAIT k 600000 {options}HOLD {id} EX 3000 slots:1");
            self.waiters.push((flow, id, Some(wait_in_line(self.server, &line))));
        }
    }

    /// Settles the current hold this many times, and returns the flows that got the slot.
    fn served(&mut self, times: usize) -> String {
        (0..times).map(|_| self.serve()).collect()
    }

    fn serve(&mut self) -> char {
        self.settle();
        self.next()
    }

    fn settle(&mut self) {
        assert_eq!(ask::<i64>(&mut self.c, &format!("RL.SETTLE k {}", self.holder)), 1);
    }

    /// The flow that gets the slot.
    fn next(&mut self) -> char {
        let is_served =
            |waiter: &Option<WaitingClient>| waiter.as_ref().is_some_and(|w| !w.waits());
        let mut index = None;
        eventually("somebody to be served", || {
            index = self.waiters.iter().position(|(_, _, waiter)| is_served(waiter));
            index.is_some()
        });
        let (flow, id, waiter) = &mut self.waiters[index.expect("served")];
        assert_eq!(waiter.take().expect("a waiter").verdict(), 0);
        self.holder = id.to_string();
        *flow
    }
}

#[test]
fn a_shadow_rule_keeps_nobody_back() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD x EX 3000 slots:1,name=a"), 0);
        let first = wait_in_line(server, "RL.WAIT k 600000 FLOW a HOLD a EX 3000 slots:1,name=a");
        let watched = "RL.WAIT k 0 FLOW b HOLD b EX 3000 slots:1,name=a,shadow slots:9";
        assert_eq!(verdict(&mut c, watched), 0);
        assert!(first.waits());
    });
}

#[test]
fn a_flow_of_weight_3_gets_three_of_four_turns() {
    server::on_all(|server| {
        let mut line = Line::new(server);
        line.join(5, 'a', "FLOW a ");
        line.join(10, 'b', "FLOW b WEIGHT 3 ");
        let served = line.served(12);
        for eight in served.as_bytes().windows(8) {
            assert_eq!(eight.iter().filter(|&&flow| flow == b'b').count(), 6, "{served}");
        }
    });
}

#[test]
fn a_higher_priority_goes_first_with_or_without_a_flow() {
    server::on_all(|server| {
        let mut line = Line::new(server);
        line.join(1, 'a', "FLOW a WEIGHT 1000 ");
        line.join(1, '-', "");
        line.join(1, 'b', "PRIORITY 5 ");
        line.join(1, 'c', "PRIORITY 9 FLOW c ");
        assert_eq!(line.served(4), "cba-");
    });
}

#[test]
fn a_pause_stops_all_flows_and_a_block_answers_them() {
    server::on_all(|server| {
        let mut line = Line::new(server);
        line.join(2, 'a', "FLOW a ");
        line.join(2, 'b', "FLOW b ");
        line.join(1, 'c', "PRIORITY 5 ");
        let _: i64 = ask(&mut line.c, "RL.PAUSE k EX 300");
        line.settle();
        let_server_act(&mut line.c);
        assert_eq!(waiting(&mut line.c), 5);
        assert_eq!(ask::<i64>(&mut line.c, "RL.RESUME k"), 1);
        assert_eq!(line.next(), 'c');
        assert_eq!(line.served(2), "ab");
        let _: Value = ask(&mut line.c, "RL.BLOCK k");
        for waiter in line.waiters.into_iter().filter_map(|(_, _, waiter)| waiter) {
            assert_eq!(waiter.verdict(), 2);
        }
    });
}

#[test]
fn a_client_that_may_not_pass_is_denied_with_the_wait_of_the_first() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 5 10/1000s"), 0);
        let first = wait_in_line(server, "RL.WAIT k 2000000 FLOW a COST 6 10/1000s");
        let [verdict, limit, remaining, wait_ms, _]: [i64; 5] =
            ask(&mut c, "RL.WAIT k 10 FLOW b 10/1000s");
        assert_eq!([verdict, limit, remaining], [1, 10, 5]);
        assert!((900_000..=1_000_000).contains(&wait_ms), "{wait_ms}");
        assert!(first.waits());
    });
}

#[test]
fn a_changed_policy_changes_who_may_pass() {
    server::on_all(|server| {
        let mut c = server.connect();
        let set = |c: &mut Connection, rules: &str| {
            let _: Value = ask(c, &format!("RL.POLICY SET tenant {rules}"));
        };
        set(&mut c, "slots:1");
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD x EX 3000 slots:1"), 0);
        let first = wait_in_line(server, "RL.WAIT k 600000 FLOW a HOLD a EX 3000 slots:1 9/h");
        let second = wait_in_line(server, "RL.WAIT k 600000 FLOW b HOLD b EX 3000 @tenant");
        set(&mut c, "7/h,name=own");
        assert_eq!(second.verdict(), 0, "it lacks the rule (`slots:1`) that denies the first");
        assert!(first.waits());
        let third = wait_in_line(server, "RL.WAIT k 600000 FLOW b HOLD c EX 3000 slots:1 @tenant");
        assert_eq!(ask::<i64>(&mut c, "RL.POLICY DEL tenant FORCE"), 1);
        assert!(third.refusal().contains("unknown policy"));
    });
}

#[test]
fn only_rl_wait_has_the_options_flow_and_priority() {
    server::on_all(|server| {
        let mut c = server.connect();
        for line in ["RL.CHECK k FLOW a 5/m", "RL.PEEK k PRIORITY 1 5/m"] {
            assert!(refusal(&mut c, line).contains("unexpected '"), "{line}");
        }
        let long = "x".repeat(65);
        let error = refusal(&mut c, &format!("RL.WAIT k 0 FLOW {long} 5/m"));
        assert!(error.contains("the name of the flow is 65 bytes long, expected 1..64"), "{error}");
        let error = refusal(&mut c, "RL.WAIT k 0 FLOW a WEIGHT 1001 5/m");
        assert!(error.contains("WEIGHT is '1001', expected an integer 1..1000"), "{error}");
        assert_eq!(verdict(&mut c, "RL.WAIT k 0 FLOW a PRIORITY 9 COST 2 5/m"), 0);
    });
}
