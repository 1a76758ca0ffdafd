//! The option `HOLD` of `RL.CHECK` and `RL.MCHECK`, and what `RL.SETTLE` shares with it: the id of a
//! hold, and how long the hold lasts. Also `RL.RENEW`: which hold to renew, and how long it then lasts.
//!
//! ```text
//! HOLD id EX s|PX ms [REFUND]
//! ```
//!
//! The id is always the next argument, so no id can be taken for an option.

use super::cursor::Cursor;
use super::error::{ParseError, Parsed};
use super::limits::Limits;
use ratelimit_engine::key::{HoldOption, MAX_ID};
use ratelimit_engine::rule::{MAX_PERIOD_US, MS_US, SECOND_US};

impl<'a, I: Iterator<Item = &'a [u8]>> Cursor<'a, I> {
    /// Reads what follows the word `HOLD`.
    pub(super) fn hold(&mut self) -> Parsed<HoldOption<'a>> {
        if self.peek().is_none() {
            let an_id = format!("id, expected one of 1..{MAX_ID} bytes");
            return Err(ParseError::missing("HOLD", an_id));
        }
        let (id, hold_us) = (self.id()?, self.hold_us()?);
        Ok(HoldOption { id, hold_us, refund: self.keyword("REFUND") })
    }

    /// Takes the id of a hold, which the command requires.
    pub(crate) fn id(&mut self) -> Parsed<&'a [u8]> {
        let id = self.required()?;
        match id.len() {
            1..=MAX_ID => Ok(id),
            bytes => Err(ParseError::HoldId { bytes }),
        }
    }

    /// Reads how long the hold lasts.
    pub(super) fn hold_us(&mut self) -> Parsed<u64> {
        const EXPECTED: &str = "EX seconds or PX milliseconds";
        if self.keyword("EX") {
            return self.micros("EX", SECOND_US, MAX_PERIOD_US);
        }
        if self.keyword("PX") {
            return self.micros("PX", MS_US, MAX_PERIOD_US);
        }
        Err(match self.peek() {
            Some(given) => ParseError::unexpected(given, EXPECTED),
            None => ParseError::missing("the hold", format!("time, expected {EXPECTED}")),
        })
    }
}

/// An `RL.RENEW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewRequest<'a> {
    /// 1 ..= [`MAX_ID`] bytes.
    pub id: &'a [u8],
    /// How long the hold lasts from the time of the renewal: 1 ms ..=
    /// [`MAX_PERIOD_US`].
    pub hold_us: u64,
    /// The time of the renewal, 0 ..= [`MAX_TIME_US`](ratelimit_engine::rule::MAX_TIME_US);
    /// `None`: the server's time.
    pub at_us: Option<u64>,
}

/// The request of an `RL.RENEW`.
pub fn renew<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
) -> Parsed<RenewRequest<'a>> {
    let mut args = Cursor::new(args);
    let (id, hold_us) = (args.id()?, args.hold_us()?);
    let mut at_us = None;
    while args.option("AT", &mut at_us, |args| args.at(limits))? {}
    args.finish("AT")?;
    Ok(RenewRequest { id, hold_us, at_us })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratelimit_engine::key::{HoldRequest, MAX_END_US};

    fn read(line: &str) -> Result<(HoldOption<'_>, Option<&[u8]>), String> {
        let words = line.split_whitespace().map(|word| if word == "''" { "" } else { word });
        let mut args = Cursor::new(words.map(str::as_bytes));
        let option = args.hold().map_err(|error| error.to_string())?;
        Ok((option, args.peek()))
    }

    #[test]
    fn holds_are_read() {
        for (line, id, hold_us, refund, next) in [
            ("r EX 30", "r", 30_000_000, false, None),
            ("r ex 30 refund", "r", 30_000_000, true, None),
            ("r PX 1 REFUND COST", "r", 1_000, true, Some("COST")),
            ("r px 30 COST", "r", 30_000, false, Some("COST")),
            ("HOLD EX 31622400 HOLD", "HOLD", MAX_PERIOD_US, false, Some("HOLD")),
            ("EX PX 31622400000", "EX", MAX_PERIOD_US, false, None),
            ("20/m EX 1 20/m", "20/m", 1_000_000, false, Some("20/m")),
        ] {
            let (option, after) = read(line).unwrap();
            assert_eq!(option, HoldOption { id: id.as_bytes(), hold_us, refund }, "{line}");
            assert_eq!(after, next.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        let long = format!("{} EX 1", "x".repeat(65));
        for (line, error) in [
            ("", "HOLD has no id, expected one of 1..64 bytes"),
            ("'' EX 1", "the id of the hold is 0 bytes long, expected 1..64"),
            (long.as_str(), "the id of the hold is 65 bytes long, expected 1..64"),
            ("r", "the hold has no time, expected EX seconds or PX milliseconds"),
            ("r REFUND EX 1", "unexpected 'REFUND', expected EX seconds or PX milliseconds"),
            ("r 30", "unexpected '30', expected EX seconds or PX milliseconds"),
            ("r EX", "EX has no value, expected an integer 1..31622400"),
            ("r EX 0", "EX is '0', expected an integer 1..31622400"),
            ("r EX 31622401", "EX is '31622401', expected an integer 1..31622400"),
            ("r PX 31622400001", "PX is '31622400001', expected an integer 1..31622400000"),
            ("r PX -1", "PX is '-1', expected an integer 1..31622400000"),
        ] {
            assert_eq!(read(line).unwrap_err(), error, "{line}");
        }
    }

    #[test]
    fn a_hold_lasts_from_the_time_of_its_check() {
        let (option, _) = read("r EX 2 REFUND").unwrap();
        let request = HoldRequest { id: b"r", end_us: 2_000_005, refund: true };
        assert_eq!(option.at(5), request);
        assert_eq!(option.at(u64::MAX).end_us, MAX_END_US);
    }
}

#[cfg(test)]
mod renew_tests {
    use super::*;
    use crate::parse::{ParseError, test_lines::*};

    #[test]
    fn renewals_are_read() {
        for (line, id, hold_us, at_us) in [
            ("r EX 30", "r", 30_000_000, None),
            ("r px 30 at 9", "r", 30_000, Some(9)),
            ("AT EX 1 AT 0", "AT", 1_000_000, Some(0)),
        ] {
            let request = RenewRequest { id: id.as_bytes(), hold_us, at_us };
            assert_eq!(renew(args(line), &LIMITS), Ok(request), "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("'' EX 1", "the id of the hold is 0 bytes long, expected 1..64"),
            ("r", "the hold has no time, expected EX seconds or PX milliseconds"),
            ("r AT 5", "unexpected 'AT', expected EX seconds or PX milliseconds"),
            ("r EX 0", "EX is '0', expected an integer 1..31622400"),
            ("r EX 1 REFUND", "unexpected 'REFUND', expected AT"),
            ("r EX 1 AT 1 AT 1", "AT is given twice, expected once"),
            ("r EX 1 AT x", "AT is 'x', expected an integer 0..253402300799999999"),
        ] {
            assert_eq!(renew(args(line), &LIMITS).expect_err(line).to_string(), error, "{line}");
        }
    }

    #[test]
    fn a_time_must_be_allowed() {
        assert_eq!(renew(args("r EX 1 AT 5"), &UNTIMED), Err(ParseError::AtRefused));
    }
}
