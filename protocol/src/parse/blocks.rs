//! `RL.BLOCKS`: a step of a scan for blocked and exempt keys.

use super::cursor::Cursor;
use super::error::Parsed;
use super::options::COUNT;

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
