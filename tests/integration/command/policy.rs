//! `RL.POLICY`, and policies in place of rules in other commands.

use ratelimit_engine::rule::Kind;
use redis::{Connection, Value};

use crate::support::client::{
    allowed, ask, command, digest, digest_of, exists, info_text, refusal, remaining, verdict,
};
use crate::support::policies::{counted, known, policies, set};
use crate::support::server::{self, Builder};

type Reply = [i64; 5];

/// One time for several checks.
const AT_US: u64 = 1_700_000_000_000_000;

fn value(c: &mut Connection, line: &str) -> Value {
    ask(c, line)
}

#[test]
fn a_policy_can_be_set_shown_replaced_and_deleted() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(known(&mut c), policies(&[]));
        assert_eq!(ask::<String>(&mut c, "RL.POLICY SET free 20/m 800/d"), "OK");
        assert_eq!(ask::<String>(&mut c, "rl.policy set B-2.x_ bucket:5/1000ms,burst=9"), "OK");
        assert_eq!(ask::<Vec<String>>(&mut c, "RL.POLICY LIST"), ["B-2.x_", "free"]);
        let rules: Vec<String> = ask(&mut c, "RL.POLICY GET free");
        assert_eq!(rules, ["log:20/1m", "log:800/1d"]);
        assert_eq!(ask::<Vec<String>>(&mut c, "RL.POLICY GET B-2.x_"), ["bucket:5/1s,burst=9"]);
        set(&mut c, &["free 30/m"]);
        assert_eq!(ask::<Vec<String>>(&mut c, "RL.POLICY GET free"), ["log:30/1m"]);
        assert_eq!(ask::<i64>(&mut c, "RL.POLICY DEL free FORCE"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.POLICY DEL free FORCE"), 0);
        assert_eq!(value(&mut c, "RL.POLICY GET free"), Value::Nil);
        assert_eq!(value(&mut c, "RL.POLICY GET Free"), Value::Nil);
        assert_eq!(ask::<Vec<String>>(&mut c, "RL.POLICY LIST"), ["B-2.x_"]);
        let help: Vec<String> = ask(&mut c, "RL.POLICY HELP");
        for word in ["SET", "GET", "DEL", "LIST", "HELP"] {
            assert!(help.iter().any(|line| line.starts_with(word)), "{word}: {help:?}");
        }
    });
}

#[test]
fn wrong_policies_are_refused_and_change_nothing() {
    server::on_all_with(
        |b| b.module_args(&["max-rules", "3", "max-log-entries", "1000"]),
        |server| {
            let mut c = server.connect();
            set(&mut c, &["free 20/m"]);
            let long_name = format!("RL.POLICY SET {} 5/m", "n".repeat(33));
            for (line, says) in [
                ("RL.POLICY SET free 20/x", "20/x"),
                ("RL.POLICY SET free 5/s frob:5/s", "frob"),
                ("RL.POLICY SET free @free", "a policy may not name another"),
                ("RL.POLICY SET free 5/s @other", "a policy may not name another"),
                ("RL.POLICY SET free 1/s 2/m 3/h 4/d", "(ratelimit.max-rules)"),
                ("RL.POLICY SET free 1001/m", "ratelimit.max-log-entries"),
                ("RL.POLICY SET free 5/s 6/s", "same identity as rule 'log:5/1s'"),
                ("RL.POLICY SET free 5/s COST 2", "unexpected 'COST'"),
                ("RL.POLICY SET fr/ee 5/s", "the policy's name is 'fr/ee'"),
                (&long_name, "the policy's name is 'nnn"),
                ("RL.POLICY SET free", "wrong number of arguments"),
                ("RL.POLICY GET", "wrong number of arguments"),
                ("RL.POLICY DEL free free", "wrong number of arguments"),
                ("RL.POLICY LIST free", "wrong number of arguments"),
                ("RL.POLICY", "wrong number of arguments"),
                ("RL.POLICY PUT free 5/s", "subcommand"),
            ] {
                let error = refusal(&mut c, line);
                assert!(error.contains(says), "{line}: {error}");
            }
            assert_eq!(known(&mut c), policies(&["free log:20/1m"]));
        },
    );
}

