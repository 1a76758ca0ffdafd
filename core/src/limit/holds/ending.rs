//! The end of holds: one is settled, or those lapse whose time has passed.
//!
//! A hold leaves the rows and both orders when it ends. Its charges still count in their
//! tracks until each is [released](Holds::release), after it was corrected.

use super::{Charge, Hold, Holds, NO_TRACK, Row, Track, TrackKind};
use std::borrow::Cow;

/// If more than one hold of so many has lapsed, all rows move at once instead of one by one.
const MANY: usize = 64;

/// A hold that has ended.
#[derive(Debug)]
pub struct Ended<'h> {
    pub hold: Cow<'h, Hold>,
    /// The tracks of leaky buckets in which nothing queued after it.
    pub(super) queued_last: Vec<u16>,
}

impl Ended<'_> {
    /// Whether nothing queued after a charge of it on a leaky bucket.
    pub fn queued_last(&self, charge: &Charge) -> bool {
        self.queued_last.contains(&charge.track)
    }
}

impl Holds {
    /// Ends the hold with an id.
    pub fn end(&mut self, id: &[u8]) -> Option<Ended<'static>> {
        let by_id = self.place_of_id(id).ok()?;
        let row = self.by_id.get(by_id).copied()?;
        let end_us = self.hold(row)?.end_us();
        let by_end = self.place_of_end(end_us, id).ok()?;
        self.by_id.remove(by_id);
        self.by_end.remove(by_end);
        let queued_last = forget_last(&mut self.tracks, self.rows.get(usize::from(row))?, row);
        let last = u16::try_from(self.rows.len().checked_sub(1)?).ok()?;
        if row != last {
            self.renumber(last, row);
        }
        let hold = self.rows.swap_remove(usize::from(row));
        let moved = self.rows.get(usize::from(row)).into_iter().flat_map(Hold::charges);
        for charge in moved {
            if let Some(track) = self.tracks.get_mut(usize::from(charge.track)) {
                track.moved(last, row);
            }
        }
        self.uncount(&hold);
        self.shrink();
        Some(Ended { hold: Cow::Owned(hold), queued_last })
    }

    /// Ends the holds that have lapsed at a time, in the order in which they lapse.
    pub fn end_lapsed(&mut self, now_us: u64) -> Vec<Ended<'static>> {
        let lapsed = self.lapsed(now_us);
        if lapsed.saturating_mul(MANY) < self.len() {
            return (0..lapsed).filter_map(|_| self.end_first()).collect();
        }
        let lapsed: Vec<Row> = self.by_end.drain(..lapsed).collect();
        let rows = lapsed.iter().filter_map(|&row| Some((self.rows.get(usize::from(row))?, row)));
        let queued_last: Vec<Vec<u16>> =
            rows.map(|(hold, row)| forget_last(&mut self.tracks, hold, row)).collect();
        let holds = self.remove(&lapsed);
        holds.iter().for_each(|hold| self.uncount(hold));
        let ended = holds.into_iter().zip(queued_last);
        ended.map(|(hold, queued_last)| Ended { hold: Cow::Owned(hold), queued_last }).collect()
    }

    /// Takes a hold off what is known of all.
    fn uncount(&mut self, hold: &Hold) {
        self.refunding = self.refunding.saturating_sub(hold.refunds().into());
        self.rules = self.rules.saturating_sub(hold.rules());
    }

    fn end_first(&mut self) -> Option<Ended<'static>> {
        let id: Box<[u8]> = self.in_order_of_ends().next()?.id().into();
        self.end(&id)
    }

    /// Takes rows out, which the order of lapses has no more. The others move together.
    fn remove(&mut self, gone: &[Row]) -> Vec<Hold> {
        let mut holds: Vec<Option<Hold>> =
            std::mem::take(&mut self.rows).into_iter().map(Some).collect();
        let mut taken = |&row: &Row| holds.get_mut(usize::from(row))?.take();
        let removed = gone.iter().filter_map(&mut taken).collect();
        let mut next: Row = 0;
        let mut moved: Vec<Option<Row>> = Vec::with_capacity(holds.len());
        for hold in &holds {
            moved.push(hold.as_ref().map(|_| next));
            next = next.saturating_add(hold.is_some().into());
        }
        self.rows = holds.into_iter().flatten().collect();
        let to = |row: Row| moved.get(usize::from(row)).copied().flatten();
        self.by_id = self.by_id.iter().filter_map(|&row| to(row)).collect();
        self.by_end = self.by_end.iter().filter_map(|&row| to(row)).collect();
        for track in &mut self.tracks {
            if let TrackKind::Queue { last } = &mut track.kind {
                *last = last.and_then(to);
            }
        }
        self.rows.shrink_to_fit();
        self.by_id.shrink_to_fit();
        self.by_end.shrink_to_fit();
        removed
    }

    /// Takes the charge of an ended hold off its track.
    pub fn release(&mut self, charge: &Charge) {
        let Some(track) = self.tracks.get_mut(usize::from(charge.track)) else { return };
        track.charges = track.charges.saturating_sub(1);
        track.units = track.units.saturating_sub(charge.units.into());
        if track.charges == 0 {
            let place = track.place.map(usize::from);
            *track = Track::UNUSED;
            if let Some(number) = place.and_then(|place| self.numbers.get_mut(place)) {
                *number = NO_TRACK;
            }
            self.unused = self.unused.saturating_add(1);
            self.pop_unused();
        }
    }

    /// Lets both orders find a hold in another row.
    fn renumber(&mut self, from: Row, to: Row) {
        let Some(hold) = self.hold(from) else { return };
        let by_id = self.place_of_id(hold.id());
        let by_end = self.place_of_end(hold.end_us(), hold.id());
        if let Some(row) = by_id.ok().and_then(|place| self.by_id.get_mut(place)) {
            *row = to;
        }
        if let Some(row) = by_end.ok().and_then(|place| self.by_end.get_mut(place)) {
            *row = to;
        }
    }

    /// Frees memory once most of it is unused.
    fn shrink(&mut self) {
        let half = self.rows.capacity() / 2;
        if self.rows.len() < half.saturating_sub(half / 8) {
            self.rows.shrink_to_fit();
            self.by_id.shrink_to_fit();
            self.by_end.shrink_to_fit();
        }
    }
}

/// The tracks on which a hold queued last; they forget it.
pub(super) fn forget_last(tracks: &mut [Track], hold: &Hold, row: Row) -> Vec<u16> {
    let mut found = Vec::new();
    for number in hold.charges().iter().map(|charge| charge.track) {
        let track = tracks.get_mut(usize::from(number));
        if let Some(TrackKind::Queue { last }) = track.map(|track| &mut track.kind)
            && *last == Some(row)
        {
            *last = None;
            found.push(number);
        }
    }
    found
}
