//! What a check costs its rules.
//!
//! ```text
//! COST n           the default cost: that of each rule without another cost
//! COST a..b        a range for the default cost: the check grants as much of it as passes
//! COST name=n      the cost of the rules with this name
//! ```
//!
//! `COST`s come before the rules: at most one for the default cost, and one for each name. A
//! settlement takes no range. The parser gives each rule the cost that names it, so later layers see
//! no costs by name.

use super::cursor::{Cursor, units};
use super::error::{ParseError, Parsed, RuleArgError};
use ratelimit_engine::rule::{Clash, Kind, Name, NamedCost, Rule, split};
use std::fmt;

/// What errors say after 'expected' about the value of a `COST` that may be a range.
const COST_OR_RANGE: &str = "an integer 0..1000000000, a range such as 1..100 or name=integer";
/// What errors say after 'expected' about the value of any other `COST`.
const COST: &str = "an integer 0..1000000000 or name=integer";
/// What errors say after 'expected' about a wrong range of costs.
const A_RANGE: &str = "a range a..b with 1 <= a <= b <= 1000000000";

/// The `COST`s of a request while they are read.
#[derive(Debug, Default)]
pub(super) struct Costs {
    pub default: Option<u32>,
    /// The largest cost to grant, if the default cost is a range.
    pub up_to: Option<u32>,
    pub named: Vec<NamedCost>,
}

impl Costs {
    /// Whether no `COST` was read.
    pub(super) const fn is_empty(&self) -> bool {
        self.default.is_none() && self.named.is_empty()
    }

    /// Reads a `COST`; `false` if none comes next. Refuses more than `max_names` costs by name.
    pub(super) fn take<'a, I: Iterator<Item = &'a [u8]>>(
        &mut self,
        args: &mut Cursor<'a, I>,
        max_names: usize,
        may_be_range: bool,
    ) -> Parsed<bool> {
        if !args.keyword("COST") {
            return Ok(false);
        }
        let expected = if may_be_range { COST_OR_RANGE } else { COST };
        let Some(text) = args.take() else {
            return Err(ParseError::missing("COST", format!("value, expected {expected}")));
        };
        let wrong = || ParseError::value("COST", text, expected);
        if let Some((name, cost)) = split(text, b'=') {
            let (name, cost) = Name::new(name).zip(units(cost)).ok_or_else(wrong)?;
            self.add(NamedCost { name, cost }, max_names)?;
        } else if self.default.is_some() {
            return Err(ParseError::Repeated { option: "COST" });
        } else if let Some(cost) = units(text) {
            self.default = Some(cost);
        } else {
            let (least, most) = range(text).filter(|_| may_be_range).ok_or_else(wrong)?;
            if !(1..=most).contains(&least) {
                return Err(ParseError::value("COST", text, A_RANGE));
            }
            (self.default, self.up_to) = (Some(least), Some(most));
        }
        Ok(true)
    }

    fn add(&mut self, cost: NamedCost, max_names: usize) -> Parsed<()> {
        let name = cost.name;
        if self.named.iter().any(|other| other.name == name) {
            return Err(ParseError::RepeatedCost { name });
        }
        if self.named.len() >= max_names {
            return Err(ParseError::TooManyCosts { name, max: max_names });
        }
        self.named.push(cost);
        Ok(())
    }
}

/// Reads `a..b`.
#[cold]
fn range(text: &[u8]) -> Option<(u32, u32)> {
    let middle = text.windows(2).position(|two| two == b"..")?;
    let (least, most) = (text.get(..middle)?, text.get(middle.saturating_add(2)..)?);
    Some((units(least)?, units(most)?))
}

