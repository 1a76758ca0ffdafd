//! `RL.BLOCK`, `RL.EXEMPT`, `RL.UNBLOCK`, `RL.UNEXEMPT` and bans.

use redis::{Connection, Value, cmd};

use crate::support::client::{
    self, BlockRow, allowed, ask, blocks, dump, exists, expires_ms, now_ms, refusal,
};
use crate::support::server::{self, Builder, eventually};

/// The five integers that a check replies.
fn check(c: &mut Connection, line: &str) -> [i64; 5] {
    ask(c, &format!("RL.CHECK {line}"))
}

#[test]
fn a_block_refuses_checks_and_keeps_counts() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(check(&mut c, "k COST 3 5/h")[..3], [0, 5, 2]);
        let before_ms = now_ms(&mut c);
        assert_eq!(ask::<String>(&mut c, "RL.BLOCK k EX 100 REASON abuse"), "OK");
        let [verdict, limit, remaining, wait_ms, reset_ms] = check(&mut c, "k 5/h");
        assert_eq!((verdict, limit, remaining), (2, 0, 0));
        let passed_ms = now_ms(&mut c) - before_ms;
        assert!((99_999 - passed_ms..=100_000).contains(&wait_ms), "{wait_ms} after {passed_ms}");
        assert_eq!(wait_ms, reset_ms);
        // A block holds even if a rule would admit everything, and at a cost of 0.
        assert_eq!(check(&mut c, "k COST 0 bucket:1000000000/h,shadow")[0], 2);
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), 0);
        assert_eq!(check(&mut c, "k COST 2 5/h")[..3], [0, 5, 0], "the block kept the counts");
    });
}

#[test]
fn a_blocked_check_evaluates_no_rule_and_changes_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let _: String = ask(&mut c, "RL.BLOCK k EX 100");
        let rules = |c: &mut Connection| client::info(c, "ratelimit", "ratelimit_log_rules");
        let (before, evaluated) = (dump(&mut c, "k"), rules(&mut c));
        let full: Value = ask(&mut c, "RL.CHECK k FULL 5/h 9/d,count=all,ban=1h");
        let text = format!("{full:?}");
        assert!(text.contains("block") && text.contains("ttl_ms"), "{text}");
        assert!(!text.contains("log:5/1h"), "{text}");
        assert_eq!(dump(&mut c, "k"), before);
        assert_eq!(rules(&mut c), evaluated);
    });
}

#[test]
fn a_block_ends_when_its_option_says() {
    server::on_all(|server| {
        let mut c = server.connect();
        let end_s = now_ms(&mut c) / 1_000 + 100;
        for (line, end_ms) in [
            ("RL.BLOCK k EX 100".to_string(), None),
            ("RL.BLOCK k PX 100000".to_string(), None),
            ("RL.BLOCK k FOR 100s".to_string(), None),
            ("RL.BLOCK k REASON x FOR 100seconds".to_string(), None),
            (format!("RL.BLOCK k EXAT {end_s}"), Some(end_s * 1_000)),
            (format!("RL.BLOCK k REASON x PXAT {}", end_s * 1_000), Some(end_s * 1_000)),
        ] {
            let before_ms = now_ms(&mut c);
            let _: String = ask(&mut c, &line);
            let set_ms = now_ms(&mut c);
            let wait_ms = check(&mut c, "k 5/h")[3];
            let after_ms = now_ms(&mut c);
            // Ends are rounded down to the millisecond, waits up.
            let earliest_ms = end_ms.unwrap_or(before_ms + 100_000);
            let latest_ms = end_ms.unwrap_or(set_ms + 1 + 100_000);
            let waits = earliest_ms - after_ms - 1..=latest_ms - set_ms + 1;
            assert!(waits.contains(&wait_ms), "{line}: {wait_ms}, not {waits:?}");
            // The key expires with its block, at most a second late.
            let expires_ms = expires_ms(&mut c, server.flavor(), "k");
            let expiries = earliest_ms..=latest_ms + 1_000;
            assert!(expiries.contains(&expires_ms), "{line}: {expires_ms}, not {expiries:?}");
        }
        let _: String = ask(&mut c, "RL.BLOCK k");
        assert_eq!(check(&mut c, "k 5/h"), [2, 0, 0, -1, -1]);
        assert_eq!(expires_ms(&mut c, server.flavor(), "k"), -1, "a block for good has no expiry");
        let _: String = ask(&mut c, "RL.BLOCK k PX 50");
        eventually("the key to expire with its block", || !exists(&mut c, "k"));
        assert!(allowed(&mut c, "RL.CHECK k 5/h"));
    });
}

#[test]
fn an_exemption_for_a_period_ends_after_it() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let before_us = now_ms(&mut c) * 1_000;
        assert_eq!(ask::<String>(&mut c, "RL.EXEMPT k FOR 2weeks"), "OK");
        let after_us = (now_ms(&mut c) + 1) * 1_000;
        const TWO_WEEKS_US: i64 = 14 * 86_400_000_000;
        for (at_us, limit) in [(before_us + TWO_WEEKS_US - 1, -1), (after_us + TWO_WEEKS_US, 5)] {
            assert_eq!(check(&mut c, &format!("k AT {at_us} 5/h"))[1], limit, "{at_us}");
        }
    });
}

