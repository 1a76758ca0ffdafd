//! Slots: a limit on requests that run at once (`slots:N`).
//!
//! ```text
//! hold a   |=================|
//! hold b        |======|  settled
//! hold c            |=============|  lapsed
//!          1    2   3  2     1    0     admits c  iff  units of live holds + c <= N
//! ```
//!
//! The key's holds are the rule's state. Until a hold is settled or lapses, it occupies one slot for
//! each unit of its cost. So the count of slots in use cannot drift from the holds, and the slots of a
//! crashed worker are freed. The stored state only says that there are such holds, and stores the
//! rule's name.
//!
//! The wait lasts until enough holds have lapsed for the cost to fit. The reset lasts until the last
//! hold has lapsed. Settling a hold frees its slots earlier.

use super::holds::TrackNumber;
use super::{Hold, Holds};
use crate::algorithm::{Moment, Reading};
use crate::rule::Rule;

/// The holds on a rule's slots, read at one time. If the clock stepped back,
/// [`as_of`](crate::key::Limiter::as_of) has already ended the holds that then lie ahead of the
/// clock.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'a> {
    holds: &'a Holds,
    track: TrackNumber,
    now_us: u64,
}

impl<'a> Slots<'a> {
    /// The slots of the state at a place.
    pub fn at(place: usize, holds: &'a Holds, now_us: u64) -> Option<Self> {
        Some(Self { holds, track: holds.track_of(place)?, now_us })
    }

    /// The number of slots that a hold occupies.
    fn units(&self, hold: &Hold) -> u64 {
        let own = hold.charges().iter().filter(|charge| charge.track == self.track);
        own.map(|charge| u64::from(charge.units)).sum()
    }

    /// The units of all live holds.
    pub fn used(&self) -> u64 {
        let all = self.holds.track(self.track).map_or(0, |track| track.units);
        let lapsed = self.holds.in_order_of_ends().take_while(|hold| hold.has_ended(self.now_us));
        all.saturating_sub(lapsed.map(|hold| self.units(hold)).sum())
    }

    /// What a rule reads.
    pub fn read(&self, rule: &Rule, cost: u32) -> Reading {
        let (used, capacity) = (self.used(), rule.capacity());
        Reading::of_used(self.now_us, (used, capacity), cost, || self.admits(used, capacity, cost))
    }

    /// When enough holds have lapsed for the cost to fit.
    fn admits(&self, mut used: u64, capacity: u64, cost: u32) -> Moment {
        for hold in self.holds.in_order_of_ends().skip_while(|hold| hold.has_ended(self.now_us)) {
            used = used.saturating_sub(self.units(hold));
            if used.saturating_add(cost.into()) <= capacity {
                return Moment::At(hold.end_us());
            }
        }
        Moment::Never
    }

    /// When the last hold lapses.
    pub fn clears(&self) -> Moment {
        let holds = self.holds.in_order_of_ends().rev();
        let mut live = holds.take_while(|hold| !hold.has_ended(self.now_us));
        Moment::At(live.find(|hold| self.units(hold) > 0).map_or(0, Hold::end_us))
    }
}
