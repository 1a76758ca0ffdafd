//! `RL.BLOCK`, `RL.EXEMPT`, `RL.PAUSE` and `RL.PLAN`: until when, and why.

use super::cursor::{Cursor, once};
use super::error::{ParseError, Parsed};
use super::limits::Limits;
use super::policy;
use ratelimit_engine::rule::{MAX_PERIOD_US, MAX_TIME_US, MS_US, Name, SECOND_US, span_us};

/// When a block, an exemption, a pause or a plan ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// No end was given.
    Never,
    /// This number of microseconds after the command runs.
    In(u64),
    /// At this time, in Unix microseconds.
    At(u64),
}

impl Ends {
    /// The end for a command that runs at `now_us`, in Unix microseconds; `None`: never.
    ///
    /// # Errors
    /// [`ParseError::EndPassed`]
    pub fn at(self, now_us: u64) -> Parsed<Option<u64>> {
        match self {
            Self::Never => Ok(None),
            Self::In(us) => Ok(Some(now_us.saturating_add(us).min(MAX_TIME_US))),
            Self::At(us) if us > now_us => Ok(Some(us)),
            Self::At(us) => {
                Err(ParseError::EndPassed { end_ms: us / MS_US, now_ms: now_us / MS_US })
            }
        }
    }
}

/// An `RL.BLOCK`, an `RL.EXEMPT` or an `RL.PAUSE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRequest<'a> {
    /// `Never` unless one of `EX`, `PX`, `EXAT`, `PXAT` and `FOR` was given.
    pub ends: Ends,
    /// At most [`Limits::max_meta`] bytes; empty if none was given.
    pub reason: &'a [u8],
}

/// The request of an `RL.BLOCK` or an `RL.EXEMPT`.
pub fn access<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
) -> Parsed<AccessRequest<'a>> {
    let mut args = Cursor::new(args);
    let (mut ends, mut reason) = (None, None);
    while args.end(&mut ends)?
        || args.option("REASON", &mut reason, |args| reason_within(args.text("REASON")?, limits))?
    {
    }
    args.finish("EX, PX, EXAT, PXAT, FOR or REASON")?;
    Ok(AccessRequest { ends: ends.unwrap_or(Ends::Never), reason: reason.unwrap_or_default() })
}

impl<'a, I: Iterator<Item = &'a [u8]>> Cursor<'a, I> {
    /// Reads an option for the end; `false` if none comes next.
    pub(super) fn end(&mut self, ends: &mut Option<Ends>) -> Parsed<bool> {
        if let Some((name, unit_us, end)) = NUMBERS.iter().find(|(name, ..)| self.keyword(name)) {
            once(ends, ENDS, || Ok(end(self.micros(name, *unit_us, MAX_TIME_US)?)))?;
        } else if self.keyword("FOR") {
            once(ends, ENDS, || {
                let no_period = || ParseError::missing("FOR", "period, expected one such as 1h");
                let text = self.take().ok_or_else(no_period)?;
                span_us("FOR", text).map(Ends::In).map_err(ParseError::Period)
            })?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// What errors call the options for the end. A request may have one of them.
const ENDS: &str = "the end (EX, PX, EXAT, PXAT or FOR)";

type ToEnd = fn(u64) -> Ends;

/// The options that take a number, each with the number's unit and meaning.
const NUMBERS: [(&str, u64, ToEnd); 4] = [
    ("EX", SECOND_US, Ends::In),
    ("PX", MS_US, Ends::In),
    ("EXAT", SECOND_US, Ends::At),
    ("PXAT", MS_US, Ends::At),
];

/// The text of a `REASON`, of at most `max-meta` bytes.
fn reason_within<'a>(text: &'a [u8], limits: &Limits) -> Parsed<&'a [u8]> {
    let (option, bytes, max) = ("REASON", text.len(), limits.max_meta);
    if bytes > max { Err(ParseError::LongText { option, bytes, max }) } else { Ok(text) }
}

/// An `RL.PLAN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// The policy. It may be set later.
    pub name: Name,
    /// `Never` unless one of `EX`, `PX`, `EXAT`, `PXAT` and `FOR` was given.
    pub ends: Ends,
}

/// The request of an `RL.PLAN`, from the name of the policy on.
pub fn plan<'a>(args: impl Iterator<Item = &'a [u8]>) -> Parsed<PlanRequest> {
    let mut args = Cursor::new(args);
    let name = policy::name(args.required()?)?;
    let mut ends = None;
    while args.end(&mut ends)? {}
    args.finish("EX, PX, EXAT, PXAT or FOR")?;
    Ok(PlanRequest { name, ends: ends.unwrap_or(Ends::Never) })
}

/// The request of an `RL.PAUSE`, which has an end.
pub fn pause<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
) -> Parsed<AccessRequest<'a>> {
    let request = access(args, limits)?;
    if request.ends == Ends::Never {
        return Err(ParseError::missing("the pause", "end, expected EX, PX, EXAT, PXAT or FOR"));
    }
    Ok(request)
}

