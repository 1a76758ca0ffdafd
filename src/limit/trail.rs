//! The trail of a key: its last checks, with what the caller said of each.
//!
//! A check that brings `META` starts one, and from then on leaves its mark
//! whatever the answer was; so does any other check that consumes. It is a
//! ring: the newest push out the oldest.
//!
//! If the clock stepped back so far that the newest mark lies more than a window
//! ahead, the trail begins anew: a key must not live for years because a clock
//! once was wrong.
//!
//! It decides nothing, and matters for the longest window of the rules it was
//! asked under, but for an hour at least: an operator who wants to know why a
//! limit of a second denied a request needs more than a second to ask.

use super::blocks::Blocks;
use super::deadline::Deadline;
use super::reading::Moment;
use super::rule::{HOUR_US, Rule};
use super::ruling::Verdict;
use std::collections::VecDeque;

/// What a caller says of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    pub text: &'a [u8],
    /// How many checks the key keeps, at least 1.
    pub keep: u32,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub time_us: u64,
    pub cost: u32,
    pub verdict: Verdict,
    pub meta: Option<Box<[u8]>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// As the last check with `META` said.
    pub keep: u32,
    /// Until when it matters, Unix microseconds.
    pub until_us: u64,
    /// Oldest first.
    pub marks: VecDeque<Mark>,
}

impl Trail {
    /// Leaves a mark.
    pub fn leave(&mut self, mark: Mark, rules: &[Rule]) {
        let window_us = rules.iter().map(Rule::period_us).fold(HOUR_US, u64::max);
        let latest_us = mark.time_us.saturating_add(window_us);
        if self.marks.back().is_some_and(|newest| newest.time_us > latest_us) {
            *self = Self { keep: self.keep, ..Self::default() };
        }
        self.until_us = self.until_us.max(latest_us);
        // First room, then the mark: a full ring does not grow for one that leaves at once.
        let others = usize::try_from(self.keep).unwrap_or(usize::MAX).saturating_sub(1);
        while self.marks.len() > others {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
        if self.marks.len() < self.marks.capacity() / 4 {
            self.marks.shrink_to_fit();
        }
    }

    pub fn deadline(&self) -> Deadline {
        Deadline::new(Moment::At(self.until_us), HOUR_US)
    }

    pub fn show_blocks(&mut self, to: &mut impl Blocks) {
        to.ring(&mut self.marks);
        for mark in &mut self.marks {
            if let Some(meta) = &mut mark.meta {
                to.slice(meta);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::rules_of_line;

    #[test]
    fn a_history_from_too_far_ahead_begins_anew() {
        let now_us = 1_700_000_000_000_000;
        let mark = |time_us| Mark { time_us, cost: 1, verdict: Verdict::Allowed, meta: None };
        let rules = rules_of_line("5/d");
        let day_us = rules[0].period_us();
        for (ahead_us, marks) in [(day_us, 3), (day_us + 1, 1), (3_650 * day_us, 1)] {
            let mut trail = Trail { keep: 9, ..Trail::default() };
            trail.leave(mark(now_us), &rules);
            trail.leave(mark(now_us + ahead_us), &rules);
            trail.leave(mark(now_us), &rules);
            assert_eq!((trail.keep, trail.marks.len()), (9, marks), "{ahead_us} us ahead");
            assert!(trail.until_us <= now_us + 2 * day_us);
        }
    }
}
