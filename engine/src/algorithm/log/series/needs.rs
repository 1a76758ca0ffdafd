//! What a log must keep: everything that can be seen by the rules that consume from it.
//!
//! ```text
//!                 1d, 5 units                      a login, once
//!   100/s  100/s  100/s  100/s  ...                everything else
//!   |<- kept: 1d, 100 units ->|                    until a day after the login
//! ```
//!
//! A rule sees the newest units up to its limit, within its window. All log rules of a key share
//! one log. So the log keeps the longest window and the largest limit of the checks that consume from
//! it. The log remembers the needs of a check until the check's longest window has passed since the
//! check last consumed. By then every request that the check admitted has left its windows.
//!
//! Nearly every log serves one kind of caller, whose needs fit into eight bytes beside the entries.
//! Only a log with several kinds of callers has a list. The list has the needs of at most [`MOST_PAST`]
//! earlier checks, without those that the latest check covers.

use crate::rule::{Kind, MAX_UNITS, Rule};
use alloc::vec::Vec;

/// The combined needs of one check's log rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The longest window; 0 without log rules.
    pub window_us: u64,
    /// The largest limit.
    pub units: u32,
    /// True if a rule counts admitted requests only, so charged denials must not evict them.
    pub admitted: bool,
}

impl Needs {
    pub fn of(rules: &[Rule]) -> Self {
        let mut needs = Self::default();
        for rule in rules.iter().filter(|rule| rule.kind() == Kind::Log) {
            needs.window_us = needs.window_us.max(rule.period_us());
            needs.units = needs.units.max(rule.limit());
            needs.admitted |= !rule.counts_all();
        }
        needs
    }

    /// Units of admitted requests that charged denials must not evict.
    pub const fn admitted_units(self) -> u32 {
        if self.admitted { self.units } else { 0 }
    }

    const fn covers(self, other: Self) -> bool {
        self.window_us >= other.window_us
            && self.units >= other.units
            && self.admitted_units() >= other.admitted_units()
    }

    /// Packs the needs into eight bytes. Windows beyond 24 days are rounded up to a second.
    #[inline]
    pub fn pack(self) -> PackedNeeds {
        let units = self.units | if self.admitted { PackedNeeds::ADMITTED } else { 0 };
        PackedNeeds { window: PackedWindow::new(self.window_us), units }
    }
}

/// [`Needs`] as a log stores them beside its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedNeeds {
    window: PackedWindow,
    /// The largest limit, and [`Self::ADMITTED`].
    units: u32,
}

const _: () = assert!(MAX_UNITS < PackedNeeds::ADMITTED);

impl PackedNeeds {
    const ADMITTED: u32 = 1 << 30;

    #[inline]
    pub fn unpack(self) -> Needs {
        Needs {
            window_us: self.window.micros(),
            units: self.units & !Self::ADMITTED,
            admitted: self.units & Self::ADMITTED != 0,
        }
    }
}

/// The length of a window in 4 bytes: exact to the millisecond up to 24 days, rounded up to a
/// second beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedWindow(pub u32);

impl PackedWindow {
    const SECONDS: u32 = 1 << 31;

    #[inline]
    pub fn new(us: u64) -> Self {
        match u32::try_from(us.div_ceil(1_000)) {
            Ok(ms) if ms < Self::SECONDS => Self(ms),
            _ => Self(u32::try_from(us.div_ceil(1_000_000)).unwrap_or(0) | Self::SECONDS),
        }
    }

    pub fn micros(self) -> u64 {
        let count = u64::from(self.0 & !Self::SECONDS);
        count.saturating_mul(if self.0 & Self::SECONDS == 0 { 1_000 } else { 1_000_000 })
    }
}

/// The most needs of earlier checks that a log remembers.
pub const MOST_PAST: usize = 8;

/// The needs of an earlier check, and until when to remember them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastNeeds {
    pub needs: PackedNeeds,
    /// Unix microseconds.
    pub until_us: u64,
}

impl PastNeeds {
    /// Needs that keep what either of the two keeps, until the later of the two ends.
    fn or(self, other: Self) -> Self {
        let (ours, theirs) = (self.needs.unpack(), other.needs.unpack());
        let needs = Needs {
            window_us: ours.window_us.max(theirs.window_us),
            units: ours.units.max(theirs.units),
            admitted: ours.admitted || theirs.admitted,
        };
        Self { needs: needs.pack(), until_us: self.until_us.max(other.until_us) }
    }

    fn covers(&self, other: &Self) -> bool {
        self.until_us >= other.until_us && self.needs.unpack().covers(other.needs.unpack())
    }
}

/// Updates the list of past needs when a check consumes. Adds the needs of the previous check. Drops
/// needs that have ended, and needs that the latest check covers.
pub fn remember(past: &mut Vec<PastNeeds>, previous: PastNeeds, latest: Needs, at_us: u64) {
    // Round the window like the windows in the list.
    let latest = latest.pack().unpack();
    if !past.iter().any(|past| past.covers(&previous)) {
        past.push(previous);
    }
    past.retain(|past| past.until_us > at_us && !latest.covers(past.needs.unpack()));
    while past.len() > MOST_PAST {
        // Merged needs keep more entries than either of the two. Merge the two that end first, so
        // that the extra entries stay for the shortest time.
        past.sort_by_key(|past| past.until_us);
        let first = past.remove(0);
        if let Some(second) = past.first_mut() {
            *second = second.or(first);
        }
    }
}

