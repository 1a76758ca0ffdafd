//! Asks the server about the rules of a configuration: it would refuse each check with a rule that it
//! does not accept, and Envoy then lets everything pass.

use std::collections::HashSet;

use anyhow::{Context, Result, anyhow};
use redis::RedisError;
use tower_redis_ratelimit::{RateLimiter, Source, is_outage, is_saturated};

use crate::config::Config;

/// Which rules to ask about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Everything,
    /// Not about policies and plans, which operators may set later.
    AllButPolicies,
}

/// What the server says.
pub enum Answer {
    Accepted,
    /// It gave no answer.
    Away(Option<RedisError>),
}

/// Peeks by each list of rules once.
///
/// # Errors
/// The first list that the server refuses.
pub async fn confirm(
    config: &Config,
    limiter: &RateLimiter,
    prefix: &str,
    ask: Ask,
) -> Result<Answer> {
    let mut asked = HashSet::new();
    for (place, rules) in config.rules() {
        let is_policy = rules.texts().iter().any(|text| text.starts_with('@'));
        let is_skipped = is_policy && ask == Ask::AllButPolicies;
        if rules.texts().is_empty() || is_skipped || !asked.insert(rules) {
            continue;
        }
        match limiter.peek((format!("{prefix}{place}"), rules)).await {
            Ok(reply) if reply.source == Source::Server => {}
            // The option `outage` answered.
            Ok(_) => return Ok(Answer::Away(None)),
            Err(error) if is_outage(&error) || is_saturated(&error) => {
                return Ok(Answer::Away(Some(error)));
            }
            Err(error) => return Err(anyhow!("{error}")).context(place),
        }
    }
    Ok(Answer::Accepted)
}
