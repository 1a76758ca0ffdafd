use super::*;
use crate::parse::{NoPolicies, test_lines::*};
use proptest::prelude::*;
use ratelimit_engine::rule::MAX_TIME_US;

fn check_error(line: &str, limits: &Limits) -> String {
    check(args(line), limits, &mut NoPolicies, &mut Vec::new()).expect_err(line).to_string()
}

#[test]
fn checks_are_read() {
    let mut rules = Vec::new();
    for (line, cost, at_us, full, read) in [
        ("20/m", 1, None, false, "log:20/1m"),
        ("COST 3 20/m", 3, None, false, "log:20/1m"),
        ("cost 0 20/m", 0, None, false, "log:20/1m"),
        ("Cost 1000000000 20/m", 1_000_000_000, None, false, "log:20/1m"),
        ("AT 0 20/m", 1, Some(0), false, "log:20/1m"),
        ("at 253402300799999999 20/m", 1, Some(MAX_TIME_US), false, "log:20/1m"),
        ("full 20/m 1/s", 1, None, true, "log:20/1m log:1/1s"),
        ("FULL AT 7 COST 2 20/m", 2, Some(7), true, "log:20/1m"),
        ("AT 7 FULL COST 2 20/m", 2, Some(7), true, "log:20/1m"),
        (
            "1000/m 20/m,name=a window:9999/m",
            1,
            None,
            false,
            "log:1000/1m log:20/1m,name=a window:9999/1m",
        ),
    ] {
        let request = check(args(line), &LIMITS, &mut NoPolicies, &mut rules);
        let expected = CheckRequest { cost, at_us, full, options: None, rule_args: rules.len() };
        assert_eq!(request.as_ref(), Ok(&expected), "{line}");
        assert_eq!(peek(args(line), &LIMITS, &mut NoPolicies, &mut rules), Ok(expected), "{line}");
        assert_eq!(texts_of(&rules), read, "{line}");
    }
}

#[test]
fn meta_is_kept_for_the_history() {
    let mut rules = Vec::new();
    for (line, text) in
        [("META user:7 20/m", "user:7"), ("meta 20/m COST 2 20/m", "20/m"), ("META '' 20/m", "")]
    {
        let request = check(args(line), &LIMITS, &mut NoPolicies, &mut rules).unwrap();
        let meta = Some(Meta { text: text.as_bytes(), keep: 128 });
        assert_eq!(request.options.and_then(|options| options.meta), meta, "{line}");
        assert_eq!(texts_of(&rules), "log:20/1m", "{line}");
    }
    let no_history = Limits { log_entries: 0, ..LIMITS };
    let request = check(args("META x 20/m"), &no_history, &mut NoPolicies, &mut rules).unwrap();
    assert_eq!(request.options, None);
}

#[test]
fn a_hold_has_an_id_and_a_time() {
    let mut rules = Vec::new();
    for (line, id, hold_us, refund, cost) in [
        ("HOLD r EX 30 20/m", "r", 30_000_000, false, 1),
        ("COST 40 hold r px 5 refund 20/m", "r", 5_000, true, 40),
        ("HOLD HOLD EX 1 COST 2 FULL META HOLD 20/m", "HOLD", 1_000_000, false, 2),
        ("HOLD 20/m EX 1 REFUND 20/m", "20/m", 1_000_000, true, 1),
        ("HOLD REFUND EX 1 20/m", "REFUND", 1_000_000, false, 1),
    ] {
        let request = check(args(line), &LIMITS, &mut NoPolicies, &mut rules).unwrap();
        let hold = HoldOption { id: id.as_bytes(), hold_us, refund };
        let held = request.options.and_then(|options| options.hold);
        assert_eq!((held, request.cost), (Some(hold), cost), "{line}");
        assert_eq!(texts_of(&rules), "log:20/1m", "{line}");
    }
}

#[test]
fn a_peek_takes_no_hold() {
    for line in ["HOLD r EX 30 20/m", "COST 1 hold", "HOLD r"] {
        let error = peek(args(line), &LIMITS, &mut NoPolicies, &mut Vec::new()).expect_err(line);
        assert_eq!(error, ParseError::HoldInPeek, "{line}");
    }
}

