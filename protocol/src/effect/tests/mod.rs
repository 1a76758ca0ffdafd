mod commands;
mod holds;

use super::*;
use proptest::prelude::*;
use ratelimit_engine::key::{MAX_FORGOTTEN_US, MAX_SPAN_US, Settlement};
use ratelimit_engine::rule::{Kind, MAX_PERIOD_US, MAX_TIME_US, MAX_UNITS, RuleOption};
use ratelimit_engine::testing::rules_of_line;

fn words(line: &str) -> impl Iterator<Item = &[u8]> {
    line.split_whitespace().map(str::as_bytes)
}

fn texts(rules: &[Rule]) -> String {
    rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_action_is_read_and_written() {
    let mut rules = Vec::new();
    let check = |recorded, cost, meta| Action::Check { recorded, cost, meta };
    let history_only = |verdict| Recorded::HistoryOnly(verdict);
    let meta = Some(Meta { text: b"user:7", keep: 128 });
    let set = |kind, until_us, ban| Action::Set { kind, until_us, ban, reason: b"why", user: None };
    let by = |kind, user: &'static str| Action::Set {
        kind,
        until_us: Some(77),
        ban: None,
        reason: b"why",
        user: Some(user.as_bytes()),
    };
    let count = BanCount { bans: 3, forgotten_us: 88, span_us: 13 };
    for (line, expiry, action, read_rules) in [
        ("v1:5:0:admit:2 20/m", Expiry::Keep, check(Recorded::Admitted, 2, None), "log:20/1m"),
        ("v1:5:-1:charge:2 20/m", Expiry::Never, check(Recorded::Charged, 2, None), "log:20/1m"),
        (
            "v1:5:9:admit:2:128 user:7 20/m",
            Expiry::At(9),
            check(Recorded::Admitted, 2, meta),
            "log:20/1m",
        ),
        (
            "v1:5:9:deny:2:128 user:7 20/m 1/s",
            Expiry::At(9),
            check(history_only(Verdict::Limited), 2, meta),
            "log:20/1m log:1/1s",
        ),
        (
            "v1:5:9:pass:0:128 user:7 20/m",
            Expiry::At(9),
            check(history_only(Verdict::Allowed), 0, meta),
            "log:20/1m",
        ),
        (
            "v1:5:9:refuse:1:128 user:7 20/m",
            Expiry::At(9),
            check(history_only(Verdict::Blocked), 1, meta),
            "log:20/1m",
        ),
        ("v1:5:99:refund:2", Expiry::At(99), Action::Refund { units: 2 }, ""),
        ("v1:5:99:refund:2 20/m", Expiry::At(99), Action::Refund { units: 2 }, "log:20/1m"),
        ("v1:5:99:block:77 why", Expiry::At(99), set(Access::Block, Some(77), None), ""),
        ("v1:5:-1:block:-1 why", Expiry::Never, set(Access::Block, None, None), ""),
        ("v2:5:99:block:77 why ann", Expiry::At(99), by(Access::Block, "ann"), ""),
        ("v2:5:99:exempt:77 why bob", Expiry::At(99), by(Access::Exempt, "bob"), ""),
        (
            "v1:5:99:ban:77:9 why",
            Expiry::At(99),
            set(Access::Block, Some(77), Some(BanTerms { length_us: 9, count: None })),
            "",
        ),
        (
            "v1:5:99:ban:77:9:3:88:13 why",
            Expiry::At(99),
            set(Access::Block, Some(77), Some(BanTerms { length_us: 9, count: Some(count) })),
            "",
        ),
        ("v1:5:99:exempt:77 why", Expiry::At(99), set(Access::Exempt, Some(77), None), ""),
        (
            "v1:5:99:pause:77 why",
            Expiry::At(99),
            Action::Pause { until_us: 77, reason: b"why" },
            "",
        ),
        ("v1:5:0:resume", Expiry::Keep, Action::Resume, ""),
        ("v1:5:0:lapse", Expiry::Keep, Action::Lapse, ""),
        ("v1:5:0:reset", Expiry::Keep, Action::Reset, ""),
        ("v1:5:0:unblock", Expiry::Keep, Action::Unblock, ""),
        ("v1:5:0:unexempt", Expiry::Keep, Action::Unexempt, ""),
        // A primary may allow more rules and longer logs than this server.
        (
            "v1:5:9:admit:2 5000000/m 1/s 2/s,name=a 3/h",
            Expiry::At(9),
            check(Recorded::Admitted, 2, None),
            "log:5000000/1m log:1/1s log:2/1s,name=a log:3/1h",
        ),
    ] {
        let effect = Effect { at_us: 5, expiry, action };
        assert_eq!(read(words(line), &mut rules, &mut Vec::new()), Ok(effect), "{line}");
        assert_eq!(texts(&rules), read_rules, "{line}");
        let texts = action.texts().into_iter().flatten();
        let texts = texts.map(|text| format!(" {}", text.escape_ascii()));
        let written = head(&effect) + &texts.collect::<String>();
        assert!(line.starts_with(&written), "{line} is written as {written}");
    }
}

