//! `RL.WAIT`: the worked examples, order, deadlines, and what ends a wait.

mod fair;
mod many;
mod others;
mod plans;
mod starve;
mod wakes;

use std::thread;
use std::time::{Duration, Instant};

use ratelimit_engine::rule::Rule;
use ratelimit_protocol::waiting::Rules;
use redis::{Connection, ConnectionLike, Value, cmd, pipe};

use crate::support::client::{ask, attempt, command, info, refusal, verdict};
use crate::support::clock::on_all_with_clock;
use crate::support::machine;
use crate::support::server::{self, Builder, Flavor, Server, eventually};
use crate::support::waiters::{wait_in_line, wait_on, wait_unread, waiting};

/// A hold on the only slot. It outlives each test, so clients in line pass only when it is settled.
const HELD: &str = "RL.CHECK k HOLD held EX 3000 slots:1";

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn counted(c: &mut Connection, name: &str) -> f64 {
    info(c, "ratelimit", &format!("ratelimit_{name}"))
}

#[test]
fn a_client_waits_only_if_its_turn_comes_before_its_deadline() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.CHECK k 1/3000s"), [0, 1, 0, 0, 3_000_000]);
        let start = Instant::now();
        let denied = ask::<[i64; 5]>(&mut c, "RL.WAIT k 2900000 1/3000s");
        assert!(start.elapsed() < *server::DEADLINE, "at once: {:?}", start.elapsed());
        assert_eq!([denied[0], denied[1], denied[2]], [1, 1, 0]);
        assert!(denied[3] > 2_900_000, "{denied:?}");
        assert_eq!(denied[3], denied[4]);
        let waiter = wait_in_line(server, "RL.WAIT k 3500000 1/3000s");
        clock.advance_s(&mut c, 2_900);
        assert_eq!(waiting(&mut c), 1, "early");
        clock.advance_s(&mut c, 100);
        assert_eq!(waiter.answer::<[i64; 5]>(), [0, 1, 0, 0, 3_000_000]);
    });
}

/// On all servers at once, because it takes ten seconds.
#[test]
fn ten_clients_are_answered_a_second_apart_in_order_of_arrival() {
    machine::alone();
    let servers: Vec<Server> = server::all().into_iter().map(Flavor::start).collect();
    thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| {
                let mut c = server.connect();
                // The history shows when the server admitted each client.
                let waiters: Vec<_> = (0..11)
                    .map(|n| format!("RL.WAIT k 20000 META {n} 1/s"))
                    .map(|line| match line.contains(" 0 1/s") {
                        true => {
                            assert_eq!(verdict(&mut c, &line), 0);
                            None
                        }
                        false => Some(wait_in_line(server, &line)),
                    })
                    .collect();
                for waiter in waiters.into_iter().flatten() {
                    assert_eq!(waiter.answer::<[i64; 5]>(), [0, 1, 0, 0, 1000]);
                }
                let mut log: Vec<(i64, i64, i64, String)> =
                    ask::<Vec<(i64, i64, i64, String)>>(&mut c, "RL.LOG k COUNT 20");
                log.reverse();
                let order: Vec<_> = log.iter().map(|entry| entry.3.clone()).collect();
                assert_eq!(order, (0..11).map(|n| n.to_string()).collect::<Vec<_>>());
                let late = log.windows(2).map(|pair| pair[1].0 - pair[0].0 - 1000);
                let mut late: Vec<_> = late.collect();
                late.sort_unstable();
                let name = server.flavor().name;
                assert!(late[0] >= 0, "{name}: early: {late:?} ms");
                // A pause of the machine may delay some.
                assert!(late[5] <= 5, "{name}: late: {late:?} ms");
            });
        }
    });
}

