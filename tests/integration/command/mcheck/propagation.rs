//! The effects of `RL.MCHECK`: in the replication stream and the AOF, and on watched keys,
//! keyspace events, histories and counters.

use std::fs;

use redis::{Connection, Value};

use super::{HOUR_MS, dumps, mcheck};
use crate::support::client::{
    ask, blocks, calls, digest, digest_of, dump, exists, info, raw_reply, replica_of, replicated,
    touches,
};
use crate::support::files::{appended_aof, with_synced_aof};
use crate::support::server;

/// How many effects and transactions a replica receives for these commands.
fn replicated_effects(p: &mut Connection, r: &mut Connection, lines: &[&str]) -> (u64, u64) {
    let count = |r: &mut Connection| {
        assert_eq!(calls(r, "multi"), calls(r, "exec"));
        (calls(r, "rl.apply"), calls(r, "exec"))
    };
    replicated(p);
    let before = count(r);
    for line in lines {
        let _: Value = ask(p, line);
    }
    replicated(p);
    let after = count(r);
    (after.0 - before.0, after.1 - before.1)
}

/// Checks in order, and how many effects each has.
const EFFECTS: [(&str, u64); 14] = [
    ("RL.MCHECK 3 a b c 5/h", 3),
    ("RL.MCHECK 3 a b c COST 2 9/h NEXT 5/h bucket:5/h NEXT leaky:5/h", 3),
    ("RL.MCHECK 3 a b c COST 0 5/h", 0),
    ("RL.MCHECK 3 a b c COST 3 9/h NEXT 9/h NEXT 3/h", 0), // c denies
    ("RL.MCHECK 3 a b c COST 3 9/h NEXT 9/h,count=all NEXT 3/h", 1),
    ("RL.MCHECK 3 a b c COST 3 9/h NEXT 9/h,count=all NEXT 3/h,count=all", 2),
    ("RL.MCHECK 3 new exempt a COST 2 5/h,shadow", 2), // not the exempt one
    ("RL.MCHECK 3 a exempt c META who COST 9 5/h", 3),
    ("RL.MCHECK 2 a blocked 99/h", 0),
    ("RL.MCHECK 2 a blocked META who 99/h", 2),
    ("RL.MCHECK 2 fresh x COST 2 9/h NEXT 1/h,ban=1h", 1), // the ban of x
    ("RL.MCHECK 2 fresh x 9/h", 0),
    ("RL.MCHECK 2 fresh y META who COST 2 9/h,ban=1h NEXT 1/h,ban=1h", 3), // y's ban, two entries
    ("RL.MCHECK 1 a 99/h", 1),
];

#[test]
fn one_transaction_has_an_effect_for_each_changed_key() {
    server::on_all(|server| {
        let replica = replica_of(server);
        let (mut p, mut r) = (server.connect(), replica.connect());
        for line in ["RL.BLOCK blocked", "RL.EXEMPT exempt"] {
            let () = ask(&mut p, line);
        }
        for (check, effects) in EFFECTS {
            let (found, transactions) = replicated_effects(&mut p, &mut r, &[check]);
            assert_eq!(found, effects, "{check}");
            // 6.2 wraps even a single effect in a transaction.
            let is_single = effects == 1 && server.flavor().is_7_or_later();
            assert_eq!(transactions, u64::from(effects > 0 && !is_single), "{check}");
            assert_eq!(digest(&mut p), digest(&mut r), "{check}");
        }
        // A transaction or a script is propagated as one transaction.
        let once = "RL.MCHECK 2 a b 99/h";
        assert_eq!(replicated_effects(&mut p, &mut r, &["MULTI", once, once, "EXEC"]), (4, 1));
        let script = "EVAL redis.call('RL.MCHECK',2,KEYS[1],KEYS[2],'99/h') 2 a b";
        assert_eq!(replicated_effects(&mut p, &mut r, &[script]), (2, 1));
        for key in ["a", "b", "c", "new", "x", "y"] {
            assert_eq!(digest_of(&mut p, key), digest_of(&mut r, key), "{key}");
        }
    });
}

