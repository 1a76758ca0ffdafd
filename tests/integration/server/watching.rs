//! Who watches a key, with `WATCH` or as a client-side cache, hears of every change and of nothing
//! else.

use std::sync::mpsc::{Receiver, channel};

use redis::{Connection, PushInfo, PushKind, Value, from_redis_value};

use crate::support::client::{allowed, ask, raw_reply};
use crate::support::server::{self, Server};

/// What another client may do, and whether it changes the key `k`, which has 3 units of `5/h`.
const DEEDS: [(&str, bool); 33] = [
    ("RL.CHECK k COST 3 5/h", false),
    ("RL.CHECK k COST 6 5/h,count=all", false), // can never fit: not charged
    ("RL.CHECK k COST 0 5/h", false),
    ("RL.CHECK k 5/x", false),
    ("RL.PEEK k 5/h", false),
    ("RL.REFUND k 0", false),
    ("RL.REFUND k 1 bucket:5/h", false),
    ("RL.RESET other", false),
    ("RL.CHECK other 5/h", false),
    ("RL.CHECK k META x 5/x", false),
    ("RL.UNBLOCK k", false),
    ("RL.UNEXEMPT k", false),
    ("RL.BLOCK k EX 0", false),
    ("RL.EXEMPT k EXAT 1", false), // is past
    ("RL.BLOCK other", false),
    ("RL.CHECK other META who 0/h", false),
    ("RL.LOG k", false),
    ("RL.INFO k", false),
    ("RL.BLOCKS 0 COUNT 100", false),
    ("RL.TOP RESET", false),
    ("RL.CHECK k META who COST 3 5/h", true), // denied, and remembered
    ("RL.CHECK k META who COST 6 5/h,count=all", true),
    ("RL.CHECK k META who COST 0 5/h", true),
    ("RL.CHECK k META who 5/h", true),
    ("RL.BLOCK k", true),
    ("RL.BLOCK k EX 100 REASON abuse", true),
    ("RL.EXEMPT k", true),
    ("RL.CHECK k 5/h", true),
    ("RL.CHECK k COST 3 5/h,count=all", true),
    ("RL.CHECK k COST 3 5/h,ban=1h", true),
    ("RL.REFUND k 1", true),
    ("RL.REFUND k 3", true),
    ("RL.RESET k", true),
];

