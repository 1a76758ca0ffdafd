//! `RL.SETTLE`: which hold to settle, and what the request really cost.

use super::costs;
use super::cursor::Cursor;
use super::error::{ParseError, Parsed};
use super::limits::Limits;
use ratelimit_engine::key::{Costs, Settlement};
use ratelimit_engine::rule::NamedCost;

/// An `RL.SETTLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleRequest<'a> {
    /// 1 ..= [`MAX_ID`](ratelimit_engine::key::MAX_ID) bytes.
    pub id: &'a [u8],
    /// What becomes of the charges, without the costs by name.
    pub settled: Settlement<Costs<'static>>,
    /// The costs by name, which belong to [`Settlement::Cost`].
    pub named: Vec<NamedCost>,
    /// The time of the settlement, 0 ..= [`MAX_TIME_US`](ratelimit_engine::rule::MAX_TIME_US);
    /// `None`: the server's time.
    pub at_us: Option<u64>,
}

/// The request of an `RL.SETTLE`.
pub fn settle<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
) -> Parsed<SettleRequest<'a>> {
    let mut args = Cursor::new(args);
    let id = args.id()?;
    let mut options = Options::default();
    let mut at_us = None;
    while options.take(&mut args, limits.max_rules)?
        || args.option("AT", &mut at_us, |args| args.at(limits))?
    {}
    args.finish(options.expected())?;
    let (settled, named) = options.settled();
    Ok(SettleRequest { id, settled, named, at_us })
}

/// The arguments after a hold's id that the effect of a settlement has: all but `AT` and the time.
pub fn without_at<'a, T: Copy>(
    mut args: impl Iterator<Item = T>,
    bytes: impl Fn(T) -> &'a [u8],
) -> Vec<T> {
    let mut kept = Vec::new();
    while let Some(arg) = args.next() {
        if bytes(arg).eq_ignore_ascii_case(b"AT") {
            args.next();
        } else {
            kept.push(arg);
        }
    }
    kept
}

/// Reads how an effect settles a hold.
pub(crate) fn settled<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
) -> Parsed<(Settlement<Costs<'static>>, Vec<NamedCost>)> {
    let mut options = Options::default();
    while options.take(args, usize::MAX)? {}
    Ok(options.settled())
}

/// The `REFUND` and the `COST`s read so far.
#[derive(Default)]
struct Options {
    refund: Option<()>,
    costs: costs::Costs,
}

impl Options {
    /// Takes an option; `false` if none comes next.
    fn take<'a, I: Iterator<Item = &'a [u8]>>(
        &mut self,
        args: &mut Cursor<'a, I>,
        max_names: usize,
    ) -> Parsed<bool> {
        let taken = args.option("REFUND", &mut self.refund, |_| Ok(()))?
            || self.costs.take(args, max_names, false)?;
        if self.refund.is_some() && !self.costs.is_empty() {
            return Err(ParseError::RefundWithCost);
        }
        Ok(taken)
    }

    /// How the hold is settled, with the costs by name.
    fn settled(self) -> (Settlement<Costs<'static>>, Vec<NamedCost>) {
        let settled = match (self.refund, self.costs.is_empty()) {
            (Some(()), _) => Settlement::Refund,
            (None, true) => Settlement::AsCharged,
            (None, false) => Settlement::Cost(Costs { default: self.costs.default, named: &[] }),
        };
        (settled, self.costs.named)
    }

    /// What errors say after 'expected' about an argument that follows these options.
    const fn expected(&self) -> &'static str {
        match (self.refund, self.costs.is_empty()) {
            (Some(()), _) => "AT",
            (None, false) => "COST or AT",
            (None, true) => "REFUND, COST or AT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::test_lines::*;

    fn read(line: &str) -> Result<(SettleRequest<'_>, String), String> {
        let request = settle(args(line), &LIMITS).map_err(|error| error.to_string())?;
        let text = |cost: &NamedCost| format!("{}={}", cost.name.as_str(), cost.cost);
        let texts = request.named.iter().map(text).collect::<Vec<_>>().join(" ");
        Ok((request, texts))
    }

    #[test]
    fn settlements_are_read() {
        let default = |cost| Settlement::Cost(Costs { default: cost, named: &[] });
        for (line, settled, names, at_us, written) in [
            ("r", Settlement::AsCharged, "", None, ""),
            ("r refund", Settlement::Refund, "", None, "refund"),
            ("r AT 9 REFUND", Settlement::Refund, "", Some(9), "REFUND"),
            ("r COST 5", default(Some(5)), "", None, "COST 5"),
            ("r COST in=5", default(None), "in=5", None, "COST in=5"),
            (
                "r COST in=5 COST 0 AT 9 COST a.b=1000000000",
                default(Some(0)),
                "in=5 a.b=1000000000",
                Some(9),
                "COST in=5 COST 0 COST a.b=1000000000",
            ),
            ("REFUND", Settlement::AsCharged, "", None, ""),
            ("COST COST 3", default(Some(3)), "", None, "COST 3"),
            ("AT AT 3", Settlement::AsCharged, "", Some(3), ""),
        ] {
            let (request, named) = read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!(request.id, words[0].as_bytes(), "{line}");
            assert_eq!((request.settled, request.at_us), (settled, at_us), "{line}");
            assert_eq!(named, names, "{line}");
            let settles = without_at(words[1..].iter().copied(), str::as_bytes);
            assert_eq!(settles.join(" "), written, "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("''", "the id of the hold is 0 bytes long, expected 1..64"),
            ("r x", "unexpected 'x', expected REFUND, COST or AT"),
            ("r REFUND x", "unexpected 'x', expected AT"),
            ("r COST 1 x", "unexpected 'x', expected COST or AT"),
            ("r REFUND REFUND", "REFUND is given twice, expected once"),
            ("r REFUND COST 1", "REFUND and COST are given, expected one of them"),
            ("r COST in=1 REFUND", "REFUND and COST are given, expected one of them"),
            ("r COST 1 AT 1 REFUND", "REFUND and COST are given, expected one of them"),
            ("r COST 1 COST 2", "COST is given twice, expected once"),
            ("r COST in=1 COST in=2", "COST in= is given twice, expected once"),
            ("r COST", "COST has no value, expected an integer 0..1000000000 or name=integer"),
            ("r COST x", "COST is 'x', expected an integer 0..1000000000 or name=integer"),
            ("r COST in=x", "COST is 'in=x', expected an integer 0..1000000000 or name=integer"),
            ("r COST =1", "COST is '=1', expected an integer 0..1000000000 or name=integer"),
            ("r COST 1..5", "COST is '1..5', expected an integer 0..1000000000 or name=integer"),
            (
                "r COST in=1000000001",
                "COST is 'in=1000000001', expected an integer 0..1000000000 or name=integer",
            ),
            (
                "r COST a=1 COST b=1 COST c=1 COST d=1",
                "COST d=: too many names, expected at most 3 (ratelimit.max-rules)",
            ),
            ("r AT 1 AT 1", "AT is given twice, expected once"),
        ] {
            assert_eq!(read(line).unwrap_err(), error, "{line}");
        }
    }

    #[test]
    fn a_time_must_be_allowed() {
        let refused = settle(args("r AT 5"), &UNTIMED);
        assert_eq!(refused, Err(ParseError::AtRefused));
    }
}
