//! What a client asks of a line.

use super::rules::Rules;
use ratelimit_engine::check::Decision;
use ratelimit_engine::key::{Check, Limiter};
use ratelimit_engine::rule::{Identity, Rule, identities};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

/// Identifies a waiter. Later arrivals have greater tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// Clients of a line that are served in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// A flow of a higher priority goes first.
    pub priority: u8,
    /// Empty for clients that name none.
    pub name: Box<[u8]>,
}

/// What a client asks of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The flow that it joins.
    pub flow: Flow,
    /// The flow's new weight; at least 1.
    pub weight: u16,
    /// Its rules.
    pub rules: Rules,
    /// When the plan ends by which the rules were read; `None` if they do not depend on the key's plan.
    pub plan_end: Option<PlanEnd>,
    /// The hold that it asks for.
    pub hold: Option<HoldId>,
}

/// When a key's plan ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanEnd {
    /// At this time.
    At(u64),
    /// The key has no plan, or its plan has no end.
    Never,
}

impl PlanEnd {
    /// The time of the end, if there is one.
    pub const fn at_us(self) -> Option<u64> {
        match self {
            Self::At(at_us) => Some(at_us),
            Self::Never => None,
        }
    }
}

/// What a line knows of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub rules: Arc<Rules>,
    /// The generation of policies and plans from which the rules come.
    pub generation: u64,
    pub hold: Option<HoldId>,
}

/// A hash of the id of a hold. Clients with equal hashes are woken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldId(u64);

impl HoldId {
    /// The hash of an id.
    pub fn of(id: &[u8]) -> Self {
        Self(hash_of(id))
    }
}

/// A hash, equal for equal values.
pub(super) fn hash_of(value: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// Why clients in line may pass.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// A check consumed. A rule with the same text as a rule of that check admits no more than before.
    Consumed {
        /// The rules of the check.
        rules: &'a [Rule],
        /// The id of the hold that the check took.
        hold: Option<&'a [u8]>,
    },
    /// These states got something back, or will get it back earlier.
    Returned(&'a [Identity]),
    /// Anything else.
    Changed,
}

/// The denial of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Milliseconds until the request may pass, unless its key changes earlier.
    pub wait_ms: u64,
    /// Milliseconds until fewer rules may deny the request.
    pub again_ms: u64,
    /// The [`identities`] of the rules that deny the request; empty while its key is paused.
    pub by: Box<[Identity]>,
}

impl Denial {
    /// The denial of a check that has to wait this long.
    pub fn of(
        wait_ms: u64,
        check: &Check<'_>,
        decisions: &[Decision],
        key: Option<&Limiter>,
    ) -> Self {
        let pause = key.and_then(|key| key.pause_at(check.now_us));
        let ends = check.denials(decisions).map(|(_, decision)| decision.wait_ms);
        let ends = ends.chain(pause.map(|pause| pause.left_ms(check.now_us)));
        let again_ms = ends.filter_map(|ms| u64::try_from(ms).ok()).min().unwrap_or(wait_ms);
        let by = check.denials(decisions).map(|(rule, _)| rule).filter(|_| pause.is_none());
        Self { wait_ms, again_ms, by: identities(by) }
    }
}