#[test]
fn a_settled_or_lapsed_slot_goes_to_the_first_in_line() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        let held = ask::<[i64; 5]>(&mut c, "RL.CHECK s HOLD a EX 3000 slots:1");
        assert_eq!(held, [0, 1, 0, 0, 3_000_000]);
        let b = wait_in_line(server, "RL.WAIT s 2000000 HOLD b EX 1500 slots:1");
        let other = wait_in_line(server, "RL.WAIT s 2000000 HOLD c EX 20 slots:1");
        clock.advance_s(&mut c, 300);
        assert_eq!(waiting(&mut c), 2);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE s a"), 1);
        // The time of the hold begins with the admission.
        assert_eq!(b.answer::<[i64; 5]>(), [0, 1, 0, 0, 1_500_000]);
        clock.advance_s(&mut c, 1_400);
        assert_eq!(waiting(&mut c), 1, "B has the slot for 1500 s");
        clock.advance_s(&mut c, 100);
        assert_eq!(other.verdict(), 0);
    });
}

#[test]
fn a_reply_that_waiting_cannot_change_comes_at_once() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.WAIT new 60000 5/m"), [0, 5, 4, 0, 60000]);
        assert_eq!(ask::<[i64; 6]>(&mut c, "RL.WAIT new 60000 COST 2..9 5/m")[5], 4);
        // The wait is -1, with and without other clients in line.
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.WAIT new 60000 COST 6 5/m")[3], -1);
        let first = wait_in_line(server, "RL.WAIT new 60000 5/m");
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.WAIT new 60000 COST 6 5/m")[3], -1);
        // A block of the key also answers the clients in line.
        assert_eq!(ask::<String>(&mut c, "RL.BLOCK new"), "OK");
        assert_eq!(first.verdict(), 2);
        assert_eq!(counted(&mut c, "waits_refused"), 1.0);
        assert_eq!(verdict(&mut c, "RL.WAIT new 60000 5/m"), 2);
        assert_eq!(ask::<String>(&mut c, "RL.EXEMPT new"), "OK");
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.WAIT new 60000 0/m"), [0, -1, -1, 0, 0]);
        // A repeat of a live hold consumes nothing.
        assert_eq!(verdict(&mut c, HELD), 0);
        let first = wait_in_line(server, "RL.WAIT k 60000 HOLD b EX 9 slots:1");
        assert_eq!(verdict(&mut c, "RL.WAIT k 60000 HOLD held EX 3000 slots:1"), 0);
        assert!(first.waits());
        let () = ask(&mut c, "SET text x");
        assert!(refusal(&mut c, "RL.WAIT text 60000 5/m").contains("WRONGTYPE"));
        let () = ask(&mut c, "RL.RESET k");
        assert_eq!(first.verdict(), 0);
    });
}

#[test]
fn a_deadline_counts_as_one_denied_check() {
    const PEEK: &str = "RL.PEEK k 5/h,count=all";
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD held EX 3000 slots:1 5/h,count=all"), 0);
        let limited = counted(&mut c, "limited");
        let line = "RL.WAIT k 400000 META who HOLD b EX 9 slots:1 5/h,count=all";
        let waiter = wait_in_line(server, line);
        clock.advance_s(&mut c, 300);
        assert_eq!(ask::<[i64; 5]>(&mut c, PEEK)[2], 4, "not charged yet");
        assert_eq!(counted(&mut c, "limited"), limited);
        clock.advance_s(&mut c, 100);
        let reply: [i64; 5] = waiter.answer();
        assert_eq!([reply[0], reply[1], reply[2]], [1, 1, 0]);
        assert!(reply[3] > 2_500_000 && reply[3] <= 2_600_000, "the true wait: {}", reply[3]);
        assert_eq!(ask::<[i64; 5]>(&mut c, PEEK)[2], 3, "the denial is charged once");
        assert_eq!(counted(&mut c, "limited"), limited + 1.0);
        assert_eq!(counted(&mut c, "waits_expired"), 1.0);
        assert_eq!(counted(&mut c, "waits_admitted"), 0.0);
        let log: Vec<(i64, i64, i64, String)> = ask(&mut c, "RL.LOG k");
        assert_eq!(log.len(), 1, "{log:?}");
        let top: Vec<(String, i64, i64)> = ask(&mut c, "RL.TOP");
        assert_eq!(top[0].1, 1, "{top:?}");
    });
}

