//! The engine for servers that load no module: `ratelimit.lua`. It answers checks, peeks, refunds and
//! resets with the same integers as the module, and stores its state under the key with `:script`
//! appended.

use std::time::Duration;

use ratelimit_engine::rule::Rule;
use redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind};

use crate::check::{Check, Cost};
use crate::reply::{Reply, Report, RuleReport};
use crate::rules::parse;

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The module.
    #[default]
    Module,
    /// A script, on servers that load no module. It has its own counts.
    Script,
}

const TEXT: &str = include_str!("ratelimit.lua");

/// The script, and the digest by which a server knows it.
pub struct Script(redis::Script);

/// A command that asks the script instead of the module.
pub struct Asked {
    pub key: Vec<u8>,
    words: Vec<Vec<u8>>,
}

pub fn needs_module(what: &str) -> RedisError {
    let why = format!("{what} needs the module, but the engine is 'script'");
    (ErrorKind::Client, "the script cannot do this", why).into()
}

impl Script {
    pub fn new() -> Self {
        Self(redis::Script::new(TEXT))
    }

    /// The words for the script. A command that it cannot answer is an error.
    pub fn asked(command: &Cmd) -> RedisResult<Asked> {
        let mut words = command.args_iter().map(|word| match word {
            Arg::Simple(bytes) => bytes,
            _ => &[],
        });
        let name = words.next().unwrap_or_default().to_ascii_uppercase();
        let own = name.strip_prefix(b"RL.").unwrap_or_default();
        if ![&b"CHECK"[..], b"PEEK", b"REFUND", b"RESET"].contains(&own) {
            return Err(needs_module(&String::from_utf8_lossy(&name)));
        }
        let key = [words.next().unwrap_or_default(), b":script"].concat();
        let mut asked = vec![own.to_vec()];
        for word in words {
            knows(&String::from_utf8_lossy(word))?;
            asked.push(word.to_vec());
        }
        Ok(Asked { key, words: asked })
    }

    pub fn evalsha(&self, asked: &Asked) -> Cmd {
        asked.command("EVALSHA", self.0.get_hash())
    }
}

impl Asked {
    /// The command for a server that has forgotten the script.
    pub fn eval(&self) -> Cmd {
        self.command("EVAL", TEXT)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(&self.key).arg(&self.words);
        command
    }
}

pub fn has_forgotten(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// An error for a rule or an option that the script does not have.
pub fn knows(word: &str) -> RedisResult<()> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_range = word.split_once("..").is_some_and(|(a, b)| is_digits(a) && is_digits(b));
    let part = ["slots:", ",ban=", ",keep="].into_iter().find(|part| match *part {
        "slots:" => word.starts_with("slots:"),
        option => word.contains(option),
    });
    Err(needs_module(&match part {
        Some(part) => format!("{} in the rule '{word}'", part.trim_matches([',', ':', '='])),
        None if word.starts_with('@') => format!("the policy '{word}'"),
        None if is_range => "a range of costs".to_string(),
        None if ["FULL", "HOLD", "META"].contains(&&*word.to_ascii_uppercase()) => {
            word.to_ascii_uppercase()
        }
        None => return Ok(()),
    }))
}

/// Each cost, with the rules that a check of one key has charged that cost.
pub fn charges(check: &Check) -> RedisResult<Vec<(u64, Vec<String>)>> {
    let mut found = Vec::<(u64, Vec<String>)>::new();
    for (text, rule) in rules_of(check)? {
        let units = cost_of(&rule, &check.cost);
        match found.iter_mut().find(|(other, _)| *other == units) {
            Some((_, rules)) => rules.push(text),
            None if units > 0 => found.push((units, vec![text])),
            None => {}
        }
    }
    Ok(found)
}

/// The report on the rule that decides for a key. The five integers identify it only by its limit. If
/// several rules share that limit, this takes the one with the shortest period that is not below the
/// reset. `next` is an upper bound: more units may be back sooner.
pub fn report(reply: &Reply, check: &Check) -> RedisResult<Report> {
    let Reply { verdict, limit, remaining, wait, reset, source, .. } = *reply;
    let (denies, limit) = (!reply.is_allowed(), limit.unwrap_or_default());
    let key = check.limits.first().map(|limit| limit.key.clone());
    let period = |rule: &Rule| Duration::from_micros(rule.period_us());
    let decides = rules_of(check)?
        .into_iter()
        .filter(|(_, rule)| reply.limit == Some(rule.capacity()) && !rule.is_shadow())
        .min_by_key(|(_, rule)| (Some(period(rule)) < reset, period(rule)));
    let rules = decides.map(|(text, rule)| RuleReport {
        rule: text,
        name: rule.name().map(|name| name.as_str().to_string()),
        key: key.clone(),
        cost: cost_of(&rule, &check.cost),
        denies,
        shadow: false,
        limit,
        quota: rule.limit().into(),
        period: period(&rule),
        remaining: remaining.unwrap_or_default(),
        wait: if denies { wait } else { Some(Duration::ZERO) },
        next: wait.filter(|_| denies).or(reset),
        reset,
    });
    let rules = rules.into_iter().collect();
    Ok(Report { verdict, wait, key, granted: None, rules, source })
}

