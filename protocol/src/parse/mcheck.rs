//! `RL.MCHECK`: one check of several keys.
//!
//! The rules are one group for all keys, or one group per key, in the order of the keys. If one group
//! for all keys asks for the keys' plans, the parser reads it once per key.

use super::check::{CheckRequest, expected, options_of_keys};
use super::costs::give_costs;
use super::cursor::Cursor;
use super::error::{ParseError, Parsed};
use super::limits::Limits;
use super::resolver::{PlanOf, RuleResolver};
use super::rules::take_rules_of;
use ratelimit_engine::rule::{Excerpt, Rule};
use std::iter;
use std::ops::{Range, RangeInclusive};

/// How many keys one check can have.
const KEYS: RangeInclusive<u64> = 1..=MOST_KEYS as u64;
const MOST_KEYS: usize = 64;

/// A check of several keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MCheckRequest<'a> {
    /// How many keys there are, 1 ..= 64.
    pub keys: usize,
    /// The options, which apply to every key.
    pub check: CheckRequest<'a>,
    /// How to choose the one key that is charged; `None`: every key must admit the check.
    pub any: Option<Any>,
    /// One group for all keys, or one per key in their order. If a group for all keys asks for their
    /// plans, each key has a group.
    pub groups: Vec<Group>,
}

/// Which of the keys that admit a check is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Any {
    /// The first key.
    First,
    /// The key with the most left afterwards; of several, the first.
    Most,
}

/// The rules of one key, or of all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Positions among the rules that were read.
    pub rules: Range<usize>,
    /// Positions among the arguments from the first rule on, `NEXT` included.
    pub args: Range<usize>,
}

/// The request of an `RL.MCHECK`, from the number of keys on. The number of groups is tested
/// after all arguments are read.
pub fn mcheck<'a>(
    args: impl Iterator<Item = &'a [u8]> + Clone,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<MCheckRequest<'a>> {
    let mut args = Cursor::new(args);
    rules.clear();
    let keys: usize = args.integer("numkeys", KEYS)?;
    let mut names = [None; MOST_KEYS];
    let names = names.get_mut(..keys).unwrap_or_default();
    for name in &mut *names {
        *name = Some(args.required()?);
    }
    require_different(names)?;
    let (mut first, mut most) = (None, None);
    let (mut check, named_costs) = options_of_keys(&mut args, limits, &mut |args| {
        Ok(args.option("ANY", &mut first, |_| Ok(()))?
            || args.option("MOST", &mut most, |_| Ok(()))?)
    })?;
    let any = match (first, most) {
        (None, None) => None,
        (Some(()), None) => Some(Any::First),
        (Some(()), Some(())) => Some(Any::Most),
        (None, Some(())) => return Err(ParseError::missing("MOST", "ANY, expected ANY MOST")),
    };
    let mut groups: Vec<Group> = Vec::with_capacity(1);
    let all_groups = args.clone();
    loop {
        let plan = PlanOf { key: groups.len(), at_us: check.at_us };
        let (first_rule, first_arg) = (rules.len(), check.rule_args);
        let taken = take_rules_of(plan, &mut args, limits, resolver, rules)?;
        check.rule_args = first_arg.saturating_add(taken);
        if taken == 0 {
            args.finish(if groups.is_empty() { expected(rules, MCHECK) } else { NEXT_RULE })?;
            return Err(ParseError::Arity);
        }
        groups.push(Group { rules: first_rule..rules.len(), args: first_arg..check.rule_args });
        if !args.keyword("NEXT") {
            break;
        }
        check.rule_args = check.rule_args.saturating_add(1);
    }
    args.finish("NEXT or a rule such as 20/1m; options come before the rules")?;
    if groups.len() != 1 && groups.len() != keys {
        return Err(ParseError::Groups { groups: groups.len(), keys });
    }
    let mut written = all_groups.clone();
    let mut written = iter::from_fn(|| written.take());
    if groups.len() < keys && written.any(|text| text.starts_with(b"@plan:")) {
        for key in 1..keys {
            let plan = PlanOf { key, at_us: check.at_us };
            let (first_rule, mut args) = (rules.len(), all_groups.clone());
            take_rules_of(plan, &mut args, limits, resolver, rules)?;
            groups.push(Group { rules: first_rule..rules.len(), args: 0..check.rule_args });
        }
    }
    if limits.observe {
        rules.iter_mut().for_each(Rule::observe);
    }
    give_costs(&named_costs, rules, resolver.named_a_policy())?;
    for group in &groups {
        let rules = rules.get(group.rules.clone()).unwrap_or_default();
        check.default_cost().test(rules, check.asks_for_hold())?;
    }
    Ok(MCheckRequest { keys, check, any, groups })
}

const MCHECK: &str = "COST, META, HOLD, AT, FULL, ANY or a rule such as 20/1m";
/// What errors say after 'expected' if no rule follows a `NEXT`.
const NEXT_RULE: &str = "a rule such as 20/1m after NEXT";

