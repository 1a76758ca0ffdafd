//! Blocks and exemptions: what stands above every rule of a key.

use super::deadline::Deadline;
use super::reading::Moment;
use super::rule::Rule;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideKind {
    /// Every check is refused.
    Block,
    /// Every check is allowed, uncounted.
    Exempt,
}

/// A block or an exemption, for a time or for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    pub kind: OverrideKind,
    /// Unix microseconds; `None` is for good.
    pub until_us: Option<u64>,
    /// How long a ban by a rule was to last, in microseconds.
    pub ban_us: Option<u64>,
    pub reason: Box<[u8]>,
}

impl Override {
    /// The block that a rule's `ban=` sets.
    pub(super) fn ban(rule: &Rule, until_us: u64) -> Self {
        let reason = match rule.name() {
            Some(name) => format!("rule {}", name.as_str()),
            None => format!("rule {rule}"),
        };
        Self {
            kind: OverrideKind::Block,
            until_us: Some(until_us),
            ban_us: rule.ban_us(),
            reason: reason.into_bytes().into_boxed_slice(),
        }
    }

    pub(super) fn ends(&self) -> Moment {
        self.until_us.map_or(Moment::Never, Moment::At)
    }

    /// Milliseconds until it ends, rounded up; -1 if it is for good.
    #[must_use]
    pub fn left_ms(&self, now_us: u64) -> i64 {
        self.ends().after(now_us).millis()
    }

    pub(super) fn in_force(&self, now_us: u64) -> bool {
        self.ends() > Moment::At(now_us)
    }

    pub(super) fn deadline(&self) -> Deadline {
        Deadline::new(self.ends(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_ms(now_us: u64, until_us: Option<u64>) -> i64 {
        Override { kind: OverrideKind::Block, until_us, ban_us: None, reason: Box::default() }
            .left_ms(now_us)
    }

    #[test]
    fn what_is_left_is_rounded_up() {
        assert_eq!(left_ms(1_000, Some(2_001)), 2);
        assert_eq!(left_ms(1_000, Some(2_000)), 1);
        assert_eq!(left_ms(3_000, Some(2_000)), 0);
        assert_eq!(left_ms(3_000, None), -1);
    }
}