/// The same where there is no key.
const DEEDS_ON_NO_KEY: [(&str, bool); 13] = [
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

/// The same where it is blocked.
const DEEDS_ON_A_BLOCKED_KEY: [(&str, bool); 10] = [
    ("RL.CHECK k 5/h", false),
    ("RL.CHECK k COST 9 5/h,count=all,ban=1h", false),
    ("RL.REFUND k 1", false), // there is nothing to give back
    ("RL.RESET k", false),
    ("RL.UNEXEMPT k", false),
    ("RL.INFO k", false),
    ("RL.CHECK k META who 5/h", true),
    ("RL.UNBLOCK k", true),
    ("RL.BLOCK k", true),
    ("RL.EXEMPT k", true),
];

/// The same where it is exempt.
const DEEDS_ON_AN_EXEMPT_KEY: [(&str, bool); 6] = [
    ("RL.CHECK k COST 9 5/h,count=all,ban=1h", false),
    ("RL.UNBLOCK k", false),
    ("RL.CHECK k META who 5/h", true),
    ("RL.UNEXEMPT k", true),
    ("RL.EXEMPT k EX 100", true),
    ("RL.BLOCK k", true),
];

/// Whether watchers hear what they should: `hears` has the key watched, does the deed, and says
/// whether that was heard of.
fn assert_heard(server: &Server, mut hears: impl FnMut(&str) -> bool) {
    let mut c = server.connect();
    for (before, deeds) in [
        ("RL.CHECK k COST 3 5/h", &DEEDS[..]),
        ("PING", &DEEDS_ON_NO_KEY),
        ("RL.BLOCK k EX 1000", &DEEDS_ON_A_BLOCKED_KEY),
        ("RL.EXEMPT k EX 1000", &DEEDS_ON_AN_EXEMPT_KEY),
    ] {
        for (deed, changes) in deeds {
            let () = ask(&mut c, "DEL k other");
            let _: Value = ask(&mut c, before);
            assert_eq!(hears(deed), *changes, "{deed} after {before}");
        }
    }
}

/// A client that caches what it is told.
struct Cache {
    connection: Connection,
    told: Receiver<PushInfo>,
}

impl Cache {
    fn new(server: &Server, tracking: &str) -> Self {
        let (sender, told) = channel();
        let mut connection = server.connect_resp3();
        connection.set_push_sender(sender);
        let () = ask(&mut connection, tracking);
        Self { connection, told }
    }

    /// The keys it has been told to forget. What was pushed comes before the reply to a PING.
    fn forgets(&mut self) -> Vec<String> {
        let () = ask(&mut self.connection, "PING");
        self.told.try_iter().flat_map(invalidated).collect()
    }
}

fn invalidated(push: PushInfo) -> Vec<String> {
    assert_eq!(push.kind, PushKind::Invalidate);
    let [keys]: [Value; 1] = push.data.try_into().expect("one list of keys");
    from_redis_value(keys).expect("the list of keys")
}

#[test]
fn a_change_breaks_a_transaction_that_watches() {
    server::on_all(|server| {
        let (mut watcher, mut other) = (server.connect(), server.connect());
        assert_heard(server, |deed| {
            let () = ask(&mut watcher, "WATCH k");
            let _ = raw_reply(&mut other, deed);
            let () = ask(&mut watcher, "MULTI");
            let () = ask(&mut watcher, "RL.PEEK k 5/h");
            ask::<Option<Vec<Value>>>(&mut watcher, "EXEC").is_none()
        });
    });
}

#[test]
fn a_change_makes_a_cache_forget_what_it_peeked() {
    server::on_all(|server| {
        let mut other = server.connect();
        let mut cache = Cache::new(server, "CLIENT TRACKING ON");
        assert_heard(server, |deed| {
            cache.forgets(); // what the test itself did to the key
            let _: Value = ask(&mut cache.connection, "RL.PEEK k 5/h");
            let _ = raw_reply(&mut other, deed);
            let forgets = cache.forgets();
            assert!(forgets.is_empty() || forgets == ["k"], "{forgets:?}");
            !forgets.is_empty()
        });
    });
}

#[test]
fn a_cache_of_all_keys_with_a_prefix_forgets_them_alike() {
    server::on_all(|server| {
        let mut other = server.connect();
        let mut cache = Cache::new(server, "CLIENT TRACKING ON BCAST PREFIX k");
        assert_heard(server, |deed| {
            cache.forgets(); // what the test itself did to the key
            let _ = raw_reply(&mut other, deed);
            !cache.forgets().is_empty()
        });
    });
}

#[test]
fn what_was_said_of_a_check_and_is_not_kept_is_no_change() {
    server::on_all_with(
        |builder| builder.module_args(&["log-entries", "0"]),
        |server| {
            let mut other = server.connect();
            let mut cache = Cache::new(server, "CLIENT TRACKING ON BCAST PREFIX k");
            for denied in ["RL.CHECK k META who 0/h", "RL.CHECK k META who COST 0 5/h"] {
                let _ = raw_reply(&mut other, denied);
                assert_eq!(cache.forgets(), [""; 0], "{denied}");
            }
            assert!(allowed(&mut other, "RL.CHECK k META who 5/h"));
            assert_eq!(cache.forgets(), ["k"]);
        },
    );
}

#[test]
fn a_check_does_not_make_its_key_tracked() {
    server::on_all(|server| {
        let mut other = server.connect();
        let mut cache = Cache::new(server, "CLIENT TRACKING ON");
        let _: Value = ask(&mut cache.connection, "RL.CHECK k 5/h");
        assert!(allowed(&mut other, "RL.CHECK k 5/h"));
        assert_eq!(cache.forgets(), [""; 0]);
    });
}

#[test]
fn a_cache_need_not_hear_of_its_own_checks() {
    server::on_all(|server| {
        for (tracking, echo) in [("CLIENT TRACKING ON", true), ("CLIENT TRACKING ON NOLOOP", false)]
        {
            let mut other = server.connect();
            let mut cache = Cache::new(server, tracking);
            let _: Value = ask(&mut cache.connection, "RL.PEEK k 5/h");
            assert!(allowed(&mut cache.connection, "RL.CHECK k 5/h"));
            assert_eq!(!cache.forgets().is_empty(), echo, "{tracking}");
            let _: Value = ask(&mut cache.connection, "RL.PEEK k 5/h");
            assert!(allowed(&mut other, "RL.CHECK k 5/h"));
            assert_eq!(cache.forgets(), ["k"], "{tracking}");
        }
    });
}

#[test]
fn a_cache_can_be_told_over_another_connection() {
    server::on_all(|server| {
        let (mut cache, mut listener) = (server.connect(), server.connect());
        let mut other = server.connect();
        let id: i64 = ask(&mut listener, "CLIENT ID");
        let mut told = listener.as_pubsub();
        told.subscribe("__redis__:invalidate").unwrap();
        let () = ask(&mut cache, &format!("CLIENT TRACKING ON REDIRECT {id}"));

        let mut peek = || ask::<Value>(&mut cache, "RL.PEEK k 5/h");
        peek();
        assert!(allowed(&mut other, "RL.CHECK k COST 5 5/h"));
        assert_eq!(told.get_message().unwrap().get_payload::<Vec<String>>().unwrap(), ["k"]);
        peek();
        assert!(!allowed(&mut other, "RL.CHECK k 5/h"));
        // The next thing heard is not of the denied check.
        peek();
        let () = ask(&mut other, "PUBLISH __redis__:invalidate nothing");
        assert_eq!(told.get_message().unwrap().get_payload::<String>().unwrap(), "nothing");
    });
}
