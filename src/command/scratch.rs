//! The state of a request, and the memory that requests reuse, so that a check does not allocate.
//!
//! A request's state is a value that is made for the request and dropped with it. Only memory outlives
//! it: empty vectors, and caches of what a text or a policy means, which is the same for every request.
//!
//! A call within a call (from a module that reacts to a keyspace event) gets other memory.

use crate::policy::{self, Resolver};
use crate::server::{Call, PerServer, Texts};
use ratelimit_engine::check::Decision;
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::parse::Bucket;
use ratelimit_protocol::parse::DirectMapped;
use std::cell::OnceCell;

/// The bucket of an `RL.THROTTLE` as a rule, and the rule's text. Callers do not send the text, so it is
/// built when the rule is first propagated.
type Buckets = DirectMapped<Bucket, (Rule, OnceCell<Texts>)>;

/// What requests reuse.
#[derive(Debug, Default)]
struct Memory {
    rules: Vec<Rule>,
    decisions: Vec<Decision>,
    resolver: policy::Memory,
    buckets: Buckets,
}

/// The state of a request.
#[derive(Debug)]
pub struct Scratch<'m> {
    /// The rules of the request.
    pub rules: &'m mut Vec<Rule>,
    /// What each rule decided.
    pub decisions: &'m mut Vec<Decision>,
    /// The policies and plans of the request.
    pub resolver: Resolver<'m>,
    /// A cache.
    pub buckets: &'m mut Buckets,
}

static MEMORY: PerServer<Memory> = PerServer::empty();

/// Runs a call with the state of a new request.
#[inline]
pub fn with<T>(call: &Call<'_>, body: impl FnOnce(Scratch<'_>) -> T) -> T {
    MEMORY.with(call, |Memory { rules, decisions, resolver, buckets }| {
        rules.clear();
        decisions.clear();
        body(Scratch { rules, decisions, resolver: Resolver::new(resolver), buckets })
    })
}
