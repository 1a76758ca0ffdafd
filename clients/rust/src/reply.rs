//! What was decided: replies of five or six integers, and reports on each rule (`FULL`).

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, ParsingError, RedisResult, Value};

use crate::check::Check;
use crate::value::misuse;

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

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The server.
    Server,
    /// The limiter in this process, also if nothing limits the request.
    Local,
    /// Nobody, because the server is away: [`Outage::Allow`](crate::Outage::Allow) or
    /// [`Deny`](crate::Outage::Deny) answers.
    Outage,
    /// A denial that the limiter remembers.
    Denial,
    /// Units that a [`Lease`](crate::Lease) has taken ahead.
    Lease,
}

/// What a check replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Whether the request passes.
    pub verdict: Verdict,
    /// The most that the deciding rule lets pass at once; `None`: no rule decided.
    pub limit: Option<u64>,
    /// What the deciding rule would still allow now; `None`: no rule decided.
    pub remaining: Option<u64>,
    /// When to ask again, or, if the request passes under a `leaky` rule, when to go on. `None`: never.
    pub wait: Option<Duration>,
    /// When nothing counts any more under the deciding rule. `None`: never.
    pub reset: Option<Duration>,
    /// The units that a range of costs was granted.
    pub granted: Option<u64>,
    /// Who decided.
    pub source: Source,
}

/// A check's reply with the numbers of each rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether the request passes.
    pub verdict: Verdict,
    /// When to ask again, or, if the request passes under a `leaky` rule, when to go on. `None`: never.
    pub wait: Option<Duration>,
    /// The key that decides, in a check of several keys.
    pub key: Option<Vec<u8>>,
    /// The units that a range of costs was granted.
    pub granted: Option<u64>,
    /// What each rule decided. Empty if the key is blocked or exempt.
    pub rules: Vec<RuleReport>,
    /// Who decided.
    pub source: Source,
}

/// What one rule decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleReport {
    /// Its text.
    pub rule: String,
    /// The name that `name=` gives.
    pub name: Option<String>,
    /// The key that the rule belongs to, in a check of several keys.
    pub key: Option<Vec<u8>>,
    /// What the request costs the rule.
    pub cost: u64,
    /// Whether the rule denies the request.
    pub denies: bool,
    /// Whether the rule is on trial: then it never denies.
    pub shadow: bool,
    /// The most that passes at once.
    pub limit: u64,
    /// What the rule allows in a period.
    pub quota: u64,
    /// The period. Zero for `slots`, which limit what runs at once.
    pub period: Duration,
    /// What is left now.
    pub remaining: u64,
    /// When the rule would let the request pass. `None`: never.
    pub wait: Option<Duration>,
    /// When one more unit is left. `None`: never.
    pub next: Option<Duration>,
    /// When nothing counts any more. `None`: never.
    pub reset: Option<Duration>,
}

impl RuleReport {
    /// The name, or the text of a rule without one.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.rule)
    }
}

impl Reply {
    /// Whether the request passes.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }

    /// Whether this check brought consumption from below a fraction of the limit to at least that:
    /// `crossed(0.8, None)` for a mail at 80 %. `cost` is what the check cost the deciding rule: by
    /// default the units granted from a range, else 1.
    ///
    /// Under one `fixed` rule this is true once a window. Under other rules units come back, or
    /// another rule decides: it may be true twice or never. It is true again if the check repeats a
    /// hold. Do not ask it of a peek.
    ///
    /// # Errors
    /// The fraction is not above 0, or is above 1.
    #[allow(clippy::cast_precision_loss, reason = "units have 32 bits")]
    pub fn crossed(&self, fraction: f64, cost: Option<u64>) -> RedisResult<bool> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            let given = format!("the fraction is {fraction}, expected more than 0, at most 1");
            return Err(misuse(given));
        }
        let (Verdict::Allowed, Some(limit @ 1..), Some(remaining)) =
            (self.verdict, self.limit, self.remaining)
        else {
            return Ok(false);
        };
        let used = limit.saturating_sub(remaining);
        let before = used.saturating_sub(cost.or(self.granted).unwrap_or(1));
        // Units are at most 1,000,000,000: a float is exact.
        #[expect(clippy::cast_precision_loss)]
        let share = |units: u64| units as f64 / limit as f64;
        Ok(share(before) < fraction && fraction <= share(used))
    }
}

