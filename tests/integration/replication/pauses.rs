//! Clients in line become due while the server may not write: during `CLIENT PAUSE` and `FAILOVER`.
//! Each client gets one reply. It is admitted and charged once as soon as the server may write, or is
//! sent to the new primary uncharged.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{Connection, ErrorKind, RedisResult, Value, from_redis_value, pipe};

use crate::support::client::{
    ask, calls, digest, info, info_text, now_ms, remaining, replicated, verdict,
};
use crate::support::clock::{Clock, let_server_act};
use crate::support::server::{self, Builder, Flavor, Server, eventually};
use crate::support::waiters::waiting;
use crate::support::workload::link::in_step;

/// A client that waits, and has already sent its next command. If `RL.WAIT` were answered twice, the
/// second reply would be read as the reply to that command.
struct Waiter(JoinHandle<[RedisResult<Value>; 2]>);

impl Waiter {
    fn join_line(server: &Server, line: &str) -> Self {
        let (mut c, mut client) = (server.connect(), server.connect());
        let before = waiting(&mut c);
        let mut sent = pipe();
        sent.cmd("RL.WAIT").arg(line.split(' ').collect::<Vec<_>>()).cmd("ECHO").arg("next");
        client.send_packed_command(&sent.get_packed_pipeline()).expect("sent");
        let waiter = Self(thread::spawn(move || [(); 2].map(|()| client.recv_response())));
        eventually(&format!("{line} to wait"), || waiting(&mut c) == before + 1);
        waiter
    }

    fn waits(&self) -> bool {
        !self.0.is_finished()
    }

    /// The replies to `RL.WAIT` and to the next command.
    fn replies(self) -> [RedisResult<Value>; 2] {
        eventually("a reply", || self.0.is_finished());
        self.0.join().expect("no panic")
    }

    fn verdict(self) -> i64 {
        let [reply, next] = self.replies();
        assert_eq!(next, Ok(Value::BulkString("next".into())), "after {reply:?}");
        let five: [i64; 5] = from_redis_value(reply.expect("no error")).expect("five integers");
        five[0]
    }

    /// Whether the server has unblocked the client with an error, and closed the connection.
    fn was_sent_away(self) -> bool {
        let [reply, next] = self.replies();
        let is_unblocked =
            matches!(reply, Ok(Value::ServerError(why)) if why.code() == "UNBLOCKED");
        is_unblocked && next.is_err_and(|why| why.kind() == ErrorKind::Io)
    }
}

/// Clients in line: two for a rate, two for a slot whose hold lapses, and one with a deadline.
struct Line {
    /// One request passes in 1000 s, and the last has just passed.
    rate: [Waiter; 2],
    /// The slot's owner loses it in 1500 s.
    slot: [Waiter; 2],
    /// The client's deadline is in 1500 s.
    late: Waiter,
}

const RATE: &str = "bucket:1/1000s,burst=1";

impl Line {
    fn form(server: &Server) -> Self {
        let mut c = server.connect();
        for line in ["rate bucket:1/1000s,burst=1", "slot HOLD held EX 1500 slots:1 9/366d"] {
            assert_eq!(verdict(&mut c, &format!("RL.CHECK {line}")), 0);
        }
        assert_eq!(verdict(&mut c, "RL.CHECK late HOLD held EX 9000 slots:1"), 0);
        let join = |line: &str| Waiter::join_line(server, line);
        Self {
            rate: ["a", "b"].map(|id| join(&format!("rate 3600000 META {id} {RATE}"))),
            slot: ["a", "b"].map(|id| {
                join(&format!("slot 3600000 META {id} HOLD {id} EX 9000 slots:1 9/366d"))
            }),
            late: join("late 1500000 HOLD late EX 9000 slots:1"),
        }
    }

    /// Checks that 3000 s after the line formed, one client has passed for the rate and one for the
    /// slot, neither before `not_before_ms`, and that the second clients still wait.
    fn assert_served_once(self, server: &Server, not_before_ms: i64) {
        let mut c = server.connect();
        let Self { rate: [rate_a, rate_b], slot: [slot_a, slot_b], late } = self;
        assert_eq!(rate_a.verdict(), 0);
        assert_eq!(slot_a.verdict(), 0);
        assert_eq!(late.verdict(), 1);
        let_server_act(&mut c);
        assert!(rate_b.waits() && slot_b.waits(), "granted twice");
        assert_eq!(waiting(&mut c), 2);
        for key in ["rate", "slot"] {
            let log: Vec<(i64, i64, i64, String)> = ask(&mut c, &format!("RL.LOG {key}"));
            let passed: Vec<_> = log.iter().filter(|row| row.2 == 0).collect();
            assert!(matches!(&passed[..], [row] if row.3 == "a"), "{key}: {log:?}");
            assert!(log[0].0 >= not_before_ms, "{key}: passed in the pause: {log:?}");
        }
        assert_eq!(remaining(&mut c, &format!("RL.PEEK rate {RATE}")), 0);
        assert_eq!(remaining(&mut c, "RL.PEEK slot 9/366d"), 7);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE slot a"), 1);
        assert_eq!(slot_b.verdict(), 0);
        let () = ask(&mut c, "DEL rate");
        assert_eq!(rate_b.verdict(), 0);
        let counted = |c: &mut Connection, name: &str| {
            info(c, "ratelimit", &format!("ratelimit_waits_{name}"))
        };
        assert_eq!(["admitted", "expired"].map(|name| counted(&mut c, name)), [4.0, 1.0]);
    }
}

