//! redis-py, which by default waits for a reply for 5 seconds and then sends the command again.

use std::process::Command;

use super::script::Script;
use super::{eventually_again, eventually_waiting, free, hold, is_forgotten, server};
use crate::support::server::Server;
use crate::support::waiters::{Waiter, wait_in_line};

fn client(server: &Server, key: &str, options: &str) -> Script {
    let mut python = Command::new("python3");
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/.cache/python");
    python.arg("-B").env("PYTHONPATH", packages);
    Script::start(python, "redis_py.py", server, key, options)
}

#[test]
fn a_longer_time_out_keeps_the_place_in_line() {
    let server = server();
    let mut c = server.connect();
    let mut wait = |key: &str, options: &str, clients: usize| -> (Script, Waiter) {
        hold(&mut c, key);
        let client = client(&server, key, options);
        eventually_waiting(&mut c, clients);
        (client, wait_in_line(&server, &format!("RL.WAIT {key} 60000 HOLD later EX 100 slots:1")))
    };
    let (right, after_right) = wait("right", r#"{"socket_timeout": 25}"#, 1);
    let (default, after_default) = wait("default", "{}", 3);
    eventually_again(&mut c, 4);
    free(&mut c, "right");
    free(&mut c, "default");
    assert_eq!(right.outcome(), "0");
    assert!(after_right.waits());
    // The client with the default time-out has joined again, at the end of the line.
    assert_eq!(after_default.verdict(), 0);
    assert!(default.waits());
    right.close();
}

#[test]
fn who_gives_up_is_forgotten_and_charged_nothing() {
    let server = server();
    let mut c = server.connect();
    hold(&mut c, "k");
    let client = client(&server, "k", r#"{"socket_timeout": 1, "retries": 0}"#);
    eventually_waiting(&mut c, 1);
    assert_eq!(client.outcome(), "TimeoutError");
    is_forgotten(&mut c, "k");
    client.close();
}
