//! `RL.LOG`, `RL.TOP` and `RL.BLOCKS`: what to show, and how much.

use super::cursor::{COUNT, Cursor, DEFAULT_COUNT};
use super::error::Parsed;

/// An `RL.TOP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopRequest {
    /// How many keys to show at most.
    pub count: usize,
    /// Whether to forget the counts after the reply.
    pub reset: bool,
    /// Whether to show what shadows would have denied.
    pub shadow: bool,
}

/// The request of an `RL.TOP`.
pub fn top<'a>(args: impl Iterator<Item = &'a [u8]>) -> Parsed<TopRequest> {
    let mut args = Cursor::new(args);
    let (mut count, mut reset, mut shadow) = (None, None, None);
    while args.option("COUNT", &mut count, |args| args.value("COUNT", COUNT))?
        || args.option("RESET", &mut reset, |_| Ok(()))?
        || args.option("SHADOW", &mut shadow, |_| Ok(()))?
    {}
    args.finish("SHADOW, COUNT or RESET")?;
    Ok(TopRequest {
        count: count.unwrap_or(DEFAULT_COUNT),
        reset: reset.is_some(),
        shadow: shadow.is_some(),
    })
}

/// How many entries of the history an `RL.LOG` shows.
pub fn log<'a>(args: impl Iterator<Item = &'a [u8]>) -> Parsed<usize> {
    let mut args = Cursor::new(args);
    let mut count = None;
    while args.option("COUNT", &mut count, |args| args.value("COUNT", COUNT))? {}
    args.finish("COUNT")?;
    Ok(count.unwrap_or(DEFAULT_COUNT))
}

/// How many keys one call examines at most, which takes the server a few
/// milliseconds. It is also the default, so that one call examines all of a
/// small database.
const MAX_EXAMINED: u64 = 4_096;

/// An `RL.BLOCKS`. Only the server interprets the cursor and the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlocksRequest<'a> {
    /// Where the scan continues; 0 starts it.
    pub cursor: u64,
    /// A glob that keys must match; `None`: any key.
    pub pattern: Option<&'a [u8]>,
    /// How many keys to examine, at most `MAX_EXAMINED`.
    pub count: u64,
}

/// The request of an `RL.BLOCKS`.
pub fn blocks<'a>(args: impl Iterator<Item = &'a [u8]>) -> Parsed<BlocksRequest<'a>> {
    let mut args = Cursor::new(args);
    let cursor = args.integer("cursor", 0..=u64::MAX)?;
    let (mut pattern, mut count) = (None, None);
    while args.option("MATCH", &mut pattern, |args| args.text("MATCH"))?
        || args.option("COUNT", &mut count, |args| args.value("COUNT", COUNT))?
    {}
    args.finish("MATCH or COUNT")?;
    let count = count.map_or(MAX_EXAMINED, |count: u64| count.min(MAX_EXAMINED));
    Ok(BlocksRequest { cursor, pattern, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::test_lines::args;

    #[test]
    fn ten_keys_are_shown_by_default() {
        let plain = TopRequest { count: 10, reset: false, shadow: false };
        assert_eq!(top(args("")), Ok(plain));
        assert_eq!(top(args("RESET COUNT 2")), Ok(TopRequest { count: 2, reset: true, ..plain }));
        assert_eq!(top(args("SHADOW")), Ok(TopRequest { shadow: true, ..plain }));
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("RESET RESET", "RESET is given twice, expected once"),
            ("ALL", "unexpected 'ALL', expected SHADOW, COUNT or RESET"),
        ] {
            assert_eq!(top(args(line)).unwrap_err().to_string(), error, "{line}");
        }
    }
}

#[cfg(test)]
mod log_tests {
    use super::*;
    use crate::parse::test_lines::args;

    #[test]
    fn ten_entries_are_shown_by_default() {
        assert_eq!(log(args("")), Ok(10));
        assert_eq!(log(args("count 3")), Ok(3));
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("3", "unexpected '3', expected COUNT"),
            ("COUNT 0", "COUNT is '0', expected an integer 1..1000000000"),
        ] {
            assert_eq!(log(args(line)).unwrap_err().to_string(), error, "{line}");
        }
    }
}

#[cfg(test)]
mod blocks_tests {
    use super::*;
    use crate::parse::test_lines::args;

    #[test]
    fn a_call_examines_a_bounded_number_of_keys() {
        let examine = |count| BlocksRequest { cursor: 0, pattern: None, count };
        assert_eq!(blocks(args("0")), Ok(examine(MAX_EXAMINED)));
        let request = BlocksRequest { cursor: 17, pattern: Some(b"ip:*"), count: 500 };
        assert_eq!(blocks(args("17 COUNT 500 MATCH ip:*")), Ok(request));
        for count in [MAX_EXAMINED + 1, 1_000_000_000] {
            assert_eq!(blocks(args(&format!("0 COUNT {count}"))), Ok(examine(MAX_EXAMINED)));
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("x", "cursor is 'x', expected an integer 0..18446744073709551615"),
            ("0 MATCH", "MATCH has no text"),
        ] {
            assert_eq!(blocks(args(line)).unwrap_err().to_string(), error, "{line}");
        }
    }
}
