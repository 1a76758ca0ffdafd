//! Policies: rules under a name.
//!
//! ```text
//! RL.POLICY SET name rule [rule ...]
//! RL.POLICY GET name
//! RL.POLICY DEL name
//! RL.POLICY LIST
//! RL.POLICY HELP
//!
//! name=rule[;rule ...]     as an argument of loadmodule, and a line of what is saved
//! ```
//!
//! A name is 1 to 32 of `A-Z a-z 0-9 _ . -`. A `@name` stands for its rules,
//! which are looked up, not parsed.

use super::cursor::Cursor;
use super::error::{ParseError, RuleArgError};
use super::request::{A_RULE, Limits, require_rule, rules_of};
use super::resolver::RuleResolver;
use crate::rule::{Excerpt, Name, Rule, looks_like_rule};

/// No setting lets a policy have more.
pub const MOST_RULES: usize = 1_000;

/// None may be named: these are the rules of one.
#[derive(Clone, Copy, Debug)]
struct WithinPolicy;

impl RuleResolver for WithinPolicy {
    fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleArgError> {
        Err(RuleArgError::PolicyInPolicy)
    }
}

/// What an `RL.POLICY` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyRequest {
    Set(Name),
    Get(Name),
    Delete(Name),
    List,
    Help,
}

/// The request of an `RL.POLICY`, its subcommand first. Without limits any
/// rules will do: they were judged elsewhere.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn policy<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: Option<&Limits>,
    rules: &mut Vec<Rule>,
) -> Result<PolicyRequest, ParseError> {
    let mut args = Cursor::new(args);
    let word = args.required()?;
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let request = if is("SET") {
        let name = name(args.required()?)?;
        rules_of(&mut args, limits, &mut WithinPolicy, rules)?;
        args.finish(A_RULE)?;
        require_rule(rules)?;
        return Ok(PolicyRequest::Set(name));
    } else if is("GET") {
        PolicyRequest::Get(name(args.required()?)?)
    } else if is("DEL") {
        PolicyRequest::Delete(name(args.required()?)?)
    } else if is("LIST") {
        PolicyRequest::List
    } else if is("HELP") {
        PolicyRequest::Help
    } else {
        return Err(ParseError::Word {
            what: "subcommand",
            given: Excerpt::new(word),
            expected: "SET, GET, DEL, LIST or HELP",
        });
    };
    match args.peek() {
        None => Ok(request),
        Some(_) => Err(ParseError::Arity),
    }
}

/// A policy in one word, `name=rule[;rule ...]`.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn written_policy(
    text: &[u8],
    limits: Option<&Limits>,
    rules: &mut Vec<Rule>,
) -> Result<Name, ParseError> {
    let middle = text.iter().position(|&byte| byte == b'=').unwrap_or(text.len());
    let (name_text, list) = text.split_at_checked(middle).unwrap_or_default();
    let name = name(name_text)?;
    let list = list.strip_prefix(b"=").unwrap_or_default();
    let words = list.split(|&byte| byte == b';');
    if let Some(word) = words.clone().find(|word| !word.starts_with(b"@") && !looks_like_rule(word))
    {
        return Err(ParseError::Unexpected { given: Excerpt::new(word), expected: A_RULE });
    }
    if let Some(word) = words.clone().nth(MOST_RULES) {
        let given = Excerpt::new(word);
        return Err(ParseError::TooManyRules { given, max: MOST_RULES });
    }
    rules_of(&mut Cursor::new(words), limits, &mut WithinPolicy, rules)?;
    if limits.is_none() {
        each_its_own(rules)?;
    }
    Ok(name)
}

/// Whether no two are the same. Who reads without limits does not ask: what was
/// saved may be damaged all the same.
fn each_its_own(rules: &[Rule]) -> Result<(), ParseError> {
    for (index, rule) in rules.iter().enumerate() {
        if let Some(other) = rules.iter().take(index).find(|other| other.same_identity(rule)) {
            let error = RuleArgError::same_identity(other);
            return Err(ParseError::rule(rule.to_string().as_bytes(), error));
        }
    }
    Ok(())
}

