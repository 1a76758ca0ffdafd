//! A limit of the configuration, or one that a request brings.

use anyhow::{Context, Result, anyhow, bail, ensure};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tower_redis_ratelimit::{Engine, Rules};

use super::file::{Descriptor, RateLimit, Replaced};
use super::unit;
use crate::metering::Counters;

#[derive(Debug)]
pub struct Limit {
    /// The rules of its keys. An unlimited limit has no rules.
    pub rules: Rules,
    /// The name by which another limit of a request can replace this one.
    pub name: String,
    /// The names of limits that do not count in a request with this limit.
    pub replaces: Vec<String>,
    /// The most units of a key to lease at once.
    pub lease: Option<u64>,
    pub counters: Counters,
}

impl Limit {
    /// The limit that a descriptor of the configuration sets, if it sets one.
    pub fn of(path: &[String], descriptor: &Descriptor, engine: Engine) -> Result<Option<Self>> {
        if let Some(name) = descriptor.unsupported() {
            bail!("{name} is not supported");
        }
        let Descriptor { rate_limit, rules, policy, plan, lease, shadow_mode, .. } = descriptor;
        let given = [
            rate_limit.as_ref().map(fixed).transpose()?,
            rules.clone(),
            policy.as_ref().map(|name| vec![format!("@{name}")]),
            plan.as_ref().map(|name| vec![format!("@plan:{name}")]),
        ];
        let mut given = given.into_iter().flatten();
        let mut texts = match (given.next(), given.next()) {
            (Some(texts), None) => texts,
            (Some(_), Some(_)) => bail!("rate_limit, rules, policy, plan: expected one of them"),
            (None, _) if *shadow_mode || lease.is_some() => {
                bail!("shadow_mode and lease need a limit beside them")
            }
            (None, _) => return Ok(None),
        };
        if *shadow_mode {
            texts.iter_mut().for_each(|rule| rule.push_str(",shadow"));
        }
        validate(&texts, engine, *lease)?;
        let named = rate_limit.as_ref();
        let replaces = named.map_or(&[][..], |limit| &limit.replaces);
        Ok(Some(Self {
            rules: texts.into(),
            name: named.map_or(String::new(), |limit| limit.name.clone()),
            replaces: replaces.iter().map(|replaced| replaced.name.clone()).collect(),
            lease: *lease,
            counters: Counters::of(path),
        }))
    }

    /// The limit that a request brings. `None`: its unit is unknown, or its number of requests too
    /// large.
    pub fn brought(limit: RateLimitOverride, domain: &str, entries: &[Entry]) -> Option<Self> {
        // The units of requests have the same numbers as those of replies.
        let rule = unit::rule(limit.requests_per_unit, Unit::try_from(limit.unit).ok()?)?;
        rule.parse::<ratelimit_core::Rules>().ok()?;
        // Clients choose the values, so labels have only the keys.
        let keys = entries.iter().map(|entry| entry.key.clone());
        let path = [domain.to_string()].into_iter().chain(keys).collect::<Vec<_>>();
        let counters = Counters::of(&path);
        Some(Self {
            rules: rule.into(),
            name: String::new(),
            replaces: Vec::new(),
            lease: None,
            counters,
        })
    }

    /// Whether the rules are those of a policy or plan, which only the server knows.
    pub fn is_policy(&self) -> bool {
        self.rules.texts().iter().any(|rule| rule.starts_with('@'))
    }
}

/// The rule of a `rate_limit`, or no rule if it is unlimited.
fn fixed(limit: &RateLimit) -> Result<Vec<String>> {
    for Replaced { name } in &limit.replaces {
        ensure!(!name.is_empty(), "replaces has an empty name");
        ensure!(*name != limit.name, "it replaces its own name, '{name}'");
    }
    if limit.unlimited {
        ensure!(limit.unit.is_none(), "unlimited has a unit, expected none");
        return Ok(Vec::new());
    }
    let given = limit.unit.as_deref().context("rate_limit has no unit")?;
    let requests = limit.requests_per_unit.context("rate_limit has no requests_per_unit")?;
    let unit = Unit::from_str_name(&given.to_ascii_uppercase());
    let rule = unit.and_then(|unit| unit::rule(requests, unit)).with_context(|| {
        format!("the unit is '{given}', expected second, minute, hour, day, week, month or year")
    })?;
    Ok(vec![rule])
}

fn validate(rules: &[String], engine: Engine, lease: Option<u64>) -> Result<()> {
    let has_module = engine == Engine::Module;
    let has = |part: &str| rules.iter().any(|rule| rule.contains(part));
    ensure!(!has("slots:"), "slots are held until a request ends, but Envoy does not report that");
    ensure!(
        !has("leaky:"),
        "under a leaky rule requests wait for their turn, but Envoy does not wait"
    );
    let of_module = [",ban=", ",keep="].into_iter().find(|option| has(option));
    ensure!(has_module || of_module.is_none(), "ban= and keep= need the module, not the script");
    if let Some(most) = lease {
        ensure!(has_module, "a lease needs the module, not the script");
        ensure!((1..=1_000_000).contains(&most), "lease is {most}, expected 1 to 1000000");
        ensure!(!rules.is_empty() && !has(",shadow"), "a limit that denies nobody needs no lease");
    }
    if let Some(policy) = rules.iter().find(|rule| rule.starts_with('@')) {
        ensure!(has_module, "policies and plans need the module, not the script");
        let is_name = policy.len() > 1 && !policy.ends_with(':') && !policy.contains([' ', ',']);
        ensure!(is_name, "'{policy}' is no name of a policy; a policy cannot be in shadow_mode");
    } else if !rules.is_empty() {
        rules.join(" ").parse::<ratelimit_core::Rules>().map_err(|error| anyhow!("{error}"))?;
    }
    Ok(())
}
