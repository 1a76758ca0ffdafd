//! `RL.BLOCK` and `RL.EXEMPT`: until when, and why. `RL.PAUSE` and `RL.PLAN` have the same options for
//! the end.

use super::cursor::Cursor;
use super::error::{ParseError, Parsed};
use super::limits::Limits;
use super::options::once;
use ratelimit_core::rule::{MAX_TIME_US, MS_US, SECOND_US, span_us};

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
pub struct StandingRequest<'a> {
    /// `Never` unless one of `EX`, `PX`, `EXAT`, `PXAT` and `FOR` was given.
    pub ends: Ends,
    /// At most [`Limits::max_meta`] bytes; empty if none was given.
    pub reason: &'a [u8],
}

/// The request of an `RL.BLOCK` or an `RL.EXEMPT`.
pub fn standing<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
) -> Parsed<StandingRequest<'a>> {
    let mut args = Cursor::new(args);
    let (mut ends, mut reason) = (None, None);
    while args.end(&mut ends)?
        || args.option("REASON", &mut reason, |args| reason_within(args.text("REASON")?, limits))?
    {
    }
    args.finish("EX, PX, EXAT, PXAT, FOR or REASON")?;
    Ok(StandingRequest { ends: ends.unwrap_or(Ends::Never), reason: reason.unwrap_or_default() })
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_meta: 5, ..Limits::ANY_CHECK };

    fn parsed(args: &str) -> Result<StandingRequest<'_>, String> {
        let args = args.split(' ').filter(|arg| !arg.is_empty()).map(str::as_bytes);
        standing(args, &LIMITS).map_err(|error| error.to_string())
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
            assert_eq!(parsed(args), Ok(StandingRequest { ends, reason: reason.as_bytes() }));
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
