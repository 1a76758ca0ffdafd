//! `max-states`: how many states a key may hold, and what becomes of a check that would make more.

use redis::{Connection, RedisResult};

use crate::support::client::{
    self, allowed, ask, command, digest, dump, exists, refusal, replicated,
};
use crate::support::server::{self, eventually};
use crate::support::settings;

/// Has a key hold so many states, each of another name.
fn fill(c: &mut Connection, key: &str, states: usize) {
    for n in 0..states {
        assert!(allowed(c, &format!("RL.CHECK {key} bucket:5/d,name=n{n}")));
    }
}

/// How many bytes were replicated so far.
fn sent(c: &mut Connection) -> f64 {
    client::info(c, "replication", "master_repl_offset")
}

#[test]
fn a_check_that_would_leave_too_many_states_changes_nothing() {
    server::on_all_with(
        |builder| {
            // A ping is replicated too.
            builder.config("repl-ping-replica-period", "3600").module_args(&["max-states", "3"])
        },
        |server| {
            let mut c = server.connect();
            fill(&mut c, "full", 3);
            fill(&mut c, "less", 2);
            let replica = client::replica_of(server);
            replicated(&mut c);
            let (before, offset) = (digest(&mut c), sent(&mut c));
            for (line, states) in [
                ("RL.CHECK full 5/h", 4),
                ("RL.CHECK full META who 5/h window:9/h", 5),
                ("RL.MCHECK 3 new full less bucket:5/d,name=n0 fixed:9/h", 4),
                ("RL.MCHECK 2 less full 5/h NEXT 5/h fixed:9/h", 5),
                ("RL.THROTTLE full 15 30 60", 4),
            ] {
                let error = refusal(&mut c, line);
                let says = format!("key 'full' would hold {states} states, expected at most 3");
                for part in [says.as_str(), "(ratelimit.max-states)", "RL.RESET"] {
                    assert!(error.contains(part), "{line}: «{error}» does not say «{part}»");
                }
                assert_eq!(digest(&mut c), before, "{line}");
                assert!(!exists(&mut c, "new"), "{line}");
            }
            assert_eq!(sent(&mut c), offset);
            // Neither a denial nor a state that is there already makes one.
            assert!(!allowed(&mut c, "RL.CHECK full 0/h bucket:5/d,name=n0 bucket:5/m"));
            assert_eq!(digest(&mut c), before);
            assert!(allowed(&mut c, "RL.CHECK full bucket:5/d,name=n2"));
            replicated(&mut c);
            assert_eq!(digest(&mut replica.connect()), digest(&mut c));

            let _: i64 = ask(&mut c, "RL.RESET full");
            assert!(allowed(&mut c, "RL.CHECK full 5/h"));
        },
    );
}

#[test]
fn what_was_done_elsewhere_is_kept_whatever_the_setting() {
    server::on_all_with(
        |builder| {
            builder
                .config("appendonly", "yes")
                .config("appendfsync", "always")
                .module_args(&["max-states", "9"])
        },
        |server| {
            let mut c = server.connect();
            let few = server.flavor().builder().module_args(&["max-states", "1"]);
            let replica = few.replica_of(server).start();
            let mut r = replica.connect();
            eventually("the replica to be linked", || {
                ask::<String>(&mut r, "INFO replication").contains("master_link_status:up")
            });
            fill(&mut c, "k", 9);
            replicated(&mut c);
            let held = dump(&mut c, "k").expect("a key");
            assert_eq!(dump(&mut r, "k").as_ref(), Some(&held));

            settings::edit_config(server, |lines| {
                let fewer = |line: String| line.replace("max-states 9", "max-states 1");
                lines.into_iter().map(fewer).collect()
            });
            let mut c = server.connect();
            assert_eq!(dump(&mut c, "k").as_ref(), Some(&held), "loaded from the file");
            let restored: RedisResult<String> = command("RESTORE copy 0").arg(&held).query(&mut c);
            assert_eq!(restored.as_deref(), Ok("OK"));
            for key in ["k", "copy"] {
                assert!(allowed(&mut c, &format!("RL.CHECK {key} bucket:5/d,name=n4")));
                let error = refusal(&mut c, &format!("RL.CHECK {key} 5/h"));
                assert!(error.contains("would hold 10 states"), "{error}");
            }
        },
    );
}
