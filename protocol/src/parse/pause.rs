//! `RL.PAUSE`: until when, and why.

use super::error::{ParseError, Parsed};
use super::limits::Limits;
use super::standing::{Ends, StandingRequest, standing};
use ratelimit_core::rule::{MAX_PERIOD_US, MS_US};

/// The request of an `RL.PAUSE`, which has an end.
pub fn pause<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
) -> Parsed<StandingRequest<'a>> {
    let request = standing(args, limits)?;
    if request.ends == Ends::Never {
        return Err(ParseError::missing("the pause", "end, expected EX, PX, EXAT, PXAT or FOR"));
    }
    Ok(request)
}

impl StandingRequest<'_> {
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
    use crate::parse::test_lines::*;
    use ratelimit_core::rule::SECOND_US;

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
