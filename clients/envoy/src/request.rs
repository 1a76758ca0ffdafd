//! The keys and limits that the configuration sets for a request.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use sha2::{Digest, Sha256};
use tonic::Status;

use crate::config::{Config, Limit};
use crate::wire::{Descriptor, Entry, RateLimitRequest};

/// The most descriptors of a request. Envoy's configuration sets their number, no client does.
const MOST: usize = 1024;
/// The most units of a check.
const MOST_HITS: u64 = 1_000_000_000;
/// A key has the hash of a text that is longer than this, so that no client makes keys large.
const LONGEST_TEXT: usize = 128;

/// The characters with a meaning in keys, and the braces, by which clients could choose a key's
/// slot in a cluster.
const SPECIAL: &AsciiSet = &CONTROLS.add(b'%').add(b'|').add(b'=').add(b'#').add(b'{').add(b'}');

/// A request of Envoy.
#[derive(Debug)]
pub struct Request {
    /// The result for each descriptor.
    pub found: Vec<Found>,
    pub asked: Vec<Asked>,
}

/// The limit of a descriptor.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// A limit that lets everything pass.
    Unlimited,
    /// A limit to check: its place in `asked`.
    Limit(usize),
}

/// A key and its limit. Equal descriptors become one, with the sum of their hits, unless they are
/// charged whatever is left.
#[derive(Debug)]
pub struct Asked {
    pub key: Vec<u8>,
    pub limit: Arc<Limit>,
    pub hits: u64,
    pub way: Way,
}

/// What to do with the hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Give them back.
    GiveBack,
    /// Charge them, whatever is left.
    Charge,
    /// Charge nothing: there are 0.
    Look,
    /// Take them out of a lease of at most this number of units, if all other limits let them pass.
    Lease(u64),
    /// Charge them if all limits let them pass.
    Check,
}

impl Request {
    pub fn read(request: &RateLimitRequest, config: &Config, prefix: &str) -> Result<Self, Status> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        if domain.is_empty() {
            return Err(Status::invalid_argument("the domain is empty"));
        }
        let number = descriptors.len();
        if !(1..=MOST).contains(&number) {
            let why = format!("{number} descriptors, expected 1 to {MOST}");
            return Err(Status::invalid_argument(why));
        }
        let found = descriptors.iter().map(|descriptor| limit(config, domain, descriptor));
        let limits = found.collect::<Vec<_>>();
        let replaced = limits.iter().flatten().flat_map(|limit| &limit.replaces);
        let replaced = replaced.map(String::as_str).collect::<HashSet<_>>();
        let default = u64::from(*hits_addend).max(1);
        let hits = |one: &Descriptor| one.hits_addend.map_or(default, |hits| hits.value);
        // Several hits at once are a report of what has happened, which no denial undoes.
        let is_report = descriptors.iter().any(|one| !one.is_negative_hits && hits(one) > 1);
        let mut read = Self { found: Vec::new(), asked: Vec::new() };
        for (descriptor, limit) in descriptors.iter().zip(&limits) {
            let found = match limit {
                Some(limit) if limit.rules.texts().is_empty() => Found::Unlimited,
                Some(limit) if !replaced.contains(&*limit.name) => {
                    let key = key(prefix, domain, descriptor, limit);
                    let hits = hits(descriptor).min(MOST_HITS);
                    let way = match limit.lease {
                        _ if descriptor.is_negative_hits => Way::GiveBack,
                        _ if hits == 0 => Way::Look,
                        _ if is_report && limit.counts_reports => Way::Charge,
                        Some(most) => Way::Lease(most),
                        None => Way::Check,
                    };
                    read.ask(Asked { key, limit: Arc::clone(limit), hits, way })
                }
                _ => Found::Nothing,
            };
            read.found.push(found);
        }
        Ok(read)
    }

    fn ask(&mut self, new: Asked) -> Found {
        let is_same = |asked: &Asked| asked.key == new.key && asked.way == new.way;
        let known = self.asked.iter().position(is_same).filter(|_| new.way != Way::Charge);
        let Some((place, asked)) = known.and_then(|at| Some((at, self.asked.get_mut(at)?))) else {
            self.asked.push(new);
            return Found::Limit(self.asked.len().saturating_sub(1));
        };
        asked.hits = asked.hits.saturating_add(new.hits).min(MOST_HITS);
        // Limits that one request brings may have the same key. The lowest one decides.
        if new.limit.number < asked.limit.number {
            asked.limit = new.limit;
        }
        Found::Limit(place)
    }
}

/// The limit of a descriptor: the one that it brings, or that of the configuration.
fn limit(config: &Config, domain: &[u8], descriptor: &Descriptor) -> Option<Arc<Limit>> {
    let brought = descriptor.limit.filter(|_| config.has(domain));
    let entries = &descriptor.entries;
    let brought =
        brought.and_then(|brought| Limit::brought(brought, domain, entries, config.counts_reports));
    brought.map(Arc::new).or_else(|| config.find(domain, entries).cloned())
}

/// Different descriptors never have the same key. A limit that a request brings never has the key
/// of a limit of the configuration: its unit stands at the end. Its number does not, so that the count
/// goes on when the number changes.
fn key(prefix: &str, domain: &[u8], descriptor: &Descriptor, limit: &Limit) -> Vec<u8> {
    let mut text = format!("{prefix}{}", escaped(domain));
    for Entry { key, value } in &descriptor.entries {
        text.extend(["|", &escaped(key), "=", &escaped(value)]);
    }
    if let Some(unit) = limit.brought_for {
        text.extend(["|", unit]);
    }
    text.into_bytes()
}

fn escaped(text: &[u8]) -> Cow<'_, str> {
    if text.len() > LONGEST_TEXT {
        let hash = Sha256::digest(text);
        return hash.iter().fold("#".to_string(), |text, byte| format!("{text}{byte:02x}")).into();
    }
    percent_encode(text, SPECIAL).into()
}

#[cfg(test)]
mod tests;