#[test]
fn an_aof_truncated_inside_a_check_restores_none_of_it() {
    server::on_all_with(with_synced_aof, |server| {
        let mut c = server.connect();
        let _: Value = ask(&mut c, "RL.MCHECK 2 a b COST 2 5/h");
        let (before, length) =
            (dumps(&mut c, "a b"), fs::metadata(appended_aof(server)).unwrap().len());
        let _: Value = ask(&mut c, "RL.MCHECK 2 a b 5/h");
        let after = dumps(&mut c, "a b");
        assert_ne!(after, before);
        server.kill9();
        let whole = fs::read(appended_aof(server)).expect("the file");
        assert!(whole.len() as u64 > length, "nothing was written");
        // Cuts near the start of the second effect, inside it, and inside the end of the
        // transaction.
        let written = whole.len() - length as usize;
        for cut in [written / 2, written / 4, 3] {
            fs::write(appended_aof(server), &whole[..whole.len() - cut]).expect("the file");
            server.resume();
            assert_eq!(dumps(&mut server.connect(), "a b"), before, "{cut} bytes short");
            server.kill9();
        }
        fs::write(appended_aof(server), &whole).expect("the file");
        server.resume();
        assert_eq!(dumps(&mut server.connect(), "a b"), after);
    });
}

#[test]
fn only_changed_keys_are_touched() {
    server::on_all(|server| {
        let mut c = server.connect();
        // A charge or an entry in the history changes a key; a plain denial does not.
        for (check, changed) in [
            ("RL.MCHECK 3 a b exempt 5/h", &["a", "b"][..]),
            ("RL.MCHECK 3 a b spent 5/h", &[]),
            ("RL.MCHECK 3 a b spent 5/h,count=all NEXT 5/h NEXT 5/h", &["a"]),
            ("RL.MCHECK 3 a b spent 5/h NEXT 5/h NEXT 5/h,ban=1h", &["spent"]),
            ("RL.MCHECK 3 a blocked spent 5/h", &[]),
            ("RL.MCHECK 2 a exempt META who 0/h", &["a", "exempt"]),
            ("RL.MCHECK 2 a b COST 0 5/h", &[]),
        ] {
            for key in ["a", "b", "spent", "exempt", "blocked"] {
                let () = ask(&mut c, "FLUSHALL");
                let _: Value = ask(&mut c, "RL.MCHECK 3 a b spent 5/h NEXT 5/h NEXT 1/h");
                let _: Value = ask(&mut c, "RL.CHECK spent COST 4 5/h");
                let () = ask(&mut c, "RL.EXEMPT exempt");
                let () = ask(&mut c, "RL.BLOCK blocked");
                assert_eq!(touches(server, key, check), changed.contains(&key), "{key}: {check}");
            }
        }
    });
}

#[test]
fn a_ban_blocks_the_keys_whose_rules_denied() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "CONFIG SET notify-keyspace-events EA");
        let mut listener = server.connect();
        let mut events = listener.as_pubsub();
        events.psubscribe("__keyevent@0__:rl.*").expect("a subscription");
        let mut received_until = |c: &mut Connection, end: &str| {
            let () = ask(c, &format!("PUBLISH __keyevent@0__:rl.end {end}"));
            let mut received = Vec::new();
            loop {
                let message = events.get_message().expect("a message");
                let key: String = message.get_payload().expect("a key");
                if key == end {
                    return received;
                }
                let (_, event) = message.get_channel_name().split_once("__:").expect("an event");
                received.push(format!("{event} {key}"));
            }
        };
        let rules = "9/h,ban=3h NEXT 1/h,ban=2h NEXT 1/h,ban=1h,name=x NEXT 0/h,shadow,ban=4h";
        assert_eq!(mcheck(&mut c, "a b c d", rules)[0], 0);
        let denied = mcheck(&mut c, "a b c d", rules);
        assert_eq!((denied[0], denied[3]), (1, 2 * HOUR_MS), "the wait is not the longest ban");
        assert_eq!(received_until(&mut c, "first"), ["rl.ban b", "rl.ban c"]);
        let rows = blocks(&mut c, "");
        let rows: Vec<_> = rows.iter().map(|row| (row.0.as_str(), row.3.as_str())).collect();
        assert_eq!(rows, [("b", "rule log:1/1h,ban=2h"), ("c", "rule x")]);
        // A check of blocked keys bans no key again.
        let before = dumps(&mut c, "a b c d");
        let blocked = mcheck(&mut c, "a b c d", rules);
        assert_eq!(blocked[0], 2);
        assert!((2 * HOUR_MS - 60_000..=2 * HOUR_MS).contains(&blocked[3]), "{}", blocked[3]);
        assert_eq!(dumps(&mut c, "a b c d"), before);
        assert_eq!(received_until(&mut c, "second"), [""; 0]);
    });
}

