//! Policies: rules under a name.
//!
//! ```text
//! name=rule[;rule ...]     in an argument of loadmodule, and in saved policies
//! ```
//!
//! A name is 1 to 32 of `A-Z a-z 0-9 _ . -`. `@name` stands for the policy's
//! rules, which are looked up, not parsed.

use super::cursor::Cursor;
use super::error::{ParseError, Parsed, RuleArgError};
use super::limits::Limits;
use super::resolver::RuleResolver;
use super::rules::{A_RULE, require_rule, take_rules};
use ratelimit_engine::rule::{Name, Rule, looks_like_rule, split};

/// How many rules a policy may have, whatever the settings.
pub const MOST_RULES: usize = 1_000;

/// Resolves the rules of a policy, and refuses names of other policies.
#[derive(Clone, Copy, Debug)]
struct WithinPolicy;

impl RuleResolver for WithinPolicy {
    fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleArgError> {
        Err(RuleArgError::PolicyInPolicy)
    }
}

/// An `RL.POLICY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyRequest {
    /// Saves, under this name, the rules that were read.
    Set(Name),
    /// Shows the rules of this policy.
    Get(Name),
    /// Deletes this policy (`DEL`).
    Delete {
        /// Its name.
        name: Name,
        /// Even if checks use it.
        force: bool,
    },
    /// Shows every policy.
    List,
    /// Shows the subcommands.
    Help,
}

/// The request of an `RL.POLICY`, its subcommand first.
pub fn policy<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    rules: &mut Vec<Rule>,
) -> Parsed<PolicyRequest> {
    let mut args = Cursor::new(args);
    let subcommand = args.required()?;
    let request = match subcommand.to_ascii_uppercase().as_slice() {
        b"SET" => {
            let name = name(args.required()?)?;
            take_rules(None, &mut args, limits, &mut WithinPolicy, rules)?;
            args.finish(A_RULE)?;
            require_rule(rules)?;
            return Ok(PolicyRequest::Set(name));
        }
        b"GET" => PolicyRequest::Get(name(args.required()?)?),
        b"DEL" => {
            PolicyRequest::Delete { name: name(args.required()?)?, force: args.keyword("FORCE") }
        }
        b"LIST" => PolicyRequest::List,
        b"HELP" => PolicyRequest::Help,
        _ => {
            let expected = "SET, GET, DEL, LIST or HELP";
            return Err(ParseError::value("subcommand", subcommand, expected));
        }
    };
    if args.peek().is_some() { Err(ParseError::Arity) } else { Ok(request) }
}

/// Reads a policy from one argument, `name=rule[;rule ...]`.
pub fn written_policy(text: &[u8], limits: &Limits, rules: &mut Vec<Rule>) -> Parsed<Name> {
    let (name_text, list) = split(text, b'=').unwrap_or((text, b""));
    let name = name(name_text)?;
    let texts = list.split(|&byte| byte == b';');
    let is_rule = |text: &&[u8]| text.starts_with(b"@") || looks_like_rule(text);
    if let Some(text) = texts.clone().find(|text| !is_rule(text)) {
        return Err(ParseError::unexpected(text, A_RULE));
    }
    if let Some(text) = texts.clone().nth(MOST_RULES) {
        return Err(ParseError::rule(text, RuleArgError::TooMany { max: MOST_RULES }));
    }
    take_rules(None, &mut Cursor::new(texts), limits, &mut WithinPolicy, rules)?;
    Ok(name)
}

/// The name of a policy.
pub(crate) fn name(text: &[u8]) -> Parsed<Name> {
    let expected = "1 to 32 of A-Z a-z 0-9 _ . -";
    Name::new(text).ok_or_else(|| ParseError::value("the policy's name", text, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::test_lines::*;

    #[test]
    fn subcommands_are_read() {
        let free = Name::new(b"free").unwrap();
        for (line, request, read) in [
            ("SET free 20/m bucket:5/s", PolicyRequest::Set(free), "log:20/1m bucket:5/1s"),
            ("set free 20/m", PolicyRequest::Set(free), "log:20/1m"),
            ("GET free", PolicyRequest::Get(free), ""),
            ("DEL free", PolicyRequest::Delete { name: free, force: false }, ""),
            ("del free force", PolicyRequest::Delete { name: free, force: true }, ""),
            ("list", PolicyRequest::List, ""),
            ("HELP", PolicyRequest::Help, ""),
        ] {
            let mut rules = Vec::new();
            assert_eq!(policy(args(line), &LIMITS, &mut rules), Ok(request), "{line}");
            assert_eq!(texts_of(&rules), read, "{line}");
        }
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
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
            let given = policy(args(line), &LIMITS, &mut Vec::new());
            assert_eq!(given.unwrap_err().to_string(), error, "{line}");
        }
        for saved in ["SET free 1/s 2/m 3/h 4/d", "SET free 20/m 30/m"] {
            assert!(policy(args(saved), &Limits::ANY, &mut Vec::new()).is_ok(), "{saved}");
        }
    }

    #[test]
    fn policies_in_one_argument_are_read() {
        let mut rules = Vec::new();
        let name = written_policy(b"free=20/m,name=a;bucket:5/s,burst=9", &LIMITS, &mut rules);
        assert_eq!(name, Ok(Name::new(b"free").unwrap()));
        assert_eq!(texts_of(&rules), "log:20/1m,name=a bucket:5/1s,burst=9");
        let name = written_policy(b"free=100/minute;bucket:5/2hours", &LIMITS, &mut rules);
        assert_eq!(name, Ok(Name::new(b"free").unwrap()));
        assert_eq!(texts_of(&rules), "log:100/1m bucket:5/2h");
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
            let given = written_policy(text.as_bytes(), &LIMITS, &mut rules);
            assert_eq!(given.unwrap_err().to_string(), error, "{text}");
        }
    }
}