/// Gives the rules of all keys the costs that name them. A name without a rule is an error,
/// unless the request names a policy: a policy can lose a rule while its callers still name
/// it.
pub(super) fn give_costs(
    costs: &[NamedCost],
    rules: &mut [Rule],
    names_policy: bool,
) -> Parsed<()> {
    for &NamedCost { name, cost } in costs {
        let mut found = false;
        for rule in rules.iter_mut().filter(|rule| rule.name() == Some(&name)) {
            rule.set_named_cost(cost);
            found = true;
        }
        if !found && !names_policy {
            return Err(ParseError::UnknownCost { name });
        }
    }
    Ok(())
}

/// The default cost: one number, or a range to grant from.
#[derive(Clone, Copy, Debug)]
pub(super) struct DefaultCost {
    pub least: u32,
    pub up_to: Option<u32>,
}

impl DefaultCost {
    /// What a check can cost a rule.
    fn range_of(self, rule: &Rule) -> Range {
        let least = rule.cost().or(self.least);
        Range { least, most: rule.cost().own().or(self.up_to).unwrap_or(least) }
    }

    /// Refuses log rules of one key with different costs, and `slots` rules unless `may_have_slots`.
    #[inline(always)]
    pub(super) fn test(self, rules: &[Rule], may_have_slots: bool) -> Parsed<()> {
        let is_plain = |rule: &Rule| rule.kind() != Kind::Slots && rule.cost().own().is_none();
        if rules.iter().all(is_plain) { Ok(()) } else { self.test_any(rules, may_have_slots) }
    }

    #[inline(never)]
    fn test_any(self, rules: &[Rule], may_have_slots: bool) -> Parsed<()> {
        let mut slots = rules.iter().filter(|rule| rule.kind() == Kind::Slots);
        if !may_have_slots && let Some(rule) = slots.next() {
            return Err(ParseError::of_rule(rule, RuleArgError::Unheld));
        }
        let clash = Clash::of_costs(rules, |rule| self.range_of(rule));
        match clash.and_then(|(index, clash)| Some((rules.get(index)?, clash))) {
            Some((rule, clash)) => Err(ParseError::of_rule(rule, clash)),
            None => Ok(()),
        }
    }
}

