//! A client that has joined the line stays until it passes or its deadline comes, even if clients
//! outside the line consume from its key, or the server lacks memory or replicas.

use super::{counted, wait_in_line, waiting};
use crate::support::client::{ask, refusal, verdict};
use crate::support::clock::on_all_with_clock;

/// Waits for a bucket whose only unit is used up. The next unit comes before the deadline.
const WAIT: &str = "RL.WAIT k 1500000 bucket:1/1000s,name=x,ban=1h";

#[test]
fn a_burst_by_another_caller_bans_no_client_in_line_early() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k bucket:1/1000s,name=x"), 0);
        let waiter = wait_in_line(server, WAIT);
        // Another two units: the client's turn is now after its deadline.
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 2 bucket:1/1000s,burst=3,name=x"), 0);
        clock.advance_s(&mut c, 1_400);
        assert_eq!(waiting(&mut c), 1, "it waits until its deadline");
        clock.advance_s(&mut c, 100);
        assert_eq!(waiter.verdict(), 1);
        assert_eq!(counted(&mut c, "waits_expired"), 1.0);
        assert_eq!(counted(&mut c, "waits_admitted"), 0.0);
        // The denial at the deadline bans the key.
        assert_eq!(verdict(&mut c, "RL.CHECK k bucket:1/1000s,name=x"), 2);
    });
}

#[test]
fn a_client_in_line_passes_if_others_give_units_back() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k bucket:1/1000s,name=x"), 0);
        let waiter = wait_in_line(server, "RL.WAIT k 3000000 bucket:1/1000s,name=x,ban=1h");
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 9 bucket:1/1000s,burst=10,name=x"), 0);
        clock.advance_s(&mut c, 500);
        assert_eq!(waiting(&mut c), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.REFUND k 9"), 9);
        clock.advance_s(&mut c, 1_000);
        assert_eq!(waiter.verdict(), 0);
        assert_eq!(counted(&mut c, "waits_admitted"), 1.0);
        assert_eq!(waiting(&mut c), 0);
    });
}

#[test]
fn a_settlement_that_gives_back_too_little_ends_no_wait() {
    const RULE: &str = "bucket:1/2000s,burst=1,name=x,ban=1h";
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        let hold = format!("RL.CHECK k HOLD h EX 60000 {RULE}");
        assert_eq!(verdict(&mut c, &hold), 0);
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 2 bucket:1/2000s,burst=9,name=x"), 0);
        // The client joins the line because the hold may be refunded. Without the hold, the client
        // would be denied at once.
        let waiter = wait_in_line(server, &format!("RL.WAIT k 1000000 {RULE}"));
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k h"), 1);
        clock.advance_s(&mut c, 900);
        assert_eq!(waiting(&mut c), 1);
        clock.advance_s(&mut c, 100);
        assert_eq!(waiter.verdict(), 1);
    });
}

#[test]
fn clients_in_line_need_no_free_memory_and_no_replicas() {
    for (setting, error) in [("maxmemory 1", "OOM"), ("min-replicas-to-write 1", "NOREPLICAS")] {
        on_all_with_clock(|server, clock| {
            let mut c = server.connect();
            assert_eq!(verdict(&mut c, "RL.CHECK k 1/1000s"), 0);
            let waiter = wait_in_line(server, "RL.WAIT k 3000000 1/1000s");
            let () = ask(&mut c, &format!("CONFIG SET {setting}"));
            assert!(refusal(&mut c, "RL.WAIT new 3000000 1/1000s").contains(error), "{setting}");
            clock.advance_s(&mut c, 1_000);
            assert_eq!(waiter.verdict(), 0, "{setting}");
            assert_eq!(waiting(&mut c), 0);
        });
    }
}