#[test]
fn a_client_behind_others_is_denied_at_its_deadline() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD held EX 3000 COST 3 slots:4"), 0);
        let large = wait_in_line(server, "RL.WAIT k 2000000 HOLD b EX 30 COST 2 slots:4");
        let small = wait_in_line(server, "RL.WAIT k 300000 HOLD c EX 30 slots:4");
        clock.advance_s(&mut c, 300);
        let [code, limit, remaining, wait_ms, _] = small.answer::<[i64; 5]>();
        assert_eq!([code, limit, remaining], [1, 4, 1]);
        assert!(wait_ms > 2_600_000 && wait_ms <= 2_700_000, "not the first's wait: {wait_ms}");
        let now = ask::<[i64; 5]>(&mut c, "RL.WAIT k 0 HOLD c EX 30 slots:4");
        assert_eq!(now[0], 1, "with a deadline of 0 it is denied at once");
        assert!(large.waits());
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k held"), 1);
        assert_eq!(large.verdict(), 0);
        assert_eq!(verdict(&mut c, "RL.WAIT k 0 HOLD c EX 30 slots:4"), 0);
    });
}

#[test]
fn client_unblock_ends_a_wait_like_its_deadline_or_with_an_error() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD held EX 3000 slots:1 9/h,count=all"), 0);
        let line = "RL.WAIT k 60000 HOLD b EX 9 slots:1 9/h,count=all";
        for how in ["", " TIMEOUT"] {
            let waiter = wait_in_line(server, line);
            assert_eq!(ask::<i64>(&mut c, &format!("CLIENT UNBLOCK {}{how}", waiter.id)), 1);
            assert_eq!(waiter.verdict(), 1);
        }
        let (first, second) = (wait_in_line(server, line), wait_in_line(server, line));
        assert_eq!(ask::<i64>(&mut c, &format!("CLIENT UNBLOCK {} ERROR", first.id)), 1);
        assert!(first.refusal().contains("UNBLOCKED"));
        assert_eq!(
            ask::<[i64; 5]>(&mut c, "RL.PEEK k 9/h,count=all")[2],
            6,
            "an error charges nothing"
        );
        assert_eq!(counted(&mut c, "waits_expired"), 2.0);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k held"), 1);
        assert_eq!(second.verdict(), 0);
        assert_eq!(waiting(&mut c), 0);
    });
}

#[test]
fn a_client_that_hangs_up_leaves_the_line_and_is_charged_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, HELD), 0);
        let first = wait_unread(server, "RL.WAIT k 60000 HOLD a EX 9000 slots:1");
        let killed = wait_in_line(server, "RL.WAIT k 60000 HOLD b EX 9000 slots:1");
        let last = wait_in_line(server, "RL.WAIT k 60000 HOLD c EX 9000 slots:1");
        let () = ask(&mut c, &format!("CLIENT KILL ID {}", killed.id));
        assert!(killed.lost_its_connection());
        drop(first);
        eventually("all clients but one to leave", || waiting(&mut c) == 1);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k held"), 1);
        assert_eq!(last.verdict(), 0);
        for id in ["a", "b"] {
            assert_eq!(ask::<i64>(&mut c, &format!("RL.SETTLE k {id}")), 0, "{id} holds nothing");
        }
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k c"), 1);
        assert_eq!(counted(&mut c, "waits_admitted"), 1.0);
    });
}

#[test]
fn a_client_that_cannot_wait_gets_the_reply_of_a_check() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k 1/h"), 0);
        let first = wait_in_line(server, "RL.WAIT k 3600000 1/h");
        let (denied,): ([i64; 5],) =
            pipe().atomic().add_command(command("RL.WAIT k 3600000 1/h")).query(&mut c).unwrap();
        assert_eq!(denied[0], 1);
        let script = "return redis.call('RL.WAIT', KEYS[1], 3600000, '1/h')";
        let denied: [i64; 5] = cmd("EVAL").arg(script).arg(1).arg("k").query(&mut c).unwrap();
        assert_eq!(denied[0], 1);
        let allowed: [i64; 5] = cmd("EVAL").arg(script).arg(1).arg("new").query(&mut c).unwrap();
        assert_eq!(allowed, [0, 1, 0, 0, 3_600_000]);
        if server.flavor().is_7_or_later() {
            let library = "#!lua name=w\nredis.register_function('w', function(keys) \
                           return redis.call('RL.WAIT', keys[1], 3600000, '1/h') end)";
            let () = cmd("FUNCTION").arg("LOAD").arg(library).query(&mut c).unwrap();
            assert_eq!(ask::<[i64; 5]>(&mut c, "FCALL w 1 k")[0], 1);
        }
        assert!(first.waits());
        let () = ask(&mut c, "DEL k");
        assert_eq!(first.verdict(), 0);
    });
}

