//! The history of a key: its last checks, with the callers' text.
//!
//! A check with `META` starts the history. From then on the history gets an entry from every check with
//! `META` and from every check that consumes. It is a ring: a new entry evicts the oldest.
//!
//! The clock may step back so far that the newest entry lies more than a window ahead. Then the
//! history is cleared: a wrong clock must not keep a key alive for years.
//!
//! No decision reads the history. Each entry keeps the history alive for the longest window of the
//! check's rules, but at least for an hour. An operator who asks why a limit of one second denied a
//! request needs more than a second.

use super::Verdict;
use crate::heap::HeapVisitor;
use crate::rule::{HOUR_US, Rule};
use alloc::{boxed::Box, collections::VecDeque};

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was decided, in Unix microseconds.
    pub time_us: u64,
    /// Each rule that took the check's default cost counted this many units.
    pub cost: u32,
    /// The answer it got.
    pub verdict: Verdict,
    /// The text of `META`; `None` if the check had none.
    pub meta: Option<Box<[u8]>>,
}

/// A ring of the last checks of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// How many entries to keep, as set by the last check with `META`.
    pub keep: u32,
    /// Until when it keeps the key alive, Unix microseconds.
    pub until_us: u64,
    /// Oldest first.
    pub entries: VecDeque<Entry>,
}

impl History {
    /// Adds the entry of a check with these rules.
    pub(crate) fn add(&mut self, entry: Entry, rules: &[Rule]) {
        let window_us = rules.iter().map(Rule::period_us).fold(HOUR_US, u64::max);
        let latest_us = entry.time_us.saturating_add(window_us);
        if self.entries.back().is_some_and(|newest| newest.time_us > latest_us) {
            *self = Self { keep: self.keep, ..Self::default() };
        }
        self.until_us = self.until_us.max(latest_us);
        // Make room before adding, so that a full ring does not grow.
        let others = usize::try_from(self.keep).unwrap_or(usize::MAX).saturating_sub(1);
        while self.entries.len() > others {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to_fit();
        }
    }

    pub(crate) fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        to.ring(&mut self.entries);
        for meta in self.entries.iter_mut().filter_map(|entry| entry.meta.as_mut()) {
            to.slice(meta);
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::tests::rules_of_line;

    fn entry(time_us: u64) -> Entry {
        Entry { time_us, cost: 1, verdict: Verdict::Allowed, meta: None }
    }

    #[test]
    fn a_ring_shrinks_when_less_than_a_quarter_is_in_use() {
        for (keep, kept, capacity) in [(4, 4, 16), (3, 3, 3), (9, 5, 16)] {
            let mut history = History { keep, ..History::default() };
            history.entries.reserve_exact(16);
            history.entries.extend((0..4).map(entry));
            history.add(entry(4), &[]);
            assert_eq!((history.entries.len(), history.entries.capacity()), (kept, capacity));
        }
    }

    #[test]
    fn a_history_too_far_ahead_of_the_clock_is_cleared() {
        let now_us = 1_700_000_000_000_000;
        let rules = rules_of_line("5/d");
        let day_us = rules[0].period_us();
        for (ahead_us, entries) in [(day_us, 3), (day_us + 1, 1), (3_650 * day_us, 1)] {
            let mut history = History { keep: 9, ..History::default() };
            history.add(entry(now_us), &rules);
            history.add(entry(now_us + ahead_us), &rules);
            history.add(entry(now_us), &rules);
            assert_eq!((history.keep, history.entries.len()), (9, entries), "{ahead_us} us ahead");
            assert!(history.until_us <= now_us + 2 * day_us);
        }
    }
}
