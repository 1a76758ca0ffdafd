//! Buffers and caches that calls reuse, so a check does not allocate them.
//!
//! A call within a call (from a module that reacts to a keyspace event) gets new ones.

use crate::policy::Resolver;
use crate::server::{Call, PerServer, Texts};
use ratelimit_core::check::Decision;
use ratelimit_core::rule::Rule;
use ratelimit_protocol::parse::Bucket;
use ratelimit_protocol::parse::DirectMapped;
use std::cell::OnceCell;

#[derive(Debug, Default)]
pub struct Scratch {
    pub rules: Vec<Rule>,
    pub decisions: Vec<Decision>,
    pub resolver: Resolver,
    /// The bucket of an `RL.THROTTLE` as a rule, and the rule's text. Callers do not send the text, so
    /// it is built when the rule is first propagated.
    pub buckets: DirectMapped<Bucket, (Rule, OnceCell<Texts>)>,
}

static SCRATCH: PerServer<Scratch> = PerServer::empty();

/// Runs a call with the buffers, which still have the content of the last call.
#[inline]
pub fn with<T>(call: &Call<'_>, body: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(call, |scratch| {
        let result = body(scratch);
        scratch.resolver.clear();
        result
    })
}
