//! `RL.SYNC`: how many units remain according to an upstream, a service that others use too.

use super::cursor::{Cursor, UNITS};
use super::error::{ParseError, Parsed, RuleArgError};
use super::limits::Limits;
use super::resolver::RuleResolver;
use super::rules::{A_RULE, RULES_COME_LAST, require_rule, take_rules};
use ratelimit_engine::rule::{Kind, Rule};

/// An `RL.SYNC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// The units that remain: at most what an unused state of the rule has.
    pub remaining: u32,
    /// The time of the sync, 0 ..= [`MAX_TIME_US`](ratelimit_engine::rule::MAX_TIME_US);
    /// `None`: the server's time.
    pub at_us: Option<u64>,
}

/// The request of an `RL.SYNC`; `rules` gets its one rule.
pub fn sync<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<SyncRequest> {
    let mut args = Cursor::new(args);
    let (mut remaining, mut at_us) = (None, None);
    while args.option("REMAINING", &mut remaining, |args| args.value("REMAINING", UNITS))?
        || args.option("AT", &mut at_us, |args| args.at(limits))?
    {}
    let remaining: u32 = remaining.ok_or_else(|| match args.peek() {
        Some(given) => ParseError::unexpected(given, "REMAINING and what remains"),
        None => ParseError::Arity,
    })?;
    take_rules(at_us, &mut args, limits, resolver, rules)?;
    args.finish(if rules.is_empty() { A_RULE } else { RULES_COME_LAST })?;
    require_rule(rules)?;
    match rules.as_slice() {
        [rule] if rule.kind() == Kind::Slots => {
            Err(ParseError::of_rule(rule, RuleArgError::Uncounted))
        }
        [rule] if u64::from(remaining) > rule.capacity() => {
            let (given, most) = (remaining.to_string(), rule.capacity());
            let expected = format!("an integer 0..{most}, as many as the rule lets pass at once");
            Err(ParseError::value("REMAINING", given.as_bytes(), expected))
        }
        [_] => Ok(SyncRequest { remaining, at_us }),
        rules => Err(ParseError::ManyRules { rules: rules.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{NoPolicies, test_lines::*};

    fn read(line: &str) -> Result<(SyncRequest, String), String> {
        let mut rules = Vec::new();
        let request = sync(args(line), &LIMITS, &mut NoPolicies, &mut rules);
        request.map(|it| (it, texts_of(&rules))).map_err(|error| error.to_string())
    }

    #[test]
    fn syncs_are_read() {
        for (line, remaining, at_us, rule) in [
            ("REMAINING 12 100/m", 12, None, "log:100/1m"),
            ("at 9 remaining 0 bucket:5/s,burst=9", 0, Some(9), "bucket:5/1s,burst=9"),
            ("REMAINING 9 bucket:5/s,burst=9", 9, None, "bucket:5/1s,burst=9"),
        ] {
            let request = SyncRequest { remaining, at_us };
            assert_eq!(read(line), Ok((request, rule.into())), "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("100/m", "unexpected '100/m', expected REMAINING and what remains"),
            ("AT 5 100/m", "unexpected '100/m', expected REMAINING and what remains"),
            ("REMAINING", "REMAINING has no value, expected an integer 0..1000000000"),
            ("REMAINING -1 9/m", "REMAINING is '-1', expected an integer 0..1000000000"),
            ("REMAINING 1", "wrong number of arguments"),
            ("REMAINING 1 x", "unexpected 'x', expected a rule such as 20/1m"),
            (
                "REMAINING 1 9/m AT 5",
                "unexpected 'AT', expected a rule such as 20/1m; options come before the rules",
            ),
            (
                "REMAINING 10 9/m",
                "REMAINING is '10', expected an integer 0..9, as many as the rule lets pass at once",
            ),
            ("REMAINING 1 9/m 9/h", "2 rules are given, expected one"),
            (
                "REMAINING 1 slots:9",
                "rule 'slots:9': slots count no requests, expected another rule",
            ),
        ] {
            assert_eq!(read(line), Err(error.into()), "{line}");
        }
    }
}
