//! Blocks and exemptions, which override all rules of a key, and how often the key was banned.
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

use crate::algorithm::Moment;
use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, Rule};
use alloc::boxed::Box;
use core::num::NonZeroU64;

/// What overrides the rules of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Every check is denied.
    Block,
    /// Every check is allowed and consumes nothing.
    Exempt,
}

/// A block or an exemption, with or without an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingEntry {
    /// Whether it denies or allows every check.
    pub kind: Standing,
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

impl StandingEntry {
    /// A block or an exemption by nobody in particular.
    pub fn new(kind: Standing, until_us: Option<u64>, reason: &[u8]) -> Self {
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
            kind: Standing::Block,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn left_ms(now_us: u64, until_us: Option<u64>) -> i64 {
        StandingEntry::new(Standing::Block, until_us, b"").left_ms(now_us)
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
        let ban = |until_us, ban_us: Option<u64>| StandingEntry {
            kind: Standing::Block,
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
