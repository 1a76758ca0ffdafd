//! `RL.WAIT`: a check, how long the client waits for it to pass, and the client's place in line.

use super::check::{CheckRequest, check_with};
use super::cursor::Cursor;
use super::error::{ParseError, Parsed};
use super::limits::{Limits, MAX_FLOW};
use super::resolver::RuleResolver;
use ratelimit_engine::rule::Rule;
use std::ops::RangeInclusive;

/// At most an hour.
const WAIT_MS: RangeInclusive<u64> = 0..=3_600_000;

/// An `RL.WAIT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRequest<'a> {
    /// How long the client waits at most.
    pub ms: u64,
    /// The name of the client's flow, 1 ..= [`MAX_FLOW`] bytes; empty if none is given.
    pub flow: &'a [u8],
    /// The flow's weight, 1 ..= 1000.
    pub weight: u16,
    /// 0 ..= 9; higher goes first.
    pub priority: u8,
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
    let (mut flow, mut priority) = (None, None);
    let check = check_with(args, limits, resolver, rules, &mut |args| {
        Ok(args.option("FLOW", &mut flow, Cursor::flow)?
            || args.option("PRIORITY", &mut priority, |args| args.value("PRIORITY", 0..=9))?)
    });
    match check {
        Ok(CheckRequest { at_us: Some(_), .. }) | Err(ParseError::AtRefused) => {
            return Err(ParseError::AtInWait);
        }
        _ => {}
    }
    let (flow, weight) = flow.unwrap_or((&[], 1));
    Ok(WaitRequest { ms, flow, weight, priority: priority.unwrap_or(0), check: check? })
}

impl<'a, I: Iterator<Item = &'a [u8]>> Cursor<'a, I> {
    /// The name and the weight that follow `FLOW`.
    fn flow(&mut self) -> Parsed<(&'a [u8], u16)> {
        let name = self.take().ok_or_else(|| ParseError::missing("FLOW", "name"))?;
        if !(1..=MAX_FLOW).contains(&name.len()) {
            return Err(ParseError::Flow { bytes: name.len() });
        }
        let weighs = self.keyword("WEIGHT");
        Ok((name, if weighs { self.value("WEIGHT", 1..=1_000)? } else { 1 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::NoPolicies;
    use crate::parse::check::check;
    use crate::parse::test_lines::*;

    fn read<'a>(line: &'a str, limits: &Limits) -> Result<(WaitRequest<'a>, String), ParseError> {
        let mut rules = Vec::new();
        let request = wait(args(line), limits, &mut NoPolicies, &mut rules)?;
        Ok((request, texts_of(&rules)))
    }

    #[test]
    fn the_wait_precedes_the_check() {
        for (line, ms, as_check) in [
            ("0 20/m", 0, "20/m"),
            ("3600000 COST 2 META a FULL 20/m 5/s", 3_600_000, "COST 2 META a FULL 20/m 5/s"),
            ("9 HOLD ms EX 5 slots:3", 9, "HOLD ms EX 5 slots:3"),
        ] {
            let (request, rules) = read(line, &LIMITS).unwrap();
            let mut expected = Vec::new();
            let check = check(args(as_check), &LIMITS, &mut NoPolicies, &mut expected).unwrap();
            let plain = WaitRequest { ms, flow: b"", weight: 1, priority: 0, check };
            assert_eq!(request, plain, "{line}");
            assert_eq!(rules, texts_of(&expected), "{line}");
        }
    }

    #[test]
    fn a_flow_and_a_priority_stand_among_the_options() {
        for (line, flow, weight, priority, cost) in [
            ("1 FLOW a 20/m", "a", 1, 0, 1),
            ("1 flow WEIGHT weight 1000 20/m", "WEIGHT", 1_000, 0, 1),
            ("1 COST 2 PRIORITY 9 FLOW 20/m WEIGHT 3 FULL 20/m", "20/m", 3, 9, 2),
            ("1 PRIORITY 5 COST 3 20/m", "", 1, 5, 3),
        ] {
            let (request, rules) = read(line, &LIMITS).unwrap();
            let WaitRequest { flow: name, weight: n, priority: p, check, .. } = request;
            assert_eq!(
                (name, n, p, check.cost),
                (flow.as_bytes(), weight, priority, cost),
                "{line}"
            );
            assert_eq!(rules, "log:20/1m", "{line}");
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
            ("5 FLOW", "FLOW has no name"),
            ("5 FLOW a", "wrong number of arguments"),
            ("5 FLOW a FLOW b 20/m", "FLOW is given twice, expected once"),
            ("5 FLOW a WEIGHT 20/m", "WEIGHT is '20/m', expected an integer 1..1000"),
            ("5 FLOW a WEIGHT 0 20/m", "WEIGHT is '0', expected an integer 1..1000"),
            ("5 FLOW a WEIGHT 1001 20/m", "WEIGHT is '1001', expected an integer 1..1000"),
            ("5 FLOW a WEIGHT", "WEIGHT has no value, expected an integer 1..1000"),
            ("5 WEIGHT 3 20/m", "unexpected 'WEIGHT', expected FLOW, PRIORITY, COST, META"),
            ("5 PRIORITY 10 20/m", "PRIORITY is '10', expected an integer 0..9"),
            ("5 PRIORITY -1 20/m", "PRIORITY is '-1', expected an integer 0..9"),
            ("5 20/m FLOW a", "unexpected 'FLOW', expected a rule"),
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
