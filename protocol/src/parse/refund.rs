//! `RL.REFUND`: units to give back.

use super::cursor::{Cursor, UNITS};
use super::error::Parsed;
use super::limits::Limits;
use super::resolver::RuleResolver;
use super::rules::{RULES_COME_LAST, take_rules};
use ratelimit_engine::rule::Rule;

/// An `RL.REFUND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefundRequest {
    /// 0 ..= [`MAX_UNITS`](ratelimit_engine::rule::MAX_UNITS).
    pub units: u32,
    /// The time of the refund, 0 ..= [`MAX_TIME_US`](ratelimit_engine::rule::MAX_TIME_US);
    /// `None`: the server's time.
    pub at_us: Option<u64>,
    /// How many of the last arguments are rules.
    pub rule_args: usize,
}

/// The request of an `RL.REFUND`; without rules it refunds to every state.
pub fn refund<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<RefundRequest> {
    let mut args = Cursor::new(args);
    let units = args.integer("units", UNITS)?;
    let mut at_us = None;
    while args.option("AT", &mut at_us, |args| args.at(limits))? {}
    let rule_args = take_rules(at_us, &mut args, limits, resolver, rules)?;
    args.finish(if rules.is_empty() { "AT or a rule such as 20/1m" } else { RULES_COME_LAST })?;
    Ok(RefundRequest { units, at_us, rule_args })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{NoPolicies, ParseError, test_lines::*};

    fn read(line: &str, rules: &mut Vec<Rule>) -> Result<RefundRequest, ParseError> {
        refund(args(line), &LIMITS, &mut NoPolicies, rules)
    }

    #[test]
    fn refunds_are_read() {
        for (line, units, at_us, texts) in [
            ("5", 5, None, ""),
            ("0 at 9", 0, Some(9), ""),
            ("1000000000 AT 9 20/m 1/s", 1_000_000_000, Some(9), "log:20/1m log:1/1s"),
            ("5 20/m", 5, None, "log:20/1m"),
        ] {
            let mut rules = Vec::new();
            let request = read(line, &mut rules);
            let rule_args = rules.len();
            assert_eq!(request, Ok(RefundRequest { units, at_us, rule_args }), "{line}");
            assert_eq!(texts_of(&rules), texts, "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
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
            assert_eq!(read(line, &mut Vec::new()).expect_err(line).to_string(), error, "{line}");
        }
    }

    #[test]
    fn a_time_must_be_allowed() {
        let refused = refund(args("5 AT 1"), &UNTIMED, &mut NoPolicies, &mut Vec::new());
        assert_eq!(refused, Err(ParseError::AtRefused));
    }

    #[test]
    fn rules_of_an_earlier_request_are_dropped() {
        let mut rules = Vec::new();
        read("1 1/s 2/m", &mut rules).unwrap();
        read("1", &mut rules).unwrap();
        assert!(rules.is_empty());
    }
}
