//! What overrides or chooses the rules of a key: blocks and exemptions, pauses, plans. Also how often
//! the key was banned.
//!
//! A ladder of bans, `ban=1m:10m:1h`, stores a count in the key.
//!
//! ```text
//!    ban    ends     ban          ends                            forgotten
//!     |======|  ..... |============| . . . . . . . . . . . . . . . . . |
//!     count 1         count 2       as long as the longest rung
//!                     |------------------- span -----------------------|
//! ```
//!
//! A key counts the bans of all its ladders together, and forgets them all at once. A key without a
//! ladder stores no count.

use crate::algorithm::{Moment, not_before_us};
use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, Name, Rule};
use alloc::boxed::Box;
use core::num::NonZeroU64;

/// What overrides the rules of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every check is denied.
    Block,
    /// Every check is allowed and consumes nothing.
    Exempt,
}

/// A block or an exemption, with or without an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// Whether it denies or allows every check.
    pub kind: Access,
    /// Unix microseconds; `None` if it has no end.
    pub until_us: Option<u64>,
    /// For a ban by a rule: its length, in microseconds.
    pub ban_us: Option<NonZeroU64>,
    /// The `REASON` given, or for a ban its rule; may be empty.
    pub reason: Box<[u8]>,
    /// `None` for a ban, and where an older version saved it.
    pub author: Option<Author>,
}

/// Who set a block or an exemption, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// Unix microseconds.
    pub since_us: u64,
    /// At most [`MAX_USER`] bytes; empty for a script or a module.
    pub user: Box<[u8]>,
}

/// The most bytes that are kept of a user's name.
pub const MAX_USER: usize = 64;

impl Author {
    /// Keeps the first [`MAX_USER`] bytes of the user's name.
    pub fn new(since_us: u64, user: &[u8]) -> Self {
        Self { since_us, user: user.get(..MAX_USER).unwrap_or(user).into() }
    }
}

impl AccessEntry {
    /// A block or an exemption by nobody in particular.
    pub fn new(kind: Access, until_us: Option<u64>, reason: &[u8]) -> Self {
        Self { kind, until_us, ban_us: None, reason: reason.into(), author: None }
    }

    /// When it was set, in Unix microseconds, if that is known.
    pub fn since_us(&self) -> Option<u64> {
        let begun_us = || self.until_us?.checked_sub(self.ban_us?.get());
        self.author.as_ref().map(|author| author.since_us).or_else(begun_us)
    }

    /// The block that a rule's `ban=` sets.
    pub(crate) fn ban(rule: &Rule, until_us: u64, length_us: u64) -> Self {
        let reason = format!("rule {}", rule.label());
        Self {
            kind: Access::Block,
            until_us: Some(until_us),
            ban_us: NonZeroU64::new(length_us),
            reason: reason.into_bytes().into_boxed_slice(),
            author: None,
        }
    }

    pub(crate) fn ends(&self) -> Moment {
        self.until_us.map_or(Moment::Never, Moment::At)
    }

    /// When it ends, as seen at `now_us`. A ban ends no later than its length after `now_us`: if
    /// the stored end is later, the clock has stepped back since the ban was set.
    fn ends_as_of(&self, now_us: u64) -> Option<u64> {
        let latest_us = self.ban_us.map(|ban_us| now_us.saturating_add(ban_us.get()));
        self.until_us.map(|until_us| latest_us.map_or(until_us, |latest| until_us.min(latest)))
    }

    /// Makes a ban end no later than `now_us` plus its length. Returns true if its end moved.
    pub(crate) fn shorten(&mut self, now_us: u64) -> bool {
        let seen = self.ends_as_of(now_us);
        core::mem::replace(&mut self.until_us, seen) != seen
    }

    /// Milliseconds until it ends, rounded up; -1 if it has no end.
    pub fn left_ms(&self, now_us: u64) -> i64 {
        self.ends_as_of(now_us).map_or(Moment::Never, Moment::At).ms_after(now_us)
    }

    pub(crate) fn in_effect(&self, now_us: u64) -> bool {
        self.ends() > Moment::At(now_us)
    }
}

/// The longest span: the longest ban plus the longest rung.
pub const MAX_SPAN_US: u64 = 2 * MAX_PERIOD_US;
/// The latest time at which bans can be forgotten.
pub const MAX_FORGOTTEN_US: u64 = MAX_TIME_US + MAX_SPAN_US;

