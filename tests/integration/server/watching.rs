//! `WATCH` and client-side caching notice every change of a key, and nothing else.

use std::sync::mpsc::{Receiver, channel};

use redis::{Connection, PushInfo, PushKind, Value, from_redis_value};

use crate::support::client::{allowed, ask, raw_reply};
use crate::support::server::{self, Server};

/// Commands, and whether they change the key `k` with 3 units of `5/h`.
const COMMANDS: [(&str, bool); 44] = [
    ("RL.CHECK k COST 3 5/h", false),
    ("RL.CHECK k COST 6 5/h,count=all", false), // can never fit: not charged
    ("RL.CHECK k COST 0 5/h", false),
    ("RL.CHECK k 5/x", false),
    ("RL.PEEK k 5/h", false),
    ("RL.REFUND k 0", false),
    ("RL.REFUND k 1 bucket:5/h", false),
    ("RL.SETTLE k r", false),
    ("RL.RENEW k r EX 9", false),
    ("RL.CHECK k HOLD r EX 9 COST 3 5/h", false),
    ("RL.RESET other", false),
    ("RL.RESUME k", false),
    ("RL.PAUSE k EXAT 1", false), // in the past
    ("RL.SYNC k REMAINING 2 5/h", false),
    ("RL.CHECK other 5/h", false),
    ("RL.CHECK k META x 5/x", false),
    ("RL.UNBLOCK k", false),
    ("RL.UNEXEMPT k", false),
    ("RL.BLOCK k EX 0", false),
    ("RL.EXEMPT k EXAT 1", false), // in the past
    ("RL.BLOCK other", false),
    ("RL.CHECK other META who 0/h", false),
    ("RL.LOG k", false),
    ("RL.INFO k", false),
    ("RL.BLOCKS 0 COUNT 100", false),
    ("RL.TOP RESET", false),
    ("RL.CHECK k META who COST 3 5/h", true), // denied, but with an entry in the history
    ("RL.CHECK k META who COST 6 5/h,count=all", true),
    ("RL.CHECK k META who COST 0 5/h", true),
    ("RL.CHECK k META who 5/h", true),
    ("RL.BLOCK k", true),
    ("RL.BLOCK k EX 100 REASON abuse", true),
    ("RL.EXEMPT k", true),
    ("RL.CHECK k 5/h", true),
    ("RL.CHECK k HOLD r EX 9 5/h", true),
    ("RL.CHECK k COST 3 5/h,count=all", true),
    ("RL.CHECK k COST 3 5/h,ban=1h", true),
    ("RL.REFUND k 1", true),
    ("RL.REFUND k 3", true),
    ("RL.RESET k", true),
    ("RL.PAUSE k EX 9", true),
    ("RL.SYNC k REMAINING 1 5/h", true),
    ("RL.SYNC k REMAINING 3 7/h", true),
    ("RL.SYNC k REMAINING 3 bucket:5/h", true),
];

/// Commands, and whether they change a key that does not exist.
const COMMANDS_ON_NO_KEY: [(&str, bool); 13] = [
    ("RL.CHECK k COST 6 5/h", false),
    ("RL.PEEK k 5/h", false),
    ("RL.REFUND k 1", false),
    ("RL.RESET k", false),
    ("RL.UNBLOCK k", false),
    ("RL.UNEXEMPT k", false),
    ("RL.LOG k", false),
    ("RL.INFO k", false),
    ("RL.CHECK k 5/h", true),
    ("RL.CHECK k META who COST 6 5/h", true),
    ("RL.CHECK k 0/h,ban=1h", true),
    ("RL.BLOCK k EX 100", true),
    ("RL.EXEMPT k EX 100", true),
];

/// Commands, and whether they change a blocked key.
const COMMANDS_ON_A_BLOCKED_KEY: [(&str, bool); 10] = [
    ("RL.CHECK k 5/h", false),
    ("RL.CHECK k COST 9 5/h,count=all,ban=1h", false),
    ("RL.REFUND k 1", false), // nothing was consumed
    ("RL.RESET k", false),
    ("RL.UNEXEMPT k", false),
    ("RL.INFO k", false),
    ("RL.CHECK k META who 5/h", true),
    ("RL.UNBLOCK k", true),
    ("RL.BLOCK k", true),
    ("RL.EXEMPT k", true),
];

/// Commands, and whether they change an exempt key.
const COMMANDS_ON_AN_EXEMPT_KEY: [(&str, bool); 6] = [
    ("RL.CHECK k COST 9 5/h,count=all,ban=1h", false),
    ("RL.UNBLOCK k", false),
    ("RL.CHECK k META who 5/h", true),
    ("RL.UNEXEMPT k", true),
    ("RL.EXEMPT k EX 100", true),
    ("RL.BLOCK k", true),
];

/// Checks that a watcher notices every change and nothing else. `notices` watches the key,
/// sends the command, and returns whether the watcher noticed a change.
fn assert_noticed(server: &Server, mut notices: impl FnMut(&str) -> bool) {
    let mut c = server.connect();
    for (before, commands) in [
        ("RL.CHECK k COST 3 5/h", &COMMANDS[..]),
        ("PING", &COMMANDS_ON_NO_KEY),
        ("RL.BLOCK k EX 1000", &COMMANDS_ON_A_BLOCKED_KEY),
        ("RL.EXEMPT k EX 1000", &COMMANDS_ON_AN_EXEMPT_KEY),
    ] {
        for (command, changes) in commands {
            let () = ask(&mut c, "DEL k other");
            let _: Value = ask(&mut c, before);
            assert_eq!(notices(command), *changes, "{command} after {before}");
        }
    }
}

