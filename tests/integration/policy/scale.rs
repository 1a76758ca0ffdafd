//! Checks look policies up instead of parsing them, and ten thousand policies work.

use std::time::{Duration, Instant};

use redis::{Pipeline, pipe};

use crate::support::client::{self, ask, least_usec_per_call, remaining, replica_of};
use crate::support::files::{eventually_saved, restart_from_aof, with_aof};
use crate::support::policies::{Policies, counted, known, known_by_replica, policies, set};
use crate::support::server;

/// Peeks at a key without a value, with these rules.
fn peeks(rules: &str) -> Pipeline {
    let mut peeks = pipe();
    for _ in 0..300 {
        peeks.add_command(client::command(&format!("RL.PEEK nothing {rules}")));
    }
    peeks
}

#[test]
fn a_peek_by_policy_parses_no_rule() {
    server::on_all(|server| {
        let mut c = server.connect();
        let rule =
            |n: i32| format!("bucket:{}/7200000ms,burst=1000000,count=all,name=rule-{n}", n + 9);
        let inline: Vec<String> = (0..32).map(rule).collect();
        let inline = inline.join(" ");
        set(&mut c, &[&format!("p {inline}")]);
        let pipelines = [&peeks("@p"), &peeks(&inline)];
        let [by_name, written] = least_usec_per_call(&mut c, "rl.peek", pipelines);
        assert!(by_name * 2.0 < written, "{by_name} us by name, {written} us written out");
    });
}

const MANY: usize = 10_000;

/// Ten thousand policies, each of three rules.
fn many() -> Policies {
    let policy = |n: usize| {
        let limit = n % 1_000 + 1;
        format!(
            "policy-{n:05} log:{limit}/1h bucket:{limit}/1m,burst=2000 fixed:{limit}/1d,name=day"
        )
    };
    let lines: Vec<String> = (0..MANY).map(policy).collect();
    policies(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Far longer than any step takes, and far shorter than a step would take if each command scanned all
/// policies.
const BOUND: Duration = Duration::from_secs(5);

fn timed<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = act();
    assert!(start.elapsed() < BOUND, "{what} took {:?}", start.elapsed());
    result
}

#[test]
fn ten_thousand_policies_stay_fast() {
    server::one_is_enough();
    let expected = many();
    let mut sets = pipe();
    for (name, rules) in &expected {
        sets.cmd("RL.POLICY").arg("SET").arg(name).arg(rules).ignore();
    }
    let mut checks = pipe();
    for (n, name) in expected.keys().enumerate() {
        checks.cmd("RL.CHECK").arg(format!("k{}", n % 100)).arg(format!("@{name}")).ignore();
    }
    server::on_all_with(
        |builder| with_aof(builder, false),
        |server| {
            let mut c = server.connect();
            timed("setting", || sets.query::<()>(&mut c).unwrap());
            assert_eq!(timed("listing", || known(&mut c)), expected);
            timed("checking", || checks.query::<()>(&mut c).unwrap());
            assert_eq!(timed("INFO", || counted(&mut c, "policy-00007")), Some((1, 0)));
            let section: String = ask(&mut c, "INFO ratelimit_policies");
            assert_eq!(section.matches("ratelimit_policy_").count(), MANY);
            let before = remaining(&mut c, "RL.PEEK k7 @policy-09907");

            timed("reloading", || ask::<()>(&mut c, "DEBUG RELOAD"));
            assert_eq!(known(&mut c), expected, "reloaded");
            let replica = timed("replicating", || replica_of(server));
            assert_eq!(known_by_replica(&replica), expected, "replicated");
            timed("rewriting", || {
                let () = ask(&mut c, "BGREWRITEAOF");
                eventually_saved(&mut c);
            });
            timed("restarting", || restart_from_aof(server));
            let mut c = server.connect();
            assert_eq!(known(&mut c), expected, "restarted");
            assert_eq!(remaining(&mut c, "RL.PEEK k7 @policy-09907"), before);
            let mut deletes = pipe();
            for name in expected.keys() {
                deletes.cmd("RL.POLICY").arg("DEL").arg(name).arg("FORCE").ignore();
            }
            timed("deleting", || deletes.query::<()>(&mut c).unwrap());
            assert_eq!(known(&mut c), policies(&[]));
        },
    );
}
