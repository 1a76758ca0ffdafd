//! Decides a request: either all its limits let it pass, or it charges none of them.

use std::time::Duration;

use redis::RedisResult;
use tower_redis_ratelimit::{
    Check, RateLimiter, Report, RuleReport, Rules, Source, Taken, Verdict,
};

use crate::leases::{Leases, Units};
use crate::request::Asked;

pub struct Decider {
    limiter: RateLimiter,
    leases: Leases,
}

/// The decision about a request.
#[derive(Debug)]
pub struct Decision {
    pub is_allowed: bool,
    /// When to ask again. `None`: never.
    pub wait: Option<Duration>,
    pub source: Source,
    /// One for each key of the request.
    pub outcomes: Vec<Outcome>,
}

/// The decision about one key.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub is_denied: bool,
    /// Whether a rule on trial would have denied it.
    pub is_shadow: bool,
    /// The rule whose numbers Envoy gets. `None` if they are unknown here, as with a lease.
    pub rule: Option<RuleReport>,
}

impl Decider {
    pub fn new(limiter: RateLimiter) -> Self {
        Self { leases: Leases::new(limiter.clone()), limiter }
    }

    pub async fn decide(&self, asked: &[Asked]) -> RedisResult<Decision> {
        for one in asked.iter().filter(|one| one.gives_back) {
            if let Err(error) = self.limiter.refund(&one.key, one.hits, &one.limit.rules).await {
                tracing::warn!(%error, "hits did not come back");
            }
        }
        let mut taken = Vec::new();
        for (at, one) in asked.iter().enumerate() {
            let Some(most) = one.leased() else { continue };
            let (answer, units) = self.leases.take(one, most).await?;
            if !answer.is_allowed() {
                return Ok(denied_by(at, &answer, asked.len()));
            }
            taken.push(units);
        }
        let checked = |one: &Asked| one.leased().is_none() && !one.gives_back;
        let report = self.limiter.check_all(check(asked.iter().filter(|one| checked(one)))).await?;
        let outcome = |one| if checked(one) { outcome(&report, one) } else { Outcome::default() };
        let decision = Decision {
            is_allowed: report.is_allowed(),
            wait: report.wait,
            source: report.source,
            outcomes: asked.iter().map(outcome).collect(),
        };
        if decision.is_allowed {
            taken.into_iter().for_each(Units::spend);
        }
        Ok(decision)
    }
}

/// One check of all keys. Each key consumes its own number of hits.
fn check<'a>(asked: impl Iterator<Item = &'a Asked> + Clone) -> Check {
    // Rules of policies cost what the command says, so the command has their highest cost. Other rules
    // state their own cost.
    let of_policies = asked.clone().filter(|one| one.limit.is_policy()).map(|one| one.hits).max();
    let first = asked.clone().map(|one| one.hits).next();
    let common = of_policies.or(first).unwrap_or(1);
    let with_cost = |rule: &String, hits| {
        if rule.contains(",cost=") { rule.clone() } else { format!("{rule},cost={hits}") }
    };
    let none = Check::new("", Rules::default());
    let check = asked.fold(none, |check, Asked { key, limit, hits, .. }| {
        let rules = if *hits == common || limit.is_policy() {
            limit.rules.clone()
        } else {
            limit.rules.texts().iter().map(|rule| with_cost(rule, hits)).collect::<Rules>()
        };
        check.and(&key[..], rules)
    });
    check.cost(common)
}

/// A denial by a lease, without asking the other limits.
fn denied_by(at: usize, answer: &Taken, number: usize) -> Decision {
    let mut outcomes = vec![Outcome::default(); number];
    if let Some(outcome) = outcomes.get_mut(at) {
        outcome.is_denied = true;
    }
    Decision { is_allowed: false, wait: answer.wait, source: answer.source, outcomes }
}

fn outcome(report: &Report, asked: &Asked) -> Outcome {
    // A report about a single key does not name it.
    let is_here = |key: &Option<Vec<u8>>| key.as_ref().is_none_or(|key| *key == asked.key);
    let mine = report.rules.iter().filter(|rule| is_here(&rule.key)).cloned().collect::<Vec<_>>();
    let denies = |rule: &RuleReport, shadow| rule.denies && rule.shadow == shadow;
    let by_rule = mine.iter().any(|rule| denies(rule, false));
    // A block, a pause or an outage denies, for this key or for an unknown one.
    let by_none = !report.is_allowed()
        && !report.rules.iter().any(|rule| denies(rule, false))
        && is_here(&report.key);
    let is_denied = by_none || (by_rule && !report.is_allowed());
    let verdict = if is_denied { Verdict::Limited } else { Verdict::Allowed };
    let is_shadow = mine.iter().any(|rule| denies(rule, true));
    let own = Report { verdict, rules: mine, ..report.clone() };
    let rule = own.deciding().or(own.rules.first()).cloned();
    Outcome { is_denied, is_shadow, rule }
}
