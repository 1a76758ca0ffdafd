//! `RL.RENEW`: which hold to renew, and how long after the renewal it ends.

use super::cursor::Cursor;
use super::error::Parsed;
use super::limits::Limits;

/// An `RL.RENEW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewRequest<'a> {
    /// 1 ..= [`MAX_ID`](ratelimit_core::key::MAX_ID) bytes.
    pub id: &'a [u8],
    /// How long the hold lasts from the time of the renewal: 1 ms ..=
    /// [`MAX_PERIOD_US`](ratelimit_core::rule::MAX_PERIOD_US).
    pub hold_us: u64,
    /// The time of the renewal, 0 ..= [`MAX_TIME_US`](ratelimit_core::rule::MAX_TIME_US);
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
