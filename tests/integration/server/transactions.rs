//! Transactions, scripts and functions, and how they are replicated.

use redis::{Connection, FromRedisValue, RedisResult, Value, from_redis_value};

use crate::support::client::{
    allowed, ask, calls, command, digest, digest_of, exists, raw_reply, refusal, remaining,
    replica_of, replicated,
};
use crate::support::server;

type Reply = [i64; 5];

/// The replies of a transaction of checks, errors among them.
fn transaction(c: &mut Connection, lines: &[&str]) -> Vec<RedisResult<Reply>> {
    let () = ask(c, "MULTI");
    for line in lines {
        assert_eq!(ask::<String>(c, line), "QUEUED", "{line}");
    }
    from_redis_value(raw_reply(c, "EXEC")).unwrap()
}

/// Runs a script on the key `k`.
fn eval<T: FromRedisValue>(c: &mut Connection, script: &str) -> RedisResult<T> {
    command("EVAL").arg(script).arg(1).arg("k").query(c)
}

#[test]
fn checks_in_a_transaction_reply_in_order() {
    server::on_all(|server| {
        let mut c = server.connect();
        let replies = transaction(
            &mut c,
            &["RL.CHECK k COST 2 3/h", "RL.CHECK k COST 2 3/h", "RL.PEEK k 3/h", "RL.CHECK k 3/h"],
        );
        let replies: Vec<_> = replies.into_iter().map(Result::unwrap).collect();
        let verdicts_and_left: Vec<_> = replies.iter().map(|reply| (reply[0], reply[2])).collect();
        assert_eq!(verdicts_and_left, [(0, 1), (1, 1), (0, 1), (0, 0)]);
    });
}

#[test]
fn a_wrong_rule_in_a_transaction_fails_alone() {
    server::on_all(|server| {
        let mut c = server.connect();
        let replies = transaction(&mut c, &["RL.CHECK k 5/h", "RL.CHECK k 5/x", "RL.CHECK k 5/h"]);
        let [first, wrong, last] = replies.try_into().expect("three replies");
        assert_eq!((first.unwrap()[2], last.unwrap()[2]), (4, 3));
        let error = wrong.unwrap_err().to_string();
        assert!(error.contains("rule '5/x'"), "{error}");
    });
}

#[test]
fn a_check_without_rules_in_a_transaction_fails_alone() {
    server::on_all(|server| {
        let mut c = server.connect();
        let replies = transaction(&mut c, &["RL.CHECK k 5/h", "RL.CHECK k", "RL.CHECK k 5/h"]);
        let [first, wrong, last] = replies.try_into().expect("three replies");
        assert_eq!((first.unwrap()[2], last.unwrap()[2]), (4, 3));
        let error = wrong.unwrap_err().to_string();
        assert!(error.contains("usage: RL.CHECK key"), "{error}");
    });
}

#[test]
fn a_discarded_transaction_consumes_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "MULTI");
        let () = ask(&mut c, "RL.CHECK k 5/h");
        let () = ask(&mut c, "DISCARD");
        assert!(!exists(&mut c, "k"));
    });
}

#[test]
fn a_script_gets_five_integers_or_a_map() {
    server::on_all(|server| {
        let mut c = server.connect();
        let script = "local r = redis.call('RL.CHECK', KEYS[1], '5/h') return {#r, r[1], r[3]}";
        assert_eq!(eval::<[i64; 3]>(&mut c, script).unwrap(), [5, 0, 4]);
        let flat = "local r = redis.call('RL.PEEK', KEYS[1], 'FULL', '5/h') return {r[1], r[2]}";
        assert_eq!(eval::<(String, i64)>(&mut c, flat).unwrap(), ("verdict".into(), 0));
        if server.flavor().is_7_or_later() {
            // Modules can reply maps from 7.0 on.
            let map = "redis.setresp(3) \
                local r = redis.call('RL.PEEK', KEYS[1], 'FULL', '5/h') \
                return r.map.rules[1].map.remaining";
            assert_eq!(eval::<i64>(&mut c, map).unwrap(), 4);
        }
    });
}

