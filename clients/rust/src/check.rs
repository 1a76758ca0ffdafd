//! What to check: keys, their rules, and what the request costs.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use redis::{Cmd, RedisResult};

use crate::rules::Rules;
use crate::value::{self, misuse};

/// Room for the words of a usual command, and for their bytes.
const WORDS: usize = 8;
const BYTES: usize = 128;

/// What a request costs: `3`; as much of a range as passes, `1..=100`; or units for the rules with
/// these names, `[("in", 3000), ("out", 1000)]`, where `""` stands for all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// For every rule without a `cost=` in its text.
    Units(u64),
    /// At least the first, at most the second: the reply says what was granted.
    Range(u64, u64),
    /// For the rules with these names; under `""` for every other rule without a `cost=`.
    Named(Vec<(String, u64)>),
}

impl From<u64> for Cost {
    fn from(units: u64) -> Self {
        Self::Units(units)
    }
}

impl From<RangeInclusive<u64>> for Cost {
    fn from(range: RangeInclusive<u64>) -> Self {
        let (least, most) = range.into_inner();
        Self::Range(least, most)
    }
}

impl<S: Into<String>, const N: usize> From<[(S, u64); N]> for Cost {
    fn from(costs: [(S, u64); N]) -> Self {
        Self::Named(costs.into_iter().map(|(name, units)| (name.into(), units)).collect())
    }
}

impl Cost {
    /// An error if it has too many units.
    pub(crate) fn validate(&self) -> RedisResult<()> {
        match self {
            Self::Units(all) => value::units(*all),
            Self::Range(least, most) => {
                value::expect(least <= most, || format!("the cost is {least}..{most}"))?;
                value::units(*most)
            }
            Self::Named(costs) => costs.iter().try_for_each(|(_, named)| value::units(*named)),
        }
    }

    pub(crate) const fn is_range(&self) -> bool {
        matches!(self, Self::Range(..))
    }

    /// Adds the options `COST` to a command.
    pub(crate) fn write(&self, command: &mut Cmd) {
        match self {
            Self::Units(units) => {
                command.arg("COST").arg(units);
            }
            Self::Range(least, most) => {
                command.arg("COST").arg(format!("{least}..{most}"));
            }
            Self::Named(costs) => {
                for (name, units) in costs {
                    let named = if name.is_empty() { String::new() } else { format!("{name}=") };
                    command.arg("COST").arg(format!("{named}{units}"));
                }
            }
        }
    }
}

/// A key, and the rules that apply to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limit {
    pub key: Vec<u8>,
    pub rules: Rules,
}

/// What to check: one key or several, all or nothing.
///
/// ```
/// # use tower_redis_ratelimit::Check;
/// let login = Check::new("login:42", ["5/15m", "20/d"]);
/// let search = Check::new("ip:203.0.113.9", "10/s").and("user:42", "@pro").cost(5);
/// ```
///
/// A pair of key and rules becomes a check. A key must have at least one byte, and at least one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Check {
    pub(crate) limits: Vec<Limit>,
    pub(crate) cost: Cost,
    pub(crate) meta: Option<String>,
    pub(crate) hold: Option<Duration>,
    pub(crate) id: Option<String>,
    pub(crate) refund: bool,
    /// Whether no other request has the hold's id, so that the hold is given back if the reply is lost.
    pub(crate) gives_back: bool,
    pub(crate) wait: Option<Duration>,
    pub(crate) flow: Option<(String, u16)>,
    pub(crate) priority: u8,
    pub(crate) most: bool,
}

impl Check {
    /// A check of this key at a cost of 1.
    pub fn new(key: impl Into<Vec<u8>>, rules: impl Into<Rules>) -> Self {
        let check = Self {
            limits: Vec::new(),
            cost: Cost::Units(1),
            meta: None,
            hold: None,
            id: None,
            refund: false,
            gives_back: false,
            wait: None,
            flow: None,
            priority: 0,
            most: false,
        };
        check.and(key, rules)
    }

    /// Another key that must let the request pass too.
    pub fn and(mut self, key: impl Into<Vec<u8>>, rules: impl Into<Rules>) -> Self {
        self.limits.push(Limit { key: key.into(), rules: rules.into() });
        self
    }

