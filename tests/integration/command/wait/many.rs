//! Many waiting clients: they cost nothing while nothing happens, and leave nothing behind.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::support::client::{ask, command, info, verdict};
use crate::support::machine;
use crate::support::server::{self, Builder, Server, eventually};
use crate::support::waiters::{wait_unread, waiting};

const KEYS: usize = 1_000;
const CLIENTS: usize = 10_000;

fn cpu_seconds(c: &mut Connection) -> f64 {
    info(c, "cpu", "used_cpu_user") + info(c, "cpu", "used_cpu_sys")
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(("127.0.0.1", server.port())).expect("a connection")
}

fn connect_all(server: &Server) -> Vec<TcpStream> {
    (0..CLIENTS).map(|_| connect(server)).collect()
}

fn memory(c: &mut Connection) -> f64 {
    info(c, "memory", "used_memory")
}

#[test]
fn ten_thousand_waiters_use_no_cpu_and_leave_no_memory() {
    server::one_is_enough();
    server::on_all_with(
        |builder: Builder| builder.config("maxclients", "10500"),
        |server| {
            let mut c = server.connect();
            let idle = cpu_in_two_seconds(&mut c);
            // In the first round the server allocates memory that it keeps for clients. Later its
            // tables of clients may halve or double, and on a busy machine it may keep more. A leak by
            // waiting clients would show in each round, so one round without growth is enough.
            let mut left: Vec<f64> = Vec::new();
            let leaves_none =
                |left: &[f64]| left.windows(2).any(|pair| pair[1] - pair[0] < 900_000.0);
            while !leaves_none(&left) {
                assert!(left.len() < 6, "bytes are kept after each round: {left:?}");
                for key in 0..KEYS {
                    assert_eq!(
                        verdict(&mut c, &format!("RL.CHECK k{key} HOLD h EX 3000 slots:1")),
                        0
                    );
                }
                let mut clients = connect_all(server);
                for (n, client) in clients.iter_mut().enumerate() {
                    let line =
                        format!("RL.WAIT k{} 3600000 HOLD {n} EX 3000 slots:1\r\n", n % KEYS);
                    client.write_all(line.as_bytes()).unwrap();
                }
                eventually("all to wait", || waiting(&mut c) == CLIENTS);
                if left.is_empty() {
                    let busy = cpu_in_two_seconds(&mut c);
                    // The server itself visits its clients at least ten times a second.
                    assert!(busy - idle < 0.6, "{busy:.3} s of 2 s, {idle:.3} s without waiters");
                }
                let start = Instant::now();
                let () = ask(&mut c, "FLUSHALL");
                let mut reply = [0; 8];
                for client in clients.iter_mut().take(KEYS) {
                    client.read_exact(&mut reply).expect("a reply");
                    assert_eq!(&reply, b"*5\r\n:0\r\n", "the first of each key");
                }
                let took = start.elapsed();
                assert!(took < Duration::from_secs(5), "{took:?} for {KEYS}");
                assert_eq!(waiting(&mut c), CLIENTS - KEYS);
                drop(clients);
                eventually("all to have left", || waiting(&mut c) == 0);
                let () = ask(&mut c, "FLUSHALL");
                eventually("only this client", || {
                    info(&mut c, "clients", "connected_clients") == 1.0
                });
                thread::sleep(Duration::from_millis(500));
                left.push(memory(&mut c));
            }
        },
    );
}

#[test]
fn a_wait_of_an_hour_uses_no_cpu() {
    server::one_is_enough();
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k 1/h"), 0);
        let first = wait_unread(server, "RL.WAIT k 3600000 1/h");
        let second = wait_unread(server, "RL.WAIT k 3600000 1/h");
        // The timer that was set for the first client fires, and finds the second.
        drop(first);
        eventually("one to wait", || waiting(&mut c) == 1);
        let busy = cpu_in_two_seconds(&mut c);
        // Other processes add nothing to this processor time. A tool that runs the server does.
        let most = 0.06 * f64::from(*server::SLOWDOWN);
        assert!(busy < most, "{busy:.3} s of 2 s");
        drop(second);
    });
}

fn cpu_in_two_seconds(c: &mut Connection) -> f64 {
    let before = cpu_seconds(c);
    thread::sleep(Duration::from_secs(2));
    cpu_seconds(c) - before
}

/// A decision on a key with thousands of holds takes milliseconds, and the deadlines of many clients
/// can come at once.
#[test]
fn slow_decisions_of_waiters_leave_time_for_others() {
    const HEAVY: usize = 256;
    server::one_is_enough();
    machine::alone();
    server::on_all(|server| {
        let mut c = server.connect();
        let rules: String = (0..4).map(|n| format!(" window:1000000/d,name=n{n}")).collect();
        let fill = "for n = 1, 10000 do
            redis.call('RL.CHECK', KEYS[1], 'HOLD', n, 'PX', 600000 + n, 'REFUND', unpack(ARGV)) end";
        let mut eval = command("EVAL");
        let () = eval
            .arg(fill)
            .arg(1)
            .arg("k")
            .arg(rules.split_whitespace().collect::<Vec<_>>())
            .query(&mut c)
            .unwrap();
        // All clients must be in line before the first is answered, even on slow machines.
        let patience_ms = 5_000 * *server::SLOWDOWN;
        let line = format!("RL.WAIT k {patience_ms} COST 1000000{rules}\r\n");
        let mut clients: Vec<_> = (0..HEAVY).map(|_| connect(server)).collect();
        for client in &mut clients {
            client.write_all(line.as_bytes()).unwrap();
        }
        eventually("all to wait", || waiting(&mut c) == HEAVY);
        let mut longest = Duration::ZERO;
        while waiting(&mut c) > 0 {
            let start = Instant::now();
            let () = ask(&mut c, "PING");
            longest = longest.max(start.elapsed());
        }
        assert!(
            longest < Duration::from_millis(500) * *server::SLOWDOWN,
            "{}: {longest:?}",
            server.flavor().name
        );
    });
}
