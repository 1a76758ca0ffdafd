//! `RL.LOG`, `RL.TOP` and `RL.BLOCKS`: how much to show.
//!
//! ```text
//! RL.LOG      [COUNT n]
//! RL.TOP      [COUNT n] [RESET]
//! RL.BLOCKS   cursor [MATCH pattern] [COUNT n]
//! ```

use super::cursor::Cursor;
use super::error::ParseError;
use super::request::once;
use std::ops::RangeInclusive;

const COUNT: RangeInclusive<u64> = 1..=1_000_000_000;
/// What is shown if nobody says how much.
const FEW: usize = 10;
/// The most keys that one `RL.BLOCKS` examines, which takes the server a few
/// milliseconds; and how many it does if nobody says less: a small database is
/// seen in one call.
const SCANNED: u64 = 4_096;

/// How many checks an `RL.LOG` shows.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn log<'a>(args: impl Iterator<Item = &'a [u8]>) -> Result<usize, ParseError> {
    let mut args = Cursor::new(args);
    let mut count = None;
    while args.keyword("COUNT") {
        once(&mut count, "COUNT", || args.value("COUNT", COUNT))?;
    }
    args.finish("COUNT")?;
    Ok(count.unwrap_or(FEW))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopRequest {
    pub count: usize,
    /// Begin anew after this.
    pub reset: bool,
}

/// The request of an `RL.TOP`.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn top<'a>(args: impl Iterator<Item = &'a [u8]>) -> Result<TopRequest, ParseError> {
    let mut args = Cursor::new(args);
    let (mut count, mut reset) = (None, None);
    loop {
        if args.keyword("COUNT") {
            once(&mut count, "COUNT", || args.value("COUNT", COUNT))?;
        } else if args.keyword("RESET") {
            once(&mut reset, "RESET", || Ok(()))?;
        } else {
            break;
        }
    }
    args.finish("COUNT or RESET")?;
    Ok(TopRequest { count: count.unwrap_or(FEW), reset: reset.is_some() })
}

/// A step of a scan. The cursor and the pattern are the server's own business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRequest<'a> {
    pub cursor: u64,
    pub pattern: Option<&'a [u8]>,
    /// How many keys to examine, at most `SCANNED`.
    pub count: u64,
}

/// The request of an `RL.BLOCKS`.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn scan<'a>(args: impl Iterator<Item = &'a [u8]>) -> Result<ScanRequest<'a>, ParseError> {
    let mut args = Cursor::new(args);
    let cursor = args.integer("cursor", 0..=u64::MAX)?;
    let (mut pattern, mut count) = (None, None);
    loop {
        if args.keyword("MATCH") {
            once(&mut pattern, "MATCH", || {
                args.take().ok_or(ParseError::NoText { option: "MATCH" })
            })?;
        } else if args.keyword("COUNT") {
            once(&mut count, "COUNT", || args.value("COUNT", COUNT))?;
        } else {
            break;
        }
    }
    args.finish("MATCH or COUNT")?;
    Ok(ScanRequest { cursor, pattern, count: count.unwrap_or(SCANNED).min(SCANNED) })
}

/// That no argument is left.
///
/// # Errors
/// [`ParseError::Arity`] if there is one.
pub fn nothing<'a>(args: impl Iterator<Item = &'a [u8]>) -> Result<(), ParseError> {
    match Cursor::new(args).take() {
        None => Ok(()),
        Some(_) => Err(ParseError::Arity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(args: &str) -> impl Iterator<Item = &[u8]> {
        args.split(' ').filter(|arg| !arg.is_empty()).map(str::as_bytes)
    }

    #[test]
    fn how_much_to_show() {
        assert_eq!(log(words("")), Ok(10));
        assert_eq!(log(words("count 3")), Ok(3));
        assert_eq!(top(words("")), Ok(TopRequest { count: 10, reset: false }));
        assert_eq!(top(words("RESET COUNT 2")), Ok(TopRequest { count: 2, reset: true }));
        assert_eq!(scan(words("0")), Ok(ScanRequest { cursor: 0, pattern: None, count: SCANNED }));
        let all = ScanRequest { cursor: 17, pattern: Some(b"ip:*"), count: 500 };
        assert_eq!(scan(words("17 COUNT 500 MATCH ip:*")), Ok(all));
        for count in [SCANNED + 1, 1_000_000_000] {
            let asked = scan(words(&format!("0 COUNT {count}"))).map(|request| request.count);
            assert_eq!(asked, Ok(SCANNED));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (given, error) in [
            (log(words("3")).map(drop), "unexpected '3', expected COUNT"),
            (log(words("COUNT 0")).map(drop), "COUNT is '0', expected an integer 1..1000000000"),
            (top(words("RESET RESET")).map(drop), "RESET is given twice, expected once"),
            (top(words("ALL")).map(drop), "unexpected 'ALL', expected COUNT or RESET"),
            (scan(words("")).map(drop), "wrong number of arguments"),
            (
                scan(words("x")).map(drop),
                "cursor is 'x', expected an integer 0..18446744073709551615",
            ),
            (scan(words("0 MATCH")).map(drop), "MATCH has no text"),
            (nothing(words("x")), "wrong number of arguments"),
        ] {
            assert_eq!(given.unwrap_err().to_string(), error);
        }
    }
}
