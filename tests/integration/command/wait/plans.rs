//! The end of a key's plan: the clients whose rules depend on the plan get their turns at that instant.

use redis::Connection;

use crate::support::client::{ask, verdict};
use crate::support::clock::{Clock, on_all_with_clock};
use crate::support::policies;
use crate::support::server::Server;
use crate::support::waiters::{WaitingClient, wait_in_line, waiting};

const POLICIES: [&str; 2] = ["pro bucket:1/h,name=b slots:5,name=x", "free slots:5,name=x"];

/// What denies the head: a rule that clients have by plan, their plan, or two rules.
const HEADS: [&str; 3] = ["bucket:1/h,name=b", "@plan:pro", "bucket:1/h,name=b slots:1,name=y"];

/// A key whose plan keeps its clients behind a head that stays in line.
fn plan(c: &mut Connection, key: &str, ends: &str) {
    policies::set(c, &POLICIES);
    assert_eq!(verdict(c, &format!("RL.CHECK {key} bucket:1/h,name=b")), 0);
    // With a hold, a client waits although its wait is longer than its time.
    assert_eq!(verdict(c, &format!("RL.CHECK {key} HOLD z EX 3500 slots:9,name=y")), 0);
    let () = ask(c, &format!("RL.PLAN {key} pro {ends}"));
}

fn head(server: &Server, key: &str, rules: &str) -> WaitingClient {
    wait_in_line(server, &format!("RL.WAIT {key} 3400000 FLOW a HOLD a EX 9 {rules}"))
}

fn by_plan(server: &Server, key: &str, options: &str) -> WaitingClient {
    wait_in_line(server, &format!("RL.WAIT {key} 3000000 {options} EX 3500 @plan:free"))
}

/// Asserts that the waiter, and not the head, passes 100 s after `early_s`.
fn passes_at_the_end(
    (c, clock): (&mut Connection, &Clock),
    key: &str,
    early_s: i64,
    head: WaitingClient,
    waiter: WaitingClient,
) {
    clock.advance_s(c, early_s);
    assert_eq!(waiting(c), 2, "{key}: early");
    clock.advance_s(c, 100);
    assert_eq!(waiter.verdict(), 0, "{key}");
    assert!(head.waits(), "{key}");
    let () = ask(c, &format!("DEL {key}"));
    assert_eq!(head.verdict(), 0);
}

#[test]
fn clients_get_their_turns_when_the_plan_ends() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        for (key, rules) in ["k0", "k1", "k2"].into_iter().zip(HEADS) {
            plan(&mut c, key, "EX 1000");
            let head = head(server, key, rules);
            let second = by_plan(server, key, "FLOW b HOLD h2");
            let third = by_plan(server, key, "FLOW b HOLD h3");
            let other = by_plan(server, key, "FLOW c HOLD h4");
            clock.advance_s(&mut c, 900);
            assert_eq!(waiting(&mut c), 4, "{rules}: early");
            clock.advance_s(&mut c, 100);
            assert_eq!([second, third, other].map(WaitingClient::verdict), [0; 3], "{rules}");
            assert!(head.waits(), "{rules}");
            let () = ask(&mut c, &format!("DEL {key}"));
            assert_eq!(head.verdict(), 0);
        }
    });
}

#[test]
fn the_end_that_counts_is_that_of_the_last_plan() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        for (key, ends, early_s) in [("shorter", "EX 500", 400), ("longer", "EX 1500", 1400)] {
            plan(&mut c, key, "EX 1000");
            let (head, waiter) = (head(server, key, HEADS[0]), by_plan(server, key, "HOLD h"));
            let () = ask(&mut c, &format!("RL.PLAN {key} pro {ends}"));
            passes_at_the_end((&mut c, clock), key, early_s, head, waiter);
        }
    });
}

#[test]
fn the_end_of_a_plan_follows_the_wall_clock() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        for (key, step_s, early_s) in [("ahead", 600, 300), ("back", -600, 1_500)] {
            plan(&mut c, key, "EX 1000");
            let head = head(server, key, HEADS[1]);
            let waiter = by_plan(server, key, "FLOW b HOLD h");
            clock.step_wall_s(&mut c, step_s);
            passes_at_the_end((&mut c, clock), key, early_s, head, waiter);
        }
    });
}

/// A client waits for the end of the plan that denies it, if its rules depend on the plan.
#[test]
fn a_client_waits_for_the_end_of_its_own_plan() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        assert_eq!(verdict(&mut c, "RL.CHECK k bucket:1/h,name=b"), 0);
        let () = ask(&mut c, "RL.PLAN k pro EX 1000");
        assert_eq!(verdict(&mut c, "RL.WAIT k 2000000 bucket:1/h,name=b"), 1, "at once");
        assert_eq!(verdict(&mut c, "RL.WAIT k 900000 HOLD h EX 9 @plan:free"), 1, "at once");
        let waiter = by_plan(server, "k", "HOLD h");
        clock.advance_s(&mut c, 900);
        assert_eq!(waiting(&mut c), 1, "early");
        clock.advance_s(&mut c, 100);
        assert_eq!(waiter.verdict(), 0);
    });
}

#[test]
fn a_client_waits_for_the_end_of_a_plan_that_never_admits_it() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        policies::set(&mut c, &["none 0/s", "free 5/s"]);
        let () = ask(&mut c, "RL.PLAN k none EX 1000");
        assert_eq!(verdict(&mut c, "RL.WAIT k 900000 @plan:free"), 1, "the plan ends too late");
        let waiter = wait_in_line(server, "RL.WAIT k 3000000 @plan:free");
        clock.advance_s(&mut c, 900);
        assert!(waiter.waits());
        clock.advance_s(&mut c, 100);
        assert_eq!(waiter.verdict(), 0);
    });
}