#[test]
fn no_client_waits_on_a_replica() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, HELD), 0);
        let waiter = wait_in_line(server, "RL.WAIT k 60000 HOLD b EX 9 slots:1");
        let () = ask(&mut c, "REPLICAOF 127.0.0.1 1");
        assert!(waiter.refusal().contains("UNBLOCKED"));
        assert_eq!(waiting(&mut c), 0);
        assert!(
            refusal(&mut c, "RL.WAIT k 60000 HOLD b EX 9 slots:1").contains("read only replica")
        );
        let () = ask(&mut c, "REPLICAOF NO ONE");
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k b"), 0, "nothing was charged");
    });
}

#[test]
fn nobody_is_admitted_while_clients_are_paused() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k 1/1000s"), 0);
        assert_eq!(verdict(&mut c, "RL.CHECK l HOLD held EX 3000 slots:1 9/h,count=all"), 0);
        let soon = wait_in_line(server, "RL.WAIT k 3600000 1/1000s");
        let expired = wait_in_line(server, "RL.WAIT l 60000 HOLD b EX 9 slots:1 9/h,count=all");
        let () = ask(&mut c, "CLIENT PAUSE 3000000 WRITE");
        assert_eq!(ask::<i64>(&mut c, &format!("CLIENT UNBLOCK {}", expired.id)), 1);
        assert_eq!(expired.verdict(), 1);
        assert_eq!(
            ask::<[i64; 5]>(&mut c, "RL.PEEK l 9/h,count=all")[2],
            8,
            "no write, so no charge"
        );
        clock.advance_s(&mut c, 2_000);
        assert_eq!(waiting(&mut c), 1, "admitted within the pause");
        clock.advance_s(&mut c, 1_000);
        assert_eq!(soon.verdict(), 0);
    });
}

#[test]
fn the_number_of_waiting_clients_is_bounded() {
    let denied = |c: &mut Connection| {
        let start = Instant::now();
        let verdict = verdict(c, "RL.WAIT k 20000 HOLD b EX 9 slots:1");
        verdict == 1 && start.elapsed() < millis(10_000)
    };
    for (setting, value) in [("max-waiters", "1"), ("max-waiter-bytes", "140")] {
        server::on_all_with(
            |builder: Builder| builder.module_args(&[setting, value]),
            |server| {
                let mut c = server.connect();
                assert_eq!(verdict(&mut c, HELD), 0);
                let line = "RL.WAIT k 20000 HOLD a EX 9 slots:1";
                let first = wait_in_line(server, line);
                // The client's arguments, another copy of its key, and its rules.
                let bytes: usize = line.split(' ').map(str::len).sum();
                let rule = Rule::from_text(b"slots:1").unwrap();
                let bytes = bytes + "k".len() + Rules::of(&[rule]).bytes();
                assert_eq!(counted(&mut c, "waiting_bytes"), bytes as f64);
                let bound = format!("max_{}", setting.trim_start_matches("max-").replace('-', "_"));
                assert_eq!(counted(&mut c, &bound).to_string(), value);
                assert!(denied(&mut c), "no room for a second");
                assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k held"), 1);
                assert_eq!(first.verdict(), 0);
                assert_eq!(counted(&mut c, "waiting_bytes"), 0.0);
                wait_in_line(server, "RL.WAIT k 20000 HOLD a2 EX 9 slots:1").waits();
            },
        );
    }
}

