//! ACLs: what applications, operators and administrators may do.

use std::collections::{BTreeSet, HashMap};

use redis::{RedisResult, Value, cmd};

use crate::support::server;
use crate::support::users::{
    ADMINISTERING, INTERNAL, LIMITING, assert_allowed, assert_no_permission, connect_as,
    connect_as_limiting, connect_as_operating, has_categories, has_ratelimit_category,
    lists_ratelimit_category, operating_calls, run,
};

#[test]
fn an_application_may_limit_its_keys_and_nothing_else() {
    server::on_all(|server| {
        let mut c = connect_as_limiting(server, &["~rl:*"]);
        for call in [
            &["RL.CHECK", "rl:1", "COST", "2", "5/m", "bucket:9/h"][..],
            &["RL.CHECK", "rl:1", "META", "who", "5/m"],
            &["RL.CHECK", "rl:1", "HOLD", "r", "EX", "9", "5/m"],
            &["RL.WAIT", "rl:1", "5", "META", "who", "5/m"],
            &["RL.RENEW", "rl:1", "r", "EX", "9"],
            &["RL.SETTLE", "rl:1", "r"],
            &["RL.MCHECK", "2", "rl:1", "rl:2", "5/m"],
            &["RL.PEEK", "rl:1", "FULL", "5/m"],
            &["RL.LOG", "rl:1", "COUNT", "5"],
            &["RL.INFO", "rl:1"],
            &["RL.REFUND", "rl:1", "1"],
            &["RL.EXPLAIN", "5/m"],
            &["RL.RESET", "rl:1"],
            &["RL.PAUSE", "rl:1", "EX", "9"],
            &["RL.RESUME", "rl:1"],
            &["RL.SYNC", "rl:1", "REMAINING", "1", "5/m"],
        ] {
            assert_allowed(&mut c, call);
        }
        for call in [
            &["RL.CHECK", "other", "5/m"][..],
            &["RL.MCHECK", "2", "rl:1", "other", "5/m"],
            &["RL.PEEK", "other", "5/m"],
            &["RL.REFUND", "other", "1"],
            &["RL.WAIT", "other", "5", "5/m"],
            &["RL.RENEW", "other", "r", "EX", "9"],
            &["RL.SETTLE", "other", "r"],
            &["RL.RESET", "other"],
            &["RL.PAUSE", "other", "EX", "9"],
            &["RL.RESUME", "other"],
            &["RL.SYNC", "other", "REMAINING", "1", "5/m"],
            &["RL.LOG", "other"],
            &["RL.INFO", "other"],
            &["SET", "rl:1", "x"],
            &["GET", "rl:1"],
            &["DEL", "rl:1"],
            &["DUMP", "rl:1"],
            &["KEYS", "*"],
            &["CONFIG", "GET", "*"],
            &["CONFIG", "SET", "maxmemory", "1"],
            &["MODULE", "LIST"],
        ] {
            assert_no_permission(&mut c, call);
        }
        for call in operating_calls("rl:1") {
            assert_no_permission(&mut c, &call);
        }
        for call in ADMINISTERING.into_iter().chain(INTERNAL) {
            assert_no_permission(&mut c, call);
        }
    });
}

#[test]
fn an_operator_may_use_commands_granted_by_name_on_its_keys_only() {
    server::on_all(|server| {
        assert_allowed(&mut server.connect(), &["RL.BLOCK", "other", "REASON", "not theirs"]);
        let mut c = connect_as_operating(server, &["~rl:*"]);
        for call in operating_calls("rl:1") {
            assert_allowed(&mut c, &call);
        }
        assert_allowed(&mut c, &["RL.CHECK", "rl:1", "5/m"]);
        for call in &operating_calls("other")[..4] {
            assert_no_permission(&mut c, call);
        }
        // As with SCAN, a user who may list names of keys sees all of them.
        let (_, rows): (String, Vec<Vec<Value>>) =
            cmd("RL.BLOCKS").arg(&["0", "COUNT", "100"]).query(&mut c).unwrap();
        assert_eq!(rows.len(), 1, "{rows:?}");
        for call in ADMINISTERING.into_iter().chain(INTERNAL) {
            assert_no_permission(&mut c, call);
        }
        assert_no_permission(&mut c, &["DEL", "rl:1"]);
    });
}