fn rules_of(check: &Check) -> RedisResult<Vec<(String, Rule)>> {
    let texts = check.limits.iter().flat_map(|limit| limit.rules.texts());
    texts.map(|text| Ok((text.clone(), parse(text)?))).collect()
}

fn cost_of(rule: &Rule, cost: &Cost) -> u64 {
    let written = rule.cost().written().map(u64::from);
    match cost {
        Cost::Units(units) | Cost::Range(units, _) => written.unwrap_or(*units),
        Cost::Named(costs) => {
            let named = |wanted: &str| {
                costs.iter().find(|(name, _)| name == wanted).map(|(_, units)| *units)
            };
            let by_name = rule.name().and_then(|name| named(name.as_str()));
            by_name.or(written).or_else(|| named("")).unwrap_or(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::FromRedisValue;
    use serde_json::Value;

    use super::*;

    fn shared(kind: &str) -> Vec<Value> {
        let all: Value = serde_json::from_str(include_str!("../../cases/script.json")).unwrap();
        all[kind].as_array().unwrap().clone()
    }

    fn check(case: &Value) -> Check {
        let rules = case["rules"].as_array().unwrap().iter();
        let check = Check::new("k", rules.map(|rule| rule.as_str().unwrap()).collect::<Vec<_>>());
        check.cost(match &case["cost"] {
            Value::Object(costs) => Cost::Named(
                costs.iter().map(|(name, units)| (name.clone(), units.as_u64().unwrap())).collect(),
            ),
            units => Cost::Units(units.as_u64().unwrap()),
        })
    }

    #[test]
    fn the_package_has_the_script_of_all_languages() {
        assert_eq!(TEXT, include_str!("../../script/ratelimit.lua"));
    }

    #[test]
    fn a_report_says_what_five_integers_tell() {
        for case in shared("reports") {
            let numbers = case["reply"].as_array().unwrap().iter();
            let numbers = numbers.map(|number| redis::Value::Int(number.as_i64().unwrap()));
            let reply = Reply::from_redis_value(redis::Value::Array(numbers.collect())).unwrap();
            let report = report(&reply, &check(&case)).unwrap();
            assert_eq!((report.wait, report.key.as_deref()), (reply.wait, Some(&b"k"[..])));
            let expected = case.get("rule").map(|rule| {
                let number = |name: &str| rule[name].as_u64().unwrap();
                let time = |name: &str| rule[name].as_u64().map(Duration::from_millis);
                RuleReport {
                    rule: rule["rule"].as_str().unwrap().to_string(),
                    name: rule["name"].as_str().map(String::from),
                    key: Some(b"k".to_vec()),
                    cost: number("cost"),
                    denies: rule["denies"].as_bool().unwrap(),
                    shadow: false,
                    limit: number("limit"),
                    quota: number("quota"),
                    period: time("period_ms").unwrap(),
                    remaining: number("remaining"),
                    wait: time("wait_ms"),
                    next: time("next_ms"),
                    reset: time("reset_ms"),
                }
            });
            assert_eq!(report.rules, expected.into_iter().collect::<Vec<_>>(), "{case}");
        }
    }

    #[test]
    fn charges_follow_from_rules_and_cost() {
        for case in shared("charges") {
            let mut expected = case["charges"].as_object().unwrap().clone();
            for (units, rules) in charges(&check(&case)).unwrap() {
                let found = expected.remove(&units.to_string()).unwrap();
                assert_eq!(found, rules.into_iter().collect::<Value>(), "{case}");
            }
            assert!(expected.is_empty(), "{case}");
        }
    }

    #[test]
    fn errors_name_what_needs_the_module() {
        for case in shared("refused") {
            let error = knows(case["rule"].as_str().unwrap()).unwrap_err();
            assert_eq!(error.detail(), case["error"].as_str());
        }
        let named = |line: &str| {
            let mut words = line.split(' ');
            let mut command = redis::cmd(words.next().unwrap());
            command.arg(words.collect::<Vec<_>>());
            Script::asked(&command).err().and_then(|error| error.detail().map(String::from))
        };
        for (line, what) in [
            ("RL.CHECK k HOLD id PX 1 5/m", "HOLD"),
            ("RL.PEEK k FULL 5/m", "FULL"),
            ("RL.CHECK k META who 5/m", "META"),
            ("RL.CHECK k COST 1..9 5/m", "a range of costs"),
            ("RL.MCHECK 2 a b 5/m", "RL.MCHECK"),
            ("RL.INFO k", "RL.INFO"),
            ("GET k", "GET"),
        ] {
            let expected = format!("{what} needs the module, but the engine is 'script'");
            assert_eq!(named(line), Some(expected), "{line}");
        }
        for line in ["RL.CHECK k COST 2 COST a=1 5/m,name=a", "rl.peek k 5/m", "RL.RESET k"] {
            assert_eq!(named(line), None, "{line}");
        }
    }
}
