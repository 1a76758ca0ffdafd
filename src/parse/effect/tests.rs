use super::*;

fn words(line: &str) -> impl Iterator<Item = &[u8]> {
    line.split_whitespace().map(str::as_bytes)
}

fn texts(rules: &[Rule]) -> String {
    rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn effects_are_read() {
    let mut rules = Vec::new();
    let check = |change, cost, meta| Action::Check { change, cost, meta };
    let remembered = Some(Meta { text: b"user:7", keep: 128 });
    let block = |kind, until_us, ban_us: Option<u64>| {
        let by_rule = ban_us.is_some();
        Action::SetAccess(SetAccess { kind, by_rule, until_us, ban_us, reason: b"why" })
    };
    for (line, expiry, action, read) in [
        ("v2:5:0:admit:2 20/m", Expiry::Keep, check(Change::Admitted, 2, None), "log:20/1m"),
        ("v2:5:-1:charge:2 20/m", Expiry::Never, check(Change::Charged, 2, None), "log:20/1m"),
        (
            "v2:5:9:deny:2:128 user:7 20/m 1/s",
            Expiry::At(9),
            check(Change::HistoryOnly(Verdict::Limited), 2, remembered),
            "log:20/1m log:1/1s",
        ),
        (
            "v2:5:9:pass:0:128 user:7 20/m",
            Expiry::At(9),
            check(Change::HistoryOnly(Verdict::Allowed), 0, remembered),
            "log:20/1m",
        ),
        (
            "v2:5:9:refuse:1:128 user:7 20/m",
            Expiry::At(9),
            check(Change::HistoryOnly(Verdict::Blocked), 1, remembered),
            "log:20/1m",
        ),
        ("v2:5:99:refund:2", Expiry::At(99), Action::Refund { units: 2 }, ""),
        ("v2:5:99:refund:2 20/m", Expiry::At(99), Action::Refund { units: 2 }, "log:20/1m"),
        ("v2:5:99:block:77 why", Expiry::At(99), block(Access::Block, Some(77), None), ""),
        ("v2:5:-1:block:-1 why", Expiry::Never, block(Access::Block, None, None), ""),
        ("v2:5:99:ban:77:9 why", Expiry::At(99), block(Access::Block, Some(77), Some(9)), ""),
        ("v2:5:99:exempt:77 why", Expiry::At(99), block(Access::Exempt, Some(77), None), ""),
        ("v2:5:0:reset", Expiry::Keep, Action::Reset, ""),
        ("v2:5:0:unblock", Expiry::Keep, Action::LiftAccess(Access::Block), ""),
        ("v2:5:0:unexempt", Expiry::Keep, Action::LiftAccess(Access::Exempt), ""),
        // A primary may have been allowed more rules and longer logs.
        (
            "v2:5:9:admit:2 5000000/m 1/s 2/s,name=a 3/h",
            Expiry::At(9),
            check(Change::Admitted, 2, None),
            "log:5000000/1m log:1/1s log:2/1s,name=a log:3/1h",
        ),
    ] {
        let effect = apply(words(line), &mut rules);
        assert_eq!(effect, Ok(Effect { at_us: 5, expiry, action }), "{line}");
        assert_eq!(texts(&rules), read, "{line}");
    }
}

#[test]
fn effects_that_are_none_are_refused() {
    let mut rules = Vec::new();
    for (line, error) in [
        ("", "wrong number of arguments"),
        ("5:0:admit:1", "wrong number of arguments"),
        ("5:0:deny:1:5", "wrong number of arguments"),
        ("5:0:deny:1:5 x", "wrong number of arguments"),
        ("5:0:block:7", "wrong number of arguments"),
        ("5", "wrong number of arguments"),
        ("5 admit", "wrong number of arguments"),
        ("5 0 admit", "wrong number of arguments"),
        ("5:0", "effect is '5:0', expected time:expiry:word and the word's numbers"),
        (
            "5:0:admit 20/m",
            "effect is '5:0:admit', expected time:expiry:word and the word's numbers",
        ),
        (
            "5:0:refund 20/m",
            "effect is '5:0:refund', expected time:expiry:word and the word's numbers",
        ),
        ("5:0:block x", "effect is '5:0:block', expected time:expiry:word and the word's numbers"),
        ("5 0 admit 1", "wrong number of arguments"),
        ("5 0 deny 1 META 5", "wrong number of arguments"),
        ("5 0 deny 1 META 5 x", "wrong number of arguments"),
        ("5 0 block 7", "wrong number of arguments"),
        ("5 charge 1 x 20/m", "expiry is 'x', expected an integer 0..9223372036854775807"),
        ("5 admit 1 0 META 5 x 20/m", "unexpected 'META', expected a rule such as 20/1m"),
        ("5 deny 1 0 20/m", "expiry is 'deny', expected an integer 0..9223372036854775807"),
        ("v1:5:0:admit:1 20/m", "the version of an effect is 'v1', expected v2"),
        ("v:5:0:admit:1 20/m", "the version of an effect is 'v', expected v2"),
        ("V2:5:0:admit:1 20/m", "time is 'V2', expected an integer 0..253402300799999999"),
        (
            "v2:5:0:ban:7 why",
            "effect is 'v2:5:0:ban:7', expected time:expiry:word and the word's numbers",
        ),
        ("v2:5:0:ban:7:x why", "the length is 'x', expected an integer 0..31622400000000"),
        ("v2:5:0:block:7:8 why", "unexpected '8', expected the effect to end before it"),
        ("5:0:ban:7:8 why", "unexpected '8', expected the effect to end before it"),
        ("x:0:admit:1 20/m", "time is 'x', expected an integer 0..253402300799999999"),
        (":0:admit:1 20/m", "time is '', expected an integer 0..253402300799999999"),
        ("5::admit:1 20/m", "expiry is '', expected an integer 0..9223372036854775807"),
        (
            "5:0:ADMIT:1 20/m",
            "effect is 'ADMIT', expected admit, charge, pass, deny, refuse, refund, reset, block, \
             ban, exempt, unblock or unexempt",
        ),
        ("5:0:admit:-1 20/m", "units is '-1', expected an integer 0..1000000000"),
        ("5:0:refund:-1 20/m", "units is '-1', expected an integer 0..1000000000"),
        ("5:-2:admit:1 20/m", "expiry is '-2', expected an integer 0..9223372036854775807"),
        ("5:0:admit:1:0 x 20/m", "keep is '0', expected an integer 1..4294967295"),
        ("5:0:admit:1: x 20/m", "keep is '', expected an integer 1..4294967295"),
        ("5:0:block:-2 x", "the end is '-2', expected an integer 0..253433923199999999"),
        ("5:0:admit:1:5:6 x 20/m", "unexpected '6', expected the effect to end before it"),
        ("5:0:refund:1:5 20/m", "unexpected '5', expected the effect to end before it"),
        ("5:0:block:7:why", "unexpected 'why', expected the effect to end before it"),
        ("5:0:reset:1", "unexpected '1', expected the effect to end before it"),
        ("5:0:unblock:", "unexpected '', expected the effect to end before it"),
        ("5:0:admit:1 20/m x", "unexpected 'x', expected a rule such as 20/1m"),
        ("5:0:admit:1 x", "unexpected 'x', expected a rule such as 20/1m"),
        ("5:0:admit:1 META 5 x 20/m", "unexpected 'META', expected a rule such as 20/1m"),
        ("5:0:unblock 20/m", "unexpected '20/m', expected a rule such as 20/1m"),
        ("5:0:admit:1 @x", "rule '@x': unknown policy, expected one that RL.POLICY LIST shows"),
    ] {
        let read = apply(words(line), &mut rules);
        assert_eq!(read.expect_err(line).to_string(), error, "{line}");
    }
}

/// What an effect says, and its rules.
fn read(line: &str) -> (Effect<'_>, String) {
    let mut rules = Vec::new();
    let effect = apply(words(line), &mut rules).unwrap_or_else(|error| panic!("{line}: {error}"));
    (effect, texts(&rules))
}

#[test]
fn every_form_of_version_1_is_read_as_version_2_says_it() {
    for (newest, older) in [
        ("v2:5:9:admit:2 20/m 1/s", &["5:9:admit:2 20/m 1/s", "5 9 admit 2 20/m 1/s"][..]),
        ("v2:5:9:admit:2 20/m 1/s", &["5 admit 2 9 20/m 1/s"]),
        ("v2:5:-1:charge:2 20/m", &["5:-1:charge:2 20/m", "5 -1 charge 2 20/m"]),
        ("v2:5:-1:charge:2 20/m", &["5 charge 2 -1 20/m"]),
        ("v2:5:0:refund:2", &["5:0:refund:2", "5 0 refund 2", "5 refund 2 0"]),
        ("v2:5:0:refund:2 20/m", &["5:0:refund:2 20/m", "5 0 refund 2 20/m", "5 refund 2 0 20/m"]),
        ("v2:5:9:deny:2:8 who 20/m", &["5:9:deny:2:8 who 20/m", "5 9 deny 2 META 8 who 20/m"]),
        ("v2:5:9:block:7 why", &["5:9:block:7 why", "5 9 block 7 why"]),
        ("v2:5:-1:exempt:-1 why", &["5:-1:exempt:-1 why", "5 -1 exempt -1 why"]),
        ("v2:5:0:reset", &["5:0:reset", "5 0 reset"]),
        ("v2:5:0:unblock", &["5:0:unblock", "5 0 unblock"]),
    ] {
        for line in older {
            assert_eq!(read(line), read(newest), "{line}");
        }
    }
    let ban = SetAccess {
        kind: Access::Block,
        by_rule: true,
        until_us: Some(7),
        ban_us: None,
        reason: b"why",
    };
    for line in ["5:9:ban:7 why", "5 9 ban 7 why"] {
        assert_eq!(read(line).0.action, Action::SetAccess(ban), "{line}");
    }
}

#[test]
fn an_effect_of_a_newer_version_is_refused_with_the_remedy() {
    for line in ["v3:5:0:admit:2 20/m", "v3:nothing:known", "v3 x", "v3", "v18446744073709551615:"]
    {
        let error = apply(words(line), &mut Vec::new()).expect_err(line);
        let version = line[1..].split([':', ' ']).next().expect("a version");
        let expected = format!(
            "an effect of version {version} was written by a newer version of the module, \
             expected version 2 or older; upgrade this server first"
        );
        assert_eq!(error.to_string(), expected, "{line}");
    }
}
