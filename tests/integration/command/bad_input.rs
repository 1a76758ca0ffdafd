//! Wrong arguments of all commands: each gives its error and changes nothing. The tests of the parsers have
//! all errors.

use redis::{Connection, RedisResult, Value, cmd};

use crate::support::server::{self, Builder};

/// A command, its arguments after the key, and what the error must say.
const WRONG: &[(&str, &[&str], &[&str])] = &[
    ("RL.CHECK", &[], &["wrong number of arguments"]),
    ("RL.CHECK", &["COST", "1"], &["wrong number of arguments"]),
    ("RL.CHECK", &["COST", "1000000001", "5/m"], &["COST", "1000000001", "1000000000"]),
    ("RL.CHECK", &["AT", "5", "5/m"], &["allow-at"]),
    ("RL.CHECK", &["META", "a", "b", "5/m"], &["unexpected 'b'", "META", "a rule"]),
    ("RL.CHECK", &["5/m", "META", "a"], &["unexpected 'META'", "before the rules"]),
    ("RL.CHECK", &["HOLD", "r", "EX", "0", "5/m"], &["EX is '0'", "1..31622400"]),
    ("RL.CHECK", &["@nobody"], &["@nobody", "policy"]),
    ("RL.CHECK", &["@plan:none"], &["rule '@plan:none'", "unknown policy"]),
    ("RL.CHECK", &["5/m\r\n+OK"], &["rule"]),
    ("RL.CHECK", &["5/m", "5/x"], &["rule '5/x'", "ms, s (sec, second), m (min, minute)"]),
    ("RL.CHECK", &["100001/m"], &["100001", "window", "bucket"]),
    ("RL.CHECK", &["5/m", "9/m"], &["rule '9/m'", "log:5/1m", "both count in the same state"]),
    ("RL.CHECK", &["5/m,name=a", "bucket:9/h,name=a"], &["name=a"]),
    ("RL.CHECK", &["slots:5"], &["slots are held", "HOLD id"]),
    ("RL.PEEK", &["META", "a", "5/m"], &["unexpected 'META'", "COST, AT, FULL"]),
    ("RL.PEEK", &["5/y"], &["rule '5/y'"]),
    ("RL.WAIT", &["5"], &["wrong number of arguments"]),
    ("RL.WAIT", &["3600001", "5/m"], &["ms is '3600001'", "0..3600000"]),
    ("RL.WAIT", &["5", "5/x"], &["5/x"]),
    ("RL.REFUND", &["1", "META", "a"], &["unexpected 'META'"]),
    ("RL.REFUND", &["1", "5/y"], &["rule '5/y'"]),
    ("RL.RESET", &["5/m"], &["wrong number of arguments"]),
    ("RL.SETTLE", &["r", "EX", "5"], &["unexpected 'EX'", "REFUND, COST or AT"]),
    ("RL.SETTLE", &["r", "AT", "5"], &["allow-at"]),
    ("RL.RENEW", &["r", "EX", "31622401"], &["EX is '31622401'", "1..31622400"]),
    ("RL.RENEW", &["r", "EX", "5", "AT", "5"], &["allow-at"]),
    ("RL.PAUSE", &["EX", "31622401"], &["lasts 31622401000 ms", "366d"]),
    ("RL.PAUSE", &["EXAT", "1"], &["1000 ms", "after"]),
    ("RL.RESUME", &["now"], &["wrong number of arguments"]),
    ("RL.SYNC", &["REMAINING", "1", "5/m", "5/h"], &["2 rules", "expected one"]),
    ("RL.SYNC", &["REMAINING", "1", "AT", "5", "5/m"], &["allow-at"]),
    ("RL.PLAN", &["@pro"], &["the policy's name is '@pro'", "1 to 32 of"]),
    ("RL.PLAN", &["pro", "PXAT", "5"], &["the end is 5 ms", "after"]),
    ("RL.UNPLAN", &["now"], &["wrong number of arguments"]),
    ("RL.BLOCK", &["EXAT", "1", "REASON", "old"], &["1000 ms", "after"]),
    ("RL.BLOCK", &["REASON", "a", "EX", "5", "REASON", "b"], &["REASON is given twice"]),
    ("RL.UNBLOCK", &["now"], &["wrong number of arguments"]),
    ("RL.EXEMPT", &["PXAT", "1"], &["1 ms", "after"]),
    ("RL.UNEXEMPT", &["EX", "5"], &["wrong number of arguments"]),
    ("RL.INFO", &["FULL"], &["wrong number of arguments"]),
    ("RL.LOG", &["COUNT", "0"], &["COUNT is '0'", "1..1000000000"]),
    // Internal commands: only a primary's link and the loader of an AOF may use them.
    ("RL.APPLY", &["v1:1:0:admit:1", "5/m"], &["internal"]),
    ("RL.APPLY", &["1:-1:block:-1", "abuse"], &["internal"]),
    ("RL.LOAD", &["payload"], &["internal"]),
];

