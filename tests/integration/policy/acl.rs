//! Who can set policies, and where: with which rights, on replicas, without free memory, in transactions
//! and in scripts.

use redis::{Connection, ConnectionLike, Value, cmd, pipe};

use crate::support::client::{self, ask, command, refusal, remaining, replica_of, replicated};
use crate::support::policies::{known, known_by_replica, policies, set};
use crate::support::server::{self, Server};
use crate::support::users::{has_categories, has_ratelimit_category};

/// Whether subcommands can have their own flags, as from 7.0 on. On 6.2, all of `RL.POLICY`
/// counts as a write.
fn has_subcommands(server: &Server) -> bool {
    server.flavor().is_7_or_later()
}

/// The categories and flags of a command in `COMMAND INFO`.
fn described(c: &mut Connection, name: &str) -> String {
    let [info]: [Vec<Value>; 1] = cmd("COMMAND").arg("INFO").arg(name).query(c).unwrap();
    assert!(info.len() > 6, "no command {name}");
    format!("{:?} {:?}", info[2], info[6])
}

#[test]
fn commands_of_policies_are_for_administrators() {
    server::on_all(|server| {
        let mut c = server.connect();
        let names: &[&str] = if has_subcommands(server) {
            &["", "|set", "|get", "|del", "|list", "|help"]
        } else {
            &[""]
        };
        for name in names {
            let described = described(&mut c, &format!("rl.policy{name}"));
            if has_categories(server.flavor()) {
                for category in ["@admin", "@dangerous"] {
                    assert!(described.contains(category), "{name}: {described}");
                }
            }
            assert!(!described.contains("@ratelimit"), "{name}: {described}");
        }
        if has_ratelimit_category(server.flavor()) {
            let limiting: Vec<String> = ask(&mut c, "ACL CAT ratelimit");
            assert!(limiting.iter().all(|name| !name.contains("policy")), "{limiting:?}");
        }
    });
}

#[test]
fn the_right_to_check_by_policy_excludes_setting_policies() {
    server::on_all(|server| {
        let mut c = server.connect();
        set(&mut c, &["free 5/h"]);
        let right =
            if has_ratelimit_category(server.flavor()) { "+@ratelimit" } else { "+rl.check" };
        let () = ask(&mut c, &format!("ACL SETUSER app on nopass ~app:* {right}"));
        let () = ask(&mut c, "ACL SETUSER admin on nopass +@all -@dangerous +rl.policy");
        let mut app = server.connect();
        let () = ask(&mut app, "AUTH app x");
        assert_eq!(remaining(&mut app, "RL.CHECK app:1 @free"), 4);
        for line in [
            "RL.POLICY SET free 9/h",
            "RL.POLICY GET free",
            "RL.POLICY DEL free FORCE",
            "RL.POLICY LIST",
            "RL.POLICY HELP",
        ] {
            let error = refusal(&mut app, line).to_lowercase();
            assert!(error.contains("permission"), "{line}: {error}");
        }
        assert_eq!(known(&mut c), policies(&["free log:5/1h"]));

        let mut admin = server.connect();
        let () = ask(&mut admin, "AUTH admin x");
        set(&mut admin, &["free 9/h"]);
        if has_subcommands(server) {
            let () = ask(&mut c, "ACL SETUSER app +rl.policy|get");
            assert_eq!(ask::<Vec<String>>(&mut app, "RL.POLICY GET free"), ["log:9/1h"]);
            assert!(refusal(&mut app, "RL.POLICY SET free 1/h").contains("permission"));
        }
    });
}

#[test]
fn a_replica_shows_policies_and_refuses_to_set_them() {
    server::on_all(|primary| {
        let mut p = primary.connect();
        let replica = replica_of(primary);
        let mut r = replica.connect();
        set(&mut p, &["free 5/h"]);
        replicated(&mut p);
        for line in ["RL.POLICY SET free 9/h", "RL.POLICY SET new 9/h", "RL.POLICY DEL free FORCE"]
        {
            assert!(refusal(&mut r, line).contains("read only replica"), "{line}");
        }
        if has_subcommands(&replica) {
            assert_eq!(known(&mut r), policies(&["free log:5/1h"]));
            assert!(ask::<Vec<String>>(&mut r, "RL.POLICY HELP").len() > 5);
        } else {
            assert!(refusal(&mut r, "RL.POLICY LIST").contains("read only replica"));
        }
        assert_eq!(known_by_replica(&replica), policies(&["free log:5/1h"]));
        assert_eq!(remaining(&mut r, "RL.PEEK k @free"), 5);
    });
}

