//! Rules built part by part: which parts are refused, and what a rule says of itself.

use super::*;

/// The builder of a rule with this canonical text.
pub(super) fn built(text: &str) -> RuleBuilder {
    let (kind, rest) = text.split_once(':').expect("an algorithm");
    let mut words = rest.split(',');
    let rate = words.next().expect("a limit");
    let (limit, period) = rate.split_once('/').unwrap_or((rate, ""));
    let limit = limit.parse().expect("a limit");
    let builder = match kind {
        "log" => Rule::log(limit, length(period)),
        "window" => Rule::window(limit, length(period)),
        "fixed" => Rule::fixed(limit, length(period)),
        "bucket" => Rule::bucket(limit, length(period)),
        "leaky" => Rule::leaky(limit, length(period)),
        "slots" => Rule::slots(limit),
        _ => panic!("{kind}"),
    };
    words.fold(builder, |builder, word| {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || value.parse::<u64>().expect("a number");
        match option {
            "burst" => builder.burst(number() as u32),
            "refill" => builder.refill_at_once(),
            "queue" => builder.queue(number() as u32),
            "res" => builder.resolution(number() as u8),
            "align" => builder.align_first(),
            "tz" => {
                let (hours, minutes) = value[1..].split_once(':').expect("hours and minutes");
                let minutes = hours.parse::<i16>().unwrap() * 60 + minutes.parse::<i16>().unwrap();
                builder.time_zone(if value.starts_with('-') { -minutes } else { minutes })
            }
            "keep" => builder.keep(number() as u16),
            "name" => builder.name(value),
            "count" => builder.count_all(),
            "cost" => builder.cost(Cost::new(number()).unwrap()),
            "ban" => {
                let lengths = value.split(':').map(|rung| span(rung).expect("a length"));
                builder.ban(&lengths.collect::<Vec<_>>())
            }
            "shadow" => builder.shadow(),
            _ => panic!("{option}"),
        }
    })
}

fn length(text: &str) -> Period {
    match text {
        "1month" => Period::MONTH,
        _ if text.ends_with('w') => Period::weeks(text[..text.len() - 1].parse().unwrap()),
        _ => span(text).expect("a length").into(),
    }
}

fn span(text: &str) -> Option<Duration> {
    engine::span_us("", text.as_bytes()).ok().map(Duration::from_micros)
}

#[test]
fn wrong_parts_are_refused() {
    let (minute, ms) = (Duration::from_secs(60), Duration::from_millis(1));
    let long = "the period is out of range, expected 1ms..366d";
    for (builder, error) in [
        (Rule::log(1_000_000_001, minute), "limit is 1000000001, expected 0..1000000000"),
        (Rule::log(5, ms / 2), long),
        (Rule::log(5, ms * 3 / 2), long),
        (Rule::log(5, ms + Duration::from_nanos(1)), long),
        (Rule::window(5, Duration::MAX), long),
        (
            Rule::window(5, Period::MONTH),
            "the period 'month' belongs to fixed, expected ms, s, m, h, d or w",
        ),
        (Rule::log(5, minute).burst(9), "option 'burst' belongs to bucket, not to log"),
        (
            Rule::slots(5).count_all(),
            "slots with count=all, expected count=allowed: denied requests hold none",
        ),
        (Rule::fixed(5, minute).time_zone(-841), "tz is out of range, expected -14:00..+14:00"),
        (
            Rule::log(5, minute).name("a,shadow"),
            "name is 'a,shadow', expected 1 to 32 of A-Z a-z 0-9 _ . -",
        ),
        (
            Rule::log(5, minute).ban(&[]),
            "ban is '[]', expected 1 to 8 periods such as 10m or 1m:10m:1h",
        ),
        (
            Rule::log(5, minute).ban(&[ms, ms / 2]),
            "ban is '[1ms, 500\\xc2\\xb5s]', expected 1 to 8 periods such as 10m or 1m:10m:1h",
        ),
    ] {
        let refused = builder.build().expect_err(error);
        assert_eq!(refused.to_string(), error);
    }
    assert!(Rule::log(5, minute).ban(&[ms; 8]).build().is_ok());
    assert!(Rule::log(5, minute).ban(&[ms; 9]).build().is_err());
}

#[test]
fn a_rule_says_what_it_is() {
    let (day, slots) = (rule("fixed:9/d,name=day"), rule("slots:3,shadow"));
    assert_eq!((day.limit(), day.name(), day.is_shadow()), (9, Some("day"), false));
    assert_eq!(day.period(), Some(Duration::from_secs(86_400)));
    assert_eq!((slots.limit(), slots.name(), slots.is_shadow()), (3, None, true));
    assert_eq!((slots.period(), format!("{slots:?}")), (None, "Rule(slots:3,shadow)".into()));
    assert!(day.explain().contains("at most 9 requests in each day"), "{}", day.explain());
}