/// A client that caches replies.
struct Cache {
    connection: Connection,
    pushed: Receiver<PushInfo>,
}

impl Cache {
    fn new(server: &Server, tracking: &str) -> Self {
        let (sender, pushed) = channel();
        let mut connection = server.connect_resp3();
        connection.set_push_sender(sender);
        let () = ask(&mut connection, tracking);
        Self { connection, pushed }
    }

    /// The keys that the server has invalidated. Pushes come before the reply to a PING.
    fn invalidated(&mut self) -> Vec<String> {
        let () = ask(&mut self.connection, "PING");
        self.pushed.try_iter().flat_map(keys_of).collect()
    }
}

fn keys_of(push: PushInfo) -> Vec<String> {
    assert_eq!(push.kind, PushKind::Invalidate);
    let [keys]: [Value; 1] = push.data.try_into().expect("one list of keys");
    from_redis_value(keys).expect("the list of keys")
}

#[test]
fn a_change_aborts_a_transaction_that_watches_the_key() {
    server::on_all(|server| {
        let (mut watcher, mut other) = (server.connect(), server.connect());
        assert_noticed(server, |command| {
            let () = ask(&mut watcher, "WATCH k");
            let _ = raw_reply(&mut other, command);
            let () = ask(&mut watcher, "MULTI");
            let () = ask(&mut watcher, "RL.PEEK k 5/h");
            ask::<Option<Vec<Value>>>(&mut watcher, "EXEC").is_none()
        });
    });
}

#[test]
fn a_change_invalidates_a_cached_peek() {
    server::on_all(|server| {
        let mut other = server.connect();
        let mut cache = Cache::new(server, "CLIENT TRACKING ON");
        assert_noticed(server, |command| {
            cache.invalidated(); // changes by the test itself
            let _: Value = ask(&mut cache.connection, "RL.PEEK k 5/h");
            let _ = raw_reply(&mut other, command);
            let keys = cache.invalidated();
            assert!(keys.is_empty() || keys == ["k"], "{keys:?}");
            !keys.is_empty()
        });
    });
}

#[test]
fn a_change_invalidates_caches_of_a_prefix() {
    server::on_all(|server| {
        let mut other = server.connect();
        let mut cache = Cache::new(server, "CLIENT TRACKING ON BCAST PREFIX k");
        assert_noticed(server, |command| {
            cache.invalidated(); // changes by the test itself
            let _ = raw_reply(&mut other, command);
            !cache.invalidated().is_empty()
        });
    });
}

#[test]
fn meta_that_no_history_keeps_changes_nothing() {
    server::on_all_with(
        |builder| builder.module_args(&["log-entries", "0"]),
        |server| {
            let mut other = server.connect();
            let mut cache = Cache::new(server, "CLIENT TRACKING ON BCAST PREFIX k");
            for denied in ["RL.CHECK k META who 0/h", "RL.CHECK k META who COST 0 5/h"] {
                let _ = raw_reply(&mut other, denied);
                assert_eq!(cache.invalidated(), [""; 0], "{denied}");
            }
            assert!(allowed(&mut other, "RL.CHECK k META who 5/h"));
            assert_eq!(cache.invalidated(), ["k"]);
        },
    );
}

#[test]
fn a_check_does_not_track_its_key() {
    server::on_all(|server| {
        let mut other = server.connect();
        let mut cache = Cache::new(server, "CLIENT TRACKING ON");
        let _: Value = ask(&mut cache.connection, "RL.CHECK k 5/h");
        assert!(allowed(&mut other, "RL.CHECK k 5/h"));
        assert_eq!(cache.invalidated(), [""; 0]);
    });
}

#[test]
fn noloop_suppresses_invalidations_by_own_checks() {
    server::on_all(|server| {
        for (tracking, echo) in [("CLIENT TRACKING ON", true), ("CLIENT TRACKING ON NOLOOP", false)]
        {
            let mut other = server.connect();
            let mut cache = Cache::new(server, tracking);
            let _: Value = ask(&mut cache.connection, "RL.PEEK k 5/h");
            assert!(allowed(&mut cache.connection, "RL.CHECK k 5/h"));
            assert_eq!(!cache.invalidated().is_empty(), echo, "{tracking}");
            let _: Value = ask(&mut cache.connection, "RL.PEEK k 5/h");
            assert!(allowed(&mut other, "RL.CHECK k 5/h"));
            assert_eq!(cache.invalidated(), ["k"], "{tracking}");
        }
    });
}

#[test]
fn invalidations_can_be_redirected_to_another_connection() {
    server::on_all(|server| {
        let (mut cache, mut listener) = (server.connect(), server.connect());
        let mut other = server.connect();
        let id: i64 = ask(&mut listener, "CLIENT ID");
        let mut pushed = listener.as_pubsub();
        pushed.subscribe("__redis__:invalidate").unwrap();
        let () = ask(&mut cache, &format!("CLIENT TRACKING ON REDIRECT {id}"));

        let mut peek = || ask::<Value>(&mut cache, "RL.PEEK k 5/h");
        peek();
        assert!(allowed(&mut other, "RL.CHECK k COST 5 5/h"));
        assert_eq!(pushed.get_message().unwrap().get_payload::<Vec<String>>().unwrap(), ["k"]);
        peek();
        assert!(!allowed(&mut other, "RL.CHECK k 5/h"));
        // The denied check sends no message, so the next one is that of the test.
        peek();
        let () = ask(&mut other, "PUBLISH __redis__:invalidate nothing");
        assert_eq!(pushed.get_message().unwrap().get_payload::<String>().unwrap(), "nothing");
    });
}
