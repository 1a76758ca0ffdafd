//! Valkey 9.2, while it saves without a fork, may refuse to open a key for writing in a command that the
//! module calls. Here servers refuse most opens of such commands, at random: clients in line are still
//! answered in their order, once, and with the right verdict.

use redis::Connection;

use crate::support::client::{ask, info, remaining, verdict};
use crate::support::clock::on_all_with_clock_and;
use crate::support::faults::refuse_opens;
use crate::support::server::{self, Builder};
use crate::support::waiters::{WaitingClient, wait_in_line, waiting};

fn counted(c: &mut Connection, ended: &str) -> f64 {
    info(c, "ratelimit", &format!("ratelimit_waits_{ended}"))
}

#[test]
fn clients_are_admitted_in_their_order_and_once() {
    const CLIENTS: usize = 20;
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        let _refuses = refuse_opens(server.dir(), 80);
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD held EX 3000 slots:1 100/h,name=n"), 0);
        let waiters: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let id = format!("RL.WAIT k 60000 META {n} HOLD {n} EX 3000");
                wait_in_line(server, &format!("{id} slots:1 100/h,name=n"))
            })
            .collect();
        let mut before = String::from("held");
        for (n, waiter) in waiters.into_iter().enumerate() {
            assert_eq!(ask::<i64>(&mut c, &format!("RL.SETTLE k {before}")), 1);
            assert_eq!(waiter.verdict(), 0, "{n}");
            assert_eq!(waiting(&mut c), CLIENTS - 1 - n);
            before = n.to_string();
        }
        assert_eq!(remaining(&mut c, "RL.PEEK k 100/h,name=n"), 100 - 1 - CLIENTS as i64);
        let ended = ["admitted", "expired", "refused"].map(|ended| counted(&mut c, ended));
        assert_eq!(ended, [CLIENTS as f64, 0.0, 0.0]);
    });
}

#[test]
fn each_way_to_end_a_wait_gives_its_reply_and_charges_once() {
    const RULES: &str = "slots:1 100/h,name=n,count=all";
    on_all_with_clock_and(Builder::faulty, |server, clock| {
        let mut c = server.connect();
        let _refuses = refuse_opens(server.dir(), 80);
        assert_eq!(verdict(&mut c, &format!("RL.CHECK k HOLD held EX 3000 {RULES}")), 0);
        let wait = |n: usize, ms: usize| {
            wait_in_line(server, &format!("RL.WAIT k {ms} FLOW f{n} HOLD {n} EX 3000 {RULES}"))
        };
        let expired: Vec<_> = (0..5).map(|n| wait(n, 1_000_000)).collect();
        clock.advance_s(&mut c, 1_000);
        assert_eq!(expired.into_iter().map(WaitingClient::verdict).collect::<Vec<_>>(), [1; 5]);
        assert_eq!(remaining(&mut c, "RL.PEEK k 100/h,name=n,count=all"), 94);
        assert_eq!(counted(&mut c, "expired"), 5.0);
        let unblocked = wait(5, 1_000_000);
        assert_eq!(ask::<i64>(&mut c, &format!("CLIENT UNBLOCK {}", unblocked.id)), 1);
        assert_eq!(unblocked.verdict(), 1);
        assert_eq!(counted(&mut c, "expired"), 6.0);
        let blocked = wait(6, 1_000_000);
        let () = ask(&mut c, "RL.BLOCK k");
        assert_eq!(blocked.verdict(), 2);
        let () = ask(&mut c, "RL.UNBLOCK k");
        let exempt = wait(7, 1_000_000);
        let () = ask(&mut c, "RL.EXEMPT k");
        assert_eq!(exempt.verdict(), 0);
        assert_eq!(["admitted", "refused"].map(|ended| counted(&mut c, ended)), [1.0; 2]);
        assert_eq!(waiting(&mut c), 0);
    });
}
