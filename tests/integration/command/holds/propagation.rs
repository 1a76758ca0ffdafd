//! The effects of holds: how many are propagated, and which keys are touched.

use redis::Value;

use crate::support::client::{START_US, ask, calls, digest, info, replica_of, replicated, touches};
use crate::support::server::{self, Builder};
use crate::support::workload::link::quiet;

/// The time in seconds, the command, and how many effects it has: one for each changed key, and
/// one more if a check finds that holds have lapsed. [`timed`] puts the time after `AT`.
const EFFECTS: &[(u64, &str, u64)] = &[
    (0, "RL.CHECK k AT HOLD r EX 30 REFUND COST 40 100/m", 1),
    (0, "RL.CHECK k AT HOLD r EX 30 REFUND COST 40 100/m", 0), // the end is the same
    (1, "RL.CHECK k AT HOLD r EX 30 REFUND COST 40 100/m", 1),
    (1, "RL.CHECK k AT HOLD s EX 9 COST 70 100/m", 0), // denied
    (1, "RL.CHECK k AT HOLD s EX 9 META who COST 70 100/m", 1), // denied, in the history
    (1, "RL.CHECK k AT HOLD s EX 9 META who COST 7 100/m bucket:50/s,name=in", 1),
    (2, "RL.RENEW k none EX 9 AT", 0),
    (2, "RL.RENEW k s EX 9 AT", 1),
    (3, "RL.SETTLE k none AT", 0),
    (3, "RL.SETTLE k s COST 4 COST in=9 AT", 1),
    (3, "RL.SETTLE k s COST 4 AT", 0),
    (4, "RL.CHECK free AT HOLD r EX 9 COST 0 100/m", 1),
    (4, "RL.SETTLE free r COST 5 AT", 1),
    (4, "RL.MCHECK 2 k m AT HOLD m EX 30 COST 2 100/m NEXT leaky:5/s", 2),
    (5, "RL.SETTLE m m REFUND AT", 1),
    (31, "RL.CHECK k AT COST 9 100/m", 2), // r has lapsed, and its charges came back
    (31, "RL.SETTLE k r AT", 0),
    (32, "RL.CHECK b AT HOLD a EX 5 REFUND COST 20 bucket:10/s,burst=50", 1),
    (32, "RL.CHECK b AT HOLD b EX 6 COST 20 bucket:10/s,burst=50", 1),
    (39, "RL.CHECK b AT HOLD c EX 600 COST 2 bucket:10/s,burst=50", 2),
];

/// A line with the time after its `AT`.
fn timed(second: u64, line: &str) -> String {
    let at = format!("AT {}", START_US + second * 1_000_000);
    let words = line.split(' ').map(|word| if word == "AT" { at.as_str() } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_replica_gets_one_effect_for_each_change() {
    server::on_all_with(
        |builder| quiet(builder).allow_at(),
        |server| {
            let replica = replica_of(server);
            let (mut p, mut r) = (server.connect(), replica.connect());
            for (second, line, effects) in EFFECTS {
                let line = timed(*second, line);
                let before = calls(&mut r, "rl.apply");
                let _: Value = ask(&mut p, &line);
                replicated(&mut p);
                assert_eq!(calls(&mut r, "rl.apply") - before, *effects, "{line}");
                assert_eq!(digest(&mut r), digest(&mut p), "{line}");
            }
            assert!(info(&mut r, "ratelimit", "ratelimit_holds_taken") == 0.0);
        },
    );
}

#[test]
fn each_change_touches_a_watched_key_and_nothing_else_does() {
    server::on_all_with(Builder::allow_at, |server| {
        for (second, line, effects) in EFFECTS {
            let line = timed(*second, line);
            let key = line.split(' ').find(|word| word.len() == 1 && *word != "2");
            let key = if line.contains(" free ") { "free" } else { key.expect("a key") };
            assert_eq!(touches(server, key, &line), *effects > 0, "{line}");
        }
    });
}