/// A count of bans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanCount {
    /// At least 1.
    pub bans: u32,
    /// When the bans are forgotten, Unix microseconds.
    pub forgotten_us: u64,
    /// Microseconds from setting the last ban until all are forgotten.
    pub span_us: u64,
}

impl BanCount {
    /// The count after a ban set at `now_us`.
    pub(crate) const fn new(bans: u32, now_us: u64, span_us: u64) -> Self {
        Self { bans, forgotten_us: now_us.saturating_add(span_us), span_us }
    }

    pub(crate) const fn is_remembered(&self, now_us: u64) -> bool {
        self.forgotten_us > now_us
    }

    /// The count as seen at `now_us`. It is forgotten no later than its span after `now_us`: if the
    /// stored time is later, the clock has stepped back since the last ban.
    #[must_use]
    pub(crate) fn as_of(self, now_us: u64) -> Self {
        let latest_us = now_us.saturating_add(self.span_us);
        Self { forgotten_us: self.forgotten_us.min(latest_us), ..self }
    }

    /// Milliseconds until it is forgotten, rounded up.
    pub fn left_ms(&self, now_us: u64) -> i64 {
        Moment::At(self.as_of(now_us).forgotten_us).ms_after(now_us)
    }
}

/// A pause, which denies every check of its key: the key's clients share a service, the upstream, which
/// has told one of them to come back later.
///
/// Workers report the same pause one by one, each with an end by its own clock. So a pause only
/// grows: of two ends the later one stands. If the clock steps back by more than the pause's length,
/// the pause is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Its end, Unix microseconds.
    pub until_us: u64,
    /// How long it lasts from when it was set, or last grew, in microseconds.
    pub length_us: u64,
    /// The `REASON` given; may be empty.
    pub reason: Box<[u8]>,
}

impl Pause {
    /// The earliest time at which it is in effect.
    pub(crate) const fn not_before_us(&self) -> u64 {
        not_before_us(self.until_us, self.length_us)
    }

    /// True if it denies checks at `now_us`.
    pub(crate) fn in_effect(&self, now_us: u64) -> bool {
        (self.not_before_us()..self.until_us).contains(&now_us)
    }

    /// Milliseconds until it ends, rounded up.
    pub fn left_ms(&self, now_us: u64) -> i64 {
        Moment::At(self.until_us).ms_after(now_us)
    }
}

/// A policy bound to a key, whose rules apply to each check that asks for the key's plan.
///
/// The seller binds the plan, and the service that checks does not have to know it. The key stores only
/// the policy's name: the policy may be set later, and may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name of the policy.
    pub name: Name,
    /// Unix microseconds; `None` if it has no end.
    pub until_us: Option<u64>,
}

impl Plan {
    pub(crate) fn ends(&self) -> Moment {
        self.until_us.map_or(Moment::Never, Moment::At)
    }

    /// Milliseconds until it ends, rounded up; -1 if it has no end.
    pub fn left_ms(&self, now_us: u64) -> i64 {
        self.ends().ms_after(now_us)
    }
}

