//! Keyspace events: those of any key, and those of this module.

use redis::{Connection, from_redis_value};

use crate::support::client::{
    allowed, ask, command, dump, exists, info, now_ms, raw_reply, replica_of, replicated,
};
use crate::support::server::{self, Builder, Server};

/// Listens to the keyspace events of a server.
struct Events {
    listener: Connection,
    c: Connection,
}

impl Events {
    /// Listens to all classes that the server has.
    fn all(server: &Server) -> Self {
        // Class `n`, new keys, came with 7.0 and is not in `A`.
        Self::of_classes(server, if server.flavor().is_7_or_later() { "EAn" } else { "EA" })
    }

    fn of_classes(server: &Server, classes: &str) -> Self {
        let (mut listener, mut c) = (server.connect(), server.connect());
        let () = ask(&mut c, &format!("CONFIG SET notify-keyspace-events {classes}"));
        let subscribe = command("PSUBSCRIBE __keyevent@*__:*").get_packed_command();
        listener.send_packed_command(&subscribe).unwrap();
        listener.recv_response().unwrap();
        Self { listener, c }
    }

    /// The events since the last call, each as `event key`.
    fn so_far(&mut self) -> Vec<String> {
        let () = ask(&mut self.c, "PUBLISH __keyevent@0__:end of-it");
        let mut events = Vec::new();
        loop {
            let message = self.listener.recv_response().expect("a message");
            let (_, _, channel, key): (String, String, String, String) =
                from_redis_value(message).expect("a message of a pattern");
            match channel.split_once("__:").expect("a channel of events").1 {
                "end" => return events,
                event => events.push(format!("{event} {key}")),
            }
        }
    }

    /// The events of a command, which may fail.
    fn of(&mut self, line: &str) -> Vec<String> {
        let _ = raw_reply(&mut self.c, line);
        self.so_far()
    }
}

const NONE: [&str; 0] = [];

/// The events of a command that makes the key `k`.
fn creation(server: &Server) -> Vec<&'static str> {
    if server.flavor().is_7_or_later() { vec!["new k"] } else { vec![] }
}

#[test]
fn only_a_check_that_makes_a_key_sends_an_event() {
    server::on_all(|server| {
        let mut events = Events::all(server);
        for line in ["RL.CHECK k COST 6 5/h", "RL.PEEK k 5/h", "RL.REFUND k 1", "RL.RESET k"] {
            assert_eq!(events.of(line), NONE, "{line} on no key");
        }
        assert_eq!(events.of("RL.CHECK k COST 2 5/h"), creation(server));
        for line in [
            "RL.CHECK k 5/h",
            "RL.CHECK k COST 5 5/h",
            "RL.CHECK k COST 5 5/h,count=all",
            "RL.CHECK k COST 0 5/h",
            "RL.CHECK k 5/x",
            "RL.CHECK k bucket:5/h window:5/d,name=w",
            "RL.CHECK k 50/d",
            "RL.PEEK k 5/h",
            "RL.PEEK k FULL 0/h",
            "RL.REFUND k 1",
        ] {
            assert_eq!(events.of(line), NONE, "{line}");
        }
        for line in ["RL.CHECK k META who 50/d", "RL.CHECK k META who COST 9 5/h"] {
            assert_eq!(events.of(line), NONE, "{line}");
        }
        for line in ["RL.LOG k", "RL.INFO k", "RL.BLOCKS 0", "RL.TOP RESET"] {
            assert_eq!(events.of(line), NONE, "{line}");
        }
        assert!(exists(&mut events.c, "k"));
    });
}

/// Commands that empty a key with one unit.
const EMPTYING: [&str; 5] =
    ["RL.REFUND k 1", "RL.REFUND k 9 5/h", "RL.RESET k", "DEL k", "UNLINK k"];

#[test]
fn emptying_a_key_sends_del() {
    server::on_all(|server| {
        let mut events = Events::all(server);
        for line in EMPTYING {
            assert_eq!(events.of("RL.CHECK k 5/h"), creation(server));
            assert_eq!(events.of(line), ["del k"], "{line}");
            assert!(!exists(&mut events.c, "k"));
        }
    });
}

#[test]
fn emptying_a_key_sends_del_on_a_replica() {
    server::on_all(|primary| {
        let replica = replica_of(primary);
        let (mut c, mut events) = (primary.connect(), Events::all(&replica));
        for line in EMPTYING {
            assert!(allowed(&mut c, "RL.CHECK k 5/h"));
            replicated(&mut c);
            assert_eq!(events.so_far(), creation(primary));
            let _ = raw_reply(&mut c, line);
            replicated(&mut c);
            assert_eq!(events.so_far(), ["del k"], "{line}");
        }
    });
}

