//! `RL.TOP`: how many of the most denied keys to show.

use super::cursor::Cursor;
use super::error::Parsed;
use super::options::{COUNT, DEFAULT_COUNT};

/// An `RL.TOP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopRequest {
    /// How many keys to show at most.
    pub count: usize,
    /// Whether to forget the counts after the reply.
    pub reset: bool,
}

/// The request of an `RL.TOP`.
pub fn top<'a>(args: impl Iterator<Item = &'a [u8]>) -> Parsed<TopRequest> {
    let mut args = Cursor::new(args);
    let (mut count, mut reset) = (None, None);
    while args.option("COUNT", &mut count, |args| args.value("COUNT", COUNT))?
        || args.option("RESET", &mut reset, |_| Ok(()))?
    {}
    args.finish("COUNT or RESET")?;
    Ok(TopRequest { count: count.unwrap_or(DEFAULT_COUNT), reset: reset.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::test_lines::args;

    #[test]
    fn ten_keys_are_shown_by_default() {
        assert_eq!(top(args("")), Ok(TopRequest { count: 10, reset: false }));
        assert_eq!(top(args("RESET COUNT 2")), Ok(TopRequest { count: 2, reset: true }));
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("RESET RESET", "RESET is given twice, expected once"),
            ("ALL", "unexpected 'ALL', expected COUNT or RESET"),
        ] {
            assert_eq!(top(args(line)).unwrap_err().to_string(), error, "{line}");
        }
    }
}