/// A primary and a replica with one clock. Steps of the clock do not end their link.
fn with_replica(flavor: Flavor) -> (Clock, Server, Server) {
    let clock = Clock::new();
    let lasting = |builder: Builder| clock.of(builder).config("repl-timeout", "10000000");
    let primary = lasting(flavor.builder()).start();
    let replica = lasting(flavor.builder()).replica_of(&primary).start();
    in_step(&primary, &replica);
    (clock, primary, replica)
}

/// Checks that the replica got each change once: three before the line, one for each of the four
/// clients that passed, one for the settlement and one for the last check.
fn assert_replicated_once(primary: &Server, replica: &Server) {
    let (mut c, mut r) = (primary.connect(), replica.connect());
    assert_eq!(verdict(&mut c, "RL.CHECK last 9/h"), 0);
    replicated(&mut c);
    assert_eq!(digest(&mut c), digest(&mut r));
    assert_eq!(calls(&mut r, "rl.apply"), 3 + 4 + 1 + 1, "with a settlement and the last check");
}

#[test]
fn clients_due_in_a_pause_are_answered_once_when_it_ends() {
    for flavor in server::all() {
        for what in ["WRITE", "ALL"] {
            let (clock, primary, replica) = with_replica(flavor);
            let mut c = primary.connect();
            let line = Line::form(&primary);
            let ends_ms = now_ms(&mut c) + 3_000_000;
            let () = ask(&mut c, &format!("CLIENT PAUSE 3000000 {what}"));
            clock.step_s(2_900);
            // The test cannot ask a server whose clients are all paused. It only gives the server time
            // to err.
            thread::sleep(Duration::from_millis(300));
            let all = line.rate.iter().chain(&line.slot).chain([&line.late]);
            assert!(all.into_iter().all(Waiter::waits), "{} {what}", flavor.name);
            clock.step_s(101);
            line.assert_served_once(&primary, ends_ms);
            assert_replicated_once(&primary, &replica);
        }
    }
}

#[test]
fn clients_due_during_a_failover_are_answered_once_when_it_is_aborted() {
    for flavor in server::all() {
        let (clock, primary, replica) = with_replica(flavor);
        let mut c = primary.connect();
        let line = Line::form(&primary);
        let ends_ms = replica.while_frozen(|| {
            begin_failover(&mut c);
            clock.advance_s(&mut c, 3_000);
            assert_eq!(waiting(&mut c), 5, "{}", flavor.name);
            let ends_ms = now_ms(&mut c);
            let () = ask(&mut c, "FAILOVER ABORT");
            ends_ms
        });
        line.assert_served_once(&primary, ends_ms);
        in_step(&primary, &replica);
        let () = ask(&mut c, "DEL behind");
        assert_replicated_once(&primary, &replica);
    }
}

#[test]
fn clients_due_during_a_failover_are_sent_to_the_new_primary_uncharged() {
    for flavor in server::all() {
        let (clock, primary, replica) = with_replica(flavor);
        let (mut c, mut r) = (primary.connect(), replica.connect());
        let Line { rate, slot, late } = Line::form(&primary);
        replica.while_frozen(|| {
            begin_failover(&mut c);
            clock.advance_s(&mut c, 3_000);
            assert_eq!(waiting(&mut c), 5, "{}", flavor.name);
        });
        eventually("the replica to take over", || {
            info_text(&mut r, "replication", "role") == "master"
        });
        for waiter in rate.into_iter().chain(slot).chain([late]) {
            assert!(waiter.was_sent_away(), "{}", flavor.name);
        }
        in_step(&replica, &primary);
        assert_eq!(digest(&mut c), digest(&mut r));
        assert_eq!(remaining(&mut r, "RL.PEEK slot 9/366d"), 8);
        // On the new primary the first to ask again passes, and the second waits.
        for (key, options) in [("rate", RATE), ("slot", "HOLD a EX 9000 slots:1 9/366d")] {
            assert_eq!(verdict(&mut r, &format!("RL.WAIT {key} 3600000 {options}")), 0, "{key}");
        }
        let second = Waiter::join_line(&replica, "slot 3600000 HOLD b EX 9000 slots:1 9/366d");
        assert_eq!(ask::<i64>(&mut r, "RL.SETTLE slot a"), 1);
        assert_eq!(second.verdict(), 0);
        assert_eq!(remaining(&mut r, "RL.PEEK slot 9/366d"), 6);
    }
}

/// Begins a failover to a frozen replica, which lacks a write and so has to catch up first.
fn begin_failover(c: &mut Connection) {
    let () = ask(c, "SET behind 1");
    let () = ask(c, "FAILOVER");
    eventually("the failover to begin", || {
        info_text(c, "replication", "master_failover_state") == "waiting-for-sync"
    });
}