fn head(effect: &Effect<'_>) -> String {
    String::from_utf8(Head::of(effect).text().to_vec()).unwrap()
}

#[test]
fn the_longest_head_is_not_cut_off() {
    let (forgotten_us, span_us) = (MAX_FORGOTTEN_US, MAX_SPAN_US);
    let count = BanCount { bans: u32::MAX, forgotten_us, span_us };
    for (action, end) in [
        (
            Action::Check {
                recorded: Recorded::HistoryOnly(Verdict::Blocked),
                cost: MAX_UNITS,
                meta: Some(Meta { keep: u32::MAX, text: b"" }),
            },
            format!("refuse:{MAX_UNITS}:{}", u32::MAX),
        ),
        (
            Action::Set {
                kind: Access::Block,
                until_us: Some(MAX_TIME_US + MAX_PERIOD_US),
                ban: Some(BanTerms { length_us: MAX_PERIOD_US, count: Some(count) }),
                reason: b"",
                user: None,
            },
            format!(
                "ban:{}:{MAX_PERIOD_US}:{}:{forgotten_us}:{span_us}",
                MAX_TIME_US + MAX_PERIOD_US,
                u32::MAX
            ),
        ),
        (Action::Unexempt, String::from("unexempt")),
    ] {
        let effect = Effect { at_us: MAX_TIME_US, expiry: Expiry::At(u64::MAX), action };
        assert_eq!(head(&effect), format!("v1:{MAX_TIME_US}:{}:{end}", i64::MAX));
    }
}

#[test]
fn a_replica_gets_the_access_that_was_set() {
    let reason: Box<[u8]> = b"why"[..].into();
    let count = BanCount { bans: 2, forgotten_us: 9, span_us: 5 };
    for (kind, until_us, ban_us, count, event) in [
        (Access::Block, Some(7), None, None, c"rl.block"),
        (Access::Block, None, None, None, c"rl.block"),
        (Access::Block, Some(7), NonZeroU64::new(3), None, c"rl.ban"),
        (Access::Block, Some(7), NonZeroU64::new(3), Some(&count), c"rl.ban"),
        (Access::Exempt, Some(7), None, None, c"rl.exempt"),
        (Access::Exempt, None, None, None, c"rl.exempt"),
    ] {
        let author = ban_us.is_none().then(|| Author::new(5, b"alice"));
        let access = AccessEntry { kind, until_us, ban_us, reason: reason.clone(), author };
        let mut replica = Limiter::default();
        let perform = |action, replica: &mut Limiter| {
            Effect { at_us: 5, expiry: Expiry::Keep, action }.perform(&[], &[], replica);
        };
        perform(Action::set(&access, count), &mut replica);
        assert_eq!((replica.access(), replica.bans()), (Some(&access), count));
        assert_eq!(Action::set(&access, count).event(), Some(event));
        let (lift, other) = match kind {
            Access::Block => (Action::Unblock, None),
            Access::Exempt => (Action::Unexempt, Some(Action::Unblock)),
        };
        // An `unblock` keeps an exemption.
        if let Some(other) = other {
            perform(other, &mut replica);
            assert_eq!(replica.access(), Some(&access));
        }
        perform(lift, &mut replica);
        assert!(replica.is_empty());
    }
}

