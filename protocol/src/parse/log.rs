//! `RL.LOG`: how much of a key's history to show.

use super::cursor::Cursor;
use super::error::Parsed;
use super::options::{COUNT, DEFAULT_COUNT};

/// How many entries of the history an `RL.LOG` shows.
pub fn log<'a>(args: impl Iterator<Item = &'a [u8]>) -> Parsed<usize> {
    let mut args = Cursor::new(args);
    let mut count = None;
    while args.option("COUNT", &mut count, |args| args.value("COUNT", COUNT))? {}
    args.finish("COUNT")?;
    Ok(count.unwrap_or(DEFAULT_COUNT))
}

#[cfg(test)]
mod tests {
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
