//! ioredis, which by default waits forever for a reply, on one connection that all callers
//! share.

use std::process::Command;
use std::thread;
use std::time::Duration;

use super::script::Script;
use super::{eventually_again, eventually_waiting, free, hold, is_forgotten, server};
use crate::support::client::{ask, verdict};
use crate::support::server::{Server, from_env};
use crate::support::waiters::{wait_in_line, waiting};

fn client(server: &Server, key: &str, options: &str) -> Script {
    let home = from_env("RATELIMIT_IOREDIS", ".cache/ioredis");
    assert!(home.exists(), "no ioredis at {}: run `make fetch`", home.display());
    let mut node = Command::new(home.join("node"));
    node.env("NODE_PATH", home.join("node_modules"));
    Script::start(node, "ioredis.js", server, key, options)
}

#[test]
fn a_longer_socket_time_out_keeps_the_place_in_line() {
    let server = server();
    let mut c = server.connect();
    for options in ["{}", r#"{"socketTimeout": 25000}"#] {
        hold(&mut c, "k");
        let first = client(&server, "k", options);
        eventually_waiting(&mut c, 1);
        let second = wait_in_line(&server, "RL.WAIT k 60000 HOLD later EX 100 slots:1");
        thread::sleep(Duration::from_millis(700));
        free(&mut c, "k");
        assert_eq!(first.outcome(), "0");
        assert!(second.waits());
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k k"), 1);
        assert_eq!(second.verdict(), 0);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k later"), 1);
        first.close();
    }
}

#[test]
fn a_shorter_socket_time_out_loses_the_place_in_line() {
    let server = server();
    let mut c = server.connect();
    hold(&mut c, "k");
    let first = client(&server, "k", r#"{"socketTimeout": 1000}"#);
    eventually_waiting(&mut c, 1);
    let second = wait_in_line(&server, "RL.WAIT k 60000 HOLD later EX 100 slots:1");
    eventually_again(&mut c, 2);
    free(&mut c, "k");
    assert_eq!(second.verdict(), 0);
    assert!(first.waits());
}

#[test]
fn a_timed_out_command_waits_until_its_connection_closes() {
    let server = server();
    let mut c = server.connect();
    for key in ["closed", "open"] {
        hold(&mut c, key);
    }
    let options = r#"{"commandTimeout": 1000}"#;
    let closed = client(&server, "closed", options);
    let open = client(&server, "open", options);
    eventually_waiting(&mut c, 2);
    for client in [&closed, &open] {
        assert_eq!(client.outcome(), "Command timed out");
    }
    assert_eq!(waiting(&mut c), 2);
    // The client that keeps its connection open gets the slot, though its command timed out.
    free(&mut c, "open");
    eventually_waiting(&mut c, 1);
    assert_eq!(verdict(&mut c, "RL.PEEK open slots:1"), 1);
    closed.close();
    is_forgotten(&mut c, "closed");
}
