//! Wrong arguments of all commands: each gives its error and changes nothing.

use redis::{Connection, RedisResult, Value, cmd};

use crate::support::server::{self, Builder};

/// A command, its arguments after the key, and what the error must say.
const WRONG: &[(&str, &[&str], &[&str])] = &[
    // Arity.
    ("RL.CHECK", &[], &["wrong number of arguments"]),
    ("RL.CHECK", &["COST", "1"], &["wrong number of arguments"]),
    ("RL.PEEK", &[], &["wrong number of arguments"]),
    ("RL.REFUND", &[], &["wrong number of arguments"]),
    ("RL.SETTLE", &[], &["wrong number of arguments"]),
    ("RL.RENEW", &[], &["wrong number of arguments"]),
    ("RL.RESET", &["5/m"], &["wrong number of arguments"]),
    ("RL.WAIT", &[], &["wrong number of arguments"]),
    ("RL.WAIT", &["5"], &["wrong number of arguments"]),
    ("RL.CHECK", &["META", "who"], &["wrong number of arguments"]),
    ("RL.UNBLOCK", &["now"], &["wrong number of arguments"]),
    ("RL.UNEXEMPT", &["EX", "5"], &["wrong number of arguments"]),
    ("RL.PLAN", &[], &["wrong number of arguments"]),
    ("RL.UNPLAN", &["now"], &["wrong number of arguments"]),
    ("RL.INFO", &["FULL"], &["wrong number of arguments"]),
    // Options.
    ("RL.CHECK", &["COST", "x", "5/m"], &["COST", "x"]),
    ("RL.CHECK", &["COST", "-1", "5/m"], &["COST", "-1", "1000000000"]),
    ("RL.CHECK", &["COST", "1000000001", "5/m"], &["COST", "1000000001", "1000000000"]),
    ("RL.CHECK", &["COST", "1", "COST", "1", "5/m"], &["COST"]),
    ("RL.CHECK", &["COST"], &["COST", "no value"]),
    ("RL.CHECK", &["AT", "5", "5/m"], &["allow-at"]),
    ("RL.CHECK", &["FLUL", "5/m"], &["FLUL"]),
    ("RL.CHECK", &["5/m", "COST", "1"], &["COST"]),
    ("RL.CHECK", &["META"], &["META has no text"]),
    ("RL.CHECK", &["META", "a", "META", "a", "5/m"], &["META is given twice"]),
    ("RL.CHECK", &["META", "a", "b", "5/m"], &["unexpected 'b'", "META", "a rule"]),
    ("RL.CHECK", &["5/m", "META", "a"], &["unexpected 'META'", "before the rules"]),
    ("RL.PEEK", &["META", "a", "5/m"], &["unexpected 'META'", "COST, AT, FULL"]),
    ("RL.PEEK", &["HOLD", "r", "EX", "5", "5/m"], &["HOLD is refused", "RL.CHECK or RL.MCHECK"]),
    ("RL.CHECK", &["HOLD"], &["HOLD has no id", "1..64"]),
    ("RL.CHECK", &["HOLD", "", "EX", "5", "5/m"], &["the hold is 0 bytes", "1..64"]),
    ("RL.CHECK", &["HOLD", ID_OF_65_BYTES, "EX", "5", "5/m"], &["the hold is 65 bytes", "1..64"]),
    ("RL.CHECK", &["HOLD", "r", "5/m"], &["unexpected '5/m'", "EX seconds or PX milliseconds"]),
    ("RL.CHECK", &["HOLD", "r", "EX", "0", "5/m"], &["EX is '0'", "1..31622400"]),
    ("RL.CHECK", &["HOLD", "r", "PX", "31622400001", "5/m"], &["PX is", "1..31622400000"]),
    (
        "RL.CHECK",
        &["HOLD", "r", "EX", "5", "HOLD", "r", "EX", "5", "5/m"],
        &["HOLD is given twice"],
    ),
    ("RL.WAIT", &["5/m", "9"], &["ms is '5/m'", "0..3600000"]),
    ("RL.WAIT", &["3600001", "5/m"], &["ms is '3600001'", "0..3600000"]),
    ("RL.WAIT", &["5", "AT", "5", "5/m"], &["AT is refused", "RL.WAIT decides"]),
    ("RL.WAIT", &["5", "5/x"], &["5/x"]),
    ("RL.CHECK", &["gcra:5/s"], &["unknown algorithm 'gcra'", "did you mean bucket:"]),
    ("RL.CHECK", &["5 per minute"], &["rule '5 per minute'", "did you mean 5/m?"]),
    ("RL.WAIT", &["5", "slots:5"], &["slots are held", "HOLD id"]),
    ("RL.SETTLE", &[""], &["the hold is 0 bytes", "1..64"]),
    ("RL.SETTLE", &["r", "REFUND", "COST", "5"], &["REFUND and COST"]),
    ("RL.SETTLE", &["r", "COST", "x"], &["COST is 'x'"]),
    ("RL.SETTLE", &["r", "COST", "in=1", "COST", "in=1"], &["COST in", "given twice"]),
    ("RL.SETTLE", &["r", "EX", "5"], &["unexpected 'EX'", "REFUND, COST or AT"]),
    ("RL.SETTLE", &["r", "AT", "5"], &["allow-at"]),
    ("RL.RENEW", &["r"], &["wrong number of arguments"]),
    ("RL.RENEW", &["r", "REFUND", "5"], &["unexpected 'REFUND'", "EX seconds or PX milliseconds"]),
    ("RL.RENEW", &["r", "EX", "31622401"], &["EX is '31622401'", "1..31622400"]),
    ("RL.RENEW", &["r", "EX", "5", "AT", "5"], &["allow-at"]),
    ("RL.PAUSE", &[], &["wrong number of arguments"]),
    ("RL.PAUSE", &["REASON", "x"], &["the pause has no end", "EX, PX, EXAT, PXAT or FOR"]),
    ("RL.PAUSE", &["EX", "31622401"], &["lasts 31622401000 ms", "366d"]),
    ("RL.PAUSE", &["EXAT", "1"], &["1000 ms", "after"]),
    ("RL.RESUME", &["now"], &["wrong number of arguments"]),
    ("RL.SYNC", &["5/m"], &["wrong number of arguments"]),
    ("RL.SYNC", &["AT", "5", "5/m"], &["allow-at"]),
    ("RL.SYNC", &["5/m", "REMAINING", "1"], &["unexpected '5/m'", "REMAINING"]),
    ("RL.SYNC", &["REMAINING", "1"], &["wrong number of arguments"]),
    ("RL.SYNC", &["REMAINING", "6", "5/m"], &["REMAINING is '6'", "0..5"]),
    ("RL.SYNC", &["REMAINING", "1", "5/m", "5/h"], &["2 rules", "expected one"]),
    ("RL.SYNC", &["REMAINING", "1", "slots:5"], &["slots count no requests"]),
    ("RL.SYNC", &["REMAINING", "1", "AT", "5", "5/m"], &["allow-at"]),
    ("RL.REFUND", &["1", "META", "a"], &["unexpected 'META'"]),
    ("RL.BLOCK", &["PX"], &["PX has no value"]),
    ("RL.PLAN", &["@pro"], &["the policy's name is '@pro'", "1 to 32 of"]),
    ("RL.PLAN", &["pro", "REASON", "x"], &["unexpected 'REASON'", "PXAT or FOR"]),
    ("RL.PLAN", &["pro", "PXAT", "5"], &["the end is 5 ms", "after"]),
    ("RL.CHECK", &["@plan:none"], &["rule '@plan:none'", "unknown policy"]),
    ("RL.CHECK", &["@plan:"], &["rule '@plan:'", "unknown policy"]),
    ("RL.BLOCK", &["PX", "1.5"], &["PX is '1.5'"]),
    ("RL.BLOCK", &["EXAT", "1", "REASON", "old"], &["1000 ms", "after"]),
    ("RL.BLOCK", &["PXAT", "5", "EXAT", "5"], &["the end", "given twice"]),
    ("RL.BLOCK", &["REASON", "a", "EX", "5", "REASON", "b"], &["REASON is given twice"]),
    ("RL.BLOCK", &["AT", "5"], &["unexpected 'AT'", "EX, PX, EXAT, PXAT, FOR or REASON"]),
    ("RL.BLOCK", &["FOR"], &["FOR has no period", "1h"]),
    ("RL.BLOCK", &["FOR", "1"], &["FOR '1' has no known unit", "h (hour)"]),
    ("RL.BLOCK", &["FOR", "367d"], &["FOR is '367d'", "1ms..366d"]),
    ("RL.EXEMPT", &["FOR", "month"], &["FOR is 'month'", "1ms..366d"]),
    ("RL.BLOCK", &["FOR", "1h", "EX", "5"], &["the end", "given twice"]),
    ("RL.BLOCK", &["EX", "99999999999999999999"], &["EX is", "253402300799"]),
    ("RL.EXEMPT", &["EX", "-1"], &["EX is '-1'", "1..253402300799"]),
    ("RL.EXEMPT", &["PXAT", "1"], &["1 ms", "after"]),
    ("RL.LOG", &["5"], &["unexpected '5'", "COUNT"]),
    ("RL.LOG", &["COUNT"], &["COUNT has no value"]),
    ("RL.LOG", &["COUNT", "0"], &["COUNT is '0'", "1..1000000000"]),
    ("RL.LOG", &["COUNT", "-1"], &["COUNT is '-1'"]),
    ("RL.LOG", &["COUNT", "1", "COUNT", "1"], &["COUNT is given twice"]),
    ("RL.CHECK", &["@nobody"], &["@nobody", "policy"]),
    ("RL.REFUND", &["x"], &["x"]),
    ("RL.REFUND", &["-1"], &["-1"]),
    // Rules.
    ("RL.CHECK", &[""], &["rule"]),
    ("RL.CHECK", &["5/"], &["rule '5/'"]),
    ("RL.CHECK", &["/m"], &["rule '/m'"]),
    ("RL.CHECK", &["5/0s"], &["rule '5/0s'", "1ms..366d"]),
    ("RL.CHECK", &["5/367d"], &["rule '5/367d'", "366d"]),
    ("RL.CHECK", &["5/x"], &["rule '5/x'", "ms, s (sec, second), m (min, minute)"]),
    ("RL.CHECK", &["bucket:10"], &["rule 'bucket:10'", "period is missing", "limit/period"]),
    ("RL.CHECK", &["5/m,ban=5"], &["ban '5' has no known unit", "d (day) or w (week)"]),
    ("RL.CHECK", &["5/10"], &["rule '5/10'"]),
    ("RL.CHECK", &["-5/m"], &["rule '-5/m'"]),
    ("RL.CHECK", &["1.5/m"], &["rule '1.5/m'"]),
    ("RL.CHECK", &["1000000001/m"], &["rule '1000000001/m'", "1000000000"]),
    ("RL.CHECK", &["99999999999999999999999/m"], &["rule '99999999999999999999999/m'"]),
    ("RL.CHECK", &["bukcet:5/m"], &["rule 'bukcet:5/m'", "bucket"]),
    ("RL.CHECK", &["5/m,"], &["rule '5/m,'"]),
    ("RL.CHECK", &["5/m,res=2"], &["rule '5/m,res=2'", "res", "window"]),
    ("RL.CHECK", &["window:5/m,res=0"], &["res", "1..60"]),
    ("RL.CHECK", &["window:5/m,res=61"], &["res", "1..60"]),
    ("RL.CHECK", &["window:5/m,res=2,res=3"], &["res"]),
    ("RL.CHECK", &["fixed:5/m,align=last"], &["align", "epoch", "first"]),
    ("RL.CHECK", &["fixed:5/m,tz=+15:00"], &["tz", "14:00"]),
    ("RL.CHECK", &["fixed:5/m,tz=1"], &["tz"]),
    ("RL.CHECK", &["fixed:5/m,keep=367"], &["keep", "366"]),
    ("RL.CHECK", &["fixed:5/2month"], &["month"]),
    ("RL.CHECK", &["fixed:5/month,align=first"], &["month", "align"]),
    ("RL.CHECK", &["5/month"], &["month", "fixed"]),
    ("RL.CHECK", &["bucket:5/m,burst=0"], &["burst", "1..1000000000"]),
    ("RL.CHECK", &["bucket:5/m,refill=slow"], &["refill", "interval"]),
    ("RL.CHECK", &["leaky:5/m,queue=-1"], &["queue"]),
    ("RL.CHECK", &["5/m,name="], &["name"]),
    ("RL.CHECK", &["5/m,name=a b"], &["name"]),
    ("RL.CHECK", &["5/m,name=123456789012345678901234567890123"], &["name", "32"]),
    ("RL.CHECK", &["5/m,count=some"], &["count", "all"]),
    ("RL.CHECK", &["5/m,ban=0s"], &["ban"]),
    ("RL.CHECK", &["5/m,shadow=1"], &["shadow"]),
    ("RL.CHECK", &["5/m,colour=red"], &["colour"]),
    ("RL.CHECK", &["5/m\r\n+OK"], &["rule"]),
    ("RL.CHECK", &["100001/m"], &["100001", "window", "bucket"]),
    (
        "RL.CHECK",
        &["5/m", "9/m"],
        &["rule '9/m'", "log:5/1m", "both count in the same state; give one of them name="],
    ),
    ("RL.CHECK", &["5/m,name=a", "bucket:9/h,name=a"], &["name=a"]),
    ("RL.PEEK", &["5/y"], &["rule '5/y'"]),
    ("RL.REFUND", &["1", "5/y"], &["rule '5/y'"]),
    // Internal commands: only a primary's link and the loader of an AOF may use them.
    ("RL.APPLY", &["v1:1:0:admit:1", "5/m"], &["internal"]),
    ("RL.APPLY", &["1:0:deny:1:5", "who", "5/m"], &["internal"]),
    ("RL.APPLY", &["1:-1:block:-1", "abuse"], &["internal"]),
    ("RL.LOAD", &["payload"], &["internal"]),
];