/// Calls of commands without a key, and what the error must say.
const WRONG_WITHOUT_KEY: &[(&str, &[&str])] = &[
    ("RL.EXPLAIN 5/y", &["rule '5/y'"]),
    ("RL.BLOCKS -1", &["cursor is '-1'"]),
    ("RL.BLOCKS 0 0", &["unexpected '0'", "MATCH or COUNT"]),
    ("RL.TOP 5", &["unexpected '5'", "COUNT or RESET"]),
    ("RL.TOP RESET RESET", &["RESET is given twice"]),
    ("RL.TOP RESET COUNT 0", &["COUNT is '0'"]),
];

/// The key's value, and when it expires.
fn dump(c: &mut Connection) -> (Vec<u8>, i64) {
    let dump = cmd("DUMP").arg("k").query(c).unwrap();
    // Redis 6.2 has no PEXPIRETIME, and the reply of PTTL would change by itself.
    let expires = cmd("PEXPIRETIME").arg("k").query(c).unwrap_or(0);
    (dump, expires)
}

fn error_of(c: &mut Connection, command: &redis::Cmd, what: &str) -> String {
    let reply: RedisResult<Value> = command.query(c);
    match reply {
        Err(error) => error.to_string(),
        Ok(value) => panic!("{what} was answered with {value:?}"),
    }
}

fn assert_says(error: &str, says: &[&str], what: &str) {
    for part in says {
        assert!(error.contains(part), "{what}: «{error}» does not say «{part}»");
    }
    assert!(!error.contains(['\r', '\n']), "{what}: «{error}»");
}

#[test]
fn wrong_arguments_give_an_error_and_change_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let rules = ["5/m", "bucket:9/h", "fixed:9/d,keep=2"];
        // First a key with a history and without a block, then one with a block and without a
        // history.
        for (meta, then) in [(&["META", "who"][..], "RL.UNBLOCK"), (&[], "RL.BLOCK")] {
            let () = cmd("DEL").arg("k").query(&mut c).unwrap();
            let _: Value = cmd("RL.CHECK").arg("k").arg(meta).arg(&rules).query(&mut c).unwrap();
            let _: Value = cmd(then).arg("k").query(&mut c).unwrap();
            let before = dump(&mut c);
            for (name, args, says) in WRONG {
                let what = format!("{name} k {}", args.join(" "));
                let error = error_of(&mut c, cmd(name).arg("k").arg(args), &what);
                assert_says(&error, says, &what);
                assert_eq!(dump(&mut c), before, "{what} changed the key");
            }
        }
    });
}

#[test]
fn wrong_arguments_of_keyless_commands_change_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let top =
            |c: &mut Connection| -> Vec<(String, i64, i64)> { cmd("RL.TOP").query(c).unwrap() };
        let _: Value = cmd("RL.CHECK").arg("k").arg("0/m").query(&mut c).unwrap();
        let before = top(&mut c);
        assert_eq!((before[0].0.as_str(), before[0].1), ("k", 1));
        for (line, says) in WRONG_WITHOUT_KEY {
            let mut words = line.split(' ');
            let mut command = cmd(words.next().expect("a command"));
            let error = error_of(&mut c, command.arg(words.collect::<Vec<_>>()), line);
            assert_says(&error, says, line);
        }
        assert_eq!(top(&mut c), before);
    });
}