#[test]
fn a_block_of_a_key_named_like_a_glob_blocks_only_this_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        let _: String = ask(&mut c, "RL.BLOCK ip:* FOR 1h");
        assert_eq!(check(&mut c, "ip:* 5/h")[0], 2);
        assert_eq!(check(&mut c, "ip:1 5/h")[0], 0);
    });
}

#[test]
fn a_block_ends_exactly_at_its_end() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let end_ms = now_ms(&mut c) + 600_000;
        let _: String = ask(&mut c, &format!("RL.BLOCK k PXAT {end_ms}"));
        let at = |us: i64| format!("k AT {us} 5/h");
        assert_eq!(check(&mut c, &at(end_ms * 1_000 - 1)), [2, 0, 0, 1, 1]);
        assert_eq!(check(&mut c, &at(end_ms * 1_000))[0], 0);
    });
}

#[test]
fn an_exemption_allows_everything_and_counts_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let _: String = ask(&mut c, "RL.EXEMPT k EX 100 REASON vip");
        for _ in 0..3 {
            assert_eq!(check(&mut c, "k COST 1000 1/h 0/s"), [0, -1, -1, 0, 0]);
        }
        // A block replaces an exemption, and an exemption a block.
        let _: String = ask(&mut c, "RL.BLOCK k EX 100");
        assert_eq!(ask::<i64>(&mut c, "RL.UNEXEMPT k"), 0);
        assert_eq!(check(&mut c, "k 1/h")[0], 2);
        let _: String = ask(&mut c, "RL.EXEMPT k");
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), 0);
        assert_eq!(check(&mut c, "k 1/h")[1], -1);
        assert_eq!(ask::<i64>(&mut c, "RL.UNEXEMPT k"), 1);
        assert!(!exists(&mut c, "k"), "an exempt check counted");
    });
}

#[test]
fn a_denial_by_a_rule_with_a_ban_blocks_the_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(check(&mut c, "k COST 5 5/m,ban=10m,name=brute")[0], 0);
        let [verdict, limit, _, wait_ms, reset_ms] = check(&mut c, "k 5/m,ban=10m,name=brute");
        assert_eq!((verdict, limit), (1, 5), "the rule denies this check");
        assert_eq!((wait_ms, reset_ms), (600_000, 600_000));
        let [verdict, _, _, wait_ms, _] = check(&mut c, "k 1000/s");
        assert_eq!(verdict, 2);
        assert!((590_000..=600_000).contains(&wait_ms), "{wait_ms}");
        let rows = blocks(&mut c, "");
        assert_eq!((rows[0].1.as_str(), rows[0].3.as_str()), ("blocked", "rule brute"));
        // If the rule has no name, the reason contains its text.
        check(&mut c, "other COST 9 bucket:5/m,ban=1h");
        assert_eq!(blocks(&mut c, "MATCH other")[0].3, "rule bucket:5/1m,ban=1h");
        assert_eq!(client::info(&mut c, "ratelimit", "ratelimit_bans"), 2.0);
    });
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let _: String = ask(&mut c, "SET s x");
        let _: String = ask(&mut c, "RL.BLOCK k EX 1000 REASON first");
        let before = dump(&mut c, "k");
        for (line, says) in [
            ("RL.BLOCK", "wrong number"),
            ("RL.BLOCK k EX", "EX has no value"),
            ("RL.BLOCK k EX 0", "EX is '0'"),
            ("RL.BLOCK k EX 5m", "EX is '5m'"),
            ("RL.BLOCK k EX 5 PX 5", "given twice"),
            ("RL.BLOCK k EXAT 5", "the end is 5000 ms, expected a Unix time after 1"),
            ("RL.BLOCK k REASON", "REASON has no text"),
            ("RL.BLOCK k FOREVER", "unexpected 'FOREVER'"),
            ("RL.EXEMPT k PXAT 99999999999999999", "PXAT is '99999999999999999'"),
            ("RL.UNBLOCK", "wrong number"),
            ("RL.UNBLOCK k x", "wrong number"),
            ("RL.BLOCKS", "wrong number"),
            ("RL.BLOCKS x", "cursor is 'x'"),
            ("RL.BLOCKS 0 COUNT 0", "COUNT is '0'"),
            ("RL.BLOCKS 0 TYPE string", "unexpected 'TYPE'"),
            ("RL.BLOCK s", "wrong kind"),
            ("RL.UNEXEMPT s", "wrong kind"),
        ] {
            let error = refusal(&mut c, line);
            assert!(error.contains(says), "{line}: «{error}»");
            assert_eq!(dump(&mut c, "k"), before, "{line}");
        }
        let long = "x".repeat(257);
        let error = refusal(&mut c, &format!("RL.BLOCK k REASON {long}"));
        assert!(error.contains("257 bytes") && error.contains("max-meta"), "{error}");
        // A reason may be any bytes.
        let bytes: &[u8] = &[0, 0xff, b'\r', b'\n', b'"'];
        let _: String = cmd("RL.BLOCK").arg("k").arg("REASON").arg(bytes).query(&mut c).unwrap();
        let (_, rows): (String, Vec<BlockRow<Vec<u8>>>) = ask(&mut c, "RL.BLOCKS 0 COUNT 100");
        assert_eq!(rows[0].3, bytes);
    });
}
