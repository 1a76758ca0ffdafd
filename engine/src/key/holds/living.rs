//! Which holds live at a time.
//!
//! ```text
//!     lapsed     |  time stands still  |         lives         |   lapsed
//!  --------------|---------------------|-----------------------|------------> clock
//!                                   set, or                   end
//!                |<----- length ------>| renewed <-- length -->|
//! ```
//!
//! A clock that steps back prolongs a hold by that step, for at most the hold's length. After a
//! longer step the hold has lapsed. Such a hold *lies ahead of the clock*: it was set or renewed at a
//! time more than its length ahead. [`Holds`] stores the time from which on no hold lies ahead. So
//! while the clock only moves forward, one comparison shows that no hold does.

use super::hold::{Lapse, Length};
use crate::algorithm::not_before_us;
use crate::key::{Hold, Holds};

impl Holds {
    /// The live hold with this id.
    pub fn find_live(&self, id: &[u8], now_us: u64) -> Option<&Hold> {
        let hold = self.find(id).filter(|hold| !hold.has_ended(now_us))?;
        // Finding the length takes another search. Only a clock that stepped back needs it.
        let lives =
            now_us >= self.none_ahead_us || self.length_of(hold).lives(hold.end_us(), now_us);
        lives.then_some(hold)
    }

    /// The length of one of these holds.
    pub fn length_of(&self, hold: &Hold) -> Length {
        let rank = self.rank_of_end(hold.end_us(), hold.id()).ok();
        let lapse = rank.and_then(|rank| self.by_end.get(rank));
        lapse.map_or(Length::new(0), |lapse| lapse.length)
    }

    /// The holds that live at `now_us`, the next to lapse first.
    pub fn live(&self, now_us: u64) -> impl Iterator<Item = &Hold> {
        let lapses = self.by_end.iter().skip(self.count_ended(now_us));
        lapses.filter_map(move |lapse| {
            self.hold(lapse.row).filter(|_| !self.is_ahead(*lapse, now_us))
        })
    }

    /// The number of holds that live at `now_us`.
    pub fn alive(&self, now_us: u64) -> usize {
        self.len().saturating_sub(self.lapsed(now_us).count())
    }

    /// The holds that have lapsed at `now_us`: those that have reached their ends, then those ahead
    /// of the clock.
    pub fn lapsed(&self, now_us: u64) -> impl Iterator<Item = &Hold> {
        self.ended(now_us).chain(self.ahead(now_us))
    }

    /// The number of rules of all holds that live at `now_us`: a rule with two holds counts twice.
    pub fn live_rules(&self, now_us: u64) -> usize {
        self.lapsed(now_us).map(Hold::rules).fold(self.rules, u32::saturating_sub) as usize
    }

    /// True if holds that have lapsed at `now_us` must end before rules read the key. These holds
    /// give their charges back, or lie ahead of a clock that stepped back: once the clock came near,
    /// they would live again. Rules ignore other holds that have reached their end.
    #[inline]
    pub fn lapse_matters(&self, now_us: u64) -> bool {
        self.any_ahead(now_us) || self.any_refunds() && self.ended(now_us).any(Hold::refunds)
    }

    /// True if any hold has lapsed at `now_us`.
    #[inline]
    pub fn any_lapsed(&self, now_us: u64) -> bool {
        self.end_at(0).is_some_and(|end_us| end_us <= now_us) || self.any_ahead(now_us)
    }

    /// True if any hold has lapsed because the clock stepped back.
    #[inline]
    pub(super) fn any_ahead(&self, now_us: u64) -> bool {
        self.ahead(now_us).next().is_some()
    }

    /// The first time after `now_us` at which a hold that lies ahead of the clock comes back.
    pub fn next_back_us(&self, now_us: u64) -> Option<u64> {
        let ahead = self.by_end.iter().filter(|lapse| self.is_ahead(**lapse, now_us));
        ahead.map(|lapse| self.lives_from_us(*lapse)).min()
    }

    /// The holds that have reached their ends, in the order of their ends.
    fn ended(&self, now_us: u64) -> impl Iterator<Item = &Hold> {
        self.in_order_of_ends().take_while(move |hold| hold.has_ended(now_us))
    }

    /// The holds that have lapsed because the clock stepped back, in the order of their ends.
    pub(super) fn ahead(&self, now_us: u64) -> impl Iterator<Item = &Hold> {
        let lapses = if now_us < self.none_ahead_us { self.by_end.len() } else { 0 };
        let lapses = self.by_end.iter().take(lapses);
        let ahead = lapses.filter(move |lapse| self.is_ahead(**lapse, now_us));
        ahead.filter_map(|lapse| self.hold(lapse.row))
    }

    fn is_ahead(&self, lapse: Lapse, now_us: u64) -> bool {
        now_us < self.none_ahead_us && now_us < self.lives_from_us(lapse)
    }

    fn lives_from_us(&self, lapse: Lapse) -> u64 {
        let end_us = self.hold(lapse.row).map_or(0, Hold::end_us);
        not_before_us(end_us, lapse.length.micros())
    }

    /// Notes that a hold has this length and this end.
    pub(super) fn note_length(&mut self, end_us: u64, length: Length) {
        self.none_ahead_us = self.none_ahead_us.max(not_before_us(end_us, length.micros()));
    }

    /// Call this after a hold ended or was renewed. The hold may have been the last one ahead of a
    /// clock that stepped back. Then `none_ahead_us` falls, and checks stop looking for holds ahead.
    pub fn look_ahead_again(&mut self, now_us: u64) {
        if now_us < self.none_ahead_us {
            self.note_lengths();
        }
    }

    /// Notes the lengths of all holds.
    pub(super) fn note_lengths(&mut self) {
        let lives_from_us = self.by_end.iter().map(|lapse| self.lives_from_us(*lapse));
        self.none_ahead_us = lives_from_us.max().unwrap_or(0);
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::rule::MAX_PERIOD_US;
    use crate::rule::{DAY_US, MS_US, SECOND_US};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_length_is_never_shortened(us in 0..=MAX_PERIOD_US) {
            let (stored, exact) = (Length::new(us).micros(), us <= 24 * DAY_US);
            let coarse = if exact { MS_US } else { SECOND_US };
            prop_assert!((us..us + coarse).contains(&stored), "{} for {}", stored, us);
            prop_assert_eq!(Length::new(stored).micros(), stored);
        }
    }

    #[test]
    fn a_length_of_centuries_is_cut_to_the_longest() {
        assert_eq!(Length::new(u64::MAX).micros(), MAX_PERIOD_US);
    }

    #[test]
    fn a_hold_lives_from_one_length_before_it_was_set() {
        let length = Length::new(30 * SECOND_US);
        for (now_s, lives) in [(39, false), (40, true), (70, true), (99, true), (100, false)] {
            assert_eq!(length.lives(100 * SECOND_US, now_s * SECOND_US), lives, "at {now_s}");
        }
    }
}
