//! The setting `max-states`: how many states a key may hold.

use redis::{Connection, RedisResult};

use crate::support::client::{
    self, allowed, ask, command, digest, dump, eventually_linked, exists, refusal, replicated,
};
use crate::support::files::{crash, with_synced_aof};
use crate::support::server;
use crate::support::workload::link::{offset, quiet};

/// Makes a key hold this many states, each with a name.
fn fill(c: &mut Connection, key: &str, states: usize) {
    for n in 0..states {
        assert!(allowed(c, &format!("RL.CHECK {key} bucket:5/d,name=n{n}")));
    }
}

#[test]
fn a_check_that_would_leave_too_many_states_changes_nothing() {
    server::on_all_with(
        |builder| quiet(builder).module_args(&["max-states", "3"]),
        |server| {
            let mut c = server.connect();
            fill(&mut c, "full", 3);
            fill(&mut c, "less", 2);
            let replica = client::replica_of(server);
            replicated(&mut c);
            let (before, sent) = (digest(&mut c), offset(&mut c));
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
            assert_eq!(offset(&mut c), sent);
            // Neither a denial nor a rule whose state exists makes a state.
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
fn replicated_and_restored_keys_keep_more_than_max_states() {
    server::on_all_with(
        |builder| with_synced_aof(builder).module_args(&["max-states", "9"]),
        |server| {
            let mut c = server.connect();
            let few = server.flavor().builder().module_args(&["max-states", "1"]);
            let replica = few.replica_of(server).start();
            eventually_linked(&replica);
            let mut r = replica.connect();
            fill(&mut c, "k", 9);
            replicated(&mut c);
            let held = dump(&mut c, "k").expect("a key");
            assert_eq!(dump(&mut r, "k").as_ref(), Some(&held));

            server.edit_config(|lines| {
                let fewer =
                    |line: &mut String| *line = line.replace("max-states 9", "max-states 1");
                lines.iter_mut().for_each(fewer);
            });
            crash(server);
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
