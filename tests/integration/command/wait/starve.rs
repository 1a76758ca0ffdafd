//! Changes of a busy key, however frequent, do not keep a client from its answer.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::{Connection, cmd, from_redis_value};

use super::{verdict, wait_unread, waiting};
use crate::support::client::attempt;
use crate::support::machine;
use crate::support::server::{self, Server};

/// Changes of the key or of policies. One wakes nobody, the others wake the first clients of some
/// or all flows.
const CHANGES: [&str; 4] = [
    "RL.POLICY SET unused 1/s",
    "RL.CHECK k HOLD passing EX 9 bucket:100000000/s,burst=100000000,name=all",
    "RL.SETTLE k passing REFUND",
    "RL.CHECK k bucket:100000000/s,burst=100000000,name=all",
];

/// A key with many holds, and flows whose heads are all at their own limits.
fn fill(
    server: &Server,
    c: &mut Connection,
    holds: usize,
    options: &str,
    flows: usize,
) -> Vec<TcpStream> {
    let script = "for n = 1, ARGV[1] do
        redis.call('RL.CHECK', KEYS[1], 'HOLD', n, 'EX', 3000 + n, unpack(ARGV, 2)) end";
    let mut eval = cmd("EVAL");
    eval.arg(script).arg(1).arg("k").arg(holds);
    eval.arg(options.split_whitespace().collect::<Vec<_>>());
    let () = eval.query(c).unwrap();
    for flow in 0..flows {
        let taken = format!("RL.CHECK k HOLD own{flow} EX 3000 slots:1,name=f{flow}");
        assert_eq!(verdict(c, &taken), 0);
    }
    let shared = "window:1000000/d,name=w bucket:100000000/s,burst=100000000,name=all";
    let waiters = (0..flows).map(|flow| {
        let asks = format!("RL.WAIT k 3600000 FLOW f{flow} HOLD next{flow} EX 3000");
        wait_unread(server, &format!("{asks} {shared} slots:1,name=f{flow}"))
    });
    waiters.collect()
}

fn newcomers_are_admitted(holds: usize, options: &str, flows: usize) {
    machine::alone();
    server::on_all(|server| {
        let mut c = server.connect();
        let _waiters = fill(server, &mut c, holds, options, flows);
        assert_eq!(waiting(&mut c), flows);
        let (over, server) = (AtomicBool::new(false), &*server);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut changer = server.connect();
                for line in CHANGES.iter().cycle() {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    attempt(&mut changer, line).unwrap_or_else(|error| panic!("{line}: {error}"));
                    thread::sleep(Duration::from_millis(1));
                }
            });
            // A look at the first clients of all flows takes milliseconds.
            let patience_ms = 5_000 * *server::SLOWDOWN;
            let verdicts = (0..5).map(|n| {
                let asks = format!("RL.WAIT k {patience_ms} FLOW new HOLD n{n} EX 3000");
                attempt(&mut c, &format!("{asks} slots:9,name=new"))
            });
            let verdicts: Vec<_> = verdicts.collect();
            over.store(true, Ordering::Relaxed);
            for verdict in verdicts {
                let [verdict, ..]: [i64; 5] = from_redis_value(verdict.unwrap()).unwrap();
                assert_eq!(verdict, 0, "{}", server.flavor().name);
            }
        });
        assert_eq!(waiting(&mut c), flows, "all others are at their limits");
    });
}

#[test]
fn a_newcomer_passes_twenty_flows_on_a_key_of_9000_holds() {
    server::one_is_enough();
    newcomers_are_admitted(9_000, "REFUND window:1000000/d,name=w", 20);
}

#[test]
fn a_newcomer_passes_two_hundred_flows_on_a_key_of_3000_holds() {
    server::one_is_enough();
    newcomers_are_admitted(3_000, "slots:100000,name=z window:1000000/d,name=w", 200);
}