/// The least and the most that a check can cost a rule.
#[derive(PartialEq)]
struct Range {
    least: u32,
    most: u32,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { least, most } if least == most => write!(f, "{least}"),
            Self { least, most } => write!(f, "{least}..{most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::test_lines::*;
    use crate::parse::{NoPolicies, RuleArgError, RuleResolver, check, mcheck, peek};
    use ratelimit_engine::rule::Rule;
    use ratelimit_engine::testing::rules_of_line;

    /// Each rule's cost in an `RL.CHECK`.
    fn costs(line: &str) -> Result<Vec<u32>, String> {
        let mut rules = Vec::new();
        let request = check(args(line), &LIMITS, &mut NoPolicies, &mut rules);
        let cost = request.map_err(|error| error.to_string())?.cost;
        Ok(rules.iter().map(|rule| rule.cost().or(cost)).collect())
    }

    #[test]
    fn a_rule_has_one_cost() {
        for (line, expected) in [
            ("20/m", &[1][..]),
            ("COST 3 20/m", &[3]),
            ("bucket:5/s,cost=1 20/m,name=in window:9/h,name=out", &[1, 1, 1]),
            ("COST 3 bucket:5/s,cost=1 20/m,name=in window:9/h,name=out", &[1, 3, 3]),
            ("COST out=4 COST 3 bucket:5/s,cost=1 20/m,name=in window:9/h,name=out", &[1, 3, 4]),
            ("cost in=0 FULL cost out=4 bucket:5/s 20/m,name=in window:9/h,name=out", &[1, 0, 4]),
            ("COST a=1000000000 5/s,name=a,cost=2 20/m,cost=1000000000", &[1_000_000_000; 2]),
            ("COST 5 20/m 1/s,cost=5", &[5, 5]),
        ] {
            assert_eq!(costs(line), Ok(expected.to_vec()), "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        const VALUE: &str =
            "expected an integer 0..1000000000, a range such as 1..100 or name=integer";
        const RANGE: &str = "expected a range a..b with 1 <= a <= b <= 1000000000";
        const LOGS: &str = "log rules share one log; use bucket, window or fixed";
        for (line, error) in [
            ("COST", format!("COST has no value, {VALUE}")),
            ("COST 20/m", format!("COST is '20/m', {VALUE}")),
            ("COST in= 20/m", format!("COST is 'in=', {VALUE}")),
            ("COST =1 20/m", format!("COST is '=1', {VALUE}")),
            ("COST i/n=1 20/m", format!("COST is 'i/n=1', {VALUE}")),
            ("COST in=1=2 20/m", format!("COST is 'in=1=2', {VALUE}")),
            ("COST in=-1 20/m", format!("COST is 'in=-1', {VALUE}")),
            ("COST in=1000000001 20/m", format!("COST is 'in=1000000001', {VALUE}")),
            ("COST in=1..5 5/s,name=in", format!("COST is 'in=1..5', {VALUE}")),
            ("COST 1.. 20/m", format!("COST is '1..', {VALUE}")),
            ("COST ..5 20/m", format!("COST is '..5', {VALUE}")),
            ("COST 1...5 20/m", format!("COST is '1...5', {VALUE}")),
            ("COST 1..2..3 20/m", format!("COST is '1..2..3', {VALUE}")),
            ("COST 1..1000000001 20/m", format!("COST is '1..1000000001', {VALUE}")),
            ("COST 0..5 20/m", format!("COST is '0..5', {RANGE}")),
            ("COST 5..1 20/m", format!("COST is '5..1', {RANGE}")),
            ("COST 1..5 COST 3 20/m", "COST is given twice, expected once".into()),
            ("COST 3 COST 1..5 20/m", "COST is given twice, expected once".into()),
            ("COST in=1 COST in=1 5/s,name=in", "COST in= is given twice, expected once".into()),
            (
                "COST in=1 20/m,name=out",
                "COST in= is for no rule here, expected a rule with name=in".into(),
            ),
            (
                "COST a=1 COST b=1 COST c=1 COST d=1 20/m",
                "COST d=: too many names, expected at most 3 (ratelimit.max-rules)".into(),
            ),
            (
                "20/m 1/s,cost=5",
                format!("rule 'log:1/1s,cost=5': costs 5, but rule 'log:20/1m' costs 1: {LOGS}"),
            ),
            (
                "COST a=2 bucket:9/s 20/m,name=a 1/s",
                format!("rule 'log:1/1s': costs 1, but rule 'log:20/1m,name=a' costs 2: {LOGS}"),
            ),
        ] {
            assert_eq!(costs(line), Err(error), "{line}");
        }
    }

    #[test]
    fn a_default_cost_may_be_a_range() {
        for (line, cost, up_to) in [
            ("COST 5 20/m", 5, None),
            ("COST 1..100 20/m", 1, Some(100)),
            ("COST 7..7 20/m", 7, Some(7)),
            ("COST 01..1000000000 20/m", 1, Some(1_000_000_000)),
            ("COST in=4 COST 2..3 20/m,name=in", 2, Some(3)),
        ] {
            let read = [check, peek].map(|read| {
                let request = read(args(line), &LIMITS, &mut NoPolicies, &mut Vec::new());
                request.map(|request| {
                    (request.cost, request.options.and_then(|options| options.up_to))
                })
            });
            assert_eq!(read, [Ok((cost, up_to)), Ok((cost, up_to))], "{line}");
        }
        let line = "2 a b COST 2..9 20/m";
        let request = mcheck(args(line), &LIMITS, &mut NoPolicies, &mut Vec::new()).unwrap().check;
        assert_eq!((request.cost, request.options.and_then(|options| options.up_to)), (2, Some(9)));
    }

    #[test]
    fn slots_need_a_hold() {
        const GIVE: &str = "slots are held, give HOLD id EX seconds";
        let mut rules = Vec::new();
        for (line, error) in [
            ("slots:8", Some("slots:8")),
            ("COST 1..4 20/m slots:8,name=a,cost=2", Some("slots:8,name=a,cost=2")),
            ("HOLD r EX 30 slots:8", None),
            ("COST 1..4 HOLD r EX 30 20/m slots:8,name=a slots:9", None),
        ] {
            let error = error.map(|rule| format!("rule '{rule}': {GIVE}"));
            let refused = check(args(line), &LIMITS, &mut NoPolicies, &mut rules).err();
            assert_eq!(refused.map(|error| error.to_string()), error, "{line}");
            let line = format!("2 a b {line}");
            let refused = mcheck(args(&line), &LIMITS, &mut NoPolicies, &mut rules).err();
            assert_eq!(refused.map(|error| error.to_string()), error, "{line}");
        }
        let line = "2 a b 20/m NEXT slots:8";
        let refused = mcheck(args(line), &LIMITS, &mut NoPolicies, &mut rules).unwrap_err();
        assert_eq!(refused.to_string(), format!("rule 'slots:8': {GIVE}"));
        // A peek needs no hold.
        assert!(peek(args("slots:8 20/m"), &LIMITS, &mut NoPolicies, &mut rules).is_ok());
    }

    /// A resolver with one policy.
    struct OnePolicy {
        rules: Vec<Rule>,
        named: bool,
    }

    impl RuleResolver for OnePolicy {
        fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleArgError> {
            self.named = true;
            Ok(&self.rules)
        }

        fn named_a_policy(&self) -> bool {
            self.named
        }
    }

    #[test]
    fn names_that_a_policy_lost_are_ignored() {
        let mut rules = Vec::new();
        for (line, expected) in [
            ("COST 7 COST in=3 COST lost=9 @llm", Ok("1 3 7")),
            ("COST lost=9 5/m @llm", Ok("1 1 1 1")),
            (
                "COST lost=9 5/m",
                Err("COST lost= is for no rule here, expected a rule with name=lost"),
            ),
        ] {
            let llm = rules_of_line("fixed:50/m,cost=1 bucket:9/m,name=in bucket:8/m,name=out");
            let mut resolver = OnePolicy { rules: llm, named: false };
            let limits = crate::parse::Limits { max_rules: 4, ..LIMITS };
            let read = check(args(line), &limits, &mut resolver, &mut rules).map(|request| {
                let costs = rules.iter().map(|rule| rule.cost().or(request.cost).to_string());
                costs.collect::<Vec<_>>().join(" ")
            });
            let read = read.map_err(|error| error.to_string());
            assert_eq!(read.as_deref().map_err(|error| &**error), expected, "{line}");
        }
    }

    #[test]
    fn costs_by_name_apply_to_the_rules_of_every_key() {
        let mut rules = Vec::new();
        let line = "2 a b COST in=3 20/m,name=in NEXT 1/s 5/h,name=out";
        assert!(mcheck(args(line), &LIMITS, &mut NoPolicies, &mut rules).is_ok());
        assert_eq!(rules.iter().filter_map(|rule| rule.cost().own()).collect::<Vec<_>>(), [3]);
        let line = "2 a b COST in=3 20/m,name=in NEXT 1/s 5/h,name=in";
        let error = mcheck(args(line), &LIMITS, &mut NoPolicies, &mut rules).unwrap_err();
        assert!(error.to_string().starts_with("rule 'log:5/1h,name=in': costs 3, but"), "{error}");
        let line = "2 a b COST x=3 20/m,name=in NEXT 1/s 5/h,name=out";
        let error = mcheck(args(line), &LIMITS, &mut NoPolicies, &mut rules).unwrap_err();
        assert!(error.to_string().starts_with("COST x= is for no rule here"), "{error}");
    }
}