#[test]
fn a_policy_acts_as_its_rules() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        set(&mut c, &["free 5/h fixed:9/d,count=all", "burst 1/s"]);
        set(&mut c, &["burst bucket:3/m,burst=4,name=b"]);
        let free = "log:5/1h fixed:9/1d,count=all";
        let burst = "bucket:3/1m,burst=4,name=b";
        for (by_name, inline) in [
            ("@free", free.to_string()),
            ("@free 2/s @burst", format!("{free} 2/s {burst}")),
            ("@burst @free", format!("{burst} {free}")),
        ] {
            let () = ask(&mut c, "FLUSHALL");
            for (name, words) in [
                ("RL.CHECK", "COST 2 AT $ FULL"),
                ("RL.CHECK", "META who AT $"),
                ("RL.CHECK", "COST 3 AT $"),
                ("RL.PEEK", "AT $ FULL"),
                ("RL.REFUND", "1 AT $"),
                ("RL.PEEK", "AT $ FULL"),
            ] {
                let words = words.replace('$', &AT_US.to_string());
                let [named, written] = [("n", by_name), ("w", &inline)]
                    .map(|(key, rules)| value(&mut c, &format!("{name} {key} {words} {rules}")));
                assert_eq!(named, written, "{name} {words} {by_name}");
                assert_eq!(digest_of(&mut c, "n"), digest_of(&mut c, "w"), "{name} {by_name}");
            }
            assert!(exists(&mut c, "n"));
            let explained = value(&mut c, &format!("RL.EXPLAIN {by_name}"));
            assert_eq!(explained, value(&mut c, &format!("RL.EXPLAIN {inline}")));
        }
    });
}

#[test]
fn a_policy_acts_as_its_rules_in_mcheck() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        set(&mut c, &["user 5/h", "all 100/h fixed:900/d"]);
        for (by_name, inline) in [
            ("@user NEXT @all 7/m", "5/h NEXT 100/h fixed:900/d 7/m"),
            ("@all", "100/h fixed:900/d"),
        ] {
            let () = ask(&mut c, "FLUSHALL");
            let words = format!("COST 2 AT {AT_US}");
            for _ in 0..3 {
                let by_name: Reply = ask(&mut c, &format!("RL.MCHECK 2 n1 n2 {words} {by_name}"));
                let inline: Reply = ask(&mut c, &format!("RL.MCHECK 2 w1 w2 {words} {inline}"));
                assert_eq!(by_name, inline);
            }
            for (named, written) in [("n1", "w1"), ("n2", "w2")] {
                assert_eq!(digest_of(&mut c, named), digest_of(&mut c, written), "{by_name}");
            }
        }
    });
}

#[test]
fn every_connection_uses_a_changed_policy_at_once() {
    server::on_all(|server| {
        let mut connections: Vec<_> = (0..20).map(|_| server.connect()).collect();
        for limit in 1..=40 {
            let whose = limit % connections.len();
            set(&mut connections[whose], &[&format!("p {limit}/h")]);
            for (index, c) in connections.iter_mut().enumerate() {
                let reply: Reply = ask(c, &format!("RL.PEEK k{index} @p"));
                assert_eq!(reply[1], limit as i64, "connection {index}");
            }
        }
        let mut c = server.connect();
        let _: i64 = ask(&mut c, "RL.POLICY DEL p FORCE");
        for c in &mut connections {
            assert!(refusal(c, "RL.CHECK k @p").contains("unknown policy"));
        }
    });
}

#[test]
fn states_keep_their_counts_when_limits_change() {
    server::on_all(|server| {
        let mut c = server.connect();
        // Slots count holds, which do not depend on the limit.
        for kind in Kind::ALL.into_iter().filter(|&kind| kind != Kind::Slots) {
            let algorithm = kind.name();
            // A leaky bucket admits one unit at once in addition to those that queue.
            let more = i64::from(kind == Kind::Leaky);
            // A window of a day from the first request, so that no unit comes back while the
            // test runs.
            let align = if kind == Kind::Fixed { ",align=first" } else { "" };
            let limit = |limit: i64| format!("p {algorithm}:{limit}/d{align},name=s");
            let check = |cost: i64| format!("RL.CHECK {algorithm} COST {cost} @p");
            set(&mut c, &[&limit(10)]);
            assert_eq!(remaining(&mut c, &check(4)), 6 + more, "{algorithm}");
            set(&mut c, &[&limit(5)]);
            assert_eq!(remaining(&mut c, &check(0)), 1 + more, "{algorithm}");
            assert!(!allowed(&mut c, &check(2 + more)), "{algorithm}");
            set(&mut c, &[&limit(3)]);
            assert!(!allowed(&mut c, &check(1)), "{algorithm}");
            set(&mut c, &[&limit(20)]);
            assert_eq!(remaining(&mut c, &check(0)), 16 + more, "{algorithm}");
        }
    });
}