/// The history of a key: cost, verdict, `META`.
fn history(c: &mut Connection, key: &str) -> Vec<(u64, i64, Option<String>)> {
    let rows: Vec<(u64, u64, i64, Option<String>)> = ask(c, &format!("RL.LOG {key}"));
    rows.into_iter().map(|(_, cost, verdict, meta)| (cost, verdict, meta)).collect()
}

#[test]
fn meta_adds_an_entry_for_the_check_to_every_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "RL.EXEMPT exempt");
        let entry = |cost, verdict, meta: &str| (cost, verdict, Some(meta.to_string()));
        assert_eq!(
            mcheck(&mut c, "a b exempt", "META ann COST 2 bucket:5/h NEXT 9/h NEXT 9/h")[0],
            0
        );
        assert_eq!(
            mcheck(&mut c, "a b exempt", "META bob COST 4 bucket:5/h NEXT 9/h NEXT 9/h")[0],
            1
        );
        for key in ["a", "b", "exempt"] {
            assert_eq!(history(&mut c, key), [entry(4, 1, "bob"), entry(2, 0, "ann")], "{key}");
        }
        let () = ask(&mut c, "RL.BLOCK a");
        assert_eq!(mcheck(&mut c, "new a", "META eve 9/h")[0], 2);
        for key in ["a", "new"] {
            assert_eq!(history(&mut c, key)[0], entry(1, 2, "eve"), "{key}");
        }
        // Without META an admitted check adds an entry only where a history exists.
        let before = dump(&mut c, "exempt");
        assert_eq!(mcheck(&mut c, "b exempt plain", "bucket:9/h")[0], 0);
        assert_eq!(history(&mut c, "b")[0], (1, 0, None));
        assert_eq!((dump(&mut c, "exempt"), history(&mut c, "plain")), (before, vec![]));
        assert_eq!(mcheck(&mut c, "spent b", "0/h NEXT 9/h")[0], 1);
        assert!(!exists(&mut c, "spent"));
        assert_eq!(history(&mut c, "b").len(), 3);
    });
}

#[test]
fn a_check_counts_once_and_a_denial_once_for_each_key_that_denied() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "RL.EXEMPT exempt");
        let () = ask(&mut c, "RL.BLOCK blocked");
        let fields = ["checks", "allowed", "limited", "blocked", "exempt", "bans", "log_rules"];
        let counted = |c: &mut Connection, check: &str| {
            let read = |c: &mut Connection| {
                fields.map(|field| info(c, "ratelimit", &format!("ratelimit_{field}")) as i64)
            };
            let before = read(c);
            let _ = raw_reply(c, check);
            let after = read(c);
            std::array::from_fn::<i64, 7, _>(|n| after[n] - before[n])
        };
        for (check, expected) in [
            ("RL.MCHECK 3 a b exempt 5/h 9/d", [1, 1, 0, 0, 1, 0, 4]),
            ("RL.MCHECK 3 a b c 5/h NEXT 1/h NEXT 1/h,ban=1h", [1, 0, 1, 0, 0, 0, 3]),
            ("RL.MCHECK 3 a b c 5/h NEXT 9/h NEXT 0/h,ban=1h", [1, 0, 1, 0, 0, 1, 3]),
            ("RL.MCHECK 2 a blocked 5/h", [1, 0, 0, 1, 0, 0, 1]),
            ("RL.MCHECK 2 blocked a 0/h", [1, 0, 0, 1, 0, 0, 1]),
            ("RL.MCHECK 2 a a 5/h", [0; 7]),
        ] {
            assert_eq!(counted(&mut c, check), expected, "{check}");
        }
        let mut top: Vec<(String, i64, i64)> = ask(&mut c, "RL.TOP");
        top.sort();
        let top: Vec<_> = top.iter().map(|row| (row.0.as_str(), row.1)).collect();
        // Both keys of the last valid check denied it.
        assert_eq!(top, [("a", 1), ("b", 1), ("blocked", 2), ("c", 1)]);
    });
}
