//! The counters in `INFO ratelimit`.

use ratelimit_engine::rule::Kind;
use redis::{Connection, Value, cmd};

use crate::support::client::{ask, info, info_text, raw_reply, refusal, verdict};
use crate::support::server::{self, Builder, eventually};

#[test]
fn each_outcome_is_counted() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        // No window ends with the hour or the day, because these may end while the test runs.
        verdict(
            &mut c,
            "RL.CHECK a COST 2 2/h window:9/366d fixed:9/h,align=first bucket:9/h leaky:9/h",
        );
        verdict(&mut c, "RL.CHECK a 2/h");
        verdict(&mut c, "RL.CHECK b COST 9 2/h,ban=1h");
        verdict(&mut c, "RL.CHECK b 2/h");
        // The shadow rule is over its limit at the second check.
        for _ in 0..2 {
            assert_eq!(verdict(&mut c, "RL.CHECK d bucket:9/h fixed:1/h,align=first,shadow"), 0);
        }
        let _: String = ask(&mut c, "RL.EXEMPT c");
        verdict(&mut c, "RL.CHECK c 2/h");
        let _: Value = ask(&mut c, "RL.PEEK a 2/h");
        let _: i64 = ask(&mut c, "RL.REFUND a 2");
        // One hold is taken, repeated, renewed twice and settled; a reply of 0 is not counted.
        for (line, reply) in
            [("RL.RENEW a r EX 9", 0), ("RL.RENEW d r EX 9", 0), ("RL.SETTLE d r", 0)]
        {
            assert_eq!(ask::<i64>(&mut c, line), reply, "{line}");
        }
        for line in ["RL.CHECK d HOLD r EX 9 bucket:9/h", "RL.CHECK d HOLD r EX 9 bucket:9/h"] {
            assert_eq!(verdict(&mut c, line), 0);
        }
        for (line, reply) in [
            ("RL.RENEW d r EX 9", 1),
            ("RL.RENEW d r PX 9000", 1),
            ("RL.SETTLE d r", 1),
            ("RL.SETTLE d r", 0),
        ] {
            assert_eq!(ask::<i64>(&mut c, line), reply, "{line}");
        }
        for kind in Kind::ALL {
            let value = match kind {
                Kind::Log | Kind::Fixed => 3.0,
                Kind::Bucket => 5.0,
                Kind::Window | Kind::Leaky => 1.0,
                Kind::Slots => 0.0,
            };
            let name = format!("ratelimit_{}_rules", kind.name());
            assert_eq!(info(&mut c, "ratelimit", &name), value, "{name}");
        }
        for (name, value) in [
            ("checks", 9.0),
            ("allowed", 6.0),
            ("limited", 2.0),
            ("blocked", 1.0),
            ("exempt", 1.0),
            ("bans", 1.0),
            ("shadow_limited", 1.0),
            ("peeks", 1.0),
            ("refunds", 1.0),
            ("refunded_units", 2.0),
            ("holds_taken", 1.0),
            ("holds_settled", 1.0),
            ("holds_renewed", 2.0),
            ("holds_repeated", 1.0),
            ("waiting_clients", 0.0),
            ("waits_admitted", 0.0),
            ("waits_expired", 0.0),
            ("waits_refused", 0.0),
            ("values", 3.0),
        ] {
            let found = info(&mut c, "ratelimit", &format!("ratelimit_{name}"));
            assert_eq!(found, value, "{name}");
        }
        let _: String = ask(&mut c, "FLUSHALL");
        eventually("all values to be freed", || {
            info(&mut c, "ratelimit", "ratelimit_values") == 0.0
        });
        let all: String = ask(&mut c, "INFO everything");
        assert!(all.contains("\r\nratelimit_checks:9\r\n"));
    });
}