    /// What the request costs.
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.cost = cost.into();
        self
    }

    /// A text for `RL.LOG`, such as who asks.
    pub fn meta(mut self, text: impl Into<String>) -> Self {
        self.meta = Some(text.into());
        self
    }

    /// The id of the hold to take: new for each request, or that of a request that is sent again.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Takes a hold with this id that lasts for `ttl`.
    /// [`RateLimiter::hold`](crate::RateLimiter::hold) also renews and ends it.
    pub fn with_hold(mut self, id: impl Into<String>, ttl: Duration) -> Self {
        self.hold = Some(ttl);
        self.id(id)
    }

    /// Gives all units back if the hold ends without being settled.
    pub fn refunding(mut self) -> Self {
        self.refund = true;
        self
    }

    /// Lets [`RateLimiter::hold`](crate::RateLimiter::hold) wait in line, for at most `timeout`.
    pub fn wait(mut self, timeout: Duration) -> Self {
        self.wait = Some(timeout);
        self
    }

    /// The flow, such as a tenant, in which a wait stands in line, and its weight, 1 to 1000: flows take
    /// turns in proportion to their weights.
    pub fn flow(mut self, name: impl Into<String>, weight: u16) -> Self {
        self.flow = Some((name.into(), weight));
        self
    }

    /// The priority of a wait, 0 to 9: higher ones go first.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Lets [`RateLimiter::check_any`](crate::RateLimiter::check_any) take the key that has the most left
    /// afterwards.
    pub fn most(mut self) -> Self {
        self.most = true;
        self
    }

    /// An error if any value is wrong.
    pub(crate) fn validate(&self) -> RedisResult<()> {
        for limit in &self.limits {
            value::key(&limit.key).and_then(|_| limit.rules.refuse_none())?;
        }
        self.cost.validate()?;
        self.hold.map_or(Ok(()), |ttl| value::time("the ttl", ttl))
    }

    /// An error if any value is wrong, or if this waits.
    pub(crate) fn validate_alone(&self) -> RedisResult<()> {
        let waits = self.flow.is_some() || self.priority > 0;
        value::expect(!waits, || "only a wait takes a flow or a priority".to_string())?;
        self.validate()
    }

    pub(crate) fn giving_back(self) -> Self {
        Self { gives_back: true, ..self }
    }

    /// The key and rules of a check of one key.
    pub(crate) fn one_limit(&self, command: &str) -> RedisResult<&Limit> {
        match &self.limits[..] {
            [limit] => Ok(limit),
            _ => Err(misuse(format!("{command} takes one key"))),
        }
    }

    /// The texts of all rules.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.limits.iter().flat_map(|limit| limit.rules.texts()).map(String::as_str)
    }

    /// The name of the rule, or else its text, if there is only one.
    pub(crate) fn only_rule(&self) -> Option<String> {
        let [Limit { rules, .. }] = &self.limits[..] else { return None };
        let [text] = rules.texts() else { return None };
        let name = text.split(',').find_map(|option| option.strip_prefix("name="));
        Some(name.unwrap_or(text).to_string())
    }

    /// Whether there are rules of `slots`, which only the application's own hold can free.
    pub(crate) fn has_slots(&self) -> bool {
        self.limits.iter().any(|limit| limit.rules.have_slots())
    }

    /// The check of each key by itself. The server refuses a cost whose name no rule of the key has, so
    /// a key gets only the costs that name its rules. A key with a policy gets all costs, because only
    /// the server knows the policy's rules. A cost that fits no key goes to all keys, and the server
    /// refuses it.
    pub(crate) fn each(&self) -> RedisResult<Vec<Self>> {
        let takes = |limit: &Limit, name: &str| {
            limit.rules.texts().iter().any(|rule| {
                rule.starts_with('@')
                    || rule.split(',').any(|option| option.strip_prefix("name=") == Some(name))
            })
        };
        let of = |limit: &Limit| match &self.cost {
            Cost::Named(costs) => {
                let is_stray = |name: &str| !self.limits.iter().any(|limit| takes(limit, name));
                let is_here = |(name, _): &&(String, u64)| {
                    name.is_empty() || takes(limit, name) || is_stray(name)
                };
                Cost::Named(costs.iter().filter(is_here).cloned().collect())
            }
            cost => cost.clone(),
        };
        if self.cost.is_range() {
            let why = "a range of costs needs one decision over all keys, not `separately`";
            return Err(misuse(why));
        }
        let keys = self.limits.iter().map(|limit| &limit.key).collect::<HashSet<_>>();
        if keys.len() < self.limits.len() {
            // The second check would repeat the hold of the first, and pass.
            return Err(misuse("a key is given twice, expected each key once"));
        }
        let each = self.limits.iter().map(|limit| {
            let (limits, cost) = (vec![limit.clone()], of(limit));
            Self { limits, cost, ..self.clone() }
        });
        Ok(each.collect())
    }

    /// `RL.CHECK`, or `RL.MCHECK` for several keys.
    pub(crate) fn command(&self, full: bool) -> Cmd {
        let several = (self.limits.len() > 1).then_some(self.limits.len());
        let mut command = Cmd::with_capacity(WORDS, BYTES);
        command.arg(if several.is_some() { "RL.MCHECK" } else { "RL.CHECK" }).arg(several);
        self.limits.iter().for_each(|limit| _ = command.arg(&limit.key));
        self.write(&mut command, full);
        command
    }

    /// `RL.MCHECK` with `ANY`, which charges one of the keys.
    pub(crate) fn any_command(&self) -> Cmd {
        let keys = self.limits.iter().map(|limit| &limit.key[..]).collect::<Vec<_>>();
        let mut command = redis::cmd("RL.MCHECK");
        command.arg(keys.len()).arg(keys).arg("ANY").arg(self.most.then_some("MOST"));
        self.write(&mut command, true);
        command
    }

    /// `RL.PEEK` of one key.
    pub(crate) fn peek_command(&self, full: bool) -> RedisResult<Cmd> {
        let key = &self.one_limit("RL.PEEK")?.key;
        let mut command = redis::cmd("RL.PEEK");
        command.arg(key);
        self.write(&mut command, full);
        Ok(command)
    }

    /// `RL.WAIT` for one key.
    pub(crate) fn wait_command(&self, timeout: Duration) -> RedisResult<Cmd> {
        let key = &self.one_limit("RL.WAIT")?.key;
        let mut command = redis::cmd("RL.WAIT");
        command.arg(key).arg(ms(timeout));
        if let Some((name, weight)) = &self.flow {
            command.arg("FLOW").arg(name).arg("WEIGHT").arg(weight);
        }
        if self.priority > 0 {
            command.arg("PRIORITY").arg(self.priority);
        }
        self.write(&mut command, false);
        Ok(command)
    }

    /// Options and rules.
    fn write(&self, command: &mut Cmd, full: bool) {
        if self.cost != Cost::Units(1) {
            self.cost.write(command);
        }
        if let Some(text) = &self.meta {
            command.arg("META").arg(text);
        }
        if let (Some(ttl), Some(id)) = (self.hold, &self.id) {
            command.arg("HOLD").arg(id).arg("PX").arg(ms(ttl));
            command.arg(self.refund.then_some("REFUND"));
        }
        command.arg(full.then_some("FULL"));
        for (place, limit) in self.limits.iter().enumerate() {
            command.arg((place > 0).then_some("NEXT")).arg(limit.rules.texts());
        }
    }
}