impl Report {
    /// Whether the request passes.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }

    /// The rule that decides: if the check was denied, the one with the longest wait, else the one
    /// with the least left for its cost.
    pub fn deciding(&self) -> Option<&RuleReport> {
        let denied = !self.is_allowed();
        let rules = self.rules.iter().filter(|rule| !rule.shadow && (rule.denies || !denied));
        let worse = |a: &RuleReport, b: &RuleReport| {
            let share = |one: &RuleReport, other: &RuleReport| {
                u128::from(one.remaining).saturating_mul(other.cost.into())
            };
            if denied { never(a.wait) > never(b.wait) } else { share(a, b) < share(b, a) }
        };
        rules.reduce(|most, rule| if worse(rule, most) { rule } else { most })
    }

    /// The texts of the rules.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &rule.rule[..])
    }

    /// The short reply with the same decision.
    pub fn reply(&self) -> Reply {
        let rule = self.deciding();
        let none = (!self.is_allowed()).then_some(0);
        Reply {
            verdict: self.verdict,
            limit: rule.map_or(none, |rule| Some(rule.limit)),
            remaining: rule.map_or(none, |rule| Some(rule.remaining)),
            wait: self.wait,
            reset: rule.map_or(self.wait, |rule| rule.reset),
            granted: self.granted,
            source: self.source,
        }
    }
}

/// A wait as a length that can be compared: never is the longest.
fn never(wait: Option<Duration>) -> Duration {
    wait.unwrap_or(Duration::MAX)
}

/// A [`Reply`] or a [`Report`].
pub(crate) trait Answer: FromRedisValue + Clone + Send {
    /// Whether its command asks for a report.
    const FULL: bool;
    fn of(report: Report) -> Self;
    fn granted(&self) -> Option<u64>;
    /// The numbers of each rule, if the answer has them.
    fn report(&self) -> Option<&Report>;
    /// The verdict, the wait, and who decided.
    fn head(&self) -> (Verdict, Option<Duration>, Source);
    /// Whether a rule, and not a pause, denies.
    fn is_by_rule(&self) -> bool;
    fn by(self, source: Source) -> Self;
    /// The answer after this time, if nothing has happened.
    fn later(&self, by: Duration) -> Self;

    /// The reply to a check, if it has the right shape.
    fn of_reply(value: &Value, check: &Check) -> Option<Self> {
        let answer = Self::from_redis_value_ref(value).ok()?;
        Some(answer).filter(|answer| answer.granted().is_some() == check.cost.is_range())
    }

    /// Who decided, the verdict and the rule, for the application.
    fn told(&self, check: &Check) -> (Source, Verdict, Option<String>) {
        let (verdict, _, source) = self.head();
        let report = self.report().filter(|_| verdict != Verdict::Allowed);
        let mut rules = report.into_iter().flat_map(|report| &report.rules);
        let denying = rules.find(|rule| rule.denies && !rule.shadow);
        let rule = denying.map(|rule| rule.label().to_string()).or_else(|| check.only_rule());
        (source, verdict, rule)
    }

    /// An answer without a rule.
    fn bare(verdict: Verdict, wait: Duration, source: Source) -> Self {
        let (key, granted, rules) = (None, None, Vec::new());
        Self::of(Report { verdict, wait: Some(wait), key, granted, rules, source })
    }

    fn passed(source: Source) -> Self {
        Self::bare(Verdict::Allowed, Duration::ZERO, source)
    }
}

fn left(time: Option<Duration>, by: Duration) -> Option<Duration> {
    time.map(|time| time.saturating_sub(by))
}

impl Answer for Reply {
    const FULL: bool = false;

    fn granted(&self) -> Option<u64> {
        self.granted
    }

    fn report(&self) -> Option<&Report> {
        None
    }