fn name(text: &[u8]) -> Result<Name, ParseError> {
    Name::new(text).ok_or_else(|| ParseError::Word {
        what: "the policy's name",
        given: Excerpt::new(text),
        expected: "1 to 32 of A-Z a-z 0-9 _ . -",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_rules: 3, max_log_entries: 1000, ..Limits::ANY };

    fn texts(rules: &[Rule]) -> String {
        rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(" ")
    }

    fn words(line: &str) -> impl Iterator<Item = &[u8]> {
        line.split_whitespace().map(str::as_bytes)
    }

    #[test]
    fn policies_are_asked_for() {
        let free = Name::new(b"free").unwrap();
        for (line, request, read) in [
            ("SET free 20/m bucket:5/s", PolicyRequest::Set(free), "log:20/1m bucket:5/1s"),
            ("set free 20/m", PolicyRequest::Set(free), "log:20/1m"),
            ("GET free", PolicyRequest::Get(free), ""),
            ("DEL free", PolicyRequest::Delete(free), ""),
            ("list", PolicyRequest::List, ""),
            ("HELP", PolicyRequest::Help, ""),
        ] {
            let mut rules = Vec::new();
            assert_eq!(policy(words(line), Some(&LIMITS), &mut rules), Ok(request), "{line}");
            assert_eq!(texts(&rules), read, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        const NAME: &str = "expected 1 to 32 of A-Z a-z 0-9 _ . -";
        for (line, error) in [
            ("", "wrong number of arguments"),
            ("PUT free", "subcommand is 'PUT', expected SET, GET, DEL, LIST or HELP"),
            ("SET", "wrong number of arguments"),
            ("SET free", "wrong number of arguments"),
            ("SET @free 20/m", &format!("the policy's name is '@free', {NAME}")),
            ("GET a/b", &format!("the policy's name is 'a/b', {NAME}")),
            ("SET free 20/m FULL", "unexpected 'FULL', expected a rule such as 20/1m"),
            ("SET free 20/m @pro", "rule '@pro': a policy may not name another"),
            (
                "SET free 20/m 30/m",
                "rule '30/m': same identity as rule 'log:20/1m', both count in the same state; give one of them name=",
            ),
            (
                "SET free 1/s 2/m 3/h 4/d",
                "rule '4/d': too many rules, expected at most 3 (ratelimit.max-rules)",
            ),
            ("GET free x", "wrong number of arguments"),
            ("LIST x", "wrong number of arguments"),
        ] {
            let given = policy(words(line), Some(&LIMITS), &mut Vec::new());
            assert_eq!(given.unwrap_err().to_string(), error, "{line}");
        }
        assert!(policy(words("SET free 1/s 2/m 3/h 4/d"), None, &mut Vec::new()).is_ok());
    }

    #[test]
    fn a_policy_can_be_one_word() {
        let mut rules = Vec::new();
        let name =
            written_policy(b"free=20/m,name=a;bucket:5/s,burst=9", Some(&LIMITS), &mut rules);
        assert_eq!(name, Ok(Name::new(b"free").unwrap()));
        assert_eq!(texts(&rules), "log:20/1m,name=a bucket:5/1s,burst=9");
        let name = written_policy(b"free=100/minute;bucket:5/2hours", Some(&LIMITS), &mut rules);
        assert_eq!(name, Ok(Name::new(b"free").unwrap()));
        assert_eq!(texts(&rules), "log:100/1m bucket:5/2h");
        for (text, error) in [
            ("", "the policy's name is '', expected 1 to 32 of A-Z a-z 0-9 _ . -"),
            ("free", "unexpected '', expected a rule such as 20/1m"),
            ("free=", "unexpected '', expected a rule such as 20/1m"),
            ("free=20/m;", "unexpected '', expected a rule such as 20/1m"),
            ("free=20/m;FULL", "unexpected 'FULL', expected a rule such as 20/1m"),
            (
                "free=20/m 1/s",
                "rule '20/m 1/s': the period 'm 1/s' cannot be read, expected an integer and a unit such as 90s",
            ),
            (
                "free=bucket:10",
                "rule 'bucket:10': the period is missing, expected limit/period such as 20/1m",
            ),
            ("free=@pro", "rule '@pro': a policy may not name another"),
        ] {
            let given = written_policy(text.as_bytes(), Some(&LIMITS), &mut rules);
            assert_eq!(given.unwrap_err().to_string(), error, "{text}");
        }
    }
}
