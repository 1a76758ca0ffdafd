//! Clients wait for keys whose allocations move.

use std::io::{Read, Write};
use std::net::TcpStream;

use redis::{Connection, Pipeline};

use super::{can_defragment, eager, riddle_with_holes};
use crate::support::client::{ask, command, info, verdict};
use crate::support::server::{self, DEADLINE, Server, eventually};
use crate::support::waiters::waiting;

const KEYS: usize = 200;
const IN_LINE: usize = 10;
const RULES: &str = "slots:1 900/h";

/// The keys with a line: some of those that remain after other keys around them are deleted.
fn keys() -> impl Iterator<Item = String> {
    (1..=KEYS).map(|n| format!("k{}", 3 * n))
}

/// The replies to a command for each key with a line.
fn each<T: redis::FromRedisValue>(c: &mut Connection, line: impl Fn(&str) -> String) -> Vec<T> {
    let mut calls = Pipeline::new();
    for key in keys() {
        calls.add_command(command(&line(&key)));
    }
    calls.query(c).expect("replies")
}

/// One more client for each key, once all of them wait.
fn join(server: &Server, c: &mut Connection, id: usize) -> Vec<TcpStream> {
    let before = waiting(c);
    let clients = keys().map(|key| {
        let mut client = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        client.set_read_timeout(Some(*DEADLINE)).expect("set");
        let line = format!("RL.WAIT {key} 3600000 META {id} HOLD {id} EX 3000 {RULES}\r\n");
        client.write_all(line.as_bytes()).expect("sent");
        client
    });
    let clients = clients.collect();
    eventually("all to wait", || waiting(c) == before + KEYS);
    clients
}

#[test]
fn two_thousand_waiters_are_answered_in_order_while_allocations_move() {
    server::on_all_with(eager, |server| {
        if !can_defragment(server) {
            return; // see `defragmentation_is_refused_without_support_by_the_allocator`
        }
        let mut c = server.connect();
        let held = format!("RL.CHECK k META 0 HOLD 0 EX 3000 {RULES}");
        assert_eq!(verdict(&mut c, &held), 0);
        riddle_with_holes(&mut c, "k", "k", 24_000);
        let lines: Vec<_> = (1..=IN_LINE).map(|id| join(server, &mut c, id)).collect();
        let before: Vec<Vec<u8>> = each(&mut c, |key| format!("DUMP {key}"));
        let () = ask(&mut c, "CONFIG SET activedefrag yes");
        eventually("most keys to move", || {
            info(&mut c, "stats", "active_defrag_key_hits") > 4_000.0
        });
        assert!(each::<Vec<u8>>(&mut c, |key| format!("DUMP {key}")) == before, "a value changed");

        for (settled, clients) in lines.into_iter().enumerate() {
            // Allocations move while clients are answered.
            riddle_with_holes(&mut c, "k", &format!("more{settled}-"), 3_000);
            let freed: Vec<i64> = each(&mut c, |key| format!("RL.SETTLE {key} {settled}"));
            assert_eq!(freed, [1; KEYS], "the holder is {settled}");
            for mut client in clients {
                let mut reply = [0; 16];
                client.read_exact(&mut reply).expect("a reply");
                assert_eq!(&reply, b"*5\r\n:0\r\n:1\r\n:0\r\n");
            }
        }
        assert_eq!(waiting(&mut c), 0);
        assert_eq!(info(&mut c, "ratelimit", "ratelimit_waiting_bytes"), 0.0);
        let order: Vec<String> = (0..=IN_LINE).rev().map(|id| id.to_string()).collect();
        for log in
            each::<Vec<(i64, i64, i64, String)>>(&mut c, |key| format!("RL.LOG {key} COUNT 20"))
        {
            assert_eq!(log.into_iter().map(|(.., meta)| meta).collect::<Vec<_>>(), order);
        }
        let peeks: Vec<[i64; 5]> = each(&mut c, |key| format!("RL.PEEK {key} 900/h"));
        assert!(peeks.iter().all(|peek| peek[2] == 900 - 1 - IN_LINE as i64), "{peeks:?}");
        assert!(
            each::<i64>(&mut c, |key| format!("MEMORY USAGE {key}")).iter().all(|&bytes| bytes > 0)
        );
    });
}