/// Commands on the key `k`, in order, and their events. A command that blocks or exempts sends one
/// event if it changes anything.
const ACCESS_STEPS: [(&str, &[&str]); 36] = [
    ("RL.RESUME k", &[]),
    ("RL.PAUSE k EX 100", &["new k", "rl.pause k"]),
    ("RL.PAUSE k EX 5", &[]),
    ("RL.PAUSE k EX 200", &["rl.pause k"]),
    ("RL.RESUME k", &["del k", "rl.resume k"]),
    ("RL.UNPLAN k", &[]),
    ("RL.PLAN k pro EX 0", &[]),
    ("RL.PLAN k pro", &["new k", "rl.plan k"]),
    ("RL.PLAN k pro", &["rl.plan k"]),
    ("RL.UNPLAN k", &["del k", "rl.unplan k"]),
    ("RL.UNBLOCK k", &[]),
    ("RL.UNEXEMPT k", &[]),
    ("RL.BLOCK k EX 0", &[]),
    ("RL.BLOCK k", &["new k", "rl.block k"]),
    ("RL.BLOCK k EX 100 REASON again", &["rl.block k"]),
    ("RL.UNEXEMPT k", &[]),
    ("RL.CHECK k 5/h,ban=1h", &[]),
    ("RL.CHECK k META who 5/h,ban=1h", &[]),
    ("RL.CHECK k COST 9 5/h,count=all,ban=1h", &[]),
    ("RL.EXEMPT k EX 100", &["rl.exempt k"]),
    ("RL.UNBLOCK k", &[]),
    ("RL.CHECK k COST 9 5/h,count=all,ban=1h", &[]),
    ("RL.EXEMPT k", &["rl.exempt k"]),
    ("RL.RESET k", &[]),
    ("RL.UNEXEMPT k", &["rl.unexempt k"]),
    ("RL.CHECK k COST 5 5/h,ban=1h", &[]),
    ("RL.CHECK k 5/h,ban=1h", &["rl.ban k"]),
    ("RL.CHECK k 5/h,ban=1h", &[]),
    ("RL.UNBLOCK k", &["rl.unblock k"]),
    // The denial is charged or recorded, and the key is banned: two effects, but one event.
    ("RL.CHECK k 5/h,ban=1h,count=all", &["rl.ban k"]),
    ("RL.UNBLOCK k", &["rl.unblock k"]),
    ("RL.CHECK k META who COST 5 5/h,ban=1h", &["rl.ban k"]),
    ("DEL k", &["del k"]),
    // A key can consist of a block or an exemption alone.
    ("RL.CHECK k 0/h,ban=1h", &["new k", "rl.ban k"]),
    ("RL.UNBLOCK k", &["del k", "rl.unblock k"]),
    ("RL.UNBLOCK k", &[]),
];

/// The events among these that a server has.
fn known_to<'a>(says: &'a [&'a str], server: &Server) -> Vec<&'a str> {
    let known = |event: &&str| server.flavor().is_7_or_later() || !event.starts_with("new ");
    says.iter().copied().filter(known).collect()
}

#[test]
fn blocks_bans_and_exemptions_send_one_event() {
    server::on_all(|server| {
        let mut events = Events::all(server);
        for (step, (line, says)) in ACCESS_STEPS.into_iter().enumerate() {
            assert_eq!(events.of(line), known_to(says, server), "{step}: {line}");
        }
    });
}

#[test]
fn a_ban_that_a_clock_step_shortens_sends_one_event() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut events = Events::all(server);
        let ahead_us = now_ms(&mut events.c) * 1_000 + 86_400_000_000;
        for check in ["RL.CHECK k 1/m", "RL.THROTTLE k 1 1 60"] {
            events.of(&format!("RL.CHECK k AT {ahead_us} 0/h,ban=1h"));
            assert_eq!(events.of(check), ["rl.ban k"], "{check}");
            assert_eq!(events.of(check), NONE, "{check}");
            events.of("DEL k");
        }
    });
}

#[test]
fn blocks_bans_and_exemptions_send_one_event_on_a_replica() {
    server::on_all(|primary| {
        let replica = replica_of(primary);
        let (mut c, mut events) = (primary.connect(), Events::all(&replica));
        for (step, (line, says)) in ACCESS_STEPS.into_iter().enumerate() {
            let _ = raw_reply(&mut c, line);
            replicated(&mut c);
            // The key's expiry moved, but no `expire` is sent.
            assert_eq!(events.so_far(), known_to(says, primary), "{step}: {line}");
        }
    });
}

