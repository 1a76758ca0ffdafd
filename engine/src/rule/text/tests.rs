use super::*;
use crate::algorithm::meter::Params;
use crate::rule::{Calendar, MAX_PERIOD_US, MAX_RUNGS};
use proptest::prelude::*;

fn error(text: &str) -> String {
    Rule::from_text(text.as_bytes()).expect_err(text).to_string()
}

/// Rules are copied often.
#[test]
fn a_rule_is_small() {
    assert_eq!(size_of::<Rule>(), 120);
}

#[test]
fn rules_print_their_canonical_text() {
    for (text, canonical) in [
        ("20/m", "log:20/1m"),
        ("log:20/1m", "log:20/1m"),
        ("log:20/60s", "log:20/1m"),
        ("log:20/60000ms", "log:20/1m"),
        ("0020/01m", "log:20/1m"),
        ("0/s", "log:0/1s"),
        ("1000000000/d", "log:1000000000/1d"),
        ("5/ms", "log:5/1ms"),
        ("100/minute", "log:100/1m"),
        ("5/2hours", "log:5/2h"),
        ("5/90sec", "log:5/90s"),
        ("5/secs", "log:5/1s"),
        ("5/second", "log:5/1s"),
        ("5/30seconds", "log:5/30s"),
        ("5/2min", "log:5/2m"),
        ("5/2mins", "log:5/2m"),
        ("5/3minutes", "log:5/3m"),
        ("5/hour", "log:5/1h"),
        ("5/day", "log:5/1d"),
        ("5/2days", "log:5/2d"),
        ("5/week", "log:5/1w"),
        ("fixed:5/2weeks", "fixed:5/2w"),
        ("5/m,ban=2hours", "log:5/1m,ban=2h"),
        ("5/h", "log:5/1h"),
        ("5/7d", "log:5/1w"),
        ("5/366d", "log:5/366d"),
        ("5/52w", "log:5/52w"),
        (
            "5/m,cost=7,count=all,ban=10m,shadow,name=Web_1.a-b",
            "log:5/1m,name=Web_1.a-b,count=all,cost=7,ban=10m,shadow",
        ),
        ("5/m,count=allowed", "log:5/1m"),
        ("bucket:5/m,cost=0", "bucket:5/1m,cost=0"),
        ("5/m,ban=h", "log:5/1m,ban=1h"),
        ("5/m,ban=60s:10min:h", "log:5/1m,ban=1m:10m:1h"),
        ("5/m,ban=7d:366d:1ms:s:s:s:s:14d", "log:5/1m,ban=1w:366d:1ms:1s:1s:1s:1s:2w"),
        ("slots:8,ban=1h:1m", "slots:8,ban=1h:1m"),
        ("window:100/m", "window:100/1m"),
        ("window:100/m,res=1", "window:100/1m"),
        ("window:100/m,res=60", "window:100/1m,res=60"),
        ("fixed:5/7d", "fixed:5/7d"),
        ("fixed:5/w", "fixed:5/1w"),
        ("fixed:5/month", "fixed:5/1month"),
        ("fixed:5/1month,tz=+05:30", "fixed:5/1month,tz=+05:30"),
        ("fixed:5/d,tz=-14:00,keep=366", "fixed:5/1d,tz=-14:00,keep=366"),
        ("fixed:5/d,tz=-00:00", "fixed:5/1d"),
        ("fixed:5/d,align=epoch", "fixed:5/1d"),
        ("fixed:5/d,keep=1,align=first", "fixed:5/1d,align=first,keep=1"),
        ("fixed:5/w,align=first", "fixed:5/7d,align=first"),
        ("fixed:5/14d,align=first", "fixed:5/14d,align=first"),
        ("bucket:5/s", "bucket:5/1s"),
        ("bucket:5/s,burst=5", "bucket:5/1s"),
        ("bucket:5/s,refill=interval,burst=50", "bucket:5/1s,burst=50,refill=interval"),
        ("leaky:5/s", "leaky:5/1s"),
        ("leaky:5/s,queue=0", "leaky:5/1s,queue=0"),
        ("slots:8", "slots:8"),
        ("slots:0", "slots:0"),
        ("slots:008,count=allowed", "slots:8"),
        ("slots:8,shadow,ban=60s,cost=2,name=a", "slots:8,name=a,cost=2,ban=1m,shadow"),
    ] {
        let read = Rule::from_text(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read.to_string(), canonical, "{text}");
    }
}