/// Any action, with rules that fit it.
fn actions() -> impl Strategy<Value = (Action<'static>, Vec<&'static str>)> {
    const RULES: [&str; 9] = [
        "20/m",
        "window:9/h,res=60",
        "fixed:5/d,align=first",
        "fixed:3/month",
        "bucket:100/s,burst=200",
        "leaky:10/s,queue=5",
        "1/s,count=all,ban=1h:2h",
        "7/h,shadow,name=x",
        "9/h,cost=5,name=y",
    ];
    let text = prop::sample::select(vec![
        &b""[..],
        b"why",
        b"v1:1:0:reset",
        b"\0:\r\n\xff",
        b"20/m",
        b"META",
    ]);
    let until_us = prop::option::of(0..=MAX_TIME_US + MAX_PERIOD_US);
    let meta =
        prop::option::of((text.clone(), 1..=u32::MAX).prop_map(|(text, keep)| Meta { text, keep }));
    let rules = |count| prop::sample::subsequence(RULES.to_vec(), count);
    let words = prop::sample::select(&Word::ALL);
    let count = (1..=u32::MAX, 0..=MAX_FORGOTTEN_US, 0..=MAX_SPAN_US)
        .prop_map(|(bans, forgotten_us, span_us)| BanCount { bans, forgotten_us, span_us });
    let numbers = (0..=MAX_UNITS, until_us, 0..=MAX_PERIOD_US, prop::option::of(count));
    (words, numbers, meta, text, rules(1..=RULES.len()), rules(0..=RULES.len())).prop_map(
        |(word, (units, until_us, length_us, count), meta, reason, some_rules, any_rules)| {
            let check = |recorded| Action::Check { recorded, cost: units, meta };
            let user = (units % 2 == 0).then_some(reason);
            let set = |kind, ban: Option<BanTerms>| Action::Set {
                kind,
                until_us,
                ban,
                reason,
                user: user.filter(|_| ban.is_none()),
            };
            match word {
                Word::Admit => (check(Recorded::Admitted), some_rules),
                Word::Charge => (check(Recorded::Charged), some_rules),
                Word::Pass => (check(Recorded::HistoryOnly(Verdict::Allowed)), some_rules),
                Word::Deny => (check(Recorded::HistoryOnly(Verdict::Limited)), some_rules),
                Word::Refuse => (check(Recorded::HistoryOnly(Verdict::Blocked)), some_rules),
                Word::Hold => {
                    let (id, end_us) = (b"req", until_us.unwrap_or(0));
                    let hold = HoldRequest { id, end_us, refund: units % 2 == 0 };
                    (check(Recorded::Held(hold)), some_rules)
                }
                Word::Settle => {
                    (Action::Settle { id: b"COST", settled: Settlement::AsCharged }, Vec::new())
                }
                Word::Renew => {
                    let end_us = until_us.unwrap_or(0);
                    (Action::Renew { id: b"20/m", end_us }, Vec::new())
                }
                Word::Refund => (Action::Refund { units }, any_rules),
                Word::Lapse => (Action::Lapse, Vec::new()),
                Word::Reset => (Action::Reset, Vec::new()),
                Word::Block => (set(Access::Block, None), Vec::new()),
                Word::Ban => (set(Access::Block, Some(BanTerms { length_us, count })), Vec::new()),
                Word::Exempt => (set(Access::Exempt, None), Vec::new()),
                Word::Unblock => (Action::Unblock, Vec::new()),
                Word::Unexempt => (Action::Unexempt, Vec::new()),
                Word::Pause => {
                    (Action::Pause { until_us: until_us.unwrap_or(0), reason }, Vec::new())
                }
                Word::Resume => (Action::Resume, Vec::new()),
                Word::Plan => (Action::Plan { until_us, name: b"pro" }, Vec::new()),
                Word::Unplan => (Action::Unplan, Vec::new()),
            }
        },
    )
}

fn expiries() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::Keep),
        Just(Expiry::Never),
        (1..=i64::MAX.unsigned_abs()).prop_map(Expiry::At),
    ]
}