/// The text of a request's `META` that the history keeps.
fn kept_meta<'a>(request: &CheckRequest<'a>) -> Option<&'a [u8]> {
    Some(request.options.as_ref()?.meta?.text)
}

#[test]
fn a_long_meta_is_cut_between_characters() {
    let euro = "1234567\u{20ac}".as_bytes();
    for (given, kept) in [
        (&b"12345678"[..], &b"12345678"[..]),
        (b"123456789", b"12345678"),
        (euro, b"1234567"),
        ("12345\u{20ac}6".as_bytes(), "12345\u{20ac}".as_bytes()),
        ("1234\u{1f600}5".as_bytes(), "1234\u{1f600}".as_bytes()),
        ("12345\u{1f600}5".as_bytes(), b"12345"),
        // The text before the cut is not UTF-8, so the cut is at exactly that many bytes.
        (b"1234567\xe2\x82", b"1234567\xe2"),
        (b"\xff23456\xe2\x82\xac", b"\xff23456\xe2\x82"),
        (b"12345678\xff", b"12345678"),
    ] {
        let given_args = [&b"META"[..], given, b"20/m"].into_iter();
        let request = check(given_args, &LIMITS, &mut NoPolicies, &mut Vec::new()).unwrap();
        assert_eq!(kept_meta(&request), Some(kept), "{given:?}");
    }
    let nothing = Limits { max_meta: 0, ..LIMITS };
    let request = check(args("META x 20/m"), &nothing, &mut NoPolicies, &mut Vec::new()).unwrap();
    assert_eq!(kept_meta(&request), Some(&b""[..]));
}

proptest! {
    #[test]
    fn utf8_stays_utf8_when_it_is_cut(text: String, max in 0..20usize) {
        let kept = cut(text.as_bytes(), max);
        prop_assert!(text.as_bytes().starts_with(kept) && kept.len() <= max);
        prop_assert!(std::str::from_utf8(kept).is_ok());
        prop_assert!(kept.len() == text.len() || kept.len() + 3 >= max);
    }

    #[test]
    fn bytes_that_are_no_utf8_can_be_cut(text: Vec<u8>, max in 0..20usize) {
        let kept = cut(&text, max);
        prop_assert!(text.starts_with(kept) && kept.len() <= max);
        prop_assert!(kept.len() == text.len() || kept.len() + 3 >= max);
    }
}

