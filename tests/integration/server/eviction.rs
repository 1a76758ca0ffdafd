//! Many more limiters than memory has room for.

use redis::{Connection, Value, pipe};

use crate::support::client::{ask, command, exists, info, remaining, verdict};
use crate::support::server::{self, Server, eventually};
use crate::support::waiters::{WaitingClient, wait_in_line, waiting};

/// How many limiters are made at least, under each of two policies.
const LIMITERS: usize = 50_000;
/// How many bytes limiters may take: enough for some 5,000.
const ROOM: f64 = 1_000_000.0;
const AT_ONCE: usize = 1_000;
const LINES: usize = 5;
const IN_LINE: usize = 2;
const BLOCKED: usize = 5;

/// Clients that wait for slots whose holds nobody settles.
fn wait_in_lines(server: &Server, c: &mut Connection) -> Vec<WaitingClient> {
    let mut waiters = Vec::new();
    for key in 0..LINES {
        assert_eq!(verdict(c, &format!("RL.CHECK line{key} HOLD held EX 3000 slots:1")), 0);
        for id in 0..IN_LINE {
            let line = format!("RL.WAIT line{key} 3600000 HOLD {id} EX 3000 slots:1");
            waiters.push(wait_in_line(server, &line));
        }
    }
    waiters
}

/// Checks new limiters until all clients in line have been answered. Returns the number of limiters.
fn fill(c: &mut Connection) -> usize {
    let mut filled = 0;
    while filled < LIMITERS || waiting(c) > 0 {
        assert!(filled < 20 * LIMITERS, "{} clients still wait", waiting(c));
        let mut checks = pipe();
        for n in filled..filled + AT_ONCE {
            checks.cmd("RL.CHECK").arg(format!("k{n}")).arg("5/h");
        }
        let replies: Vec<[i64; 5]> = checks.query(c).expect("replies");
        assert!(replies.iter().all(|reply| reply[..3] == [0, 5, 4]), "a new limiter is used up");
        filled += AT_ONCE;
    }
    filled
}

/// Checks some limiters again: those that were evicted begin anew, the others have a unit less.
fn assert_begin_anew(c: &mut Connection, filled: usize) {
    let mut evicted = [0, 0];
    for n in (0..filled).rev().step_by(97) {
        let is_gone = !exists(c, &format!("k{n}"));
        let left = if is_gone { 4 } else { 3 };
        assert_eq!(remaining(c, &format!("RL.CHECK k{n} 5/h")), left, "k{n}");
        evicted[usize::from(is_gone)] += 1;
    }
    assert!(evicted.iter().all(|&limiters| limiters > 10), "{evicted:?}");
}

#[test]
fn a_hundred_thousand_limiters_are_evicted_and_lines_go_on() {
    server::oldest_and_newest();
    server::on_all(|server| {
        let mut c = server.connect();
        for policy in ["allkeys-lru", "volatile-lru"] {
            for line in ["CONFIG SET maxmemory 0", "FLUSHALL SYNC", "CONFIG RESETSTAT"] {
                let () = ask(&mut c, line);
            }
            let () = ask(&mut c, &format!("CONFIG SET maxmemory-policy {policy}"));
            for n in 0..BLOCKED {
                let _: Value = ask(&mut c, &format!("RL.BLOCK blocked{n}"));
            }
            let waiters = wait_in_lines(server, &mut c);
            let room = info(&mut c, "memory", "used_memory") + ROOM;
            let () = ask(&mut c, &format!("CONFIG SET maxmemory {room}"));
            let filled = fill(&mut c);
            let () = ask(&mut c, "CONFIG SET maxmemory 0");
            assert!(waiters.into_iter().all(|waiter| waiter.verdict() == 0), "{policy}");

            // A client in line can have passed only because its key was evicted.
            let made = filled + BLOCKED + LINES * (1 + IN_LINE);
            let keys: usize = ask(&mut c, "DBSIZE");
            let evicted = info(&mut c, "stats", "evicted_keys") as usize;
            assert_eq!(made - evicted, keys, "{policy}: {made} made, {evicted} evicted");
            eventually("INFO to count as many values as keys", || {
                info(&mut c, "ratelimit", "ratelimit_values") as usize == keys
            });
            assert_begin_anew(&mut c, filled);
            if policy.starts_with("volatile") {
                for n in 0..BLOCKED {
                    let peek = command(&format!("RL.PEEK blocked{n} 5/h")).query(&mut c);
                    let [verdict, ..]: [i64; 5] = peek.expect("a reply");
                    assert_eq!(verdict, 2, "a block without an end is not evicted");
                }
            }
        }
    });
}