#[test]
fn an_administrator_may_run_nothing_internal() {
    server::on_all(|server| {
        // Before 7.2, commands of modules are in no category.
        let categories = has_categories(server.flavor());
        let mut c = connect_as(server, "root", &["~*", "+@admin", "-@dangerous"]);
        for call in operating_calls("rl:1") {
            if categories && call == ["RL.TOP"] {
                assert_allowed(&mut c, &call);
            } else {
                assert_no_permission(&mut c, &call);
            }
        }
        for call in ADMINISTERING.into_iter().chain(INTERNAL) {
            assert_no_permission(&mut c, call);
        }
        let mut c = connect_as(server, "administrator", &["~*", "+@admin", "+@dangerous"]);
        let calls = operating_calls("rl:1");
        for call in ADMINISTERING.into_iter().chain(calls.iter().map(Vec::as_slice)) {
            if categories {
                assert_allowed(&mut c, call);
            } else {
                assert_no_permission(&mut c, call);
            }
        }
        assert_allowed(&mut connect_as(server, "by-name", &["+rl.policy"]), ADMINISTERING[0]);
        if has_ratelimit_category(server.flavor()) {
            // -@admin takes away all commands of operators, -@dangerous all but RL.TOP.
            let mut c = connect_as(server, "guest", &["~*", "+@all", "-@admin"]);
            assert_allowed(&mut c, &["RL.CHECK", "rl:1", "5/m"]);
            for call in operating_calls("rl:1") {
                assert_no_permission(&mut c, &call);
            }
            let mut c = connect_as(server, "careful", &["~*", "+@all", "-@dangerous"]);
            for call in &operating_calls("rl:1")[..5] {
                assert_no_permission(&mut c, call);
            }
        }
    });
}

#[test]
fn monitor_shows_blocks_and_exemptions() {
    server::on_all(|server| {
        let (mut monitor, mut c) = (server.connect(), server.connect());
        let () = cmd("MONITOR").query(&mut monitor).unwrap();
        for call in &operating_calls("rl:1")[..4] {
            assert_allowed(&mut c, call);
            let seen: String = redis::from_redis_value(monitor.recv_response().unwrap()).unwrap();
            let words: Vec<String> = call.iter().map(|word| format!("\"{word}\"")).collect();
            assert!(seen.ends_with(&words.join(" ")), "{call:?}: {seen}");
        }
    });
}

#[test]
fn the_category_ratelimit_holds_what_applications_need() {
    server::on_all(|server| {
        let mut c = server.connect();
        let listed: RedisResult<BTreeSet<String>> =
            cmd("ACL").arg("CAT").arg("ratelimit").query(&mut c);
        if has_ratelimit_category(server.flavor()) {
            let lists = lists_ratelimit_category(server.flavor());
            let expected = LIMITING.map(ToString::to_string);
            assert_eq!(listed.unwrap(), expected.into_iter().filter(|_| lists).collect());
        } else {
            let error = listed.expect_err("a category on a server that has none").to_string();
            assert!(error.contains("Unknown category"), "{error}");
        }
    });
}

#[test]
fn commands_are_in_the_categories_that_fit_their_effects() {
    server::on_all(|server| {
        let mut c = server.connect();
        for (name, categories) in [
            ("rl.check", "write fast ratelimit"),
            ("rl.throttle", "write fast ratelimit"),
            ("cl.throttle", "write fast ratelimit"),
            ("rl.peek", "read fast ratelimit"),
            ("rl.refund", "write fast ratelimit"),
            ("rl.settle", "write fast ratelimit"),
            ("rl.renew", "write fast ratelimit"),
            ("rl.reset", "write fast ratelimit"),
            ("rl.pause", "write fast ratelimit"),
            ("rl.resume", "write fast ratelimit"),
            ("rl.sync", "write fast ratelimit"),
            ("rl.explain", "fast ratelimit"),
            ("rl.log", "read slow ratelimit"),
            ("rl.info", "read slow ratelimit"),
            ("rl.block", "write fast admin dangerous"),
            ("rl.unblock", "write fast admin dangerous"),
            ("rl.exempt", "write fast admin dangerous"),
            ("rl.unexempt", "write fast admin dangerous"),
            ("rl.plan", "write fast admin dangerous"),
            ("rl.unplan", "write fast admin dangerous"),
            ("rl.blocks", "read slow admin dangerous"),
            ("rl.top", "read slow admin"),
            ("rl.mcheck", "write slow ratelimit"),
            ("rl.policy", "write slow admin dangerous"),
            ("rl.apply", "write slow admin dangerous"),
            ("rl.load", "write slow admin dangerous"),
        ] {
            let [info]: [Vec<Value>; 1] =
                cmd("COMMAND").arg("INFO").arg(name).query(&mut c).unwrap();
            let known: BTreeSet<String> = redis::from_redis_value(info[6].clone()).unwrap();
            // On 6.2 and 7.0, commands of modules are in no category.
            let expected = categories.split(' ').filter(|&category| {
                has_categories(server.flavor())
                    && (category != "ratelimit" || has_ratelimit_category(server.flavor()))
            });
            assert_eq!(known, expected.map(|name| format!("@{name}")).collect(), "{name}");
        }
    });
}

