//! What the server decided: the reply to `RL.CHECK ... FULL`.

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, ParsingError, Value};

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Allowed,
    /// A rule denies it.
    Limited,
    /// An operator or a rule's `ban=` blocked the key.
    Blocked,
}

/// What was decided for a request. Handlers find it in the extensions of their request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request passes.
    pub verdict: Verdict,
    /// When to ask again, or, if it passes under a `leaky` rule, when to go on. `None`: never.
    pub wait: Option<Duration>,
    /// What each rule decided. Empty if the key is blocked or exempt.
    pub rules: Vec<RuleDecision>,
}

/// What one rule decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDecision {
    /// The name that `name=` gives, or the rule's text.
    pub name: String,
    /// Whether the rule denies the request.
    pub denies: bool,
    /// Whether the rule is on trial: what it says decides nothing.
    pub shadow: bool,
    /// What the rule allows in a period.
    pub quota: u64,
    /// The period. Zero for `slots`, which limit what runs at once.
    pub period: Duration,
    /// What is left now.
    pub remaining: u64,
    /// When the rule would let the request pass. `None`: never.
    pub wait: Option<Duration>,
    /// When nothing counts any more.
    pub reset: Duration,
}

/// A map of the reply, which RESP2 sends as an array.
struct Map(HashMap<String, Value>);

impl Map {
    fn take<T: FromRedisValue>(&mut self, name: &str) -> Result<T, ParsingError> {
        let value = self.0.remove(name).ok_or_else(|| format!("the reply has no '{name}'"))?;
        T::from_redis_value(value)
    }

    /// Milliseconds; `None` is the server's -1, never.
    fn take_ms(&mut self, name: &str) -> Result<Option<Duration>, ParsingError> {
        let ms: i64 = self.take(name)?;
        Ok(u64::try_from(ms).ok().map(Duration::from_millis))
    }

    fn take_units(&mut self, name: &str) -> Result<u64, ParsingError> {
        let units: i64 = self.take(name)?;
        Ok(u64::try_from(units).unwrap_or(0))
    }
}

impl FromRedisValue for Decision {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut reply = Map(HashMap::from_redis_value(value)?);
        let verdict = match reply.take("verdict")? {
            0 => Verdict::Allowed,
            1 => Verdict::Limited,
            2 => Verdict::Blocked,
            other => return Err(format!("the verdict is {other}, expected 0, 1 or 2").into()),
        };
        Ok(Self { verdict, wait: reply.take_ms("wait_ms")?, rules: reply.take("rules")? })
    }
}

impl FromRedisValue for RuleDecision {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut rule = Map(HashMap::from_redis_value(value)?);
        let (name, text): (Option<String>, String) = (rule.take("name")?, rule.take("rule")?);
        Ok(Self {
            name: name.unwrap_or(text),
            denies: rule.take::<i64>("verdict")? != 0,
            shadow: rule.take::<i64>("shadow")? != 0,
            quota: rule.take_units("quota")?,
            period: rule.take_ms("period_ms")?.unwrap_or_default(),
            remaining: rule.take_units("remaining")?,
            wait: rule.take_ms("wait_ms")?,
            reset: rule.take_ms("reset_ms")?.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, Value)]) -> Value {
        let pair = |(name, value): &(&str, Value)| {
            [Value::BulkString(name.as_bytes().to_vec()), value.clone()]
        };
        Value::Array(pairs.iter().flat_map(pair).collect())
    }

    /// Whatever a server says instead is an error, and no panic.
    #[test]
    fn other_replies_are_errors() {
        let whole = [
            ("verdict", Value::Int(1)),
            ("wait_ms", Value::Int(-1)),
            ("rules", Value::Array(Vec::new())),
        ];
        let expected = Decision { verdict: Verdict::Limited, wait: None, rules: Vec::new() };
        assert_eq!(Decision::from_redis_value(map(&whole)).ok(), Some(expected));
        let others = [Value::Nil, Value::Int(3), Value::Array(vec![Value::Nil]), map(&[])];
        for (at, (name, _)) in whole.iter().enumerate() {
            for other in &others {
                let mut reply = whole.clone();
                reply[at] = (name, other.clone());
                let is_right = matches!((*name, other), ("wait_ms", Value::Int(3)));
                let is_empty = *name == "rules" && *other == map(&[]);
                let decision = Decision::from_redis_value(map(&reply));
                // The client reads a missing list as an empty one.
                let is_nil = *name == "rules" && *other == Value::Nil;
                assert_eq!(decision.is_ok(), is_right || is_empty || is_nil, "{name}: {other:?}");
            }
        }
        for other in others {
            assert!(Decision::from_redis_value(other).is_err());
        }
    }
}
