//! Client libraries that send `RL.WAIT`, and what they do if the wait is longer than their
//! time-out. docs/guide/clients.md tells users how to set the time-out.

mod ioredis;
mod redis_py;
mod rust;
mod script;

use redis::Connection;

use crate::support::client::{ask, info, verdict};
use crate::support::server::{self, Server, eventually};
use crate::support::waiters::waiting;

/// The server that the clients talk to.
fn server() -> Server {
    let flavor = server::all().into_iter().find(|flavor| flavor.name == "redis-8.2");
    flavor.expect("redis-8.2 is in the matrix").start()
}

/// Takes the only slot of a key.
fn hold(c: &mut Connection, key: &str) {
    assert_eq!(verdict(c, &format!("RL.CHECK {key} HOLD held EX 3000 slots:1")), 0);
}

/// Frees the only slot of a key.
fn free(c: &mut Connection, key: &str) {
    assert_eq!(ask::<i64>(c, &format!("RL.SETTLE {key} held")), 1);
}

fn eventually_waiting(c: &mut Connection, clients: usize) {
    eventually(&format!("{clients} to wait"), || waiting(c) == clients);
}

/// Waits until a client has connected again and joined the line again.
fn eventually_again(c: &mut Connection, clients: usize) {
    let mut connections = || info(c, "stats", "total_connections_received");
    let before = connections();
    eventually("a new connection", || connections() > before);
    eventually_waiting(c, clients);
}

/// Checks that no client waits for the key and no client was charged: after `held` has ended,
/// the key's only slot is free.
fn is_forgotten(c: &mut Connection, key: &str) {
    eventually_waiting(c, 0);
    free(c, key);
    assert_eq!(ask::<[i64; 5]>(c, &format!("RL.PEEK {key} slots:1")), [0, 1, 1, 0, 0]);
}
