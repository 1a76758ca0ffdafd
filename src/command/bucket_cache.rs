//! The buckets of `RL.THROTTLE` as rules, and as text for its effects: its callers write no rules.

use crate::server::{Args, Texts};
use ratelimit_core::direct_mapped::DirectMapped;
use ratelimit_core::parse::Bucket;
use ratelimit_core::rule::Rule;
use std::cell::OnceCell;

pub type BucketCache = DirectMapped<Bucket, CachedRule>;

#[derive(Debug)]
pub struct CachedRule {
    pub rule: Rule,
    /// The canonical text, built when it is first propagated.
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