/// An id that is one byte too long.
const ID_OF_65_BYTES: &str = "12345678901234567890123456789012345678901234567890123456789012345";

/// Calls of commands without a key, and what the error must say.
const WRONG_WITHOUT_KEY: &[(&str, &[&str])] = &[
    ("RL.EXPLAIN 5/y", &["rule '5/y'"]),
    ("RL.BLOCKS -1", &["cursor is '-1'"]),
    ("RL.BLOCKS 18446744073709551616", &["cursor is '18446744073709551616'"]),
    ("RL.BLOCKS COUNT 5", &["cursor is 'COUNT'"]),
    ("RL.BLOCKS 0 MATCH", &["MATCH has no text"]),
    ("RL.BLOCKS 0 MATCH a MATCH b", &["MATCH is given twice"]),
    ("RL.BLOCKS 0 COUNT", &["COUNT has no value"]),
    ("RL.BLOCKS 0 COUNT x", &["COUNT is 'x'"]),
    ("RL.BLOCKS 0 0", &["unexpected '0'", "MATCH or COUNT"]),
    ("RL.TOP 5", &["unexpected '5'", "COUNT or RESET"]),
    ("RL.TOP COUNT", &["COUNT has no value"]),
    ("RL.TOP COUNT 0", &["COUNT is '0'"]),
    ("RL.TOP COUNT 1 COUNT 1", &["COUNT is given twice"]),
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