#[test]
fn errors_name_what_was_given_and_expected() {
    const FIRST: &str = "expected COST, META, HOLD, AT, FULL or a rule such as 20/1m";
    const AFTER_RULES: &str = "expected a rule such as 20/1m; options come before the rules";
    const COST: &str = "expected an integer 0..1000000000, a range such as 1..100 or name=integer";
    for (line, error) in [
        ("", "wrong number of arguments".to_owned()),
        ("FULL", "wrong number of arguments".into()),
        ("COST 1 AT 5", "wrong number of arguments".into()),
        ("foo", format!("unexpected 'foo', {FIRST}")),
        ("20", "rule '20': the period is missing, expected limit/period such as 20/1m".into()),
        ("''", format!("unexpected '', {FIRST}")),
        ("META", "META has no text".into()),
        ("META x META y 20/m", "META is given twice, expected once".into()),
        ("HOLD", "HOLD has no id, expected one of 1..64 bytes".into()),
        ("HOLD r", "the hold has no time, expected EX seconds or PX milliseconds".into()),
        ("HOLD r 20/m", "unexpected '20/m', expected EX seconds or PX milliseconds".into()),
        ("HOLD r EX 0 20/m", "EX is '0', expected an integer 1..31622400".into()),
        ("HOLD r EX 1 HOLD r EX 1 20/m", "HOLD is given twice, expected once".into()),
        ("HOLD r EX 1 PX 1 20/m", format!("unexpected 'PX', {FIRST}")),
        ("REFUND 20/m", format!("unexpected 'REFUND', {FIRST}")),
        ("COST 1 NEXT 20/m", format!("unexpected 'NEXT', {FIRST}")),
        ("20/m COST 1", format!("unexpected 'COST', {AFTER_RULES}")),
        ("20/m full", format!("unexpected 'full', {AFTER_RULES}")),
        ("20/m NEXT 1/s", format!("unexpected 'NEXT', {AFTER_RULES}")),
        ("20/m ''", format!("unexpected '', {AFTER_RULES}")),
        ("COST x 20/m", format!("COST is 'x', {COST}")),
        ("COST -1 20/m", format!("COST is '-1', {COST}")),
        ("COST +1 20/m", format!("COST is '+1', {COST}")),
        ("COST '' 20/m", format!("COST is '', {COST}")),
        ("COST 1000000001 20/m", format!("COST is '1000000001', {COST}")),
        ("COST 18446744073709551616 20/m", format!("COST is '18446744073709551616', {COST}")),
        ("COST 1 cost 1 20/m", "COST is given twice, expected once".into()),
        ("AT 1 AT 1 20/m", "AT is given twice, expected once".into()),
        ("FULL FULL 20/m", "FULL is given twice, expected once".into()),
        ("AT", "AT has no value, expected an integer 0..253402300799999999".into()),
        (
            "AT 253402300800000000 20/m",
            "AT is '253402300800000000', expected an integer 0..253402300799999999".into(),
        ),
        ("AT FULL 20/m", "AT is 'FULL', expected an integer 0..253402300799999999".into()),
        ("@free", "rule '@free': unknown policy, expected one that RL.POLICY LIST shows".into()),
        ("20/m @x", "rule '@x': unknown policy, expected one that RL.POLICY LIST shows".into()),
        (
            "1/s 2/m 3/h 4/d",
            "rule '4/d': too many rules, expected at most 3 (ratelimit.max-rules)".into(),
        ),
        (
            "1001/m",
            "rule '1001/m': a log of 1001 entries, expected at most 1000 \
             (ratelimit.max-log-entries); use window or bucket instead"
                .into(),
        ),
        (
            "20/m log:30/60s",
            "rule 'log:30/60s': same identity as rule 'log:20/1m', both count in the \
             same state; give one of them name="
                .into(),
        ),
        (
            "20/m,name=a bucket:30/s,name=a",
            "rule 'bucket:30/s,name=a': same identity as rule 'log:20/1m,name=a', both \
             count in the same state; give one of them another name="
                .into(),
        ),
    ] {
        assert_eq!(check_error(line, &LIMITS), error, "{line}");
    }
}

#[test]
fn a_time_must_be_allowed() {
    let refused = "AT is refused here, expected no AT unless 'ratelimit.allow-at yes'";
    for line in ["AT 5 20/m", "at", "FULL AT x 20/m"] {
        assert_eq!(check_error(line, &UNTIMED), refused, "{line}");
    }
}

#[test]
fn rules_of_an_earlier_request_are_dropped() {
    let mut rules = Vec::new();
    assert!(check(args("1/s 2/m"), &LIMITS, &mut NoPolicies, &mut rules).is_ok());
    assert!(check(args("3/h"), &LIMITS, &mut NoPolicies, &mut rules).is_ok());
    assert_eq!(texts_of(&rules), "log:3/1h");
}

#[test]
fn a_failed_request_leaves_nothing_for_the_next() {
    let mut rules = Vec::new();
    let failed =
        check(args("COST x=1 COST gone=1 5/s,name=x"), &LIMITS, &mut NoPolicies, &mut rules);
    assert!(failed.is_err());
    let line = "COST y=2 bucket:5/s,name=x 9/h,name=y";
    let request = check(args(line), &LIMITS, &mut NoPolicies, &mut rules).expect("a request");
    let costs: Vec<_> = rules.iter().map(|rule| rule.cost().or(request.cost)).collect();
    assert_eq!(
        (texts_of(&rules).as_str(), costs),
        ("bucket:5/1s,name=x log:9/1h,name=y", vec![1, 2])
    );
}
