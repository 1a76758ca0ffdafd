//! The end of holds: one hold is settled, or all holds that have lapsed end.
//!
//! A hold that ends is removed from the rows and from both orders. Its charges still count in their
//! tracks until they are corrected and [released](Holds::release).

use super::hold::{Length, Row};
use super::{Id, Track};
use crate::key::{Charge, Hold, Holds};
use alloc::vec::Vec;

/// If at least one in this number of holds has lapsed, the lapsed holds end in one pass instead of
/// one by one.
const MANY: usize = 64;

impl Holds {
    /// Ends the hold with an id.
    pub fn end(&mut self, id: &[u8]) -> Option<Hold> {
        let by_id = self.rank_of_id(id).ok()?;
        let row = self.by_id.get(by_id).copied()?;
        let end_us = self.hold(row)?.end_us();
        let by_end = self.rank_of_end(end_us, id).ok()?;
        self.by_id.remove(by_id);
        self.by_end.remove(by_end);
        let last = u16::try_from(self.rows.len().checked_sub(1)?).ok()?;
        if row != last {
            self.renumber(last, row);
        }
        let hold = self.rows.swap_remove(usize::from(row));
        self.uncount(&hold);
        self.shrink();
        Some(hold)
    }

    /// Ends the holds that have lapsed at `now_us`, in the order of their ends.
    pub fn end_lapsed(&mut self, now_us: u64) -> Vec<Hold> {
        if self.lapsed(now_us).count().saturating_mul(MANY) < self.len() {
            let any_ahead = self.any_ahead(now_us);
            let ids: Vec<Id> = self.lapsed(now_us).map(|hold| Id::new(hold.id())).collect();
            let lapsed = ids.iter().filter_map(|id| self.end(id.as_bytes())).collect();
            if any_ahead {
                self.note_lengths();
            }
            return lapsed;
        }
        let mut lengths: Vec<(Row, Length)> =
            self.by_end.iter().map(|lapse| (lapse.row, lapse.length)).collect();
        lengths.sort_unstable_by_key(|&(row, _)| row);
        let rows = core::mem::take(&mut self.rows).into_iter().zip(lengths);
        let mut rows: Vec<Option<(Hold, Length)>> =
            rows.map(|(hold, (_, length))| Some((hold, length))).collect();
        let by_id = self.by_id.iter().filter_map(|&row| rows.get_mut(usize::from(row))?.take());
        let (left, lapsed): (Vec<_>, Vec<_>) =
            by_id.partition(|(hold, length)| length.lives(hold.end_us(), now_us));
        let mut lapsed: Vec<Hold> = lapsed.into_iter().map(|(hold, _)| hold).collect();
        // The sort is stable, so holds with the same end stay ordered by id.
        lapsed.sort_by_key(Hold::end_us);
        for hold in &lapsed {
            self.uncount(hold);
        }
        self.order(left);
        lapsed
    }

    /// Subtracts a hold from the totals.
    fn uncount(&mut self, hold: &Hold) {
        self.refunding = self.refunding.saturating_sub(hold.refunds().into());
        self.rules = self.rules.saturating_sub(hold.rules());
    }

    /// Removes the charge of an ended hold from its track.
    pub fn release(&mut self, hold: &Hold, charge: &Charge) {
        let Some(track) = self.tracks.get_mut(usize::from(charge.track.0)) else { return };
        track.forget_last(hold);
        track.charges = track.charges.saturating_sub(1);
        track.units = track.units.saturating_sub(charge.units.into());
        if track.charges == 0 {
            let place = track.place;
            *track = Track::UNUSED;
            if let Some(place) = place {
                self.replace_state(place.into());
            }
        }
    }

    /// Renumbers a hold's row in both orders.
    fn renumber(&mut self, from: Row, to: Row) {
        let Some(hold) = self.hold(from) else { return };
        let by_id = self.rank_of_id(hold.id());
        let by_end = self.rank_of_end(hold.end_us(), hold.id());
        if let Some(row) = by_id.ok().and_then(|rank| self.by_id.get_mut(rank)) {
            *row = to;
        }
        if let Some(lapse) = by_end.ok().and_then(|rank| self.by_end.get_mut(rank)) {
            lapse.row = to;
        }
    }

    /// Frees memory once most of it is unused.
    fn shrink(&mut self) {
        let half = self.rows.capacity() / 2;
        if self.rows.len() < half.saturating_sub(half / 8) {
            self.shrink_to_fit();
        }
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.rows.shrink_to_fit();
        self.by_id.shrink_to_fit();
        self.by_end.shrink_to_fit();
    }
}
