use super::*;
use crate::parse::NoPolicies;
use proptest::prelude::*;

const LIMITS: Limits =
    Limits { max_rules: 3, max_log_entries: 1000, allow_at: true, max_meta: 8, log_entries: 128 };
const UNTIMED: Limits = Limits { allow_at: false, ..LIMITS };

/// The words of a line as arguments; `''` is an empty one.
fn words(line: &str) -> impl Iterator<Item = &[u8]> {
    line.split_whitespace().map(|word| if word == "''" { &b""[..] } else { word.as_bytes() })
}

fn texts(rules: &[Rule]) -> String {
    rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(" ")
}

fn check_error(line: &str, limits: &Limits) -> String {
    check(words(line), limits, &mut NoPolicies, &mut Vec::new()).expect_err(line).to_string()
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
        let request = check(words(line), &LIMITS, &mut NoPolicies, &mut rules);
        let expected = CheckRequest { cost, at_us, full, meta: None, rule_args: rules.len() };
        assert_eq!(request, Ok(expected), "{line}");
        assert_eq!(peek(words(line), &LIMITS, &mut NoPolicies, &mut rules), Ok(expected), "{line}");
        assert_eq!(texts(&rules), read, "{line}");
    }
}

#[test]
fn a_check_may_say_who_asks() {
    let mut rules = Vec::new();
    for (line, text) in
        [("META user:7 20/m", "user:7"), ("meta 20/m COST 2 20/m", "20/m"), ("META '' 20/m", "")]
    {
        let request = check(words(line), &LIMITS, &mut NoPolicies, &mut rules).unwrap();
        assert_eq!(request.meta, Some(Meta { text: text.as_bytes(), keep: 128 }), "{line}");
        assert_eq!(texts(&rules), "log:20/1m", "{line}");
    }
    let none_kept = Limits { log_entries: 0, ..LIMITS };
    assert_eq!(
        check(words("META x 20/m"), &none_kept, &mut NoPolicies, &mut rules).unwrap().meta,
        None
    );
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
        // Not UTF-8 up to the cut, so the cut is at the byte.
        (b"1234567\xe2\x82", b"1234567\xe2"),
        (b"\xff23456\xe2\x82\xac", b"\xff23456\xe2\x82"),
        (b"12345678\xff", b"12345678"),
    ] {
        let args = [&b"META"[..], given, b"20/m"].into_iter();
        let request = check(args, &LIMITS, &mut NoPolicies, &mut Vec::new()).unwrap();
        assert_eq!(request.meta.map(|meta| meta.text), Some(kept), "{given:?}");
    }
    let nothing = Limits { max_meta: 0, ..LIMITS };
    let request = check(words("META x 20/m"), &nothing, &mut NoPolicies, &mut Vec::new()).unwrap();
    assert_eq!(request.meta.map(|meta| meta.text), Some(&b""[..]));
}

proptest! {
    #[test]
    fn a_cut_text_is_utf8_if_the_text_is(text: String, max in 0..20usize) {
        let kept = cut(text.as_bytes(), max);
        prop_assert!(text.as_bytes().starts_with(kept) && kept.len() <= max);
        prop_assert!(std::str::from_utf8(kept).is_ok());
        prop_assert!(kept.len() == text.len() || kept.len() + 3 >= max);
    }

    #[test]
    fn any_text_can_be_cut(text: Vec<u8>, max in 0..20usize) {
        let kept = cut(&text, max);
        prop_assert!(text.starts_with(kept) && kept.len() <= max);
        prop_assert!(kept.len() == text.len() || kept.len() + 3 >= max);
    }
}

