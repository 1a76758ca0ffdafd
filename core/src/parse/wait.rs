//! `RL.WAIT`: a check, and how long the client waits for it to pass.
//!
//! ```text
//! RL.WAIT      ms [COST n|a..b|name=n ...] [META text]
//!              [HOLD id EX s|PX ms [REFUND]] [FULL] rule [rule ...]
//! ```

use super::check::{CheckRequest, check};
use super::cursor::Cursor;
use super::error::{ParseError, Parsed};
use super::limits::Limits;
use super::resolver::RuleResolver;
use crate::rule::Rule;
use std::ops::RangeInclusive;

/// An hour.
const WAIT_MS: RangeInclusive<u64> = 0..=3_600_000;

/// An `RL.WAIT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRequest<'a> {
    /// How long the client waits at most.
    pub ms: u64,
    /// The check, decided at the server's time.
    pub check: CheckRequest<'a>,
}

/// The request of an `RL.WAIT`.
pub fn wait<'a>(
    mut args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<WaitRequest<'a>> {
    let ms = Cursor::new(args.by_ref().take(1)).integer("ms", WAIT_MS)?;
    match check(args, limits, resolver, rules) {
        Ok(CheckRequest { at_us: Some(_), .. }) | Err(ParseError::AtRefused) => {
            Err(ParseError::AtInWait)
        }
        check => Ok(WaitRequest { ms, check: check? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::NoPolicies;
    use crate::parse::test_lines::*;

    fn read<'a>(line: &'a str, limits: &Limits) -> Result<(WaitRequest<'a>, String), ParseError> {
        let mut rules = Vec::new();
        let request = wait(args(line), limits, &mut NoPolicies, &mut rules)?;
        Ok((request, texts_of(&rules)))
    }

    #[test]
    fn the_time_stands_before_a_check() {
        for (line, ms, as_check) in [
            ("0 20/m", 0, "20/m"),
            ("3600000 COST 2 META a FULL 20/m 5/s", 3_600_000, "COST 2 META a FULL 20/m 5/s"),
            ("9 HOLD ms EX 5 slots:3", 9, "HOLD ms EX 5 slots:3"),
        ] {
            let (request, rules) = read(line, &LIMITS).unwrap();
            let mut expected = Vec::new();
            let check = check(args(as_check), &LIMITS, &mut NoPolicies, &mut expected).unwrap();
            assert_eq!(request, WaitRequest { ms, check }, "{line}");
            assert_eq!(rules, texts_of(&expected), "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("5", "wrong number of arguments"),
            ("20/m", "ms is '20/m', expected an integer 0..3600000"),
            ("3600001 20/m", "ms is '3600001', expected an integer 0..3600000"),
            ("-1 20/m", "ms is '-1', expected an integer 0..3600000"),
            ("5 20/x", "rule '20/x': the period 'x' has no known unit"),
            ("5 slots:3", "rule 'slots:3': slots are held, give HOLD id EX seconds"),
            (
                "5 AT 7 20/m",
                "AT is refused here, expected it in RL.CHECK or RL.PEEK: RL.WAIT decides at the \
                 time of its answer",
            ),
        ] {
            for limits in [&LIMITS, &UNTIMED] {
                let given = read(line, limits).expect_err(line).to_string();
                assert!(given.starts_with(error), "{line}: {given}");
            }
        }
    }
}