#[test]
fn errors_name_what_was_given_and_expected() {
    for (text, expected) in [
        ("", "the period is missing, expected limit/period such as 20/1m"),
        ("20", "the period is missing, expected limit/period such as 20/1m"),
        ("log:20", "the period is missing, expected limit/period such as 20/1m"),
        (
            "foo:20/m",
            "unknown algorithm 'foo', expected log, window, fixed, bucket, leaky or slots",
        ),
        ("Log:20/m", "unknown algorithm 'Log', did you mean log:limit/period?"),
        (":20/m", "unknown algorithm '', expected log, window, fixed, bucket, leaky or slots"),
        ("/m", "limit is '', expected an integer 0..1000000000"),
        ("log:/m", "limit is '', expected an integer 0..1000000000"),
        ("-1/m", "limit is '-1', expected an integer 0..1000000000"),
        ("+1/m", "limit is '+1', expected an integer 0..1000000000"),
        (" 1/m", "limit is ' 1', expected an integer 0..1000000000"),
        ("1.5/m", "limit is '1.5', expected an integer 0..1000000000"),
        ("log:window:1/m", "limit is 'window:1', expected an integer 0..1000000000"),
        ("1000000001/m", "limit is 1000000001, expected 0..1000000000"),
        (
            "99999999999999999999/m",
            "limit is '99999999999999999999', expected an integer 0..1000000000",
        ),
        ("5/", "the period '' cannot be read, expected an integer and a unit such as 90s"),
        ("5/,shadow", "the period '' cannot be read, expected an integer and a unit such as 90s"),
        ("5/1.5h", "the period '1.5h' cannot be read, expected an integer and a unit such as 90s"),
        ("5/-1h", "the period '-1h' cannot be read, expected an integer and a unit such as 90s"),
        ("5/m/2", "the period 'm/2' cannot be read, expected an integer and a unit such as 90s"),
        ("bucket:10", "the period is missing, expected limit/period such as 20/1m"),
        ("5/0s", "the period is out of range, expected 1ms..366d"),
        ("5/367d", "the period is out of range, expected 1ms..366d"),
        ("5/99999999999999999999ms", "the period is out of range, expected 1ms..366d"),
        ("5/month", "the period 'month' belongs to fixed, expected ms, s, m, h, d or w"),
        ("fixed:5/2month", "a period of several months, expected 'month'"),
        (
            "fixed:5/month,align=first",
            "'month' with align=first, expected align=epoch or a period in days",
        ),
        ("5/m,", "unknown option '', expected name, count, cost, ban or shadow"),
        ("5/m,foo=1", "unknown option 'foo', expected name, count, cost, ban or shadow"),
        ("5/m,SHADOW", "unknown option 'SHADOW', expected name, count, cost, ban or shadow"),
        ("5/m,shadow,,", "unknown option '', expected name, count, cost, ban or shadow"),
        ("window:5/m,x", "unknown option 'x', expected res, name, count, cost, ban or shadow"),
        (
            "fixed:5/m,x",
            "unknown option 'x', expected align, tz, keep, name, count, cost, ban or shadow",
        ),
        (
            "bucket:5/m,x",
            "unknown option 'x', expected burst, refill, name, count, cost, ban or shadow",
        ),
        ("leaky:5/m,x", "unknown option 'x', expected queue, name, count, cost, ban or shadow"),
        ("5/m,res=2", "option 'res' belongs to window, not to log"),
        ("window:5/m,queue=2", "option 'queue' belongs to leaky, not to window"),
        ("5/m,name", "option 'name' has no value, expected name= and 1 to 32 of A-Z a-z 0-9 _ . -"),
        ("5/m,name=", "name is '', expected 1 to 32 of A-Z a-z 0-9 _ . -"),
        ("5/m,name=a=b", "name is 'a=b', expected 1 to 32 of A-Z a-z 0-9 _ . -"),
        ("5/m,name=a:b", "name is 'a:b', expected 1 to 32 of A-Z a-z 0-9 _ . -"),
        ("5/m,count", "option 'count' has no value, expected count= and all or allowed"),
        ("5/m,count=none", "count is 'none', expected all or allowed"),
        ("5/m,cost", "option 'cost' has no value, expected cost= and an integer 0..1000000000"),
        ("5/m,cost=x", "cost is 'x', expected an integer 0..1000000000"),
        ("5/m,cost=1000000001", "cost is 1000000001, expected 0..1000000000"),
        (
            "5/m,ban",
            "option 'ban' has no value, expected ban= and 1 to 8 periods such as 10m or 1m:10m:1h",
        ),
        ("5/m,ban=", "ban '' cannot be read, expected an integer and a unit such as 90s"),
        ("5/m,ban=0s", "ban is '0s', expected a period of 1ms..366d"),
        ("5/m,ban=month", "ban is 'month', expected a period of 1ms..366d"),
        (
            "5/m,ban=99999999999999999999s",
            "ban is '99999999999999999999s', expected a period of 1ms..366d",
        ),
        ("5/m,ban=1m:0s:1h", "ban is '0s', expected a period of 1ms..366d"),
        ("5/m,ban=1m:10m:367d", "ban is '367d', expected a period of 1ms..366d"),
        ("5/m,ban=1m::1h", "ban '' cannot be read, expected an integer and a unit such as 90s"),
        ("5/m,ban=1m:", "ban '' cannot be read, expected an integer and a unit such as 90s"),
        ("5/m,ban=:", "ban '' cannot be read, expected an integer and a unit such as 90s"),
        (
            "5/m,ban=1m:2:3m",
            "ban '2' has no known unit, expected ms, s (sec, second), m (min, minute), h (hour), \
             d (day) or w (week)",
        ),
        (
            "5/m,ban=1s:2s:3s:4s:5s:6s:7s:8s:9s",
            "ban is '1s:2s:3s:4s:5s:6s:7s:8s:9s', \
             expected 1 to 8 periods such as 10m or 1m:10m:1h",
        ),
        ("5/m,shadow=1", "shadow is '1', expected no value"),
        ("5/m,shadow=", "shadow is '', expected no value"),
        ("window:5/m,res", "option 'res' has no value, expected res= and an integer 1..60"),
        ("window:5/m,res=x", "res is 'x', expected an integer 1..60"),
        ("window:5/m,res=0", "res is 0, expected 1..60"),
        ("window:5/m,res=18446744073709551615", "res is 18446744073709551615, expected 1..60"),
        ("window:5/m,res=61", "res is 61, expected 1..60"),
        ("fixed:5/m,align=last", "align is 'last', expected epoch or first"),
        ("fixed:5/m,align", "option 'align' has no value, expected align= and epoch or first"),
        ("fixed:5/m,tz", "option 'tz' has no value, expected tz= and +HH:MM or -HH:MM"),
        ("fixed:5/m,tz=2", "tz is '2', expected +HH:MM or -HH:MM"),
        ("fixed:5/m,tz=02:00", "tz is '02:00', expected +HH:MM or -HH:MM"),
        ("fixed:5/m,tz=+2:00", "tz is '+2:00', expected +HH:MM or -HH:MM"),
        ("fixed:5/m,tz=+02:60", "tz is '+02:60', expected +HH:MM or -HH:MM"),
        ("fixed:5/m,tz=*02:00", "tz is '*02:00', expected +HH:MM or -HH:MM"),
        ("fixed:5/m,tz=+14:01", "tz is out of range, expected -14:00..+14:00"),
        ("fixed:5/m,tz=-99:59", "tz is out of range, expected -14:00..+14:00"),
        ("fixed:5/m,keep=-1", "keep is '-1', expected an integer 0..366"),
        ("fixed:5/m,keep=367", "keep is 367, expected 0..366"),
        ("bucket:5/m,burst=0", "burst is 0, expected 1..1000000000"),
        ("bucket:5/m,burst=1e3", "burst is '1e3', expected an integer 1..1000000000"),
        ("bucket:5/m,refill=even", "refill is 'even', expected interval"),
        ("bucket:5/m,refill", "option 'refill' has no value, expected refill= and interval"),
        ("leaky:5/m,queue=1000000001", "queue is 1000000001, expected 0..1000000000"),
        ("leaky:5/m,queue=", "queue is '', expected an integer 0..1000000000"),
        ("slots", "the period is missing, expected limit/period such as 20/1m"),
        ("slots:", "limit is '', expected an integer 0..1000000000"),
        ("slots:x", "limit is 'x', expected an integer 0..1000000000"),
        ("slots:1000000001", "limit is 1000000001, expected 0..1000000000"),
        ("slots:8/m", "slots have no period, expected slots:limit"),
        ("slots/m", "limit is 'slots', expected an integer 0..1000000000"),
        ("slots:8,", "unknown option '', expected name, cost, ban or shadow"),
        ("slots:8,x", "unknown option 'x', expected name, cost, ban or shadow"),
        ("slots:8,burst=3", "option 'burst' belongs to bucket, not to slots"),
        (
            "slots:8,count=all",
            "slots with count=all, expected count=allowed: denied requests hold none",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn errors_about_a_unit_list_the_units() {
    const UNITS: &str = "expected ms, s (sec, second), m (min, minute), h (hour), d (day)";
    for period in ["60", "x", "2mi", "minutess", "Minute", "months", "M"] {
        let (text, end) = (format!("5/{period}"), ", w (week) or month");
        let expected = format!("the period '{period}' has no known unit, {UNITS}{end}");
        assert_eq!(error(&text), expected, "{text}");
        let (text, end) = (format!("5/m,ban={period}"), " or w (week)");
        let expected = format!("ban '{period}' has no known unit, {UNITS}{end}");
        assert_eq!(error(&text), expected, "{text}");
    }
}

#[test]
fn integers_are_digits_only() {
    for (text, number) in [
        ("0", Some(0)),
        ("7", Some(7)),
        ("0012", Some(12)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("99999999999999999999999999", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1 ", None),
        ("1e3", None),
        ("1_000", None),
        ("1.0", None),
        ("0x1f", None),
        ("\u{661}", None),
    ] {
        assert_eq!(digits(text.as_bytes()), number, "{text:?}");
    }
}

#[test]
fn options_may_be_given_only_once() {
    for (kind, options) in [
        ("log", &["name=a", "count=allowed", "count=all", "cost=2", "ban=1m", "shadow"][..]),
        ("window", &["res=2"]),
        ("fixed", &["align=epoch", "tz=+00:00", "keep=0"]),
        ("bucket", &["burst=5", "refill=interval"]),
        ("leaky", &["queue=5"]),
        ("slots", &["name=a", "cost=2", "ban=1m", "shadow"]),
    ] {
        let head = if kind == "slots" { "slots:5".into() } else { format!("{kind}:5/m") };
        for option in options {
            let word = option.split('=').next().unwrap_or(option);
            let text = format!("{head},{option},{option}");
            let expected = format!("option '{word}' is given twice, expected once");
            assert_eq!(error(&text), expected, "{text}");
        }
    }
    assert!(error("5/m,count=all,count=allowed").ends_with("given twice, expected once"));
}

#[test]
fn the_canonical_text_leaves_out_a_named_cost() {
    for (text, named, canonical, with_cost) in [
        ("5/m,name=a", None, "log:5/1m,name=a", "log:5/1m,name=a"),
        ("5/m,name=a,cost=2", None, "log:5/1m,name=a,cost=2", "log:5/1m,name=a,cost=2"),
        ("5/m,name=a", Some(3), "log:5/1m,name=a", "log:5/1m,name=a,cost=3"),
        ("5/m,name=a,cost=2", Some(0), "log:5/1m,name=a,cost=2", "log:5/1m,name=a,cost=0"),
    ] {
        let mut rule = Rule::from_text(text.as_bytes()).unwrap();
        if let Some(cost) = named {
            rule.set_named_cost(cost);
        }
        assert_eq!(rule.to_string(), canonical);
        assert_eq!(format!("{rule:#}"), with_cost);
    }
}

#[test]
fn names_have_at_most_32_bytes() {
    let name = "x".repeat(32);
    let read = Rule::from_text(format!("5/m,name={name}").as_bytes()).unwrap();
    assert_eq!(read.name().map(Name::as_str), Some(&*name));
    assert!(Rule::from_text(format!("5/m,name={name}x").as_bytes()).is_err());
}

#[test]
fn weeks_and_months_follow_the_calendar() {
    for (text, calendar) in [
        ("fixed:5/7d", Calendar::Epoch),
        ("fixed:5/2w", Calendar::Weeks),
        ("fixed:5/month", Calendar::Months),
    ] {
        let read = Rule::from_text(text.as_bytes()).unwrap().params();
        assert!(matches!(read, Params::Fixed(fixed) if fixed.calendar == Some(calendar)), "{text}");
    }
}

fn units() -> impl Strategy<Value = Unit> {
    prop_oneof![
        Just(Unit::Millisecond),
        Just(Unit::Second),
        Just(Unit::Minute),
        Just(Unit::Hour),
        Just(Unit::Day),
        Just(Unit::Week),
        Just(Unit::Month),
    ]
}

fn periods() -> impl Strategy<Value = Period> {
    let counts = prop_oneof![3 => 1..60_u64, 1 => 0..40_000_000_000_u64];
    (counts, units()).prop_map(|(count, unit)| Period { count, unit })
}

fn ladders() -> impl Strategy<Value = Ladder> {
    let rungs = prop_oneof![1..=100_000u64, 1..=MAX_PERIOD_US / 1_000];
    proptest::collection::vec(rungs, 1..=MAX_RUNGS).prop_map(|rungs| Ladder::of_ms(&rungs))
}

/// Options that only one algorithm takes, a few of them out of bounds: the name of each, its number
/// in the spec, and its text.
fn own() -> impl Strategy<Value = Vec<(&'static str, i64, String)>> {
    let number = |name, most: i64| (0..most).prop_map(move |n| (name, n, n.to_string()));
    let tz = |tz: i64| {
        let sign = if tz < 0 { '-' } else { '+' };
        format!("{sign}{:02}:{:02}", tz.unsigned_abs() / 60, tz.unsigned_abs() % 60)
    };
    use proptest::option::of;
    let own = (
        of(number("res", 62)),
        of(prop_oneof![Just(("align", 0, "epoch".into())), Just(("align", 1, "first".into()))]),
        of((-850..850_i64).prop_map(move |min| ("tz", min, tz(min)))),
        of(number("keep", 380)),
        of(number("burst", 1_000_000_010)),
        of(Just(("refill", 1, "interval".into()))),
        of(number("queue", 1_000_000_010)),
    );
    own.prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g].into_iter().flatten().collect())
}

/// Specs of all kinds, with the texts of their own options.
fn specs() -> impl Strategy<Value = (RuleSpec, Vec<(&'static str, String)>)> {
    let common = (
        proptest::option::of("[A-Za-z0-9_.-]{1,32}"),
        any::<bool>(),
        proptest::option::of(0..1_000_000_010_u64),
        proptest::option::of(ladders()),
        any::<bool>(),
    );
    let limits = prop_oneof![0..100_u64, 0..1_000_000_010_u64];
    (proptest::sample::select(&Kind::ALL), limits, periods(), own(), common).prop_map(
        |(kind, limit, period, own, common)| {
            let (name, count_all, cost, ban, shadow) = common;
            let name = name.and_then(|name| Name::new(name.as_bytes()));
            let period = (kind != Kind::Slots).then_some(period);
            let plain = RuleSpec { kind, limit, period, ..RuleSpec::default() };
            let spec = RuleSpec { name, count_all, cost, ban, shadow, ..plain };
            let of_kind = |name: &str| kind.options().iter().any(|option| option.name == name);
            let given = own.into_iter().filter(|(name, ..)| of_kind(name));
            given.fold((spec, Vec::new()), |(spec, mut texts), (name, value, text)| {
                texts.insert(0, (name, text));
                (spec.with(name, value), texts)
            })
        },
    )
}

/// The text of a spec with every option written out.
fn written((spec, own): &(RuleSpec, Vec<(&'static str, String)>)) -> String {
    let period = |period: &Period| format!("{}{}", period.count, period.unit.name());
    let ban = |ladder: &Ladder| {
        let rungs: Vec<_> = ladder.rungs_us().map(|us| format!("{}ms", us / 1_000)).collect();
        rungs.join(":")
    };
    let mut text = format!("{}:{}", spec.kind.name(), spec.limit);
    if let Some(written) = &spec.period {
        text = format!("{text}/{}", period(written));
    }
    let count = if spec.count_all { "all" } else { "allowed" };
    let options = [
        ("shadow", spec.shadow.then(String::new)),
        ("ban=", spec.ban.as_ref().map(ban)),
        ("cost=", spec.cost.map(|n| n.to_string())),
        ("count=", Some(count.into())),
        ("name=", spec.name.map(|name| name.as_str().into())),
    ];
    for (word, value) in options {
        if let Some(value) = value {
            text = format!("{text},{word}{value}");
        }
    }
    for (name, value) in own {
        text = format!("{text},{name}={value}");
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn written_specs_are_read_back(spec in specs()) {
        let text = written(&spec);
        let spec = spec.0;
        prop_assert_eq!(RuleSpec::from_text(text.as_bytes()), Ok(spec.clone()));
        match (spec.validate(), Rule::from_text(text.as_bytes())) {
            (Ok(valid), read) => prop_assert_eq!(read, Ok(valid)),
            (Err(why), Err(error)) => prop_assert_eq!(error, why),
            (why, read) => prop_assert!(false, "{:?} but {:?}", why, read),
        }
    }

    #[test]
    fn canonical_texts_are_read_back(spec in specs()) {
        if let Ok(valid) = spec.0.validate() {
            let text = valid.to_string();
            prop_assert_eq!(Rule::from_text(text.as_bytes()), Ok(valid));
        }
    }

    #[test]
    fn any_bytes_give_a_rule_or_a_printable_error(text: Vec<u8>) {
        check_reading(&text)?;
    }

    #[test]
    fn texts_like_rules_give_a_rule_or_a_printable_error(
        text in "((log|window|fixed|bucket|leaky|slots|@)?:?[0-9+-]{0,12}/?[0-9]{0,21}\
                 (ms|s|m|h|d|w|month|x)?\
                 (,(res|align|tz|keep|burst|refill|queue|name|count|cost|ban|shadow)\
                 (=([0-9a-z:+.\u{e4}-]{0,6}|all|first|interval))?){0,3})"
    ) {
        check_reading(text.as_bytes())?;
    }
}

fn check_reading(text: &[u8]) -> Result<(), TestCaseError> {
    match Rule::from_text(text) {
        Ok(read) => prop_assert_eq!(Rule::from_text(read.to_string().as_bytes()), Ok(read)),
        Err(error) => {
            let line = error.to_string();
            prop_assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{}", line);
            prop_assert!(line.len() < 300, "{}", line);
        }
    }
    Ok(())
}

#[test]
fn errors_state_the_bounds_that_are_checked() {
    let out_of_range = |text: &str| match Rule::from_text(text.as_bytes()) {
        Err(RuleError::OutOfRange { min, max, .. }) => {
            format!("an integer {min}..{max}")
        }
        other => panic!("{other:?}"),
    };
    for (word, text) in [
        ("limit", "9999999999/m"),
        ("res", "window:5/m,res=9999999999"),
        ("keep", "fixed:5/m,keep=9999999999"),
        ("burst", "bucket:5/m,burst=9999999999"),
        ("queue", "leaky:5/m,queue=9999999999"),
    ] {
        let unreadable = text.replace("9999999999", "x");
        let expected = format!("{word} is 'x', expected {}", out_of_range(text));
        assert_eq!(error(&unreadable), expected);
    }
}