proptest! {
    #[test]
    fn a_written_effect_is_read_back(
        at_us in 0..=MAX_TIME_US,
        expiry in expiries(),
        (action, rule_texts) in actions(),
    ) {
        let effect = Effect { at_us, expiry, action };
        let head = Head::of(&effect);
        let texts = action.texts().into_iter().flatten();
        let rule_args = rule_texts.iter().map(|text| text.as_bytes());
        let args = std::iter::once(head.text()).chain(texts).chain(rule_args);
        let mut rules = Vec::new();
        prop_assert_eq!(read(args, &mut rules, &mut Vec::new()), Ok(effect));
        let written = if rule_texts.is_empty() { Vec::new() } else { rules_of_line(&rule_texts.join(" ")) };
        prop_assert_eq!(rules, written);
    }

    #[test]
    fn any_arguments_give_an_effect_or_a_printable_error(args in arguments()) {
        if let Err(error) = read(args.iter().map(Vec::as_slice), &mut Vec::new(), &mut Vec::new()) {
            let line = error.to_string();
            prop_assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{}", line);
        }
    }
}

/// Arguments that sometimes begin like an effect.
fn arguments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word = prop::sample::select(Word::ALL.map(Word::name).to_vec());
    let argument = prop_oneof![
        ("(v[123]:)?", "-?[0-9]{1,20}", "-?[0-9]{1,20}", word.clone(), "(:[0-9]{0,20}){0,6}")
            .prop_map(|(version, at, expiry, word, numbers)| format!(
                "{version}{at}:{expiry}:{word}{numbers}"
            )
            .into_bytes()),
        word.prop_map(|word| word.as_bytes().to_vec()),
        "META|v[0-9]{0,20}|-?[0-9]{1,20}".prop_map(String::into_bytes),
        "(window:|fixed:)?[0-9]{1,4}/[0-9]{0,3}[smhd](,name=[a-c])?".prop_map(String::into_bytes),
        any::<Vec<u8>>(),
    ];
    prop::collection::vec(argument, 0..8)
}