#[test]
fn checks_that_are_none_are_refused() {
    const LONE: &str = "expected COST, META, AT, FULL or a rule such as 20/1m";
    const AFTER: &str = "expected a rule such as 20/1m; options come before the rules";
    for (line, error) in [
        ("", "wrong number of arguments".to_owned()),
        ("FULL", "wrong number of arguments".into()),
        ("COST 1 AT 5", "wrong number of arguments".into()),
        ("foo", format!("unexpected 'foo', {LONE}")),
        ("20", format!("unexpected '20', {LONE}")),
        ("''", format!("unexpected '', {LONE}")),
        ("META", "META has no text".into()),
        ("META x META y 20/m", "META is given twice, expected once".into()),
        ("COST 1 NEXT 20/m", format!("unexpected 'NEXT', {LONE}")),
        ("20/m COST 1", format!("unexpected 'COST', {AFTER}")),
        ("20/m full", format!("unexpected 'full', {AFTER}")),
        ("20/m NEXT 1/s", format!("unexpected 'NEXT', {AFTER}")),
        ("20/m ''", format!("unexpected '', {AFTER}")),
        ("COST", "COST has no value, expected an integer 0..1000000000".into()),
        ("COST x 20/m", "COST is 'x', expected an integer 0..1000000000".into()),
        ("COST 20/m", "COST is '20/m', expected an integer 0..1000000000".into()),
        ("COST -1 20/m", "COST is '-1', expected an integer 0..1000000000".into()),
        ("COST +1 20/m", "COST is '+1', expected an integer 0..1000000000".into()),
        ("COST '' 20/m", "COST is '', expected an integer 0..1000000000".into()),
        ("COST 1000000001 20/m", "COST is '1000000001', expected an integer 0..1000000000".into()),
        (
            "COST 18446744073709551616 20/m",
            "COST is '18446744073709551616', expected an integer 0..1000000000".into(),
        ),
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
    let refund = refund(words("5 AT 1"), &UNTIMED, &mut NoPolicies, &mut Vec::new());
    assert_eq!(refund, Err(ParseError::AtRefused));
}

#[test]
fn rules_of_the_last_request_are_gone() {
    let mut rules = Vec::new();
    assert!(check(words("1/s 2/m"), &LIMITS, &mut NoPolicies, &mut rules).is_ok());
    assert!(check(words("3/h"), &LIMITS, &mut NoPolicies, &mut rules).is_ok());
    assert_eq!(texts(&rules), "log:3/1h");
    assert_eq!(refund(words("1"), &LIMITS, &mut NoPolicies, &mut rules).map(|r| r.units), Ok(1));
    assert!(rules.is_empty());
}

#[test]
fn refunds_are_read_or_refused() {
    let mut rules = Vec::new();
    for (line, units, at_us, read) in [
        ("5", 5, None, ""),
        ("0 at 9", 0, Some(9), ""),
        ("1000000000 AT 9 20/m 1/s", 1_000_000_000, Some(9), "log:20/1m log:1/1s"),
        ("5 20/m", 5, None, "log:20/1m"),
    ] {
        let request = refund(words(line), &LIMITS, &mut NoPolicies, &mut rules);
        assert_eq!(request, Ok(RefundRequest { units, at_us, rule_args: rules.len() }), "{line}");
        assert_eq!(texts(&rules), read, "{line}");
    }
    for (line, error) in [
        ("", "wrong number of arguments"),
        ("x", "units is 'x', expected an integer 0..1000000000"),
        ("20/m", "units is '20/m', expected an integer 0..1000000000"),
        ("5 AT 1 AT 1", "AT is given twice, expected once"),
        ("5 COST 1", "unexpected 'COST', expected AT or a rule such as 20/1m"),
        (
            "5 20/m AT 1",
            "unexpected 'AT', expected a rule such as 20/1m; options come before the rules",
        ),
    ] {
        let read = refund(words(line), &LIMITS, &mut NoPolicies, &mut rules);
        assert_eq!(read.expect_err(line).to_string(), error, "{line}");
    }
}

#[test]
fn explanations_are_read_or_refused() {
    let mut rules = Vec::new();
    assert_eq!(explain(words("20/m fixed:5/d"), &LIMITS, &mut NoPolicies, &mut rules), Ok(()));
    assert_eq!(texts(&rules), "log:20/1m fixed:5/1d");
    for (line, error) in [
        ("", "wrong number of arguments"),
        ("COST 1 20/m", "unexpected 'COST', expected a rule such as 20/1m"),
        ("20/m FULL", "unexpected 'FULL', expected a rule such as 20/1m"),
        ("1/s 2/m 3/h 4/d", "rule '4/d': too many rules, expected at most 3 (ratelimit.max-rules)"),
    ] {
        let read = explain(words(line), &LIMITS, &mut NoPolicies, &mut rules);
        assert_eq!(read.expect_err(line).to_string(), error, "{line}");
    }
}

/// Arguments that get past the first test now and then.
fn arguments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let argument = prop_oneof![
        "(?i)cost|at|full|meta|next|ex|reason|count|match".prop_map(String::into_bytes),
        "-?[0-9]{1,20}".prop_map(String::into_bytes),
        "(window:|fixed:)?[0-9]{1,4}/[0-9]{0,3}[smhd](,name=[a-c])?".prop_map(String::into_bytes),
        any::<Vec<u8>>(),
    ];
    proptest::collection::vec(argument, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_arguments_give_a_request_or_a_printable_line(args in arguments()) {
        let mut rules = Vec::new();
        let slices = || args.iter().map(Vec::as_slice);
        let errors = [
            check(slices(), &LIMITS, &mut NoPolicies, &mut rules).err(),
            refund(slices(), &LIMITS, &mut NoPolicies, &mut rules).err(),
            explain(slices(), &LIMITS, &mut NoPolicies, &mut rules).err(),
            crate::parse::access(slices(), &LIMITS).err(),
            crate::parse::top(slices()).err(),
            crate::parse::scan(slices()).err(),
        ];
        for error in errors.into_iter().flatten() {
            let line = error.to_string();
            prop_assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{}", line);
        }
    }
}