#[test]
fn events_of_the_module_have_the_class_of_module_events() {
    server::on_all(|server| {
        let of_class = |classes: &str| -> Vec<String> {
            let mut events = Events::of_classes(server, classes);
            let () = ask(&mut events.c, "DEL k");
            events.so_far();
            ACCESS_STEPS.iter().flat_map(|(line, _)| events.of(line)).collect()
        };
        let own = ACCESS_STEPS.iter().flat_map(|(_, says)| says.iter().copied());
        let own: Vec<&str> = own.filter(|event| event.starts_with("rl.")).collect();
        assert_eq!(of_class("Ed"), own);
        let others = if server.flavor().is_7_or_later() { "Eg$lshzxetmn" } else { "Eg$lshzxetm" };
        assert!(of_class(others).iter().all(|event| !event.starts_with("rl.")));
    });
}

#[test]
fn a_block_that_ends_sends_expired() {
    server::on_all(|server| {
        let mut events = Events::all(server);
        let mut received = events.of("RL.BLOCK k PX 10");
        server::eventually("the server to delete the expired key", || {
            received.extend(events.so_far());
            received.iter().any(|event| event.starts_with("expired"))
        });
        assert_eq!(received, [&creation(server)[..], &["rl.block k", "expired k"]].concat());
    });
}

#[test]
fn an_expired_key_sends_expired() {
    server::on_all(|server| {
        let mut events = Events::all(server);
        let mut received = events.of("RL.CHECK k 5/10ms");
        server::eventually("the server to delete the expired key", || {
            received.extend(events.so_far());
            received.iter().any(|event| event.starts_with("expired"))
        });
        assert_eq!(received, [&creation(server)[..], &["expired k"]].concat());
    });
}

/// Makes `k` expire without any command that would notice it.
fn leave_expired(events: &mut Events) {
    loop {
        assert!(allowed(&mut events.c, "RL.CHECK k 5/h"));
        let () = ask(&mut events.c, "PEXPIRE k 1");
        let set_ms = now_ms(&mut events.c);
        server::eventually("the expiry to pass", || now_ms(&mut events.c) > set_ms + 1);
        // On 6.2, PEXPIRE deletes the key if its millisecond passes meanwhile.
        if !events.so_far().iter().any(|event| event == "del k") {
            return;
        }
    }
}

#[test]
fn a_command_that_finds_a_key_expired_sends_expired_first() {
    server::on_all(|server| {
        let mut events = Events::all(server);
        let () = ask(&mut events.c, "DEBUG SET-ACTIVE-EXPIRE 0");
        for (line, makes_a_key) in [
            ("RL.CHECK k 5/h", true),
            ("RL.CHECK k 0/h", false),
            ("RL.PEEK k 5/h", false),
            ("RL.REFUND k 1", false),
            ("RL.RESET k", false),
            ("RL.UNBLOCK k", false),
            ("RL.UNEXEMPT k", false),
            ("RL.LOG k", false),
            ("RL.INFO k", false),
            ("RL.CHECK k META who 0/h", true),
        ] {
            leave_expired(&mut events);
            let then = if makes_a_key { creation(server) } else { vec![] };
            assert_eq!(events.of(line), [&["expired k"][..], &then].concat(), "{line}");
            let () = ask(&mut events.c, "DEL k");
            events.so_far();
        }
    });
}

#[test]
fn generic_commands_send_the_events_of_any_key() {
    server::on_all(|server| {
        let mut events = Events::of_classes(server, "EA");
        assert_eq!(events.of("RL.CHECK k 5/h"), NONE);
        for (line, says) in [
            ("PEXPIRE k 1000000", &["expire k"][..]),
            ("PERSIST k", &["persist k"]),
            ("COPY k other", &["copy_to other"]),
            ("RENAME k r", &["rename_from k", "rename_to r"]),
            ("MOVE r 1", &["move_from r", "move_to r"]),
            ("TOUCH other", &[]),
        ] {
            assert_eq!(events.of(line), says, "{line}");
        }
        let payload = dump(&mut events.c, "other");
        let () = command("RESTORE back 0").arg(payload).query(&mut events.c).unwrap();
        assert_eq!(events.so_far(), ["restore back"]);
    });
}

#[test]
fn an_evicted_key_sends_evicted() {
    server::on_all_with(
        |b| b.config("maxmemory-policy", "allkeys-random"),
        |server| {
            let mut events = Events::of_classes(server, "EA");
            let room = info(&mut events.c, "memory", "used_memory") + 200_000.0;
            let () = ask(&mut events.c, &format!("CONFIG SET maxmemory {room}"));
            let mut received = Vec::new();
            let mut checked = 0;
            while received.len() < 10 {
                assert!(checked < 5_000, "5000 keys fit");
                assert!(allowed(&mut events.c, &format!("RL.CHECK k{checked} window:5/h,res=60")));
                checked += 1;
                received.extend(events.so_far());
            }
            assert!(received.iter().all(|event| event.starts_with("evicted k")), "{received:?}");
        },
    );
}
