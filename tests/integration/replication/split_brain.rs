//! A replica is promoted while its primary, which it no longer follows, still serves clients. Then the
//! old primary follows the new one, and must keep only its data: no other value, hold, policy or line.
//!
//! `partition/servers.rs` counts what passes on both sides meanwhile.

use redis::{Connection, Value};

use crate::support::client::{ask, digest, info, raw_reply, remaining, verdict};
use crate::support::policies::{known, known_by_replica, policies, set};
use crate::support::server::{self, Server, eventually};
use crate::support::waiters::{wait_in_line, waiting};
use crate::support::workload::link::{in_step, number, quiet, replica_of};

const RULES: &str = "slots:2 900/h";

fn hold(c: &mut Connection, id: &str) {
    assert_eq!(verdict(c, &format!("RL.CHECK k HOLD {id} EX 3000 {RULES}")), 0, "{id}");
}

fn settles(c: &mut Connection, id: &str) -> bool {
    ask(c, &format!("RL.SETTLE k {id}"))
}

/// Checks that both servers have the same keys and policies, and that the module has no other values.
fn assert_same(primary: &Server, replica: &Server) {
    in_step(primary, replica);
    let (mut p, mut r) = (primary.connect(), replica.connect());
    assert_eq!(digest(&mut r), digest(&mut p));
    assert_eq!(known_by_replica(replica), known(&mut p));
    let keys: f64 = ask(&mut p, "DBSIZE");
    for c in [&mut p, &mut r] {
        eventually("old values to be freed", || info(c, "ratelimit", "ratelimit_values") == keys);
    }
}

#[test]
fn an_old_primary_that_becomes_a_replica_keeps_nothing_of_its_own() {
    for load in ["disabled", "swapdb"] {
        server::on_all_with(
            |builder| quiet(builder).config("repl-diskless-load", load),
            |old| {
                let new = replica_of(old);
                let (mut o, mut n) = (old.connect(), new.connect());
                set(&mut o, &["free 5/h", "shared 9/h"]);
                hold(&mut o, "both");
                let _: Value = ask(&mut o, "RL.CHECK user @free");
                in_step(old, &new);
                let () = ask(&mut n, "REPLICAOF NO ONE");

                // Clients of the old primary.
                set(&mut o, &["free 7/h", "old 1/h"]);
                hold(&mut o, "old");
                for line in [
                    "RL.CHECK user COST 3 @free",
                    "RL.CHECK only-old 1/1000s",
                    "RL.BLOCK user",
                    "RL.PAUSE k EX 3000",
                ] {
                    assert!(!matches!(raw_reply(&mut o, line), Value::ServerError(_)), "{line}");
                }
                let lost = [
                    wait_in_line(old, &format!("RL.WAIT k 3600000 HOLD next EX 3000 {RULES}")),
                    wait_in_line(old, "RL.WAIT only-old 3600000 1/1000s"),
                ];
                // Clients of the new one.
                set(&mut n, &["free 6/h"]);
                let _: i64 = ask(&mut n, "RL.POLICY DEL shared FORCE");
                assert!(settles(&mut n, "both"));
                ["new", "last"].iter().for_each(|id| hold(&mut n, id));
                let kept =
                    wait_in_line(&new, &format!("RL.WAIT k 3600000 HOLD next EX 3000 {RULES}"));

                let () = ask(&mut o, &format!("REPLICAOF 127.0.0.1 {}", new.port()));
                for waiter in lost {
                    let error = waiter.refusal();
                    assert!(error.contains("UNBLOCKED"), "{error}");
                }
                assert_eq!(waiting(&mut o), 0);
                assert_same(&new, old);
                assert_eq!(number(&mut n, "stats", "sync_full"), 1);
                assert_eq!(known(&mut n), policies(&["free log:6/1h"]));
                assert_eq!(remaining(&mut o, "RL.PEEK user 6/h"), 5);

                // The line of the new primary continues.
                assert!(kept.waits());
                assert!(settles(&mut n, "new"));
                assert_eq!(kept.verdict(), 0);
                assert_same(&new, old);

                // The old primary takes over again. When the holds are settled, both slots are free.
                let () = ask(&mut o, "REPLICAOF NO ONE");
                assert_eq!(["both", "old", "new"].map(|id| settles(&mut o, id)), [false; 3]);
                assert_eq!(["last", "next"].map(|id| settles(&mut o, id)), [true; 2]);
                ["a", "b"].iter().for_each(|id| hold(&mut o, id));
                assert_eq!(verdict(&mut o, &format!("RL.CHECK k HOLD c EX 9 {RULES}")), 1);
            },
        );
    }
}