#[test]
fn a_script_can_catch_an_error_or_end_with_it() {
    server::on_all(|server| {
        let mut c = server.connect();
        let caught = "redis.call('RL.CHECK', KEYS[1], '5/h') \
            local e = redis.pcall('RL.CHECK', KEYS[1], '5/x') \
            redis.call('RL.CHECK', KEYS[1], '5/h') \
            return {type(e), e.err}";
        let (kind, error): (String, String) = eval(&mut c, caught).unwrap();
        assert!(kind == "table" && error.contains("rule '5/x'"), "{kind}: {error}");
        assert_eq!(remaining(&mut c, "RL.PEEK k 5/h"), 3);

        let uncaught = "redis.call('RL.CHECK', KEYS[1], '5/h') \
            redis.call('RL.CHECK', KEYS[1], '5/x') \
            redis.call('RL.CHECK', KEYS[1], '5/h')";
        let error = eval::<Value>(&mut c, uncaught).unwrap_err().to_string();
        assert!(error.contains("rule '5/x'"), "{error}");
        // As in every script, effects before the error stay.
        assert_eq!(remaining(&mut c, "RL.PEEK k 5/h"), 2);
    });
}

#[test]
fn a_script_can_be_called_by_its_digest() {
    server::on_all(|server| {
        let mut c = server.connect();
        let script = "return redis.call('RL.CHECK', KEYS[1], ARGV[1])";
        let sha: String = command("SCRIPT LOAD").arg(script).query(&mut c).unwrap();
        for left in [4, 3] {
            assert_eq!(remaining(&mut c, &format!("EVALSHA {sha} 1 k 5/h")), left);
        }
    });
}

#[test]
fn a_read_only_script_may_peek_but_not_check() {
    server::on_all(|server| {
        if !server.flavor().is_7_or_later() {
            return; // EVAL_RO and the flag no-writes came with 7.0.
        }
        let mut c = server.connect();
        assert!(allowed(&mut c, "RL.CHECK k 5/h"));
        let body = |name: &str| format!("return redis.call('{name}', KEYS[1], '5/h')");
        for (eval, shebang) in [("EVAL_RO", ""), ("EVAL", "#!lua flags=no-writes\n")] {
            let mut run = |name: &str| -> RedisResult<Reply> {
                command(eval)
                    .arg(format!("{shebang}{}", body(name)))
                    .arg(&[1])
                    .arg("k")
                    .query(&mut c)
            };
            assert_eq!(run("RL.PEEK").unwrap()[2], 4, "{eval}");
            let error = run("RL.CHECK").unwrap_err().to_string();
            assert!(error.contains("Write commands are not allowed"), "{eval}: {error}");
        }
        assert_eq!(remaining(&mut c, "RL.PEEK k 5/h"), 4);
    });
}

const LIBRARY: &str = "#!lua name=limits
redis.register_function('admit', function(keys, args)
    return redis.call('RL.CHECK', keys[1], args[1])
end)
redis.register_function{function_name='peek', flags={'no-writes'}, callback=function(keys, args)
    return redis.call('RL.PEEK', keys[1], args[1])
end}
redis.register_function{function_name='sneak', flags={'no-writes'}, callback=function(keys, args)
    return redis.call('RL.CHECK', keys[1], args[1])
end}";

#[test]
fn a_read_only_function_may_peek_but_not_check() {
    server::on_all(|server| {
        if !server.flavor().is_7_or_later() {
            return; // Functions came with 7.0.
        }
        let mut c = server.connect();
        let () = command("FUNCTION LOAD").arg(LIBRARY).query(&mut c).unwrap();
        assert_eq!(remaining(&mut c, "FCALL admit 1 k 5/h"), 4);
        for peek in ["FCALL peek 1 k 5/h", "FCALL_RO peek 1 k 5/h"] {
            assert_eq!(remaining(&mut c, peek), 4, "{peek}");
        }
        for check in ["FCALL_RO admit 1 k 5/h", "FCALL sneak 1 k 5/h", "FCALL_RO sneak 1 k 5/h"] {
            let error = refusal(&mut c, check).to_lowercase();
            assert!(error.contains("write"), "{check}: {error}");
        }
        assert_eq!(remaining(&mut c, "RL.PEEK k 5/h"), 4);
    });
}

/// Checks, denials, charges, peeks, an error and a refund: 8 of them change something.
const MIXED: &str = "for i = 1, 4 do
    redis.call('RL.CHECK', KEYS[1], '3/h', 'bucket:9/m', 'window:5/h,res=6,name=w')
    redis.call('RL.CHECK', KEYS[1], 'fixed:2/d,count=all,name=f')
    redis.call('RL.PEEK', KEYS[1], '3/h')
    redis.pcall('RL.CHECK', KEYS[1], '3/x')
end
return redis.call('RL.REFUND', KEYS[1], 1, '3/h')";