impl<K: Into<Vec<u8>>, R: Into<Rules>> From<(K, R)> for Check {
    fn from((key, rules): (K, R)) -> Self {
        Self::new(key, rules)
    }
}

/// Whole milliseconds, as the commands take them, rounded up.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(command: &Cmd) -> String {
        let words = command.args_iter().map(|word| match word {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("{other:?}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn commands_have_their_options_before_their_rules() {
        let second = Duration::from_secs(1);
        let one = Check::new("a", ["1/s", "5/m"]);
        assert_eq!(text(&one.command(false)), "RL.CHECK a 1/s 5/m");
        let short = one.clone().with_hold("id", Duration::from_nanos(1));
        assert_eq!(text(&short.command(false)), "RL.CHECK a HOLD id PX 1 1/s 5/m");
        assert_eq!(text(&one.clone().cost(3).command(true)), "RL.CHECK a COST 3 FULL 1/s 5/m");
        let held = one.clone().cost(1..=9).with_hold("id", second).refunding();
        let options = "COST 1..9 HOLD id PX 1000 REFUND 1/s 5/m";
        let turn = one.clone().flow("f", 3).priority(5).wait_command(second).unwrap();
        let expected = "RL.WAIT a 1000 FLOW f WEIGHT 3 PRIORITY 5 1/s 5/m";
        assert_eq!(text(&turn), expected);
        assert_eq!(text(&held.command(false)), format!("RL.CHECK a {options}"));
        assert_eq!(text(&held.wait_command(second).unwrap()), format!("RL.WAIT a 1000 {options}"));
        assert_eq!(text(&one.peek_command(true).unwrap()), "RL.PEEK a FULL 1/s 5/m");
        let both = one.and("b", "@free").meta("me");
        let both = both.cost([("in", 1), ("out", 2)]);
        let expected = "RL.MCHECK 2 a b COST in=1 COST out=2 META me 1/s 5/m NEXT @free";
        assert_eq!(text(&both.command(false)), expected);
        let expected =
            "RL.MCHECK 2 a b ANY MOST COST in=1 COST out=2 META me FULL 1/s 5/m NEXT @free";
        assert_eq!(text(&both.clone().most().any_command()), expected);
        assert!(both.peek_command(false).is_err() && both.wait_command(second).is_err());
    }
}
