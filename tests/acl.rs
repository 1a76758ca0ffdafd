//! Who may do what: an application that limits needs no other right, and gets none.

mod server;

use std::collections::{BTreeSet, HashMap};

use redis::{Connection, RedisResult, Value, cmd};
use server::{Flavor, Server};

/// What limits, and is all that `+@ratelimit` gives.
const LIMITING: [&str; 5] = ["rl.check", "rl.explain", "rl.peek", "rl.refund", "rl.reset"];

/// What only a primary's link and the loader may say, each in a form that would be right from them.
const INTERNAL: [&[&str]; 2] =
    [&["RL.APPLY", "rl:1", "1", "admit", "1", "0", "5/m"], &["RL.LOAD", "rl:1", "payload"]];

/// Whether modules can bring an ACL category of their own: from Redis 7.4 and Valkey 8.0 on.
fn has_own_category(flavor: Flavor) -> bool {
    flavor.version >= if flavor.is_valkey() { (8, 0) } else { (7, 4) }
}

/// Whether modules can put their commands into the server's categories: from 7.2 on.
fn has_categories(flavor: Flavor) -> bool {
    flavor.version >= (7, 2)
}

/// The right to limit, in the words of `ACL SETUSER`.
fn right_to_limit(flavor: Flavor) -> Vec<String> {
    if has_own_category(flavor) {
        vec!["+@ratelimit".to_string()]
    } else {
        LIMITING.map(|name| format!("+{name}")).to_vec()
    }
}

fn run(c: &mut Connection, words: &[&str]) -> RedisResult<Value> {
    cmd(words[0]).arg(&words[1..]).query(c)
}

fn assert_allowed(c: &mut Connection, words: &[&str]) {
    if let Err(error) = run(c, words) {
        panic!("{}: {error}", words.join(" "));
    }
}

fn assert_no_permission(c: &mut Connection, words: &[&str]) {
    let error = run(c, words).expect_err(&words.join(" "));
    assert_eq!(error.code(), Some("NOPERM"), "{}: {error}", words.join(" "));
}

/// Makes a user with these rights, as the default user, and connects as it.
fn connect_as(server: &Server, user: &str, rights: &[&str]) -> Connection {
    let mut c = server.connect();
    let () = cmd("ACL")
        .arg("SETUSER")
        .arg(user)
        .arg(&["on", ">secret"])
        .arg(rights)
        .query(&mut c)
        .unwrap_or_else(|error| panic!("{rights:?}: {error}"));
    let () = cmd("AUTH").arg(user).arg("secret").query(&mut c).unwrap();
    c
}

/// Connects as a user that has the right to limit, and these to keys; it is one user, so earlier
/// connections of it get these too.
fn connect_as_limiting(server: &Server, keys: &[&str]) -> Connection {
    let rights = right_to_limit(server.flavor());
    let rights: Vec<&str> = rights.iter().map(String::as_str).chain(keys.iter().copied()).collect();
    connect_as(server, "app", &rights)
}

#[test]
fn an_application_may_limit_its_keys_and_do_nothing_else() {
    server::on_all(|server| {
        let mut c = connect_as_limiting(server, &["~rl:*"]);
        for call in [
            &["RL.CHECK", "rl:1", "COST", "2", "5/m", "bucket:9/h"][..],
            &["RL.PEEK", "rl:1", "FULL", "5/m"],
            &["RL.REFUND", "rl:1", "1"],
            &["RL.EXPLAIN", "5/m"],
            &["RL.RESET", "rl:1"],
        ] {
            assert_allowed(&mut c, call);
        }
        for call in [
            &["RL.CHECK", "other", "5/m"][..],
            &["RL.PEEK", "other", "5/m"],
            &["RL.REFUND", "other", "1"],
            &["RL.RESET", "other"],
            &["SET", "rl:1", "x"],
            &["GET", "rl:1"],
            &["DEL", "rl:1"],
            &["DUMP", "rl:1"],
            &["KEYS", "*"],
            &["CONFIG", "GET", "*"],
            &["CONFIG", "SET", "maxmemory", "1"],
            &["MODULE", "LIST"],
            INTERNAL[0],
            INTERNAL[1],
        ] {
            assert_no_permission(&mut c, call);
        }
    });
}

#[test]
fn an_own_category_holds_what_limits_and_nothing_that_administers() {
    server::on_all(|server| {
        let mut c = server.connect();
        let listed: RedisResult<BTreeSet<String>> =
            cmd("ACL").arg("CAT").arg("ratelimit").query(&mut c);
        if has_own_category(server.flavor()) {
            assert_eq!(listed.unwrap(), LIMITING.map(ToString::to_string).into());
        } else {
            let error = listed.expect_err("a category on a server without").to_string();
            assert!(error.contains("Unknown category"), "{error}");
        }
    });
}