#[test]
fn without_its_policy_a_check_fails_and_counts_stay() {
    server::on_all(|server| {
        let mut c = server.connect();
        set(&mut c, &["free 5/h"]);
        assert_eq!(remaining(&mut c, "RL.CHECK k COST 3 @free"), 2);
        let _: i64 = ask(&mut c, "RL.POLICY DEL free FORCE");
        let before = digest(&mut c);
        for line in [
            "RL.CHECK k @free",
            "RL.CHECK k 9/m @free",
            "RL.PEEK k FULL @free",
            "RL.MCHECK 2 k l @free",
            "RL.REFUND k 1 @free",
            "RL.EXPLAIN @free",
        ] {
            let error = refusal(&mut c, line);
            let says = "rule '@free': unknown policy, expected one that RL.POLICY LIST shows";
            assert!(error.contains(says), "{line}: {error}");
        }
        assert!(refusal(&mut c, "RL.CHECK k @").contains("rule '@': unknown policy"));
        assert_eq!(digest(&mut c), before);
        assert_eq!(remaining(&mut c, "RL.PEEK k 5/h"), 2);
        set(&mut c, &["free 6/h"]);
        assert_eq!(remaining(&mut c, "RL.PEEK k @free"), 3);
    });
}

#[test]
fn settings_limit_rules_of_policies_too() {
    server::on_all_with(
        |b| b.module_args(&["max-rules", "4"]),
        |server| {
            let mut c = server.connect();
            set(&mut c, &["three 1/s 2/m 3/h", "two 4/s,name=a 5/s,name=b", "four 2/m"]);
            for (line, says) in [
                ("RL.CHECK k @three @two", "rule '@two': too many rules, expected at most 4"),
                ("RL.CHECK k @three 7/w 8/d", "rule '8/d': too many rules, expected at most 4"),
                ("RL.CHECK k @four @three", "rule '@three log:2/1m': same identity as rule"),
                ("RL.CHECK k 9/m @four", "rule '@four log:2/1m': same identity as rule 'log:9/1m'"),
                ("RL.CHECK k @four 9/m", "rule '9/m': same identity as rule 'log:2/1m'"),
                ("RL.CHECK k @four @four", "rule '@four log:2/1m': same identity"),
                ("RL.MCHECK 2 k l @four NEXT @four 9/m", "rule '9/m': same identity"),
            ] {
                let error = refusal(&mut c, line);
                assert!(error.contains(says), "{line}: {error}");
            }
            assert!(!exists(&mut c, "k"));
            assert!(allowed(&mut c, "RL.CHECK k @three 7/w"));
        },
    );
}

#[test]
fn checks_are_counted_for_each_policy() {
    server::on_all(|server| {
        let mut c = server.connect();
        set(&mut c, &["free 2/h", "burst 9/h,name=b", "none 0/h"]);
        assert_eq!(counted(&mut c, "free"), Some((0, 0)));
        let counts = |c: &mut Connection| ["free", "burst"].map(|name| counted(c, name).unwrap());
        for (line, free, burst) in [
            ("RL.CHECK k @free", (1, 0), (0, 0)),
            ("RL.CHECK k @free @burst", (2, 0), (1, 0)),
            ("RL.CHECK k @free @burst", (2, 1), (1, 1)),
            ("RL.CHECK k 5/s", (2, 1), (1, 1)),
            ("RL.PEEK k @free", (2, 1), (1, 1)),
            ("RL.REFUND k 1 @free", (2, 1), (1, 1)),
            ("RL.EXPLAIN @free", (2, 1), (1, 1)),
            ("RL.MCHECK 3 a b c @free", (3, 1), (1, 1)),
            ("RL.MCHECK 2 a b @free NEXT @free @burst", (4, 1), (2, 1)),
            ("RL.MCHECK 2 a b @burst NEXT 0/h", (4, 1), (2, 2)),
            ("RL.POLICY SET free 1/h", (4, 1), (2, 2)),
            ("RL.CHECK a @free", (4, 2), (2, 2)),
        ] {
            let _ = value(&mut c, line);
            assert_eq!(counts(&mut c), [free, burst], "{line}");
        }
        assert!(refusal(&mut c, "RL.CHECK k @free @nobody").contains("@nobody"));
        assert_eq!(counts(&mut c), [(4, 2), (2, 2)], "after an error");
        let info: String = ask(&mut c, "INFO everything");
        assert!(info.contains("\r\nratelimit_policy_burst:allowed=2,limited=2,shadowed=0\r\n"));

        // A deleted policy that is set again counts from zero.
        let _: i64 = ask(&mut c, "RL.POLICY DEL free FORCE");
        assert_eq!(counted(&mut c, "free"), None);
        set(&mut c, &["free 1/h"]);
        assert_eq!(counted(&mut c, "free"), Some((0, 0)));
    });
}