/// While holds may give units back, a log keeps at most this number of entries beyond the units
/// that its rules need. A key has fewer holds, so the bound evicts no entry that a rule needs. It
/// limits the extra memory to about a megabyte.
pub const MAX_HELD: u64 = 100_000;

/// The most units that a series retains. The units of one more check still fit into a running total
/// of 32 bits, so no total wraps around to an earlier total.
pub const MAX_RETAINED_UNITS: u64 = (u32::MAX - MAX_UNITS) as u64;

/// How much a log retains for the latest check and earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub window_us: u64,
    pub units: u64,
    /// Units of admitted requests.
    pub admitted_units: u64,
}

impl Retention {
    pub fn of(latest: Needs, past: &[PastNeeds]) -> Self {
        let kept = Self {
            window_us: latest.window_us,
            units: latest.units.into(),
            admitted_units: latest.admitted_units().into(),
        };
        past.iter().map(|past| past.needs.unpack()).fold(kept, |kept, needs| Self {
            window_us: kept.window_us.max(needs.window_us),
            units: kept.units.max(needs.units.into()),
            admitted_units: kept.admitted_units.max(needs.admitted_units().into()),
        })
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::rule::{DAY_US, MAX_PERIOD_US, SECOND_US};
    use proptest::prelude::*;

    fn needs(window_us: u64, units: u32) -> Needs {
        Needs { window_us, units, admitted: true }
    }

    fn past(window_us: u64, units: u32, until_us: u64) -> PastNeeds {
        PastNeeds { needs: needs(window_us, units).pack(), until_us }
    }

    proptest! {
        #[test]
        fn packing_never_shortens_a_window(
            window_us in 0..=MAX_PERIOD_US,
            units in 0..=MAX_UNITS,
            admitted: bool,
        ) {
            let needs = Needs { window_us, units, admitted };
            let unpacked = needs.pack().unpack();
            prop_assert!((window_us..window_us + SECOND_US).contains(&unpacked.window_us));
            prop_assert_eq!(Needs { window_us, ..unpacked }, needs);
        }

        #[test]
        fn the_list_is_bounded_and_keeps_what_is_needed(
            checks in prop::collection::vec((1..100_000u64, 1..1_000u32, 1..1_000_000u64), 1..60),
        ) {
            let mut list = Vec::new();
            let mut previous = None;
            let (mut at_us, mut all) = (0, Vec::new());
            for (window_ms, units, gap_us) in checks {
                at_us += gap_us;
                let latest = needs(window_ms * 1_000, units);
                if let Some(previous) = previous {
                    remember(&mut list, previous, latest, at_us);
                }
                let last = past(latest.window_us, units, at_us + latest.window_us);
                previous = Some(last);
                all.push(last);
                prop_assert!(list.len() <= MOST_PAST);
                let kept = Retention::of(latest, &list);
                for past in all.iter().filter(|past| past.until_us > at_us) {
                    let needs = past.needs.unpack();
                    prop_assert!(kept.window_us >= needs.window_us);
                    prop_assert!(kept.units >= u64::from(needs.units));
                }
            }
        }
    }

    #[test]
    fn covered_and_ended_needs_are_dropped() {
        let mut list = vec![past(DAY_US, 5, 100), past(SECOND_US, 9, 200)];
        remember(&mut list, past(2 * SECOND_US, 3, 300), needs(SECOND_US, 10), 100);
        assert_eq!(list, [past(2 * SECOND_US, 3, 300)]);
        remember(&mut list, past(2 * SECOND_US, 3, 250), needs(SECOND_US, 10), 100);
        assert_eq!(list.len(), 1, "equal needs that end earlier");
        remember(&mut list, past(SECOND_US, 10, 300), needs(3 * SECOND_US, 10), 100);
        assert_eq!(list, []);
    }

    #[test]
    fn a_rounded_window_covers_itself() {
        let needs = needs(30 * DAY_US + 1_000, 5);
        let previous = PastNeeds { needs: needs.pack(), until_us: 200 };
        let mut list = Vec::new();
        remember(&mut list, previous, needs, 100);
        assert_eq!(list, []);
    }

    #[test]
    fn a_full_list_merges_the_needs_that_end_first() {
        let most = MOST_PAST as u64;
        // The longer the window, the smaller the limit, so none covers another.
        let of = |i: u64| past((20 - i) * SECOND_US, 100 + i as u32, 1_000 + i);
        let mut list: Vec<_> = (1..most).rev().map(of).collect();
        let denied = Needs { window_us: 10 * SECOND_US, units: 200, admitted: false };
        list.push(PastNeeds { needs: denied.pack(), until_us: 999 });
        remember(&mut list, of(most), needs(SECOND_US, 1), 0);
        let merged = past(19 * SECOND_US, 200, 1_001);
        assert_eq!(list, [vec![merged], (2..=most).map(of).collect()].concat());
    }
}
