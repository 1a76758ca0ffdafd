//! The keys and limits that the configuration sets for a request.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sha2::{Digest, Sha256};
use tonic::Status;

use crate::config::{Config, Limit};

/// The most keys of a command, and the most entries of a descriptor.
const MOST: usize = 64;
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

impl Asked {
    /// The most units to lease, if a lease answers. It cannot answer 0 hits, nor give hits back.
    pub fn leased(&self) -> Option<u64> {
        self.limit.lease.filter(|_| self.hits > 0 && !self.gives_back)
    }
}

/// A key and its limit. Equal descriptors become one, with the sum of their hits.
#[derive(Debug)]
pub struct Asked {
    pub key: Vec<u8>,
    pub limit: Arc<Limit>,
    pub hits: u64,
    /// Whether the hits come back instead of being charged.
    pub gives_back: bool,
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
        let limits = descriptors.iter().map(|descriptor| limit(config, domain, descriptor));
        let limits = limits.collect::<Result<Vec<_>, _>>()?;
        let replaced = limits.iter().flatten().flat_map(|limit| &limit.replaces);
        let replaced = replaced.map(String::as_str).collect::<HashSet<_>>();
        let default = u64::from(*hits_addend).max(1);
        let mut read = Self { found: Vec::new(), asked: Vec::new() };
        for (descriptor, limit) in descriptors.iter().zip(&limits) {
            let found = match limit {
                Some(limit) if !replaced.contains(&*limit.name) => {
                    read.ask(key(prefix, domain, descriptor, limit), limit, descriptor, default)?
                }
                _ => Found::Nothing,
            };
            read.found.push(found);
        }
        Ok(read)
    }

    fn ask(
        &mut self,
        key: Vec<u8>,
        limit: &Arc<Limit>,
        descriptor: &RateLimitDescriptor,
        default: u64,
    ) -> Result<Found, Status> {
        if limit.rules.texts().is_empty() {
            return Ok(Found::Unlimited);
        }
        let own = descriptor.hits_addend.as_ref().map(|hits| hits.value);
        let (hits, gives_back) = (own.unwrap_or(default), descriptor.is_negative_hits);
        let known = self.asked.iter_mut().zip(0..).find(|(asked, _)| {
            asked.key == key && asked.gives_back == gives_back && asked.limit.rules == limit.rules
        });
        let before = known.as_ref().map_or(0, |(asked, _)| asked.hits);
        let hits = before.saturating_add(hits);
        if hits > MOST_HITS {
            let why = format!("hits_addend is {hits}, expected at most {MOST_HITS}");
            return Err(Status::invalid_argument(why));
        }
        if let Some((asked, place)) = known {
            asked.hits = hits;
            return Ok(Found::Limit(place));
        }
        self.asked.push(Asked { key, limit: Arc::clone(limit), hits, gives_back });
        Ok(Found::Limit(self.asked.len().saturating_sub(1)))
    }
}

/// The limit of a descriptor: the one that it brings, or that of the configuration.
fn limit(
    config: &Config,
    domain: &str,
    descriptor: &RateLimitDescriptor,
) -> Result<Option<Arc<Limit>>, Status> {
    let RateLimitDescriptor { entries, limit: brought, .. } = descriptor;
    if entries.len() > MOST {
        let why = format!("{} entries of a descriptor, expected at most {MOST}", entries.len());
        return Err(Status::invalid_argument(why));
    }
    match brought {
        Some(brought) if config.has(domain) => {
            let limit = Limit::brought(*brought, domain, entries);
            let wrong = "a limit has no known unit, or over 1000000000 requests";
            limit.map(|limit| Some(Arc::new(limit))).ok_or_else(|| Status::invalid_argument(wrong))
        }
        _ => Ok(config.find(domain, entries).cloned()),
    }
}

/// Different descriptors never have the same key. A limit that a request brings never has the key
/// of a limit of the configuration.
fn key(prefix: &str, domain: &str, descriptor: &RateLimitDescriptor, limit: &Limit) -> Vec<u8> {
    let mut text = format!("{prefix}{}", escaped(domain));
    for Entry { key, value } in &descriptor.entries {
        text.extend(["|", &escaped(key), "=", &escaped(value)]);
    }
    if descriptor.limit.is_some() {
        text.extend(["|", &limit.rules.texts().concat()]);
    }
    text.into_bytes()
}

fn escaped(text: &str) -> Cow<'_, str> {
    if text.len() > LONGEST_TEXT {
        let hash = Sha256::digest(text);
        return hash.iter().fold("#".to_string(), |text, byte| format!("{text}{byte:02x}")).into();
    }
    utf8_percent_encode(text, SPECIAL).into()
}

#[cfg(test)]
mod tests;