#[test]
fn errors_name_what_was_given_and_expected() {
    let mut rules = Vec::new();
    for (line, error) in [
        ("", "wrong number of arguments"),
        ("v1:5:0:admit:1", "wrong number of arguments"),
        ("v1:5:0:deny:1:5", "wrong number of arguments"),
        ("v1:5:0:deny:1:5 x", "wrong number of arguments"),
        ("v1:5:0:block:7", "wrong number of arguments"),
        ("v2:5:0:block:7 why", "wrong number of arguments"),
        ("v1", "effect is 'v1', expected time:expiry:word and the word's numbers"),
        ("v1:5:0", "effect is 'v1:5:0', expected time:expiry:word and the word's numbers"),
        (
            "v1:5:0:admit 20/m",
            "effect is 'v1:5:0:admit', expected time:expiry:word and the word's numbers",
        ),
        (
            "v1:5:0:refund 20/m",
            "effect is 'v1:5:0:refund', expected time:expiry:word and the word's numbers",
        ),
        (
            "v1:5:0:block x",
            "effect is 'v1:5:0:block', expected time:expiry:word and the word's numbers",
        ),
        ("5:0:admit:1 20/m", "the version of an effect is '5', expected v1 or v2"),
        ("v0:5:0:admit:1 20/m", "the version of an effect is 'v0', expected v1 or v2"),
        ("v:5:0:admit:1 20/m", "the version of an effect is 'v', expected v1 or v2"),
        ("V1:5:0:admit:1 20/m", "the version of an effect is 'V1', expected v1 or v2"),
        (
            "v1:5:0:ban:7 why",
            "effect is 'v1:5:0:ban:7', expected time:expiry:word and the word's numbers",
        ),
        ("v1:5:0:ban:7:x why", "the length is 'x', expected an integer 0..31622400000000"),
        (
            "v1:5:0:ban:7:8:1:2 why",
            "effect is 'v1:5:0:ban:7:8:1:2', expected time:expiry:word and the word's numbers",
        ),
        ("v1:5:0:ban:7:8:0:2:3 why", "bans is '0', expected an integer 1..4294967295"),
        (
            "v1:5:0:ban:7:8:1:x:3 why",
            "the time of forgetting is 'x', expected an integer 0..253465545599999999",
        ),
        ("v1:5:0:ban:7:8:1:2:-3 why", "the span is '-3', expected an integer 0..63244800000000"),
        ("v1:5:0:ban:7:8:1:2:3:4 why", "unexpected '4', expected the effect to end before it"),
        ("v1:5:0:block:7:8 why", "unexpected '8', expected the effect to end before it"),
        ("v1:x:0:admit:1 20/m", "time is 'x', expected an integer 0..253402300799999999"),
        ("v1::0:admit:1 20/m", "time is '', expected an integer 0..253402300799999999"),
        ("v1:5::admit:1 20/m", "expiry is '', expected an integer 0..9223372036854775807"),
        (
            "v1:5:0:ADMIT:1 20/m",
            "effect is 'ADMIT', expected admit, charge, pass, deny, refuse, hold, settle, renew, \
             lapse, refund, reset, block, ban, exempt, unblock, unexempt, pause, resume, plan \
             or unplan",
        ),
        ("v1:5:0:admit:-1 20/m", "units is '-1', expected an integer 0..1000000000"),
        ("v1:5:0:refund:-1 20/m", "units is '-1', expected an integer 0..1000000000"),
        ("v1:5:-2:admit:1 20/m", "expiry is '-2', expected an integer 0..9223372036854775807"),
        ("v1:5:0:admit:1:0 x 20/m", "keep is '0', expected an integer 1..4294967295"),
        ("v1:5:0:admit:1: x 20/m", "keep is '', expected an integer 1..4294967295"),
        ("v1:5:0:block:-2 x", "the end is '-2', expected an integer 0..253433923199999999"),
        ("v1:5:0:admit:1:5:6 x 20/m", "unexpected '6', expected the effect to end before it"),
        ("v1:5:0:refund:1:5 20/m", "unexpected '5', expected the effect to end before it"),
        ("v1:5:0:block:7:why", "unexpected 'why', expected the effect to end before it"),
        ("v1:5:0:reset:1", "unexpected '1', expected the effect to end before it"),
        ("v1:5:0:unblock:", "unexpected '', expected the effect to end before it"),
        ("v1:5:0:admit:1 20/m x", "unexpected 'x', expected a rule such as 20/1m"),
        ("v1:5:0:admit:1 x", "unexpected 'x', expected a rule such as 20/1m"),
        ("v1:5:0:admit:1 META 5 x 20/m", "unexpected 'META', expected a rule such as 20/1m"),
        ("v1:5:0:unblock 20/m", "unexpected '20/m', expected a rule such as 20/1m"),
        ("v1:5:0:plan:-1", "wrong number of arguments"),
        ("v1:5:0:plan:-1 @x", "the policy's name is '@x', expected 1 to 32 of A-Z a-z 0-9 _ . -"),
        ("v1:5:0:admit:1 @x", "rule '@x': unknown policy, expected one that RL.POLICY LIST shows"),
    ] {
        let error_given = read(words(line), &mut rules, &mut Vec::new());
        assert_eq!(error_given.expect_err(line).to_string(), error, "{line}");
    }
}

#[test]
fn an_effect_of_a_newer_version_is_refused_with_the_remedy() {
    for line in ["v3:5:0:admit:2 20/m", "v3:nothing:known", "v3 x", "v3", "v18446744073709551615:"]
    {
        let error = read(words(line), &mut Vec::new(), &mut Vec::new()).expect_err(line);
        let version = line[1..].split([':', ' ']).next().expect("a version");
        let expected = format!(
            "an effect of version {version} was written by a newer version of the module, \
             expected version 2 or older; upgrade this server first"
        );
        assert_eq!(error.to_string(), expected, "{line}");
    }
}

/// A word that is new to effects or to the text of rules needs a new version.
#[test]
fn every_word_belongs_to_the_newest_version() {
    let words = [
        Word::ALL.map(Word::name).join(" "),
        Kind::ALL.map(Kind::name).join(" "),
        RuleOption::all().map(RuleOption::name).collect::<Vec<_>>().join(" "),
    ];
    let of_version_2 = [
        "admit charge pass deny refuse hold settle renew lapse refund reset block ban exempt unblock \
         unexempt pause resume plan unplan",
        "log window fixed bucket leaky slots",
        "res align tz keep burst refill queue name count cost ban shadow",
    ];
    assert_eq!((VERSION, words), (2, of_version_2.map(String::from)));
}