impl AccessRequest<'_> {
    /// When a pause ends, in Unix microseconds: at most [`MAX_PERIOD_US`] after `now_us`.
    ///
    /// # Errors
    /// [`ParseError::EndPassed`], [`ParseError::LongPause`]
    pub fn until_us(&self, now_us: u64) -> Parsed<u64> {
        let until_us = self.ends.at(now_us)?.unwrap_or(u64::MAX);
        let length_us = until_us.saturating_sub(now_us);
        if length_us > MAX_PERIOD_US {
            return Err(ParseError::LongPause { ms: length_us / MS_US });
        }
        Ok(until_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_meta: 5, ..Limits::ANY_CHECK };

    fn parsed(args: &str) -> Result<AccessRequest<'_>, String> {
        let args = args.split(' ').filter(|arg| !arg.is_empty()).map(str::as_bytes);
        access(args, &LIMITS).map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_for_the_end_is_read() {
        for (args, ends, reason) in [
            ("", Ends::Never, ""),
            ("EX 5", Ends::In(5_000_000), ""),
            ("px 5 reason abuse", Ends::In(5_000), "abuse"),
            ("REASON abuse EXAT 1700000000", Ends::At(1_700_000_000_000_000), "abuse"),
            ("PXAT 1700000000000", Ends::At(1_700_000_000_000_000), ""),
            ("FOR 1h", Ends::In(3_600_000_000), ""),
            ("for 90minutes REASON x", Ends::In(5_400_000_000), "x"),
            ("FOR 366d", Ends::In(31_622_400_000_000), ""),
            ("FOR 1ms", Ends::In(1_000), ""),
            ("EX 253402300799", Ends::In(253_402_300_799_000_000), ""),
        ] {
            assert_eq!(parsed(args), Ok(AccessRequest { ends, reason: reason.as_bytes() }));
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (args, error) in [
            ("EX", "EX has no value, expected an integer 1..253402300799"),
            ("EX 0", "EX is '0', expected an integer 1..253402300799"),
            ("PX -5", "PX is '-5', expected an integer 1..253402300799999"),
            ("EXAT 253402300800", "EXAT is '253402300800', expected an integer 1..253402300799"),
            ("FOR", "FOR has no period, expected one such as 1h"),
            (
                "FOR 5",
                "FOR '5' has no known unit, expected ms, s (sec, second), m (min, minute), \
                 h (hour), d (day) or w (week)",
            ),
            ("FOR 1.5h", "FOR '1.5h' cannot be read, expected an integer and a unit such as 90s"),
            ("FOR 0s", "FOR is '0s', expected a period of 1ms..366d"),
            ("FOR 367d", "FOR is '367d', expected a period of 1ms..366d"),
            ("FOR month", "FOR is 'month', expected a period of 1ms..366d"),
            ("FOR 1h EX 5", "the end (EX, PX, EXAT, PXAT or FOR) is given twice, expected once"),
            ("EX 5 PX 5", "the end (EX, PX, EXAT, PXAT or FOR) is given twice, expected once"),
            ("REASON a REASON b", "REASON is given twice, expected once"),
            ("REASON", "REASON has no text"),
            ("REASON abuses", "REASON is 6 bytes long, expected at most 5 (ratelimit.max-meta)"),
            ("5m", "unexpected '5m', expected EX, PX, EXAT, PXAT, FOR or REASON"),
        ] {
            assert_eq!(parsed(args), Err(error.into()), "{args}");
        }
    }
}

#[cfg(test)]
mod plan_tests {
    use super::*;
    use crate::parse::test_lines::args;

    #[test]
    fn a_plan_has_a_policy_and_may_have_an_end() {
        for (line, ends) in [
            ("pro", Ends::Never),
            ("pro EX 5", Ends::In(5_000_000)),
            ("pro pxat 5", Ends::At(5_000)),
            ("pro FOR 30d", Ends::In(2_592_000_000_000)),
        ] {
            let name = Name::new(b"pro").unwrap();
            assert_eq!(plan(args(line)), Ok(PlanRequest { name, ends }), "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("@pro", "the policy's name is '@pro', expected 1 to 32 of A-Z a-z 0-9 _ . -"),
            ("pro 5m", "unexpected '5m', expected EX, PX, EXAT, PXAT or FOR"),
            ("pro REASON x", "unexpected 'REASON', expected EX, PX, EXAT, PXAT or FOR"),
            ("pro EX 0", "EX is '0', expected an integer 1..253402300799"),
            (
                "pro EX 1 FOR 1h",
                "the end (EX, PX, EXAT, PXAT or FOR) is given twice, expected once",
            ),
        ] {
            assert_eq!(plan(args(line)).unwrap_err().to_string(), error, "{line}");
        }
    }
}

#[cfg(test)]
mod pause_tests {
    use super::*;
    use crate::parse::test_lines::*;
    use ratelimit_engine::rule::SECOND_US;

    fn until_us(line: &str, now_us: u64) -> Result<u64, String> {
        let request = pause(args(line), &LIMITS).map_err(|error| error.to_string())?;
        request.until_us(now_us).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pause_has_an_end() {
        for (line, until) in [
            ("EX 30", Ok(35 * SECOND_US)),
            ("pxat 6000 reason 429", Ok(6 * SECOND_US)),
            ("FOR 366d", Ok(MAX_PERIOD_US + 5 * SECOND_US)),
            ("", Err("the pause has no end, expected EX, PX, EXAT, PXAT or FOR")),
            ("REASON 429", Err("the pause has no end, expected EX, PX, EXAT, PXAT or FOR")),
            ("EX 31622401", Err("the pause lasts 31622401000 ms, expected at most 366d")),
            ("EXAT 31622406", Err("the pause lasts 31622401000 ms, expected at most 366d")),
            ("EXAT 5", Err("the end is 5000 ms, expected a Unix time after 5000 ms")),
            ("EX 0", Err("EX is '0', expected an integer 1..253402300799")),
        ] {
            assert_eq!(until_us(line, 5 * SECOND_US), until.map_err(String::from), "{line}");
        }
        assert_eq!(pause(args("EX 1 REASON why"), &LIMITS).map(|it| it.reason), Ok(&b"why"[..]));
    }
}