#[test]
fn the_right_to_read_a_key_allows_peeks_and_no_checks() {
    server::on_all(|server| {
        if !server.flavor().is_7_or_later() {
            return; // Rights to read or write a key came with 7.0.
        }
        assert_allowed(&mut server.connect(), &["RL.CHECK", "rl:1", "5/m"]);
        // A check reads and writes, so neither right alone is enough.
        for keys in ["%R~rl:*", "%W~rl:*"] {
            let mut c = connect_as_operating(server, &["resetkeys", keys]);
            assert_no_permission(&mut c, &["RL.CHECK", "rl:1", "5/m"]);
            assert_no_permission(&mut c, &["RL.REFUND", "rl:1", "1"]);
            assert_no_permission(&mut c, &["RL.SETTLE", "rl:1", "r"]);
            assert_no_permission(&mut c, &["RL.RESET", "rl:1"]);
            for call in &operating_calls("rl:1")[..4] {
                assert_no_permission(&mut c, call);
            }
            for report in
                [&["RL.PEEK", "rl:1", "5/m"][..], &["RL.LOG", "rl:1"], &["RL.INFO", "rl:1"]]
            {
                if keys.starts_with("%R") {
                    assert_allowed(&mut c, report);
                } else {
                    assert_no_permission(&mut c, report);
                }
            }
        }
        let mut both = connect_as_operating(server, &["resetkeys", "%RW~rl:*"]);
        assert_allowed(&mut both, &["RL.CHECK", "rl:1", "5/m"]);
        for call in operating_calls("rl:1") {
            assert_allowed(&mut both, &call);
        }
    });
}

#[test]
fn a_call_without_a_key_gets_the_usage() {
    server::on_all(|server| {
        let mut c = connect_as_limiting(server, &["~rl:*"]);
        for call in ["RL.CHECK", "RL.PEEK", "RL.RESET"] {
            let error = run(&mut c, &[call]).expect_err(call).to_string();
            assert!(error.contains(&format!("usage: {call} key")), "{error}");
        }
    });
}

#[test]
fn without_a_right_to_keys_only_explain_is_allowed() {
    server::on_all(|server| {
        let mut c = connect_as_limiting(server, &["resetkeys"]);
        assert_allowed(&mut c, &["RL.EXPLAIN", "5/m"]);
        assert_no_permission(&mut c, &["RL.CHECK", "rl:1", "5/m"]);
        assert_no_permission(&mut c, &["RL.PEEK", "rl:1", "5/m"]);
        assert_no_permission(&mut c, &["RL.REFUND", "rl:1", "1"]);
        assert_no_permission(&mut c, &["RL.RESET", "rl:1"]);
        assert_no_permission(&mut c, &["RL.LOG", "rl:1"]);
        assert_no_permission(&mut c, &["RL.INFO", "rl:1"]);
    });
}

#[test]
fn a_script_has_the_rights_of_its_caller() {
    server::on_all(|server| {
        let mut c = connect_as_limiting(server, &["~rl:*", "+eval"]);
        let check = "return redis.call('RL.CHECK', KEYS[1], '5/m')";
        let reply: [i64; 5] =
            cmd("EVAL").arg(check).arg(1).arg("rl:1").query(&mut c).expect("its own key");
        assert_eq!(reply[..3], [0, 5, 4]);
        // The script does not declare the key, so the inner call must be refused.
        let other = "return redis.call('RL.CHECK', 'other', '5/m')";
        let error = run(&mut c, &["EVAL", other, "0"]).expect_err("another key").to_string();
        assert!(error.contains("can't access") || error.contains("ermission"), "{error}");
        drop(c);
        let exists: i64 = cmd("EXISTS").arg("other").query(&mut server.connect()).unwrap();
        assert_eq!(exists, 0);
    });
}