    fn of(report: Report) -> Self {
        report.reply()
    }

    fn is_by_rule(&self) -> bool {
        self.limit.is_some_and(|limit| limit > 0)
    }

    fn by(self, source: Source) -> Self {
        Self { source, ..self }
    }

    fn head(&self) -> (Verdict, Option<Duration>, Source) {
        (self.verdict, self.wait, self.source)
    }

    fn later(&self, by: Duration) -> Self {
        Self { wait: left(self.wait, by), reset: left(self.reset, by), ..self.clone() }
    }
}

impl Answer for Report {
    const FULL: bool = true;

    fn granted(&self) -> Option<u64> {
        self.granted
    }

    fn report(&self) -> Option<&Report> {
        Some(self)
    }

    fn of(report: Report) -> Self {
        report
    }

    fn is_by_rule(&self) -> bool {
        self.rules.iter().any(|rule| rule.denies && rule.wait == self.wait)
    }

    fn by(self, source: Source) -> Self {
        Self { source, ..self }
    }

    fn head(&self) -> (Verdict, Option<Duration>, Source) {
        (self.verdict, self.wait, self.source)
    }

    fn later(&self, by: Duration) -> Self {
        let mut report = Self { wait: left(self.wait, by), ..self.clone() };
        for rule in &mut report.rules {
            for time in [&mut rule.wait, &mut rule.next, &mut rule.reset] {
                *time = left(*time, by);
            }
        }
        report
    }
}

impl FromRedisValue for Verdict {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Self::from_redis_value_ref(&value)
    }

    fn from_redis_value_ref(value: &Value) -> Result<Self, ParsingError> {
        match i64::from_redis_value_ref(value)? {
            0 => Ok(Self::Allowed),
            1 => Ok(Self::Limited),
            2 => Ok(Self::Blocked),
            other => Err(format!("the verdict is {other}, expected 0, 1 or 2").into()),
        }
    }
}

/// A number of a reply, also as text. The server replies -1 where there is none.
fn number(value: &Value) -> Result<Option<u64>, ParsingError> {
    match i64::from_redis_value_ref(value)? {
        -1 => Ok(None),
        other => {
            other.try_into().map(Some).map_err(|_| format!("{other}, expected -1 or more").into())
        }
    }
}

fn time(value: &Value) -> Result<Option<Duration>, ParsingError> {
    number(value).map(|ms| ms.map(Duration::from_millis))
}

impl FromRedisValue for Reply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Self::from_redis_value_ref(&value)
    }

    fn from_redis_value_ref(value: &Value) -> Result<Self, ParsingError> {
        let (verdict, numbers, granted) = match value.as_sequence() {
            Some([verdict, a, b, c, d]) => (verdict, [a, b, c, d], None),
            Some([verdict, a, b, c, d, granted]) => (verdict, [a, b, c, d], number(granted)?),
            _ => return Err("expected 5 or 6 numbers".into()),
        };
        let [limit, remaining, wait, reset] = numbers;
        Ok(Self {
            verdict: Verdict::from_redis_value_ref(verdict)?,
            limit: number(limit)?,
            remaining: number(remaining)?,
            wait: time(wait)?,
            reset: time(reset)?,
            granted,
            source: Source::Server,
        })
    }
}

/// A map of the reply, which RESP2 sends as an array.
struct Map(HashMap<String, Value>);

impl Map {
    fn read(value: Value) -> Result<Self, ParsingError> {
        HashMap::from_redis_value(value).map(Self)
    }

    fn take<T: FromRedisValue>(&mut self, name: &str) -> Result<T, ParsingError> {
        let value = self.0.remove(name).ok_or_else(|| format!("the reply has no '{name}'"))?;
        T::from_redis_value(value)
    }

    fn take_some<T: FromRedisValue>(&mut self, name: &str) -> Result<Option<T>, ParsingError> {
        self.0.remove(name).map_or(Ok(None), Option::from_redis_value)
    }

    fn take_time(&mut self, name: &str) -> Result<Option<Duration>, ParsingError> {
        time(&self.take::<Value>(name)?)
    }

