//! The counters in `INFO ratelimit`.

use ratelimit_core::rule::Kind;
use redis::{Value, cmd};

use crate::support::client::{ask, info, verdict};
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
        assert!(all.contains("# ratelimit\r\nratelimit_checks:9\r\n"));
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
            .flat_map(|(name, value)| [name.to_string(), value.to_string()])
            .collect();
        assert!(fields.len() > 20);
        assert_eq!(flat, fields);
    });
}