#[test]
fn internal_commands_are_refused_to_every_client() {
    server::on_all(|server| {
        let mut c = server.connect();
        for call in INTERNAL {
            let (name, script) = (call[0], "return redis.call(unpack(ARGV))");
            let refused = |reply: RedisResult<Value>, how: &str| {
                let error = reply.expect_err(how).to_string();
                for part in [name, "is internal", "primary", "loader"] {
                    assert!(error.contains(part), "{name} {how}: «{error}» lacks «{part}»");
                }
            };
            refused(run(&mut c, call), "by the default user");

            refused(run(&mut c, &[&["EVAL", script, "0"], call].concat()), "in a script");
            refused(run(&mut c, &[&["EVAL", script, "1", "rl:1"], call].concat()), "with KEYS");

            let mut transaction = redis::pipe();
            transaction.atomic().ignore_errors().cmd(name).arg(&call[1..]);
            let mut replies: Vec<RedisResult<Value>> = transaction.query(&mut c).unwrap();
            refused(replies.pop().expect("one reply"), "in a transaction");

            if server.flavor().is_7_or_later() {
                // Functions came with 7.0.
                let library = "#!lua name=forge\n\
                               redis.register_function('forge', function(keys, args) \
                               return redis.call(unpack(args)) end)";
                assert_allowed(&mut c, &["FUNCTION", "LOAD", "REPLACE", library]);
                refused(run(&mut c, &[&["FCALL", "forge", "0"], call].concat()), "in a function");
            }
        }
        let exists: i64 = cmd("EXISTS").arg("rl:1").query(&mut c).unwrap();
        assert_eq!(exists, 0, "a refused command made a key");
    });
}

#[test]
fn acl_dryrun_says_what_is_allowed() {
    server::on_all(|server| {
        if !server.flavor().is_7_or_later() {
            return; // ACL DRYRUN came with 7.0.
        }
        drop(connect_as_limiting(server, &["~rl:*", "%R~shared:*"]));
        let mut c = server.connect();
        for (call, refusal) in [
            (&["RL.CHECK", "rl:1", "5/m"][..], None),
            (&["RL.PEEK", "shared:1", "5/m"], None),
            (&["RL.LOG", "shared:1"], None),
            (&["RL.CHECK", "shared:1", "5/m"], Some("'shared:1' key")),
            (&["RL.CHECK", "other", "5/m"], Some("'other' key")),
            (INTERNAL[0], Some("'rl.apply' command")),
            (INTERNAL[1], Some("'rl.load' command")),
            (&["RL.BLOCK", "rl:1"], Some("'rl.block' command")),
            (&["SET", "rl:1", "x"], Some("'set' command")),
        ] {
            let says: String = cmd("ACL").arg("DRYRUN").arg("app").arg(call).query(&mut c).unwrap();
            match refusal {
                None => assert_eq!(says, "OK", "{}", call.join(" ")),
                Some(what) => assert!(
                    says.contains("no permissions") && says.contains(what),
                    "{}: {says}",
                    call.join(" ")
                ),
            }
        }
    });
}

#[test]
fn the_acl_log_shows_refusals() {
    server::on_all(|server| {
        let mut c = connect_as_limiting(server, &["~rl:*", "+multi", "+exec", "+discard"]);
        assert_no_permission(&mut c, &["RL.CHECK", "other", "5/m"]);
        assert_no_permission(&mut c, INTERNAL[1]);
        assert_allowed(&mut c, &["MULTI"]);
        assert_no_permission(&mut c, &["RL.PEEK", "others", "5/m"]);
        assert_allowed(&mut c, &["DISCARD"]);
        let log: Vec<HashMap<String, Value>> =
            cmd("ACL").arg("LOG").query(&mut server.connect()).unwrap();
        let entries: Vec<[String; 4]> = log
            .into_iter()
            .map(|entry| {
                ["username", "reason", "context", "object"]
                    .map(|field| redis::from_redis_value(entry[field].clone()).unwrap())
            })
            .collect();
        assert_eq!(
            entries,
            [
                ["app", "key", "multi", "others"],
                ["app", "command", "toplevel", "rl.load"],
                ["app", "key", "toplevel", "other"],
            ]
        );
    });
}