    fn take_units(&mut self, name: &str) -> Result<u64, ParsingError> {
        Ok(number(&self.take::<Value>(name)?)?.unwrap_or(0))
    }
}

impl FromRedisValue for Report {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut reply = Map::read(value)?;
        Ok(Self {
            verdict: reply.take("verdict")?,
            wait: reply.take_time("wait_ms")?,
            key: reply.take_some("key")?,
            granted: reply.take_some("granted")?.map_or(Ok(None), |value| number(&value))?,
            rules: reply.take("rules")?,
            source: Source::Server,
        })
    }
}

impl FromRedisValue for RuleReport {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut rule = Map::read(value)?;
        Ok(Self {
            rule: rule.take("rule")?,
            name: rule.take("name")?,
            key: rule.take_some("key")?,
            cost: rule.take_units("cost")?,
            denies: rule.take::<i64>("verdict")? != 0,
            shadow: rule.take::<i64>("shadow")? != 0,
            limit: rule.take_units("limit")?,
            quota: rule.take_units("quota")?,
            period: rule.take_time("period_ms")?.unwrap_or_default(),
            remaining: rule.take_units("remaining")?,
            wait: rule.take_time("wait_ms")?,
            next: rule.take_time("next_ms")?,
            reset: rule.take_time("reset_ms")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;

    fn map(pairs: &[(&str, Value)]) -> Value {
        let pair = |(name, value): &(&str, Value)| {
            [Value::BulkString(name.as_bytes().to_vec()), value.clone()]
        };
        Value::Array(pairs.iter().flat_map(pair).collect())
    }

    #[test]
    fn all_clients_tell_the_same_crossings() {
        let all: Json = serde_json::from_str(include_str!("../../cases/crossed.json")).unwrap();
        for case in all["cases"].as_array().unwrap() {
            let numbers = case["reply"].as_array().unwrap().iter();
            let numbers = numbers.map(|number| Value::Int(number.as_i64().unwrap())).collect();
            let reply = Reply::from_redis_value(Value::Array(numbers)).unwrap();
            let told = reply.crossed(case["fraction"].as_f64().unwrap(), case["cost"].as_u64());
            assert_eq!(told, Ok(case["crossed"].as_bool().unwrap()), "{case}");
            for wrong in all["wrong"].as_array().unwrap() {
                let wrong = wrong.as_str().unwrap().parse().unwrap();
                assert!(reply.crossed(wrong, None).is_err(), "{wrong}");
            }
        }
    }

    /// Any other reply of a server is an error, and no panic.
    #[test]
    fn other_replies_are_errors() {
        let whole = [
            ("verdict", Value::Int(1)),
            ("wait_ms", Value::Int(-1)),
            ("rules", Value::Array(Vec::new())),
        ];
        let expected =
            Report { wait: None, ..Report::bare(Verdict::Limited, Duration::ZERO, Source::Server) };
        assert_eq!(Report::from_redis_value(map(&whole)).ok(), Some(expected));
        let others = [Value::Nil, Value::Int(3), Value::Array(vec![Value::Nil]), map(&[])];
        for (at, (name, _)) in whole.iter().enumerate() {
            for other in &others {
                let mut reply = whole.clone();
                reply[at] = (name, other.clone());
                let is_right = matches!((*name, other), ("wait_ms", Value::Int(3)));
                let is_empty = *name == "rules" && *other == map(&[]);
                let report = Report::from_redis_value(map(&reply));
                // The client reads a missing list as an empty one.
                let is_nil = *name == "rules" && *other == Value::Nil;
                assert_eq!(report.is_ok(), is_right || is_empty || is_nil, "{name}: {other:?}");
            }
        }
        for other in others {
            assert!(Report::from_redis_value(other.clone()).is_err(), "{other:?}");
            assert!(Reply::from_redis_value(other.clone()).is_err(), "{other:?}");
        }
        for length in [4, 7] {
            let numbers = Value::Array(vec![Value::Int(0); length]);
            assert!(Reply::from_redis_value(numbers).is_err(), "{length}");
        }
    }
}
