//! Guesses the rule that a text in another limiter's words means. Only error messages use the
//! guess: the text of a rule has one spelling.

use super::{Kind, MAX_UNITS};

/// Names that other limiters give to the algorithms. Case, blanks, `_` and `-` do not matter.
const ALGORITHMS: [(&str, Kind); 14] = [
    ("gcra", Kind::Bucket),
    ("token", Kind::Bucket),
    ("tokenbucket", Kind::Bucket),
    ("leak", Kind::Leaky),
    ("leakybucket", Kind::Leaky),
    ("sliding", Kind::Window),
    ("slidingcounter", Kind::Window),
    ("slidingwindow", Kind::Window),
    ("slidingwindowcounter", Kind::Window),
    ("slidinglog", Kind::Log),
    ("slidingwindowlog", Kind::Log),
    ("movingwindow", Kind::Log),
    ("fixedwindow", Kind::Fixed),
    ("fixedwindowcounter", Kind::Fixed),
];

/// The ending of a limit without a slash, and the unit of time that it means.
const PERIODS: [(&str, &str); 15] = [
    ("persecond", "s"),
    ("persec", "s"),
    ("pers", "s"),
    ("rps", "s"),
    ("qps", "s"),
    ("perminute", "m"),
    ("permin", "m"),
    ("perm", "m"),
    ("rpm", "m"),
    ("qpm", "m"),
    ("perhour", "h"),
    ("rph", "h"),
    ("perday", "d"),
    ("rpd", "d"),
    ("perweek", "w"),
];

/// The algorithm that an unknown name may mean.
#[cold]
pub(super) fn algorithm(name: &[u8]) -> Option<Kind> {
    let named = |other: &str| letters(name).eq(other.bytes());
    let own = Kind::ALL.into_iter().find(|kind| named(kind.name()));
    own.or_else(|| ALGORITHMS.into_iter().find(|(other, _)| named(other)).map(|(_, kind)| kind))
}

/// The limit and the period that `5 per minute`, `10rps` or `5 requests per hour` may mean.
#[cold]
pub(super) fn rate(text: &[u8]) -> Option<(u32, &'static str)> {
    let (limit, words) = text.split_at_checked(text.iter().position(|b| !b.is_ascii_digit())?)?;
    let limit = str::from_utf8(limit).ok()?.parse().ok().filter(|&limit| limit <= MAX_UNITS)?;
    let ends = |end: &str| end.bytes().rev().eq(letters(words).rev().take(end.len()));
    let (_, unit) = PERIODS.into_iter().find(|(end, _)| ends(end))?;
    Some((limit, unit))
}

/// The letters and digits of a text, in lower case.
fn letters(text: &[u8]) -> impl DoubleEndedIterator<Item = u8> {
    text.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase)
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use crate::rule::Rule;
    use proptest::prelude::*;

    fn meant(text: &str) -> String {
        let error = Rule::from_text(text.as_bytes()).expect_err(text).to_string();
        let (_, meant) = error.split_once("did you mean ").unwrap_or_else(|| panic!("{error}"));
        meant.strip_suffix('?').expect("a question").to_string()
    }

    #[test]
    fn names_of_other_limiters_lead_to_the_algorithm() {
        for (kind, names) in [
            ("bucket", "gcra GCRA token_bucket tokenbucket token-bucket TokenBucket Bucket"),
            ("leaky", "leaky_bucket leaky-bucket leakybucket LEAKY"),
            ("window", "sliding_window sliding-window slidingWindow sliding_window_counter"),
            ("log", "sliding_log sliding-log sliding_window_log moving-window Log"),
            ("fixed", "fixed_window fixed-window fixedwindow fixed_window_counter"),
            ("slots", "Slots"),
        ] {
            for name in names.split(' ') {
                assert_eq!(meant(&format!("{name}:5/m")), format!("{kind}:limit/period"), "{name}");
            }
        }
    }

    #[test]
    fn a_rate_in_words_leads_to_its_rule() {
        for (text, rule) in [
            ("5 per minute", "5/m"),
            ("5 requests per minute", "5/m"),
            ("5 Per Hour", "5/h"),
            ("5-per-day", "5/d"),
            ("5_per_second", "5/s"),
            ("10rps", "10/s"),
            ("600 RPM", "600/m"),
            ("bucket:5 per week", "bucket:5/w"),
            ("gcra:5 per week,shadow", "bucket:5/w"),
        ] {
            assert_eq!(meant(text), rule, "{text}");
        }
    }

    #[test]
    fn an_unknown_period_in_words_counts_as_missing() {
        for text in ["5", "5 per", "5 minutes", "5 per 2 minutes", "2000000000rps", "rps", "+5rps"]
        {
            let error = Rule::from_text(text.as_bytes()).expect_err(text).to_string();
            assert_eq!(error, "the period is missing, expected limit/period such as 20/1m");
        }
    }

    proptest! {
        #[test]
        fn a_rate_in_words_means_a_valid_rule(text in "(bucket:|log:)?[0-9]{1,11}.{0,9}(per ?|r|q)[a-z]{1,7}") {
            let error = Rule::from_text(text.as_bytes()).map_err(|error| error.to_string());
            if let Some((_, meant)) = error.as_ref().err().and_then(|text| text.split_once("did you mean ")) {
                prop_assert!(Rule::from_text(meant.trim_end_matches('?').as_bytes()).is_ok(), "{text}");
            }
        }
    }
}
