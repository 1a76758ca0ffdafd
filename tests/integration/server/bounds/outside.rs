//! The memory that the module takes outside of keys, as growth of `used_memory`.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, cmd};

use super::Table;
use super::filled::{RULES, named, on};
use crate::support::client::{ask, attempt, command, info};
use crate::support::server::{self, Server, eventually};
use crate::support::waiters::waiting;

/// How long a server may take to shrink its own buffers, which its cron does bit by bit.
const SHRINKING: Duration = Duration::from_secs(20);

fn used(c: &mut Connection) -> f64 {
    info(c, "memory", "used_memory")
}

/// Compares a row with the memory that `make` adds for each of its `things`. Waits for a while if it is
/// too much, because the server shrinks its own buffers only some seconds later.
fn judge(
    table: &Table,
    server: &Server,
    (row, things): (&str, usize),
    make: impl FnOnce(&mut Connection),
) {
    let mut c = server.connect();
    let before = used(&mut c);
    make(&mut c);
    let bound = table.bound(row);
    let start = Instant::now();
    let grown = loop {
        let grown = (used(&mut c) - before) / things as f64;
        if grown <= bound || start.elapsed() > SHRINKING {
            break grown;
        }
        thread::sleep(Duration::from_millis(100));
    };
    table.judge(server.flavor().name, row, grown);
}

fn set_policies(c: &mut Connection) {
    let rules = named("window:5/m,res=60,ban=1m:10m:1h", 0, RULES);
    for n in 0..500 {
        let () = on(&format!("RL.POLICY SET {n:032}"), &rules).query(c).expect("OK");
    }
}

fn deny(c: &mut Connection, keys: usize) {
    let script = "for n = 1, ARGV[1] do redis.call('RL.CHECK', string.rep('x', 290) .. string.format('%010d', n), '0/m') end";
    let () = cmd("EVAL").arg(script).arg(0).arg(keys).query(c).expect("OK");
}

/// The commands that need the largest buffers and fill the caches of rules.
fn largest_commands(c: &mut Connection) {
    let mut several = command("RL.MCHECK 64");
    several.arg((0..64).map(|n| format!("key{n}")).collect::<Vec<_>>()).arg("FULL");
    for first in 0..64 {
        if first > 0 {
            several.arg("NEXT");
        }
        several.arg(named("window:5/m,res=60", first * RULES, RULES));
    }
    let _: redis::Value = several.query(c).expect("a reply");
    let long = "9".repeat(4 << 20);
    for line in ["RL.CHECK k", "RL.EXPLAIN", "RL.THROTTLE k 5 5"] {
        let _ = command(line).arg(&long).query::<redis::Value>(c);
    }
    for n in 1..200 {
        let _ = attempt(c, &format!("RL.THROTTLE k {n} {n} {n}"));
        let _ = attempt(c, &format!("RL.CHECK k window:{n}/{n}h,res=9"));
    }
    let () = ask(c, "FLUSHALL SYNC");
}

#[test]
fn nothing_outside_of_keys_takes_more_memory_than_documented() {
    let table = Table::under("Outside of keys");
    server::on_all(|server| {
        let mut c = server.connect();
        // Makes the server allocate its own buffers and its cache of scripts.
        deny(&mut c, 1);
        let () = ask(&mut c, "RL.TOP RESET");

        let row = ("`RL.TOP` with 128 names longer than 256 bytes", 1);
        judge(&table, server, row, |c| deny(c, 1_000));
        let row = ("buffers and caches after the largest commands", 1);
        judge(&table, server, row, |_| largest_commands(&mut server.connect()));
        judge(&table, server, ("a policy of 32 rules with names of 32 bytes", 500), set_policies);
        let shown = ask::<String>(&mut c, "INFO ratelimit").len() as f64 / 500.0;
        table.judge(server.flavor().name, "a line of a policy in `INFO ratelimit`", shown);

        let _: redis::Value = ask(&mut c, "RL.CHECK line HOLD a EX 9999 slots:1");
        let mut clients = [(); 100].map(|()| server.connect());
        let row =
            ("a client that waits in `RL.WAIT`, with 32 rules that no other client names", 100);
        judge(&table, server, row, |c| {
            for (n, client) in clients.iter_mut().enumerate() {
                let line = format!("RL.WAIT line 3600000 FLOW {n:064} HOLD {n} EX 9 slots:1");
                let rules = named("window:5/m,res=60,ban=1m:10m:1h", n * RULES, RULES - 1);
                client.send_packed_command(&on(&line, &rules).get_packed_command()).expect("sent");
            }
            eventually("all to wait", || waiting(c) == clients.len());
        });
    });
    table.assert_all_hold();
}
