//! Decides a request: either all its limits let it pass, or it charges none of them. Limits that count
//! what has happened are charged in any case.

use std::time::Duration;

use futures_util::future::join_all;
use redis::RedisResult;
use tower_redis_ratelimit::{Check, RateLimiter, Report, RuleReport, Rules, Source, Verdict};

use crate::leases::{Leases, Units};
use crate::request::{Asked, Way};

/// The most keys of a command. About more, the limiter asks key by key.
const MOST_AT_ONCE: usize = 64;

pub struct Decider {
    limiter: RateLimiter,
    leases: Leases,
    asks: Asks,
}

/// How the limiter asks the server about several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// About all keys at once.
    AtOnce,
    /// Key by key: a cluster without a hash tag.
    OneByOne,
    /// Key by key: the script, which reports one rule of a key, and none on trial.
    TheScript,
}

/// The decision about a request.
#[derive(Debug)]
pub struct Decision {
    pub is_allowed: bool,
    /// One for each key of the request.
    pub outcomes: Vec<Outcome>,
}

/// The decision about one key.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub is_denied: bool,
    /// Whether a rule on trial would have denied it.
    pub is_shadow: bool,
    /// Whether the server was not asked, because it had denied this before.
    pub is_remembered: bool,
    /// If denied, when to ask again. `None`: never.
    pub wait: Option<Duration>,
    /// The rule whose numbers Envoy gets. `None` if they are unknown here, as with a lease.
    pub rule: Option<RuleReport>,
}

impl Decision {
    /// When to ask again. `None`: never.
    pub fn wait(&self) -> Option<Duration> {
        let mut denied = self.outcomes.iter().filter(|outcome| outcome.is_denied);
        denied.try_fold(Duration::ZERO, |longest, outcome| Some(longest.max(outcome.wait?)))
    }
}

impl Decider {
    pub fn new(limiter: RateLimiter, asks: Asks) -> Self {
        Self { leases: Leases::new(limiter.clone()), limiter, asks }
    }

    pub async fn decide(&self, asked: &[Asked]) -> RedisResult<Decision> {
        for one in asked.iter().filter(|one| one.way == Way::GiveBack) {
            if let Err(error) = self.limiter.refund(&one.key, one.hits, &one.limit.rules).await {
                tracing::warn!(%error, "hits did not come back");
            }
        }
        // These commands are sent at once, and all are answered before an error is returned.
        let alone = join_all(asked.iter().map(|one| self.alone(one))).await;
        let mut outcomes = alone.into_iter().collect::<RedisResult<Vec<_>>>()?;
        let has_all = !is_denied(&outcomes) && self.all_or_nothing(asked, &mut outcomes).await?;
        let is_allowed = !is_denied(&outcomes);
        if !is_allowed && !has_all {
            self.report_others(asked, &mut outcomes).await;
        }
        Ok(Decision { is_allowed, outcomes })
    }

    /// Asks about a key whose answer depends on no other key.
    async fn alone(&self, one: &Asked) -> RedisResult<Outcome> {
        match one.way {
            Way::Charge => self.charge(one).await,
            Way::Look => self.look(one).await,
            Way::GiveBack | Way::Lease(_) | Way::Check => Ok(Outcome::default()),
        }
    }

    /// Charges the hits, whatever is left: a rule on trial does so, and reports whether they were within
    /// the limit.
    async fn charge(&self, one: &Asked) -> RedisResult<Outcome> {
        let check = Check::new(&one.key[..], one.limit.on_trial()).cost(one.hits);
        let mut report = self.limiter.check_all(check).await?;
        if self.asks == Asks::TheScript && report.is_allowed() {
            // A cost of 0 is denied only if more than the limit was charged.
            let check = Check::new(&one.key[..], one.limit.enforced()).cost(0);
            report = self.limiter.peek_all(check).await?;
        }
        let rule = report.rules.first().cloned();
        let over = rule.as_ref().filter(|rule| rule.denies);
        // A block, a pause or an outage denies without a rule.
        let is_stopped = !report.is_allowed() && over.is_none();
        let is_shadow = over.is_some() && one.limit.is_shadow();
        Ok(Outcome {
            is_denied: is_stopped || (over.is_some() && !is_shadow),
            is_shadow,
            is_remembered: report.source == Source::Denial,
            wait: over.map_or(report.wait, |rule| rule.reset),
            rule,
        })
    }

