//! The rules of a key.

use std::sync::Arc;

use ratelimit_engine::rule::Rule;
use redis::{RedisError, RedisResult, make_extension_error};

use crate::value::{expect, misuse};

/// The rules of a key, such as `"5/15m"`, `["10/s", "240/h"]`, the policy `"@free"`, or `"@plan:free"`:
/// the policy of the key's plan, or `free` without a plan. A clone is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules(Arc<[String]>);

impl Rules {
    /// The text of each rule.
    pub fn texts(&self) -> &[String] {
        &self.0
    }

    /// Whether they depend on the key's plan.
    pub(crate) fn follow_a_plan(&self) -> bool {
        self.0.iter().any(|text| text.starts_with("@plan:"))
    }

    /// Whether there are rules of `slots`, which only the application's own hold can free.
    pub(crate) fn have_slots(&self) -> bool {
        self.0.iter().any(|text| text.starts_with("slots:"))
    }

    /// An error if there is no rule.
    pub(crate) fn refuse_none(&self) -> RedisResult<()> {
        let is_right = !self.0.is_empty() && self.0.iter().all(|text| !text.is_empty());
        expect(is_right, || format!("the rules are {:?}, expected at least one", self.0))
    }

    /// An error if rules have slots, for callers that take no hold.
    pub(crate) fn refuse_slots<'a>(mut texts: impl Iterator<Item = &'a str>) -> RedisResult<()> {
        let Some(slots) = texts.find(|text| text.starts_with("slots:")) else { return Ok(()) };
        let why = "slots are held, ask for them with RateLimiter::hold";
        Err(misuse(format!("the rules have '{slots}': {why}")))
    }

    /// An error if rules ban, for callers that charge a request before its outcome: several requests at
    /// once would ban the key although all of them end well.
    pub(crate) fn refuse_bans<'a>(mut texts: impl Iterator<Item = &'a str>) -> RedisResult<()> {
        let Some(bans) = texts.find(|text| text.contains(",ban=")) else { return Ok(()) };
        Err(misuse(format!(
            "`count` charges requests ahead, so it takes no rule with `ban=`: '{bans}'"
        )))
    }

    /// The error that a server would reply to these rules. Only a server can test policies.
    pub(crate) fn validate(&self) -> RedisResult<()> {
        self.0
            .iter()
            .filter(|text| !text.starts_with('@'))
            .try_for_each(|text| parse(text).map(drop))
    }
}

pub(crate) fn parse(text: &str) -> RedisResult<Rule> {
    Rule::from_text(text.as_bytes()).map_err(refused)
}

/// The error that a server would reply.
#[allow(clippy::needless_pass_by_value, reason = "callers have no other use for it")]
pub(crate) fn refused(why: impl ToString) -> RedisError {
    make_extension_error("ERR".to_string(), Some(why.to_string()))
}

impl<S: Into<String>> FromIterator<S> for Rules {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        Self(texts.into_iter().map(Into::into).collect())
    }
}

impl From<&Self> for Rules {
    fn from(rules: &Self) -> Self {
        rules.clone()
    }
}

impl From<&str> for Rules {
    fn from(rule: &str) -> Self {
        [rule].into()
    }
}

impl From<String> for Rules {
    fn from(rule: String) -> Self {
        [rule].into()
    }
}

impl<S: Into<String>, const N: usize> From<[S; N]> for Rules {
    fn from(rules: [S; N]) -> Self {
        rules.into_iter().collect()
    }
}

impl<S: Into<String>> From<Vec<S>> for Rules {
    fn from(rules: Vec<S>) -> Self {
        rules.into_iter().collect()
    }
}

impl<S: Clone + Into<String>> From<&[S]> for Rules {
    fn from(rules: &[S]) -> Self {
        rules.iter().cloned().collect()
    }
}
