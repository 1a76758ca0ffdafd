//! `RL.PLAN`: a policy for a key, and until when.

use super::cursor::Cursor;
use super::error::Parsed;
use super::policy;
use super::standing::Ends;
use ratelimit_core::rule::Name;

/// An `RL.PLAN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// The policy. It may be set later.
    pub name: Name,
    /// `Never` unless one of `EX`, `PX`, `EXAT`, `PXAT` and `FOR` was given.
    pub ends: Ends,
}

/// The request of an `RL.PLAN`, from the name of the policy on.
pub fn plan<'a>(args: impl Iterator<Item = &'a [u8]>) -> Parsed<PlanRequest> {
    let mut args = Cursor::new(args);
    let name = policy::name(args.required()?)?;
    let mut ends = None;
    while args.end(&mut ends)? {}
    args.finish("EX, PX, EXAT, PXAT or FOR")?;
    Ok(PlanRequest { name, ends: ends.unwrap_or(Ends::Never) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::test_lines::args;

    #[test]
    fn a_plan_has_a_policy_and_may_have_an_end() {
        for (line, ends) in [
            ("pro", Ends::Never),
            ("pro EX 5", Ends::In(5_000_000)),
            ("pro pxat 5", Ends::At(5_000)),
            ("pro FOR 30d", Ends::In(2_592_000_000_000)),
        ] {
            let name = Name::new(b"pro").unwrap();
            assert_eq!(plan(args(line)), Ok(PlanRequest { name, ends }), "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("@pro", "the policy's name is '@pro', expected 1 to 32 of A-Z a-z 0-9 _ . -"),
            ("pro 5m", "unexpected '5m', expected EX, PX, EXAT, PXAT or FOR"),
            ("pro REASON x", "unexpected 'REASON', expected EX, PX, EXAT, PXAT or FOR"),
            ("pro EX 0", "EX is '0', expected an integer 1..253402300799"),
            (
                "pro EX 1 FOR 1h",
                "the end (EX, PX, EXAT, PXAT or FOR) is given twice, expected once",
            ),
        ] {
            assert_eq!(plan(args(line)).unwrap_err().to_string(), error, "{line}");
        }
    }
}
