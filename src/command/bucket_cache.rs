//! The rules of `RL.THROTTLE`, by the numbers that its callers give.

use crate::server::{Args, Texts};
use ratelimit_core::direct_mapped::DirectMapped;
use ratelimit_core::parse::Bucket;
use ratelimit_core::rule::Rule;
use std::cell::OnceCell;

/// Buckets as rules. Applications use the same few again and again.
pub type BucketCache = DirectMapped<Bucket, CachedRule>;

#[derive(Debug)]
pub struct CachedRule {
    pub rule: Rule,
    /// Its canonical text, once it has been propagated: callers write no rules.
    text: OnceCell<Texts>,
}

impl CachedRule {
    pub const fn new(rule: Rule) -> Self {
        Self { rule, text: OnceCell::new() }
    }

    /// The rule as one argument.
    pub fn args(&self) -> Args<'_> {
        self.text.get_or_init(|| Texts::new([self.rule.to_string()].iter())).args()
    }
}