#[test]
fn commands_are_in_the_categories_of_what_they_do() {
    server::on_all(|server| {
        let mut c = server.connect();
        for (name, categories) in [
            ("rl.check", "write fast ratelimit"),
            ("rl.peek", "read fast ratelimit"),
            ("rl.refund", "write fast ratelimit"),
            ("rl.reset", "write fast ratelimit"),
            ("rl.explain", "fast ratelimit"),
            ("rl.apply", "write slow admin dangerous"),
            ("rl.load", "write slow admin dangerous"),
        ] {
            let [info]: [Vec<Value>; 1] =
                cmd("COMMAND").arg("INFO").arg(name).query(&mut c).unwrap();
            let known: BTreeSet<String> = redis::from_redis_value(info[6].clone()).unwrap();
            // 6.2 and 7.0 have no way to say it: there, commands of modules are in no category.
            let expected = categories.split(' ').filter(|&category| {
                has_categories(server.flavor())
                    && (category != "ratelimit" || has_own_category(server.flavor()))
            });
            assert_eq!(known, expected.map(|name| format!("@{name}")).collect(), "{name}");
        }
    });
}

#[test]
fn who_may_read_a_key_may_peek_and_not_consume() {
    server::on_all(|server| {
        if !server.flavor().is_7_or_later() {
            return; // Rights to read or to write a key came with 7.0.
        }
        assert_allowed(&mut server.connect(), &["RL.CHECK", "rl:1", "5/m"]);
        // Consuming tells what is left and changes it: neither right is enough.
        for keys in ["%R~rl:*", "%W~rl:*"] {
            let mut c = connect_as_limiting(server, &["resetkeys", keys]);
            assert_no_permission(&mut c, &["RL.CHECK", "rl:1", "5/m"]);
            assert_no_permission(&mut c, &["RL.REFUND", "rl:1", "1"]);
            assert_no_permission(&mut c, &["RL.RESET", "rl:1"]);
            if keys.starts_with("%R") {
                assert_allowed(&mut c, &["RL.PEEK", "rl:1", "5/m"]);
            } else {
                assert_no_permission(&mut c, &["RL.PEEK", "rl:1", "5/m"]);
            }
        }
        let mut both = connect_as_limiting(server, &["resetkeys", "%RW~rl:*"]);
        assert_allowed(&mut both, &["RL.CHECK", "rl:1", "5/m"]);
    });
}

#[test]
fn who_may_touch_no_key_may_only_ask_what_rules_mean() {
    server::on_all(|server| {
        let mut c = connect_as_limiting(server, &["resetkeys"]);
        assert_allowed(&mut c, &["RL.EXPLAIN", "5/m"]);
        assert_no_permission(&mut c, &["RL.CHECK", "rl:1", "5/m"]);
        assert_no_permission(&mut c, &["RL.PEEK", "rl:1", "5/m"]);
        assert_no_permission(&mut c, &["RL.REFUND", "rl:1", "1"]);
        assert_no_permission(&mut c, &["RL.RESET", "rl:1"]);
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
        // The key is not declared, so that it is the inner call that must be refused.
        let other = "return redis.call('RL.CHECK', 'other', '5/m')";
        let error = run(&mut c, &["EVAL", other, "0"]).expect_err("another key").to_string();
        assert!(error.contains("can't access") || error.contains("ermission"), "{error}");
        drop(c);
        let exists: i64 = cmd("EXISTS").arg("other").query(&mut server.connect()).unwrap();
        assert_eq!(exists, 0);
    });
}

#[test]
fn internal_commands_answer_no_client_whatever_its_rights() {
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
        assert_eq!(exists, 0, "a refused command left something");
    });
}

#[test]
fn a_dry_run_foretells_it() {
    server::on_all(|server| {
        if !server.flavor().is_7_or_later() {
            return; // ACL DRYRUN came with 7.0.
        }
        drop(connect_as_limiting(server, &["~rl:*", "%R~shared:*"]));
        let mut c = server.connect();
        for (call, refusal) in [
            (&["RL.CHECK", "rl:1", "5/m"][..], None),
            (&["RL.PEEK", "shared:1", "5/m"], None),
            (&["RL.CHECK", "shared:1", "5/m"], Some("'shared:1' key")),
            (&["RL.CHECK", "other", "5/m"], Some("'other' key")),
            (INTERNAL[0], Some("'rl.apply' command")),
            (INTERNAL[1], Some("'rl.load' command")),
            (&["SET", "rl:1", "x"], Some("'set' command")),
        ] {
            let told: String = cmd("ACL").arg("DRYRUN").arg("app").arg(call).query(&mut c).unwrap();
            match refusal {
                None => assert_eq!(told, "OK", "{}", call.join(" ")),
                Some(what) => assert!(
                    told.contains("no permissions") && told.contains(what),
                    "{}: {told}",
                    call.join(" ")
                ),
            }
        }
    });
}

#[test]
fn refusals_are_in_the_acl_log() {
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