#[test]
fn a_line_has_a_bounded_number_of_flows() {
    server::on_all_with(
        |builder: Builder| builder.module_args(&["max-flows", "2"]),
        |server| {
            let mut c = server.connect();
            assert_eq!(verdict(&mut c, HELD), 0);
            let wait = |flow: &str, ms: u32, id: u32| {
                format!("RL.WAIT k {ms} FLOW {flow} HOLD {id} EX 9 slots:1")
            };
            let _first = wait_in_line(server, &wait("a", 600_000, 1));
            let _second = wait_in_line(server, &wait("b", 600_000, 2));
            assert_eq!(verdict(&mut c, &wait("c", 600_000, 3)), 1, "a third flow, at once");
            let _third = wait_in_line(server, &wait("a", 600_000, 4));
            assert_eq!(waiting(&mut c), 3);
            if server.flavor().is_7_or_later() {
                let () = ask(&mut c, "CONFIG SET ratelimit.max-flows 3");
                let _fourth = wait_in_line(server, &wait("c", 600_000, 5));
                assert_eq!(waiting(&mut c), 4);
            }
        },
    );
}

#[test]
fn equal_rules_of_waiting_clients_take_memory_once() {
    const CLIENTS: usize = 50;
    server::on_all_with(
        |builder: Builder| builder.module_args(&["max-waiter-bytes", "10000"]),
        |server| {
            let mut c = server.connect();
            let rules: String =
                (0..32).map(|n| format!(" bucket:1/h,burst=1,name=r{n:028}")).collect();
            let () = ask(&mut c, &format!("RL.POLICY SET many{rules}"));
            assert_eq!(verdict(&mut c, "RL.CHECK k @many"), 0);
            let waiters = (0..CLIENTS).map(|_| wait_unread(server, "RL.WAIT k 3600000 @many"));
            let waiters: Vec<_> = waiters.collect();
            assert_eq!(waiting(&mut c), CLIENTS);
            drop(waiters);
            eventually("all to have left", || waiting(&mut c) == 0);
            assert_eq!(counted(&mut c, "waiting_bytes"), 0.0);
        },
    );
}

#[test]
fn a_waiter_is_answered_in_its_database_and_protocol() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "SELECT 5");
        assert_eq!(verdict(&mut c, HELD), 0);
        let mut reference = server.connect_resp3();
        let () = ask(&mut reference, "SELECT 5");
        let expected = |reference: &mut Connection| {
            let () = ask(reference, "RL.RESET like");
            shape(&attempt(reference, "RL.CHECK like HOLD b EX 9 FULL slots:1").unwrap())
        };
        let mut client = server.connect_resp3();
        let () = ask(&mut client, "SELECT 5");
        let waiter = wait_on(server, client, "RL.WAIT k 60000 HOLD b EX 9 FULL slots:1");
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k held"), 1);
        assert_eq!(shape(&waiter.answer::<Value>()), expected(&mut reference));
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k b"), 1, "it was charged in database 5");
    });
}

/// A reply without its numbers.
fn shape(value: &Value) -> String {
    format!("{value:?}").chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[test]
fn a_connection_works_after_a_wait() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k 5/s"), 0);
        let replies = c
            .req_packed_commands(
                &pipe()
                    .add_command(command("RL.WAIT k 2000 COST 5 5/s"))
                    .add_command(command("RL.WAIT k 2000 COST 5 5/s"))
                    .add_command(command("PING"))
                    .get_packed_pipeline(),
                0,
                3,
            )
            .unwrap();
        let last = &replies[2];
        assert!(format!("{last:?}").contains("PONG") || *last == Value::Okay, "{last:?}");
        assert_eq!(counted(&mut c, "waits_admitted"), 2.0);
    });
}

/// A denial by the rules is charged and bans, even if the client cannot wait and others are in line
/// before it.
#[test]
fn a_client_that_cannot_wait_behind_others_is_denied_by_the_rules() {
    const RULE: &str = "bucket:1/h,burst=1,count=all,ban=1h,name=x";
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, &format!("RL.CHECK k HOLD held EX 3000 {RULE}")), 0);
        let _first = wait_unread(server, "RL.WAIT k 3600000 bucket:1/h,burst=1,name=x");
        assert_eq!(verdict(&mut c, &format!("RL.WAIT k 0 {RULE}")), 1);
        assert_eq!(verdict(&mut c, &format!("RL.WAIT k 0 {RULE}")), 2, "it is banned");
    });
}
