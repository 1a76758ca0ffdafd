//! Clients outside the line consume from its key, or the server lacks memory or replicas. A
//! client that has joined stays until it passes or its deadline comes.

use std::thread;
use std::time::Instant;

use super::{counted, millis, wait_in_line, waiting};
use crate::support::client::{ask, refusal, verdict};
use crate::support::server;

/// One unit is used up. A client waits for the next, which comes in time.
const WAIT: &str = "RL.WAIT k 1500 bucket:1/s,name=x,ban=1h";

#[test]
fn a_burst_by_another_caller_bans_no_client_in_line_early() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k bucket:1/s,name=x"), 0);
        let start = Instant::now();
        let waiter = wait_in_line(server, WAIT);
        // Two more units: the client's turn is now after its deadline.
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 2 bucket:1/s,burst=3,name=x"), 0);
        thread::sleep(millis(300));
        assert!(waiter.waits(), "it waits until its deadline");
        assert_eq!(waiter.verdict(), 1);
        assert!(start.elapsed() >= millis(1490), "{:?}", start.elapsed());
        assert_eq!(counted(&mut c, "waits_expired"), 1.0);
        assert_eq!(counted(&mut c, "waits_admitted"), 0.0);
        // At its deadline it is denied, which bans.
        assert_eq!(verdict(&mut c, "RL.CHECK k bucket:1/s,name=x"), 2);
    });
}

#[test]
fn a_client_in_line_passes_if_what_others_took_comes_back() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k bucket:1/s,name=x"), 0);
        let waiter = wait_in_line(server, "RL.WAIT k 5000 bucket:1/s,name=x,ban=1h");
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 9 bucket:1/s,burst=10,name=x"), 0);
        thread::sleep(millis(200));
        assert!(waiter.waits());
        assert_eq!(ask::<i64>(&mut c, "RL.REFUND k 9"), 9);
        assert_eq!(waiter.verdict(), 0);
        assert_eq!(counted(&mut c, "waits_admitted"), 1.0);
        assert_eq!(waiting(&mut c), 0);
    });
}

#[test]
fn a_settlement_that_helps_too_little_ends_no_wait() {
    const RULE: &str = "bucket:1/2s,burst=1,name=x,ban=1h";
    server::on_all(|server| {
        let mut c = server.connect();
        let hold = format!("RL.CHECK k HOLD h EX 60 {RULE}");
        assert_eq!(verdict(&mut c, &hold), 0);
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 2 bucket:1/2s,burst=9,name=x"), 0);
        let start = Instant::now();
        // It waits because of the hold. Without the hold it would be denied at once.
        let waiter = wait_in_line(server, &format!("RL.WAIT k 1000 {RULE}"));
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k h"), 1);
        thread::sleep(millis(200));
        assert!(waiter.waits());
        assert_eq!(waiter.verdict(), 1);
        assert!(start.elapsed() >= millis(990), "{:?}", start.elapsed());
    });
}

#[test]
fn clients_in_line_are_admitted_when_memory_is_full_or_replicas_are_missing() {
    for (setting, error) in [("maxmemory 1", "OOM"), ("min-replicas-to-write 1", "NOREPLICAS")] {
        server::on_all(|server| {
            let mut c = server.connect();
            assert_eq!(verdict(&mut c, "RL.CHECK k 1/s"), 0);
            let waiter = wait_in_line(server, "RL.WAIT k 9000 1/s");
            let () = ask(&mut c, &format!("CONFIG SET {setting}"));
            assert!(refusal(&mut c, "RL.WAIT new 9000 1/s").contains(error), "{setting}");
            assert_eq!(waiter.verdict(), 0, "{setting}");
            assert_eq!(waiting(&mut c), 0);
        });
    }
}