fn require_different(keys: &mut [Option<&[u8]>]) -> Parsed<()> {
    keys.sort_unstable();
    let same = |pair: &[Option<&_>]| matches!(pair, [one, other] if one == other);
    let key = keys.windows(2).find(|pair| same(pair)).and_then(|pair| *pair.first()?);
    key.map_or(Ok(()), |key| Err(ParseError::SameKey { key: Excerpt::new(key) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::NoPolicies;

    const LIMITS: Limits = Limits { max_rules: 2, ..Limits::ANY_CHECK };

    fn read(line: &str) -> Result<(MCheckRequest<'_>, String), String> {
        let mut rules = Vec::new();
        let args = line.split_whitespace().map(str::as_bytes);
        let request = mcheck(args, &LIMITS, &mut NoPolicies, &mut rules);
        let request = request.map_err(|error| error.to_string())?;
        let text = |group: &Group| {
            let texts = rules[group.rules.clone()].iter().map(Rule::to_string);
            texts.collect::<Vec<_>>().join(" ")
        };
        let texts = request.groups.iter().map(text).collect::<Vec<_>>().join(" | ");
        Ok((request, texts))
    }

    #[test]
    fn keys_share_a_group_or_have_one_each() {
        for (line, keys, args, texts) in [
            ("1 a 20/m", 1, "0..1", "log:20/1m"),
            ("2 a b 20/m 1/s", 2, "0..2", "log:20/1m log:1/1s"),
            ("2 a b COST 3 20/m NEXT 20/m 1/s", 2, "0..1 2..4", "log:20/1m | log:20/1m log:1/1s"),
            (
                "3 NEXT 5/m COST 1/s next 2/s NEXT 3/s",
                3,
                "0..1 2..3 4..5",
                "log:1/1s | log:2/1s | log:3/1s",
            ),
        ] {
            let (request, read) = read(line).unwrap();
            assert_eq!((request.keys, read.as_str()), (keys, texts), "{line}");
            let spans = request.groups.iter().map(|group| format!("{:?}", group.args));
            assert_eq!(spans.collect::<Vec<_>>().join(" "), args, "{line}");
            assert_eq!(request.check.rule_args, request.groups.last().unwrap().args.end, "{line}");
        }
    }

    #[test]
    fn any_and_most_choose_a_key() {
        for (line, any) in [
            ("1 a ANY 20/m", Some(Any::First)),
            ("2 a b COST 2 any FULL 20/m", Some(Any::First)),
            ("2 a b ANY MOST 20/m", Some(Any::Most)),
            ("2 a b MOST META x ANY 20/m", Some(Any::Most)),
            ("2 a b 20/m", None),
            // The names of keys.
            ("2 ANY MOST 20/m", None),
        ] {
            assert_eq!(read(line).unwrap().0.any, any, "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("x a 20/m", "numkeys is 'x', expected an integer 1..64"),
            ("0 20/m", "numkeys is '0', expected an integer 1..64"),
            ("65 a 20/m", "numkeys is '65', expected an integer 1..64"),
            ("3 a b", "wrong number of arguments"),
            ("3 a b 20/m", "wrong number of arguments"),
            ("3 user:12 b user:12 20/m", "key 'user:12' is given twice, expected each key once"),
            ("2 a a 20/m", "key 'a' is given twice, expected each key once"),
            (
                "2 a b c 20/m",
                "unexpected 'c', expected COST, META, HOLD, AT, FULL, ANY or a rule such as 20/1m",
            ),
            (
                "2 a b 20/m FULL",
                "unexpected 'FULL', expected NEXT or a rule such as 20/1m; options come before the rules",
            ),
            ("2 a b MOST 20/m", "MOST has no ANY, expected ANY MOST"),
            ("2 a b ANY ANY 20/m", "ANY is given twice, expected once"),
            ("2 a b 20/m NEXT", "wrong number of arguments"),
            (
                "2 a b NEXT 20/m",
                "unexpected 'NEXT', expected COST, META, HOLD, AT, FULL, ANY or a rule such as 20/1m",
            ),
            (
                "2 a b 20/m NEXT NEXT 20/m",
                "unexpected 'NEXT', expected a rule such as 20/1m after NEXT",
            ),
            (
                "3 a b c 20/m NEXT 20/m",
                "2 groups of rules, expected one for all keys or one a key (numkeys is 3)",
            ),
            (
                "1 a 20/m NEXT 20/m",
                "2 groups of rules, expected one for all keys or one a key (numkeys is 1)",
            ),
            (
                "2 a b 1/s 2/m 3/h",
                "rule '3/h': too many rules, expected at most 2 (ratelimit.max-rules)",
            ),
            (
                "1 a 20/m 30/m",
                "rule '30/m': same identity as rule 'log:20/1m', both count in the same state; give one of them name=",
            ),
        ] {
            assert_eq!(read(line).unwrap_err(), error, "{line}");
        }
    }
}
