//! `RL.TOP`: which of the most denied keys to show, and how many.

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