#[test]
fn a_key_of_another_type_is_refused_and_stays() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = cmd("SET").arg("k").arg("x").query(&mut c).unwrap();
        let before = dump(&mut c);
        for (name, args) in [
            ("RL.CHECK", &["META", "who", "0/m"][..]),
            ("RL.PEEK", &["5/m"]),
            ("RL.REFUND", &["1"]),
            ("RL.RESET", &[]),
            ("RL.BLOCK", &["EX", "5"]),
            ("RL.UNBLOCK", &[]),
            ("RL.EXEMPT", &[]),
            ("RL.UNEXEMPT", &[]),
            ("RL.LOG", &[]),
            ("RL.INFO", &[]),
        ] {
            let reply: RedisResult<Value> = cmd(name).arg("k").arg(args).query(&mut c);
            assert_eq!(reply.expect_err(name).code(), Some("WRONGTYPE"), "{name}");
            assert_eq!(dump(&mut c), before, "{name}");
        }
        let scanned: (String, Vec<Value>) = cmd("RL.BLOCKS").arg("0").query(&mut c).unwrap();
        assert_eq!(scanned, ("0".to_string(), vec![]));
        // An error does not count as a denial.
        let top: Vec<Value> = cmd("RL.TOP").query(&mut c).unwrap();
        assert_eq!(top, []);
    });
}

#[test]
fn arbitrary_bytes_are_refused_as_rules_and_accepted_as_keys() {
    server::on_all(|server| {
        let mut c = server.connect();
        let bytes: Vec<Vec<u8>> = vec![
            vec![0],
            vec![0xff, 0xfe, b'/', b'm'],
            b"5/m\0".to_vec(),
            vec![b'5'; 100_000],
            [b"5/m,name=".as_slice(), &[0x80]].concat(),
        ];
        for rule in bytes {
            error_of(&mut c, cmd("RL.CHECK").arg("k").arg(&rule), "a rule of any bytes");
        }
        // A key may be any bytes.
        let key: &[u8] = &[0, 0xff, b'\r', b'\n'];
        let reply: [i64; 5] = cmd("RL.CHECK").arg(key).arg("5/m").query(&mut c).unwrap();
        assert_eq!(reply[0], 0);
    });
}

#[test]
fn too_many_rules_are_refused() {
    server::on_all(|server| {
        let mut c = server.connect();
        let rules: Vec<String> = (1..=33).map(|n| format!("5/{n}s")).collect();
        let error = error_of(&mut c, cmd("RL.CHECK").arg("k").arg(&rules), "33 rules");
        assert!(error.contains("max-rules") && error.contains("32"), "{error}");
        let reply: [i64; 5] = cmd("RL.CHECK").arg("k").arg(&rules[..32]).query(&mut c).unwrap();
        assert_eq!(reply[0], 0);
    });
}

#[test]
fn times_out_of_range_are_refused() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        for at in ["-1", "x", "253402300800000000", "99999999999999999999"] {
            let command = format!("AT {at}");
            let error =
                error_of(&mut c, cmd("RL.CHECK").arg("k").arg("AT").arg(at).arg("5/m"), &command);
            assert!(error.contains("AT") && error.contains(at), "{error}");
        }
        // Both ends of the range are accepted.
        for at in ["0", "253402300799999999"] {
            let mut check = cmd("RL.CHECK");
            check.arg(format!("k{at}")).arg("AT").arg(at).arg(&["1/m", "fixed:1/month"]);
            let first: [i64; 5] = check.query(&mut c).unwrap();
            let second: [i64; 5] = check.query(&mut c).unwrap();
            assert_eq!((first[0], second[0]), (0, 1), "AT {at}");
        }
    });
}

#[test]
fn wrong_arguments_of_loadmodule_keep_the_server_from_starting() {
    for args in [&["allow-at", "perhaps"][..], &["no-such-setting", "1"], &["max-rules"]] {
        let log = server::one().builder().module_args(args).refusal();
        assert!(log.contains(args[0]), "{args:?}: {log}");
    }
}