    /// Reports on a key without charging it. 0 hits are denied if not a single one would pass.
    async fn look(&self, one: &Asked) -> RedisResult<Outcome> {
        let check = Check::new(&one.key[..], &one.limit.rules).cost(one.hits.max(1));
        Ok(outcome(&self.limiter.peek_all(check).await?, one))
    }

    /// Asks about the keys that are charged together or not at all. Returns whether the outcomes have
    /// the numbers of all of them.
    async fn all_or_nothing(&self, asked: &[Asked], outcomes: &mut [Outcome]) -> RedisResult<bool> {
        let mut taken = Vec::new();
        for (one, found) in asked.iter().zip(&mut *outcomes) {
            let Way::Lease(most) = one.way else { continue };
            let (answer, units) = self.leases.take(one, most).await?;
            if !answer.is_allowed() {
                found.is_denied = true;
                found.is_remembered = answer.source == Source::Denial;
                found.wait = answer.wait;
                return Ok(false);
            }
            taken.push(units);
        }
        let checked = asked.iter().filter(|one| one.way == Way::Check);
        let Some(check) = check(checked.clone()) else {
            taken.into_iter().for_each(Units::spend);
            return Ok(self.asks == Asks::AtOnce);
        };
        let report = self.limiter.check_all(check).await?;
        if report.is_allowed() {
            taken.into_iter().for_each(Units::spend);
        }
        for (one, found) in asked.iter().zip(outcomes).filter(|(one, _)| one.way == Way::Check) {
            *found = outcome(&report, one);
        }
        Ok(self.asks == Asks::AtOnce && checked.count() <= MOST_AT_ONCE)
    }

    /// After a denial: reports on the keys that were not asked about, or got their charges back.
    async fn report_others(&self, asked: &[Asked], outcomes: &mut [Outcome]) {
        let others = asked.iter().zip(outcomes);
        let others = others.filter(|(one, found)| one.way == Way::Check && !found.is_denied);
        join_all(others.map(|(one, found)| async {
            // Without a report Envoy gets no numbers of this key.
            *found = self.look(one).await.unwrap_or_default();
        }))
        .await;
    }
}

fn is_denied(outcomes: &[Outcome]) -> bool {
    outcomes.iter().any(|outcome| outcome.is_denied)
}

/// One check of all keys. Each key consumes its own number of hits.
fn check<'a>(asked: impl Iterator<Item = &'a Asked> + Clone) -> Option<Check> {
    // Rules of policies cost what the command says, so the command has their highest cost. Other rules
    // state their own cost.
    let of_policies = asked.clone().filter(|one| one.limit.is_policy()).map(|one| one.hits).max();
    let first = asked.clone().map(|one| one.hits).next();
    let common = of_policies.or(first).unwrap_or(1);
    let with_cost = |rule: &String, hits| {
        if rule.contains(",cost=") { rule.clone() } else { format!("{rule},cost={hits}") }
    };
    let mut limits = asked.map(|Asked { key, limit, hits, .. }| {
        let rules = if *hits == common || limit.is_policy() {
            limit.rules.clone()
        } else {
            limit.rules.texts().iter().map(|rule| with_cost(rule, hits)).collect::<Rules>()
        };
        (&key[..], rules)
    });
    let first = Check::from(limits.next()?);
    Some(limits.fold(first, |check, (key, rules)| check.and(key, rules)).cost(common))
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
    let is_remembered = is_denied && report.source == Source::Denial;
    Outcome { is_denied, is_shadow, is_remembered, wait: report.wait, rule }
}
