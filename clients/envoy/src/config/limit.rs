//! A limit of the configuration, or one that a request brings.

use anyhow::{Context, Result, anyhow, bail, ensure};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use ratelimit_engine::rule::{Kind, MAX_UNITS, Rule, looks_like_rule};
use tower_redis_ratelimit::{Engine, Rules};

use super::file::{Descriptor, RateLimit, Replaced};
use super::unit;
use crate::metering::Counters;
use crate::options::Files;
use crate::wire::Entry;

/// The end of a rule on trial.
const ON_TRIAL: &str = ",shadow";

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
    /// Whether several hits at once are charged, whatever is left.
    pub counts_reports: bool,
    /// The unit of a limit that a request brings, in the language of rules.
    pub brought_for: Option<&'static str>,
    /// The requests for each unit of a limit that a request brings.
    pub number: u32,
    pub counters: Counters,
}

impl Limit {
    /// The limit that a descriptor of the configuration sets, if it sets one.
    pub fn of(path: &[String], descriptor: &Descriptor, from: &Files) -> Result<Option<Self>> {
        if let Some(name) = descriptor.unsupported() {
            bail!("{name} is not supported");
        }
        let Descriptor {
            rate_limit, rules, policy, plan, lease, shadow_mode, all_or_nothing, ..
        } = descriptor;
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
            (None, _) if *shadow_mode || *all_or_nothing || lease.is_some() => {
                bail!("shadow_mode, all_or_nothing and lease need a limit beside them")
            }
            (None, _) => return Ok(None),
        };
        ensure!(rules.is_none() || !texts.is_empty(), "rules is empty, expected at least one rule");
        ensure!(
            !all_or_nothing || rate_limit.is_some(),
            "all_or_nothing is for rate_limit: rules, policies and plans always are"
        );
        if *shadow_mode {
            texts.iter_mut().for_each(|rule| rule.push_str(ON_TRIAL));
        }
        validate(&texts, from.engine, *lease)?;
        let named = rate_limit.as_ref();
        let replaces = named.map_or(&[][..], |limit| &limit.replaces);
        Ok(Some(Self {
            rules: texts.into(),
            name: named.map_or(String::new(), |limit| limit.name.clone()),
            replaces: replaces.iter().map(|replaced| replaced.name.clone()).collect(),
            lease: *lease,
            counts_reports: rate_limit.is_some() && !all_or_nothing && from.counts_reports(),
            brought_for: None,
            number: 0,
            counters: Counters::of(path),
        }))
    }

    /// The limit that a request brings. `None`: its unit is unknown.
    pub fn brought(
        limit: RateLimitOverride,
        domain: &[u8],
        entries: &[Entry],
        counts_reports: bool,
    ) -> Option<Self> {
        // The units of requests have the same numbers as those of replies.
        let period = unit::period(Unit::try_from(limit.unit).ok()?)?;
        let number = limit.requests_per_unit;
        // No rule has a larger limit, and no count gets there.
        let rule = (number <= MAX_UNITS).then(|| format!("fixed:{number}/{period}"));
        Some(Self {
            rules: rule.into_iter().collect(),
            name: String::new(),
            replaces: Vec::new(),
            lease: None,
            counts_reports,
            brought_for: Some(period),
            number,
            counters: Counters::brought(domain, entries),
        })
    }

    /// Whether it denies nobody.
    pub fn is_shadow(&self) -> bool {
        self.rules.texts().iter().all(|rule| rule.ends_with(ON_TRIAL))
    }

    /// Its rules, on trial.
    pub fn on_trial(&self) -> Rules {
        self.enforced().texts().iter().map(|rule| format!("{rule}{ON_TRIAL}")).collect()
    }

    /// Its rules, even if they are on trial.
    pub fn enforced(&self) -> Rules {
        let texts = self.rules.texts().iter();
        texts.map(|rule| rule.strip_suffix(ON_TRIAL).unwrap_or(rule)).collect()
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
    let period = unit.and_then(unit::period).with_context(|| {
        format!("the unit is '{given}', expected second, minute, hour, day, week, month or year")
    })?;
    Ok(vec![format!("fixed:{requests}/{period}")])
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
        return Ok(());
    }
    // Each text is sent as it is, and the server reads no blanks and no second rule in it.
    let mut read: Vec<Rule> = Vec::new();
    for text in rules {
        let is_rule = looks_like_rule(text.as_bytes());
        ensure!(is_rule, "'{text}' is no rule, expected one such as 100/m");
        let rule =
            Rule::from_text(text.as_bytes()).map_err(|error| anyhow!("'{text}': {error}"))?;
        let same = read.iter().find(|other| other.same_identity(&rule));
        if let Some(same) = same {
            bail!("'{text}' has the same identity as '{same}': give one of them a name=");
        }
        read.push(rule);
    }
    Ok(())
}

/// The bounds of a server with default settings, for when no server can be asked.
pub fn within_defaults(rules: &Rules) -> Result<()> {
    const MOST_RULES: usize = 32;
    const LONGEST_LOG: u32 = 100_000;
    let texts = rules.texts();
    let number = texts.len();
    ensure!(number <= MOST_RULES, "{number} rules, expected at most {MOST_RULES} (max-rules)");
    for rule in texts.iter().filter_map(|text| Rule::from_text(text.as_bytes()).ok()) {
        ensure!(
            rule.kind() != Kind::Log || rule.limit() <= LONGEST_LOG,
            "'{rule}' needs a log of {} entries, expected at most {LONGEST_LOG} (max-log-entries)",
            rule.limit()
        );
    }
    Ok(())
}