#[test]
fn a_replica_gets_effects_and_no_scripts() {
    server::on_all(|primary| {
        let replica = replica_of(primary);
        let (mut c, mut r) = (primary.connect(), replica.connect());
        let mut applied = 0;
        let sha: String = command("SCRIPT LOAD").arg(MIXED).query(&mut c).unwrap();
        let mut ways = vec![("EVAL", MIXED), ("EVALSHA", &sha)];
        if primary.flavor().is_7_or_later() {
            let library = format!(
                "#!lua name=mixed\nredis.register_function('mixed', function(KEYS) {MIXED} end)"
            );
            let () = command("FUNCTION LOAD").arg(library).query(&mut c).unwrap();
            ways.push(("FCALL", "mixed"));
        }
        for (way, what) in ways {
            let back: i64 = command(way).arg(what).arg(1).arg(way).query(&mut c).unwrap();
            assert_eq!(back, 1, "{way}");
            applied += 8;
        }
        let lines = ["RL.CHECK m 1/h", "RL.CHECK m 1/h", "RL.PEEK m 1/h", "RL.CHECK m 9/h"];
        assert!(transaction(&mut c, &lines).iter().all(Result::is_ok));
        applied += 2;

        replicated(&mut c);
        assert_eq!(digest(&mut r), digest(&mut c));
        assert_eq!(calls(&mut r, "rl.apply"), applied);
        for decision in ["rl.check", "rl.peek", "rl.refund", "eval", "evalsha", "fcall"] {
            assert_eq!(calls(&mut r, decision), 0, "{decision} on the replica");
        }
        if primary.flavor().is_7_or_later() {
            // PEXPIRETIME came with 7.0.
            let expires = |c: &mut Connection| ask::<i64>(c, "PEXPIRETIME EVAL");
            assert_eq!(expires(&mut r), expires(&mut c));
        }
    });
}

#[test]
fn a_key_that_expires_during_a_script_stays_until_its_end() {
    server::oldest_and_newest();
    server::on_all(|primary| {
        let replica = replica_of(primary);
        let (mut c, mut r) = (primary.connect(), replica.connect());
        assert!(allowed(&mut c, "RL.CHECK k COST 2 5/h"));
        // In a script the time for expiries stands still, but the time for limiters does not:
        // 60 ms pass here.
        let script = "redis.call('PEXPIRE', KEYS[1], 30)
            redis.call('RL.CHECK', 'timer', '1/60ms')
            repeat until redis.call('RL.PEEK', 'timer', '1/60ms')[1] == 0
            local peeked = redis.call('RL.PEEK', KEYS[1], '5/h')[3]
            local checked = redis.call('RL.CHECK', KEYS[1], '5/h')[3]
            return {redis.call('EXISTS', KEYS[1]), peeked, checked}";
        assert_eq!(eval::<[i64; 3]>(&mut c, script).unwrap(), [1, 3, 2]);
        // The check in the script has moved the expiry.
        assert!(ask::<i64>(&mut c, "PTTL k") > 3_500_000);
        assert_eq!(remaining(&mut c, "RL.PEEK k 5/h"), 2);
        replicated(&mut c);
        assert_eq!(digest_of(&mut r, "k"), digest_of(&mut c, "k"));
    });
}

#[test]
fn scripts_and_transactions_see_no_expired_key() {
    server::on_all(|primary| {
        let replica = replica_of(primary);
        let (mut c, mut r) = (primary.connect(), replica.connect());
        let () = ask(&mut c, "DEBUG SET-ACTIVE-EXPIRE 0");
        let both = "return {redis.call('RL.PEEK', KEYS[1], '5/h')[3],
            redis.call('RL.CHECK', KEYS[1], '5/h')[3]}";
        let expired = |c: &mut Connection| {
            assert!(allowed(c, "RL.CHECK k COST 2 5/h"));
            let () = ask(c, "PEXPIRE k 1");
            let () = ask(c, "DEBUG SLEEP 0.01");
        };
        expired(&mut c);
        assert_eq!(eval::<[i64; 2]>(&mut c, both).unwrap(), [5, 4]);
        let () = ask(&mut c, "DEL k");
        expired(&mut c);
        let replies = transaction(&mut c, &["RL.PEEK k 5/h", "RL.CHECK k 5/h"]);
        let left: Vec<_> = replies.into_iter().map(|reply| reply.unwrap()[2]).collect();
        assert_eq!(left, [5, 4]);
        replicated(&mut c);
        assert_eq!(digest(&mut r), digest(&mut c));
    });
}
