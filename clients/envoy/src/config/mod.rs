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
use tower_redis_ratelimit::Rules;

use crate::options::Files;
use crate::wire::Entry;
use file::{Descriptor, File};
pub use limit::{Limit, within_defaults};
use pattern::Pattern;
pub use unit::of as unit_of;

#[derive(Debug, Default)]
pub struct Config {
    domains: HashMap<String, Level>,
    /// The rules of the limit at each place, or `None` if the place has no limit.
    shown: Shown,
    /// Whether limits that requests bring are charged for reports, whatever is left.
    pub counts_reports: bool,
}

type Shown = BTreeMap<Vec<String>, Option<Rules>>;

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
        let mut config = Self { counts_reports: from.counts_reports(), ..Self::default() };
        for (file, text) in texts {
            let added = config.add(text, from);
            added.with_context(|| file.display().to_string())?;
        }
        Ok(config)
    }

    /// Adds the limits of one file.
    pub fn add(&mut self, text: &str, from: &Files) -> Result<()> {
        let File { domain, descriptors } = serde_saphyr::from_str(text)?;
        ensure!(!domain.is_empty(), "the domain is empty");
        let is_new = !self.domains.contains_key(&domain);
        ensure!(
            is_new || from.merge_domain_config,
            "the domain '{domain}' stands in two files: see MERGE_DOMAIN_CONFIG"
        );
        let mut path = vec![domain.clone()];
        let level = self.domains.entry(domain).or_default();
        level.add(descriptors.unwrap_or_default(), &mut path, from, &mut self.shown)
    }

    pub fn has(&self, domain: &[u8]) -> bool {
        self.domains.contains_key(&*String::from_utf8_lossy(domain))
    }

    /// The rules at each place that has a limit.
    pub fn rules(&self) -> impl Iterator<Item = (String, &Rules)> {
        self.shown.iter().filter_map(|(place, rules)| Some((place.join("."), rules.as_ref()?)))
    }

    /// The limit of a descriptor: each level of the configuration matches one of its entries.
    pub fn find(&self, domain: &[u8], entries: &[Entry]) -> Option<&Arc<Limit>> {
        let (last, first) = entries.split_last()?;
        let domain = self.domains.get(&*String::from_utf8_lossy(domain))?;
        let level =
            first.iter().try_fold(domain, |level, entry| level.node(entry).map(|node| &node.below));
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
        from: &Files,
        shown: &mut Shown,
    ) -> Result<()> {
        for descriptor in descriptors {
            let (key, value) = (&descriptor.key, descriptor.value.clone().unwrap_or_default());
            path.push(if value.is_empty() { key.clone() } else { format!("{key}_{value}") });
            let place = || path.join(".");
            ensure!(!key.is_empty(), "{}: the key is empty", place());
            let limit = Limit::of(path, &descriptor, from).with_context(place)?;
            let rules = limit.as_ref().map(|limit| limit.rules.clone());
            ensure!(shown.insert(path.clone(), rules).is_none(), "{} stands there twice", place());
            let mut below = Self::default();
            below.add(descriptor.descriptors.unwrap_or_default(), path, from, shown)?;
            let node = Node { limit: limit.map(Arc::new), below };
            self.0.entry(descriptor.key).or_default().put(value, node);
            path.pop();
        }
        Ok(())
    }

    fn node(&self, entry: &Entry) -> Option<&Node> {
        // The configuration is text. What is no text matches none of its values but `*`.
        let [key, value] = [&entry.key, &entry.value].map(|bytes| String::from_utf8_lossy(bytes));
        let values = self.0.get(&*key)?;
        let by_pattern = || values.patterns.iter().find(|(pattern, _)| pattern.matches(&value));
        let exact = values.exact.get(&*value).filter(|_| !value.is_empty());
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
        self.rules().try_for_each(|(place, rules)| match rules.texts() {
            [] => writeln!(f, "{place}: unlimited"),
            rules => writeln!(f, "{place}: {}", rules.join(" ")),
        })
    }
}

#[cfg(test)]
mod tests;
