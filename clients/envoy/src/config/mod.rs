//! The limits of each domain, from files like those of envoyproxy/ratelimit.

mod file;
mod limit;
mod pattern;
mod unit;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs};

use anyhow::{Context, Result, ensure};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tower_redis_ratelimit::Engine;

use crate::options::Files;
use file::{Descriptor, File};
pub use limit::Limit;
use pattern::Pattern;
pub use unit::of as unit_of;

#[derive(Debug, Default)]
pub struct Config {
    domains: HashMap<String, Level>,
    /// The rules of the limit at each place, or `None` if the place has no limit.
    shown: BTreeMap<Vec<String>, Option<String>>,
}

/// One level of descriptors: their values by key.
#[derive(Debug, Default)]
struct Level(HashMap<String, Values>);

/// The nodes of a key, in the order of matching: by exact value, by pattern, for any value.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<String, Node>,
    patterns: Vec<(Pattern, Node)>,
    any: Option<Node>,
}

#[derive(Debug, Default)]
struct Node {
    limit: Option<Arc<Limit>>,
    below: Level,
}

impl Config {
    /// The limits of these texts.
    pub fn of(texts: &Texts, from: &Files) -> Result<Self> {
        let mut config = Self::default();
        for (file, text) in texts {
            let added = config.add(text, from.merge_domain_config, from.engine);
            added.with_context(|| file.display().to_string())?;
        }
        Ok(config)
    }

    /// Adds the limits of one file.
    pub fn add(&mut self, text: &str, merge: bool, engine: Engine) -> Result<()> {
        let File { domain, descriptors } = serde_saphyr::from_str(text)?;
        ensure!(!domain.is_empty(), "the domain is empty");
        let is_new = !self.domains.contains_key(&domain);
        ensure!(
            is_new || merge,
            "the domain '{domain}' stands in two files: see MERGE_DOMAIN_CONFIG"
        );
        let mut path = vec![domain.clone()];
        let level = self.domains.entry(domain).or_default();
        level.add(descriptors.unwrap_or_default(), &mut path, engine, &mut self.shown)
    }

    pub fn has(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The limit of a descriptor: each level of the configuration matches one of its entries.
    pub fn find(&self, domain: &str, entries: &[Entry]) -> Option<&Arc<Limit>> {
        let (last, first) = entries.split_last()?;
        let level = first.iter().try_fold(self.domains.get(domain)?, |level, entry| {
            level.node(entry).map(|node| &node.below)
        });
        level?.node(last)?.limit.as_ref()
    }
}

pub type Texts = BTreeMap<PathBuf, String>;

/// The files `*.yaml` and `*.yml` of the folder, in the order of their names.
pub fn texts(from: &Files) -> Result<Texts> {
    let folder = from.folder();
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let (file, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        // Kubernetes keeps its own files there.
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let is_yaml = file.extension().is_some_and(|kind| kind == "yaml" || kind == "yml");
        ensure!(is_yaml, "{}: expected a file *.yaml", file.display());
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        texts.insert(file, text);
    }
    ensure!(!texts.is_empty(), "{} has no file *.yaml", folder.display());
    Ok(texts)
}

impl Level {
    fn add(
        &mut self,
        descriptors: Vec<Descriptor>,
        path: &mut Vec<String>,
        engine: Engine,
        shown: &mut BTreeMap<Vec<String>, Option<String>>,
    ) -> Result<()> {
        for descriptor in descriptors {
            let (key, value) = (&descriptor.key, descriptor.value.clone().unwrap_or_default());
            path.push(if value.is_empty() { key.clone() } else { format!("{key}_{value}") });
            let place = || path.join(".");
            ensure!(!key.is_empty(), "{}: the key is empty", place());
            let limit = Limit::of(path, &descriptor, engine).with_context(place)?;
            let rules = limit.as_ref().map(|limit| limit.rules.texts().join(" "));
            ensure!(shown.insert(path.clone(), rules).is_none(), "{} stands there twice", place());
            let mut below = Self::default();
            below.add(descriptor.descriptors.unwrap_or_default(), path, engine, shown)?;
            let node = Node { limit: limit.map(Arc::new), below };
            self.0.entry(descriptor.key).or_default().put(value, node);
            path.pop();
        }
        Ok(())
    }

    fn node(&self, entry: &Entry) -> Option<&Node> {
        let values = self.0.get(&entry.key)?;
        let by_pattern =
            || values.patterns.iter().find(|(pattern, _)| pattern.matches(&entry.value));
        let exact = values.exact.get(&entry.value).filter(|_| !entry.value.is_empty());
        exact.or_else(|| by_pattern().map(|(_, node)| node)).or(values.any.as_ref())
    }
}

impl Values {
    fn put(&mut self, value: String, node: Node) {
        if value.is_empty() {
            self.any = Some(node);
        } else if let Some(pattern) = Pattern::of(&value) {
            self.patterns.push((pattern, node));
        } else {
            self.exact.insert(value, node);
        }
    }
}

/// A line for each limit.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown.iter().try_for_each(|(place, rules)| match rules.as_deref() {
            None => Ok(()),
            Some("") => writeln!(f, "{}: unlimited", place.join(".")),
            Some(rules) => writeln!(f, "{}: {rules}", place.join(".")),
        })
    }
}

#[cfg(test)]
mod tests;