#[test]
fn policies_stay_when_all_keys_are_flushed() {
    server::on_all(|server| {
        let mut c = server.connect();
        set(&mut c, &["free 5/h"]);
        let () = ask(&mut c, "SELECT 3");
        for flush in ["FLUSHDB", "FLUSHALL", "FLUSHALL ASYNC"] {
            assert_eq!(remaining(&mut c, "RL.CHECK k @free"), 4, "{flush}: a count is left");
            let () = command(flush).query(&mut c).unwrap();
            assert_eq!(known(&mut c), policies(&["free log:5/1h"]), "{flush}");
        }
        let () = ask(&mut c, "SWAPDB 0 3");
        assert_eq!(remaining(&mut c, "RL.CHECK k @free"), 4);
    });
}

#[test]
fn a_policy_in_use_is_deleted_by_force_alone() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "RL.POLICY SET free 2/m");
        let _: Vec<i64> = ask(&mut c, "RL.PEEK k @free");
        assert_eq!(ask::<i64>(&mut c, "RL.POLICY DEL free"), 1, "a peek is no check");
        let () = ask(&mut c, "RL.POLICY SET free 2/m");
        let _: Vec<i64> = ask(&mut c, "RL.CHECK k @free");
        let () = ask(&mut c, "RL.POLICY SET free 3/m");
        let error = refusal(&mut c, "RL.POLICY DEL free");
        assert!(error.contains("policy 'free' was used by a check"), "{error}");
        assert!(error.contains("RL.POLICY DEL free FORCE"), "{error}");
        assert_eq!(verdict(&mut c, "RL.CHECK k @free"), 0);
        assert_eq!(ask::<i64>(&mut c, "RL.POLICY DEL free FORCE"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.POLICY DEL free FORCE"), 0);
        assert!(refusal(&mut c, "RL.POLICY DEL free NOW").contains("wrong number of arguments"));
        // A key that was passed over needs its policy, too.
        set(&mut c, &["quota 9/d", "credits 9/d"]);
        let _: Vec<i64> = ask(&mut c, "RL.MCHECK 2 {p}a {p}b ANY @quota NEXT @credits");
        assert!(refusal(&mut c, "RL.POLICY DEL credits").contains("was used by a check"));
    });
}

#[test]
fn settings_cannot_be_set_below_what_policies_need() {
    server::on_all(|server| {
        if !server.flavor().is_7_or_later() {
            return; // 6.2 cannot change settings of modules.
        }
        let mut c = server.connect();
        set(&mut c, &["p 5/s 500/h bucket:9/d"]);
        for (setting, needed) in [("max-rules", 3), ("max-log-entries", 500)] {
            let error = refusal(&mut c, &format!("CONFIG SET ratelimit.{setting} {}", needed - 1));
            let why = format!("expected {needed} or more, which policies need");
            assert!(error.contains(&why), "{error}");
            let () = ask(&mut c, &format!("CONFIG SET ratelimit.{setting} {needed}"));
        }
        assert!(allowed(&mut c, "RL.CHECK k @p"));
        set(&mut c, &["p bucket:9/d"]);
        for setting in ["max-rules", "max-log-entries"] {
            let () = ask(&mut c, &format!("CONFIG SET ratelimit.{setting} 1"));
        }
    });
}

#[test]
fn a_policy_counts_checks_that_its_own_shadows_would_have_denied() {
    server::on_all(|server| {
        let mut c = server.connect();
        set(&mut c, &["free 1/d,shadow", "pro 100/d"]);
        let shadowed = |c: &mut Connection, name: &str| {
            let field = info_text(c, "ratelimit", &format!("ratelimit_policy_{name}"));
            field.split("shadowed=").nth(1).map(ToString::to_string)
        };
        for _ in 0..2 {
            let _: Vec<i64> = ask(&mut c, "RL.MCHECK 2 {p}a {p}b @free NEXT @pro");
            let _: Vec<i64> = ask(&mut c, "RL.MCHECK 2 {q}a {q}b @free");
        }
        assert_eq!(shadowed(&mut c, "free").as_deref(), Some("2"), "once a check");
        assert_eq!(shadowed(&mut c, "pro").as_deref(), Some("0"));
    });
}