/// What an upstream and a seller have said about a key. Few keys have either, so a key stores one
/// pointer for both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PauseAndPlan {
    pub pause: Option<Box<Pause>>,
    pub plan: Option<Box<Plan>>,
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    fn left_ms(now_us: u64, until_us: Option<u64>) -> i64 {
        AccessEntry::new(Access::Block, until_us, b"").left_ms(now_us)
    }

    #[test]
    fn the_time_left_is_rounded_up() {
        assert_eq!(left_ms(1_000, Some(2_001)), 2);
        assert_eq!(left_ms(1_000, Some(2_000)), 1);
        assert_eq!(left_ms(3_000, Some(2_000)), 0);
        assert_eq!(left_ms(3_000, None), -1);
    }

    #[test]
    fn a_ban_lasts_no_longer_than_its_length() {
        let ban = |until_us, ban_us: Option<u64>| AccessEntry {
            kind: Access::Block,
            until_us: Some(until_us),
            ban_us: ban_us.and_then(NonZeroU64::new),
            reason: Box::default(),
            author: None,
        };
        let mut stepped = ban(10_000_000, Some(1_000_000));
        assert_eq!(stepped.left_ms(9_000_000), 1_000);
        assert!(!stepped.shorten(9_000_000));
        assert_eq!(stepped.left_ms(4_000_000), 1_000);
        assert!(stepped.shorten(4_000_000));
        assert_eq!(stepped.until_us, Some(5_000_000));
        assert!(!stepped.shorten(4_500_000));
        // A block that a user set keeps its end.
        let mut block = ban(10_000_000, None);
        assert!(!block.shorten(4_000_000));
        assert_eq!(block.left_ms(4_000_000), 6_000);
    }
    #[test]
    fn a_count_lasts_no_longer_than_its_span() {
        let count = BanCount::new(2, 10_000, 5_000);
        for (now_us, left_ms) in [(9_000, 5), (10_000, 5), (10_001, 5), (14_999, 1), (15_000, 0)] {
            assert_eq!(count.left_ms(now_us), left_ms, "{now_us}");
            assert_eq!(count.is_remembered(now_us), left_ms > 0, "{now_us}");
        }
        assert_eq!(count.as_of(10_001), count);
        assert_eq!(count.as_of(1_000), BanCount { forgotten_us: 6_000, ..count });
    }
}

#[cfg(all(test, feature = "testing"))]
mod plan_tests {
    use super::*;
    use crate::key::{Access, AccessEntry, Check, Limiter, decode, encode};
    use crate::rule::SECOND_US;
    use crate::tests::rules_of_line;
    use alloc::vec::Vec;

    const NOW_US: u64 = 1_700_000_000_000_000;

    fn plan(name: &str, until_us: Option<u64>) -> Plan {
        Plan { name: Name::new(name.as_bytes()).unwrap(), until_us }
    }

    fn planned(until_us: Option<u64>) -> Limiter {
        let mut limiter = Limiter::default();
        limiter.set_plan(Some(plan("pro", until_us)));
        limiter
    }

    #[test]
    fn a_plan_lasts_until_its_end_or_until_another_replaces_it() {
        let mut limiter = planned(Some(NOW_US + SECOND_US));
        let name = |limiter: &Limiter, now_us| limiter.plan_at(now_us).map(|plan| plan.name);
        assert_eq!(name(&limiter, NOW_US + SECOND_US - 1), Name::new(b"pro"));
        assert_eq!(name(&limiter, NOW_US + SECOND_US), None);
        assert_eq!(limiter.plan().map(|plan| plan.left_ms(NOW_US)), Some(1_000));
        limiter.set_plan(Some(plan("free", None)));
        assert_eq!(limiter.plan().map(|plan| plan.left_ms(NOW_US)), Some(-1));
        assert_eq!(limiter.deadline().expiry(NOW_US, NOW_US, Some(9)), crate::key::Expiry::Never);
        limiter.set_plan(None);
        assert!(limiter.is_empty());
    }

    #[test]
    fn checks_ignore_plans_and_drop_ended_ones() {
        let rules = rules_of_line("bucket:3/m");
        let (mut limiter, mut plain) = (planned(Some(NOW_US + SECOND_US)), Limiter::default());
        for at_us in [NOW_US, NOW_US + 1, NOW_US + 2 * SECOND_US] {
            let check = Check::new(&rules, 1, at_us);
            let seen = limiter.check(&check, &mut Vec::new());
            assert_eq!(seen, plain.check(&check, &mut Vec::new()), "{at_us}");
        }
        assert_eq!(limiter, plain);
    }

    #[test]
    fn a_plan_outlives_a_reset_a_pause_and_a_block() {
        let (mut limiter, rules) = (planned(None), rules_of_line("1/s 2/m"));
        limiter.check(&Check::new(&rules, 1, NOW_US), &mut Vec::new());
        limiter.pause_until(NOW_US + 1, NOW_US, b"429");
        let block = AccessEntry::new(Access::Block, Some(NOW_US + 1), b"");
        limiter.set_access(Some(block));
        for paused in [true, false] {
            assert_eq!(decode(&encode(&limiter)), Ok(limiter.clone()));
            assert_eq!(limiter.pause().is_some(), paused);
            limiter.reset(NOW_US + SECOND_US);
            limiter.resume();
            limiter.unblock();
        }
        assert_eq!(limiter, planned(None));
    }
}