#[test]
fn without_memory_policies_can_be_deleted_but_not_set() {
    server::on_all_with(
        |b| b.config("maxmemory-policy", "noeviction"),
        |server| {
            let mut c = server.connect();
            set(&mut c, &["free 5/h", "old 5/h"]);
            let () = ask(&mut c, "CONFIG SET maxmemory 1");
            if has_subcommands(server) {
                assert!(refusal(&mut c, "RL.POLICY SET free 9/h").contains("OOM"));
                assert!(refusal(&mut c, "RL.POLICY SET new 9/h").contains("OOM"));
            } else {
                // 6.2 cannot refuse SET alone: DEL must work, because it frees memory.
                set(&mut c, &["free 5/h"]);
            }
            assert_eq!(known(&mut c), policies(&["free log:5/1h", "old log:5/1h"]));
            assert_eq!(ask::<i64>(&mut c, "RL.POLICY DEL old FORCE"), 1);
            assert_eq!(remaining(&mut c, "RL.PEEK k @free"), 5);
            let () = ask(&mut c, "CONFIG SET maxmemory 0");
            set(&mut c, &["free 9/h"]);
        },
    );
}

/// A policy that changes, and checks that use it.
const TURNS: [&str; 7] = [
    "RL.POLICY SET p 5/h",
    "RL.CHECK k COST 2 @p",
    "RL.POLICY SET p 3/h",
    "RL.CHECK k @p",
    "RL.CHECK k @p",
    "RL.POLICY DEL p FORCE",
    "RL.POLICY LIST",
];

/// Checks the replies to [`TURNS`], sent to an empty server.
fn assert_turns(replies: &[Value]) {
    let first_three = |reply: &Value| {
        let [verdict, limit, rest, ..]: [i64; 5] = redis::from_redis_value(reply.clone()).unwrap();
        (verdict, limit, rest)
    };
    assert_eq!(first_three(&replies[1]), (0, 5, 3));
    assert_eq!(first_three(&replies[3]), (0, 3, 0));
    assert_eq!(first_three(&replies[4]), (1, 3, 0));
    assert_eq!(replies[5], Value::Int(1));
    assert_eq!(replies[6], Value::Array(Vec::new()));
}

#[test]
fn a_check_in_a_transaction_uses_the_policy_set_before_it() {
    server::on_all(|primary| {
        let replica = replica_of(primary);
        let mut c = primary.connect();
        let mut transaction = pipe();
        transaction.atomic();
        for line in TURNS {
            transaction.add_command(command(line));
        }
        assert_turns(&transaction.query::<Vec<Value>>(&mut c).unwrap());
        replicated(&mut c);
        assert_eq!(client::digest(&mut replica.connect()), client::digest(&mut c));
        assert_eq!(known_by_replica(&replica), policies(&[]));
    });
}

/// A script that runs each of its arguments as a command.
const RUN: &str = "local replies = {}
for _, line in ipairs(ARGV) do
    local words = {}
    for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
    replies[#replies + 1] = redis.call(unpack(words))
end
return replies";

#[test]
fn scripts_and_functions_can_set_policies() {
    server::on_all(|primary| {
        let replica = replica_of(primary);
        let mut c = primary.connect();
        let mut script = cmd("EVAL");
        script.arg(RUN).arg(1).arg("k").arg(&TURNS);
        assert_turns(&script.query::<Vec<Value>>(&mut c).unwrap());
        let left = "RL.POLICY SET left 5/h";
        let _: Value = cmd("EVAL").arg(RUN).arg(0).arg(left).query(&mut c).unwrap();
        if has_subcommands(primary) {
            // EVAL_RO and functions came with 7.0.
            let mut get = cmd("EVAL_RO");
            let shown: Vec<Vec<String>> =
                get.arg(RUN).arg(0).arg("RL.POLICY GET left").query(&mut c).unwrap();
            assert_eq!(shown, [["log:5/1h"]]);
            let set = cmd("EVAL_RO").arg(RUN).arg(0).arg(left).query::<Value>(&mut c);
            assert!(set.unwrap_err().to_string().contains("rite"), "a write");
            let library = format!(
                "#!lua name=run\nredis.register_function('run', function(KEYS, ARGV) {RUN} end)"
            );
            let () = command("FUNCTION LOAD").arg(library).query(&mut c).unwrap();
            let () = ask(&mut c, "RL.RESET k");
            let mut function = cmd("FCALL");
            function.arg("run").arg(1).arg("k").arg(&TURNS[..5]);
            let replies: Vec<Value> = function.query(&mut c).unwrap();
            let rest = [Value::Int(1), Value::Array(Vec::new())];
            assert_turns(&[&replies[..], &rest].concat());
        }
        replicated(&mut c);
        assert_eq!(client::digest(&mut replica.connect()), client::digest(&mut c));
        assert_eq!(known_by_replica(&replica), known(&mut c));
    });
}

#[test]
fn throttle_and_internal_commands_take_no_policy_names() {
    server::on_all(|server| {
        let mut c = server.connect();
        set(&mut c, &["free 5/h"]);
        // RL.THROTTLE takes numbers, and effects contain the texts of rules.
        assert!(refusal(&mut c, "RL.THROTTLE k @free 1 1").contains("@free"));
        let apply = command("RL.APPLY k v1:1:0:admit:1 @free");
        let reply = c.req_command(&apply);
        assert!(format!("{reply:?}").contains("internal"), "{reply:?}");
    });
}