/// `redis_exporter --script` runs this script.
#[test]
fn the_prometheus_script_returns_every_counter() {
    const SCRIPT: &str = include_str!("../../../monitoring/prometheus.lua");
    server::on_all(|server| {
        let mut c = server.connect();
        verdict(&mut c, "RL.CHECK k 0/h");
        let flat: Vec<String> = cmd("EVAL").arg(SCRIPT).arg(0).query(&mut c).unwrap();
        let section: String = ask(&mut c, "INFO ratelimit");
        let fields: Vec<String> = section
            .lines()
            .filter_map(|line| line.split_once(':'))
            .filter(|(_, value)| value.parse::<u64>().is_ok())
            .flat_map(|(name, value)| [name.to_string(), value.to_string()])
            .collect();
        assert!(fields.len() > 20);
        assert_eq!(flat, fields);
    });
}

#[test]
fn errors_of_checks_are_counted_by_kind() {
    server::on_all(|server| {
        let mut c = server.connect();
        for line in [
            "RL.CHECK k @nobody",
            "RL.PEEK k @nobody",
            "RL.WAIT k 5 @plan:nobody",
            "RL.MCHECK 2 k l 5/m NEXT @nobody",
            "RL.CHECK k 5/x",
            "RL.THROTTLE k x 1 1",
        ] {
            let _: String = refusal(&mut c, line);
        }
        // Neither a wrong name elsewhere nor a command in line is a failed check.
        let _ = raw_reply(&mut c, "RL.EXPLAIN @nobody");
        let count = |kind: &str| info(&mut server.connect(), "ratelimit", kind) as u64;
        assert_eq!(count("ratelimit_errors_unknown_policy"), 4);
        assert_eq!(count("ratelimit_errors_other"), 2);
    });
}

#[test]
fn the_bytes_of_all_keys_are_known() {
    server::on_all(|server| {
        let mut c = server.connect();
        let bytes = |c: &mut Connection| info(c, "ratelimit", "ratelimit_bytes");
        let before = bytes(&mut c);
        let mut sum = 0.0;
        for n in 0..2_000 {
            let rules =
                ["20/h", "bucket:9/h", "9/h fixed:9/d window:9/h,res=7", "bucket:9/h,name=x 5/d"]
                    [n % 4];
            for _ in 0..=(n % 9) {
                let _: Vec<i64> = ask(&mut c, &format!("RL.CHECK k{n} {rules}"));
            }
            let report: Vec<(String, Value)> = ask(&mut c, &format!("RL.INFO k{n}"));
            let own = report.iter().find(|(name, _)| name == "bytes").expect("a number");
            let Value::Int(own) = own.1 else { panic!("{own:?}") };
            sum += own as f64;
        }
        let grown = bytes(&mut c) - before;
        assert!((grown / sum - 1.0).abs() < 0.1, "{grown} of {sum}");
        let () = ask(&mut c, "FLUSHALL SYNC");
        let left = bytes(&mut c) - before;
        assert!(left.abs() < 50_000.0, "{left} bytes are left");
    });
}

#[test]
fn info_shows_the_version_and_a_digest_of_the_policies() {
    server::on_all(|server| {
        let mut c = server.connect();
        let version = info_text(&mut c, "ratelimit", "ratelimit_version");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        let commit = info_text(&mut c, "ratelimit", "ratelimit_commit");
        let logged = format!("ratelimit: version {version}, commit {commit}");
        assert!(server.log().contains(&logged), "{}", server.log());
        let other = server.flavor().start();
        let mut o = other.connect();
        let digest = |c: &mut Connection| info_text(c, "ratelimit", "ratelimit_policies_digest");
        for (one, another) in [("a 5/m", "b 7/h 9/d"), ("b 7/h 9/d", "a 5/m")] {
            let () = ask(&mut c, &format!("RL.POLICY SET {one}"));
            let () = ask(&mut o, &format!("RL.POLICY SET {another}"));
        }
        let agreed = digest(&mut c);
        assert_eq!(digest(&mut o), agreed, "the order does not matter");
        let () = ask(&mut o, "RL.POLICY SET a 6/m");
        assert_ne!(digest(&mut o), agreed);
        let () = ask(&mut o, "RL.POLICY SET a log:5/60s");
        assert_eq!(digest(&mut o), agreed);
        let _: i64 = ask(&mut o, "RL.POLICY DEL a");
        let () = ask(&mut o, "RL.POLICY SET c 5/m");
        assert_ne!(digest(&mut o), agreed);
    });
}
