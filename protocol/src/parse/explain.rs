//! `RL.EXPLAIN`: rules to describe.

use super::cursor::Cursor;
use super::error::Parsed;
use super::limits::Limits;
use super::resolver::RuleResolver;
use super::rules::{A_RULE, require_rule, take_rules};
use ratelimit_engine::rule::Rule;

/// The rules of an `RL.EXPLAIN`. One check must be able to have all of them.
pub fn explain<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<()> {
    let mut args = Cursor::new(args);
    take_rules(None, &mut args, limits, resolver, rules)?;
    args.finish(A_RULE)?;
    require_rule(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{NoPolicies, test_lines::*};

    #[test]
    fn rules_are_read() {
        let mut rules = Vec::new();
        let read = explain(args("20/m fixed:5/d"), &LIMITS, &mut NoPolicies, &mut rules);
        assert_eq!(read, Ok(()));
        assert_eq!(texts_of(&rules), "log:20/1m fixed:5/1d");
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("COST 1 20/m", "unexpected 'COST', expected a rule such as 20/1m"),
            ("20/m FULL", "unexpected 'FULL', expected a rule such as 20/1m"),
            (
                "1/s 2/m 3/h 4/d",
                "rule '4/d': too many rules, expected at most 3 (ratelimit.max-rules)",
            ),
        ] {
            let read = explain(args(line), &LIMITS, &mut NoPolicies, &mut Vec::new());
            assert_eq!(read.expect_err(line).to_string(), error, "{line}");
        }
    }
}
