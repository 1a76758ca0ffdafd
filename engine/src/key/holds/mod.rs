//! Holds: what checks were charged, stored so that it can be corrected, repeated or given back.
//!
//! ```text
//! Holds    rows    | hold | hold | hold | ...     in no order
//!          by id   rows in the order of ids       found by binary search
//!          by end  rows in the order of ends, each with its hold's length
//!          tracks  what the holds of one state have in common
//! ```
//!
//! The two orders are rings of 2 and 6 bytes a hold. An insertion makes O(log n) comparisons and
//! moves at most half of a ring: 30 kB for 10,000 holds. Balanced trees would move nothing, but take
//! 16 more bytes per hold and are no faster.
//!
//! ```text
//! hold         a hold, its charges, and what callers ask of it
//! living       which holds live at a time
//! ending       a hold ends: it is settled, or has lapsed
//! track        what the holds of one state have in common
//! least        the least debt of a token bucket since each of its holds was taken
//! lapsed_copy  a copy of a state in which holds have lapsed
//! charging     what a hold is charged on a state, and how settling corrects the charge
//! ```

mod charging;
mod ending;
mod hold;
mod lapsed_copy;
mod least;
mod living;
mod track;

use self::hold::{Lapse, Row};
use crate::algorithm::log::Consumption;
use crate::algorithm::{Meter, Moment};
use crate::heap::HeapVisitor;
use alloc::{collections::VecDeque, vec::Vec};
use core::ops::Range;
pub use hold::{
    Charge, Costs, Detail, Hold, HoldOption, HoldRequest, Id, Length, MAX_END_US, MAX_ID,
    Settlement, TrackNumber, hold_end_us,
};
pub use lapsed_copy::LapsedCopy;
pub use least::{LeastDebts, Position};
pub use track::{Track, TrackKind};

/// The most holds of a key, whatever the setting.
pub const MOST_HOLDS: usize = 50_000;

/// The number of tracks of deleted states that may stay until the holds on them end.
const MANY_ORPHANS: usize = 256;

/// The holds of a key; at least one.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    rows: Vec<Hold>,
    by_id: VecDeque<Row>,
    by_end: VecDeque<Lapse>,
    tracks: Vec<Track>,
    /// Each state's track number, in the order of the states; [`TrackNumber::NONE`] if it has none.
    numbers: Vec<TrackNumber>,
    /// The number of holds that give their charges back when they lapse.
    refunding: u32,
    /// The number of rules of all holds together: a rule with two holds counts twice.
    rules: u32,
    /// From this time on, no hold lies ahead of the clock; `living` says what that means.
    none_ahead_us: u64,
}

impl Holds {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn hold(&self, row: Row) -> Option<&Hold> {
        self.rows.get(usize::from(row))
    }

    /// An id's rank in the order of ids, or where to insert it.
    fn rank_of_id(&self, id: &[u8]) -> Result<usize, usize> {
        self.by_id.binary_search_by(|&row| self.hold(row).map_or(b"".as_slice(), Hold::id).cmp(id))
    }

    /// A hold's rank in the lapse order, or where to insert it.
    fn rank_of_end(&self, end_us: u64, id: &[u8]) -> Result<usize, usize> {
        self.by_end.binary_search_by(|lapse| {
            self.hold(lapse.row).map(|hold| (hold.end_us(), hold.id())).cmp(&Some((end_us, id)))
        })
    }

    fn row_of(&self, id: &[u8]) -> Option<Row> {
        self.by_id.get(self.rank_of_id(id).ok()?).copied()
    }

    /// The hold with this id, lapsed or not.
    pub fn find(&self, id: &[u8]) -> Option<&Hold> {
        self.hold(self.row_of(id)?)
    }

    /// The holds ordered by id.
    pub fn in_order_of_ids(&self) -> impl Iterator<Item = &Hold> {
        self.by_id.iter().filter_map(|&row| self.hold(row))
    }

    /// The holds in lapse order.
    pub fn in_order_of_ends(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        self.by_end.iter().filter_map(|lapse| self.hold(lapse.row))
    }

    /// True if any hold gives its charges back when it lapses.
    pub const fn any_refunds(&self) -> bool {
        self.refunding > 0
    }

    /// The range of ranks, in the lapse order, of the lapses after `now_us` and before `until`.
    pub fn lapses_between(&self, now_us: u64, until: Moment) -> Range<usize> {
        let end = match until {
            Moment::At(us) => self.count_ended(us.saturating_sub(1)),
            Moment::Never => self.len(),
        };
        self.count_ended(now_us)..end
    }

    /// When the hold at this rank in the lapse order lapses.
    pub fn end_at(&self, rank: usize) -> Option<u64> {
        self.hold(self.by_end.get(rank)?.row).map(Hold::end_us)
    }

    /// The holds of these ranks in the lapse order.
    fn of_ranks(&self, ranks: Range<usize>) -> impl Iterator<Item = &Hold> {
        self.by_end.range(ranks).filter_map(|lapse| self.hold(lapse.row))
    }

    /// The number of rules of all holds together: a rule with two holds counts twice.
    pub const fn rules(&self) -> usize {
        self.rules as usize
    }

    /// The number of stored holds that have reached their end at `now_us`.
    pub fn count_ended(&self, now_us: u64) -> usize {
        let has_ended = |lapse: &Lapse| self.hold(lapse.row).is_some_and(|it| it.has_ended(now_us));
        self.by_end.partition_point(has_ended)
    }

    /// When the last hold lapses.
    pub fn last_end_us(&self) -> u64 {
        self.by_end.back().and_then(|lapse| self.hold(lapse.row)).map_or(0, Hold::end_us)
    }

    /// The rank in the order of ids at which to add a hold. `None` if a hold has this id already, or
    /// if the key is full.
    pub fn free_rank(&self, id: &[u8]) -> Option<usize> {
        self.rank_of_id(id).err().filter(|_| self.len() < MOST_HOLDS)
    }

    /// Adds a hold of this length at its [free rank](Self::free_rank) in the order of ids.
    pub fn add(&mut self, by_id: usize, hold: Hold, length: Length) {
        let Ok(row) = u16::try_from(self.rows.len()) else { return };
        let by_end = self.rank_of_end(hold.end_us(), hold.id()).unwrap_or_else(|rank| rank);
        self.count(&hold);
        for charge in hold.charges().iter().filter(|charge| charge.units > 0) {
            let track = self.track_mut(charge.track).map(|track| &mut track.kind);
            if let Some(TrackKind::Queue { last }) = track {
                *last = Some(Id::new(hold.id()));
            }
        }
        // Grows by an eighth only, since a key may have thousands of holds.
        if self.rows.len() == self.rows.capacity() {
            let more = (self.rows.len() / 8).max(2);
            self.rows.reserve_exact(more);
            self.by_id.reserve_exact(more);
            self.by_end.reserve_exact(more);
        }
        self.note_length(hold.end_us(), length);
        self.rows.push(hold);
        self.by_id.insert(by_id, row);
        self.by_end.insert(by_end, Lapse { row, length });
    }

    /// Adds a hold to the totals.
    fn count(&mut self, hold: &Hold) {
        self.refunding = self.refunding.saturating_add(hold.refunds().into());
        self.rules = self.rules.saturating_add(hold.rules());
        for charge in hold.charges() {
            let Some(track) = self.track_mut(charge.track) else { continue };
            track.charges = track.charges.saturating_add(1);
            track.units = track.units.saturating_add(charge.units.into());
        }
    }

    /// Moves the end of a hold, and sets its length.
    pub fn renew(&mut self, id: &[u8], end_us: u64, length: Length) {
        let Some(row) = self.row_of(id) else { return };
        let Some(before_us) = self.hold(row).map(Hold::end_us) else { return };
        if let Ok(rank) = self.rank_of_end(before_us, id) {
            self.by_end.remove(rank);
        }
        if let Some(hold) = self.rows.get_mut(usize::from(row)) {
            hold.set_end_us(end_us);
        }
        let rank = self.rank_of_end(end_us, id).unwrap_or_else(|rank| rank);
        self.by_end.insert(rank, Lapse { row, length });
        self.note_length(end_us, length);
    }

    pub fn track(&self, number: TrackNumber) -> Option<&Track> {
        self.tracks.get(usize::from(number.0))
    }

    pub fn track_mut(&mut self, number: TrackNumber) -> Option<&mut Track> {
        self.tracks.get_mut(usize::from(number.0))
    }

    /// The track number of the state at a place, if holds were charged on it.
    pub fn track_of(&self, place: usize) -> Option<TrackNumber> {
        self.numbers.get(place).copied().filter(|&number| number != TrackNumber::NONE)
    }

    /// The place of the state that was charged; `None` if it is gone.
    pub fn place_of(&self, charge: &Charge) -> Option<usize> {
        self.track(charge.track)?.place.map(usize::from)
    }

    /// Records that a request consumed from the state at a place. Before that, the state's
    /// [level](crate::algorithm::Algorithm::level) was `before`.
    pub fn note_consumption(&mut self, place: usize, before: u128, consumption: Consumption) {
        if let Some(track) = self.track_of(place).and_then(|number| self.track_mut(number)) {
            track.note_consumption(before, consumption);
        }
    }

    /// Detaches the state at a place from its track, because another state replaces it or no charge is
    /// left on it.
    pub fn replace_state(&mut self, place: usize) {
        let Some(number) = self.numbers.get_mut(place) else { return };
        let number = core::mem::replace(number, TrackNumber::NONE);
        if let Some(track) = self.track_mut(number) {
            track.place = None;
        }
    }

    /// Call this when the state at a place is removed. The states after it move up.
    pub fn remove_state(&mut self, place: usize) {
        if place >= self.numbers.len() {
            return;
        }
        self.replace_state(place);
        self.numbers.remove(place);
        for moved in self.tracks.iter_mut().filter_map(|track| track.place.as_mut()) {
            if usize::from(*moved) > place {
                *moved = moved.saturating_sub(1);
            }
        }
    }

    /// Drops the tracks of deleted states if there are many. A name can get new states again and
    /// again while holds on its old states live. The charges on dropped tracks are never corrected.
    pub fn drop_orphans(&mut self) {
        let orphans = self.tracks.iter().filter(|track| track.place.is_none() && track.charges > 0);
        if orphans.count() <= MANY_ORPHANS {
            return;
        }
        let Self { rows, tracks, .. } = self;
        for charge in rows.iter_mut().flat_map(Hold::charges_mut) {
            if tracks.get(usize::from(charge.track.0)).is_none_or(|track| track.place.is_none()) {
                (charge.track, charge.detail) = (TrackNumber::NONE, Detail::least(None));
            }
        }
        for track in tracks.iter_mut().filter(|track| track.place.is_none()) {
            *track = Track::UNUSED;
        }
    }

    /// The track of the state at a place, created if missing. `None` if no number is left for it.
    pub fn track_for(&mut self, place: usize, meter: &Meter) -> Option<TrackNumber> {
        self.track_of(place).or_else(|| self.new_track(place, meter))
    }

    fn new_track(&mut self, place: usize, meter: &Meter) -> Option<TrackNumber> {
        let free = self.tracks.iter().position(|track| !track.is_in_use());
        let track = Track::of(u16::try_from(place).ok()?, meter);
        let number = TrackNumber(u16::try_from(free.unwrap_or(self.tracks.len())).ok()?);
        if number == TrackNumber::NONE {
            return None;
        }
        match self.tracks.get_mut(usize::from(number.0)) {
            Some(free) => *free = track,
            None => {
                // Grows by one at first, since most keys with holds have one track.
                if self.tracks.len() == self.tracks.capacity() {
                    self.tracks.reserve_exact((self.tracks.len() / 2).max(1));
                }
                self.tracks.push(track);
            }
        }
        if place >= self.numbers.len() {
            self.numbers.resize(place.saturating_add(1), TrackNumber::NONE);
        }
        *self.numbers.get_mut(place)? = number;
        Some(number)
    }

    /// The longest window of the log rules under which a log's holds were taken.
    pub fn longest_window_us(&self, track: TrackNumber) -> u64 {
        let charges = self.rows.iter().flat_map(Hold::charges);
        let of_track = charges.filter(|charge| charge.track == track);
        of_track.map(|charge| charge.detail.window_us()).max().unwrap_or(0)
    }

    /// Sets every stamp after `latest_us` to `latest_us`, because the log entries that they refer to
    /// moved there.
    pub fn move_stamps(&mut self, track: TrackNumber, latest_us: u64) {
        let charges = self.rows.iter_mut().flat_map(Hold::charges_mut);
        for charge in charges.filter(|charge| charge.track == track) {
            charge.stamp_us = charge.stamp_us.min(latest_us);
        }
    }

    /// Drops the data of ended holds from each track where it is most of the data. All charges of
    /// ended holds must have been released.
    pub fn compact_sparse(&mut self) {
        let Self { rows, tracks, .. } = self;
        for (track, number) in tracks.iter_mut().zip((0..).map(TrackNumber)) {
            let TrackKind::Bucket(leasts) = &mut track.kind else { continue };
            if leasts.len() / 2 <= (track.charges as usize).saturating_add(16) {
                continue;
            }
            let charges = rows.iter_mut().flat_map(Hold::charges_mut);
            let of_track = charges.filter(|charge| charge.track == number);
            let mut kept: Vec<(Position, &mut Charge)> =
                of_track.filter_map(|charge| Some((charge.detail.position()?, charge))).collect();
            kept.sort_unstable_by_key(|&(position, _)| position);
            let mut compacted = LeastDebts::with_room(kept.len());
            for (position, charge) in kept {
                charge.detail = Detail::least(compacted.push(leasts.get(position)));
            }
            *leasts = compacted;
        }
    }

    /// Stores loaded holds (ordered by id) with their lengths. The key must have none yet.
    #[cfg(feature = "saved")]
    pub fn fill(&mut self, loaded: Vec<(Hold, Length)>) {
        for (hold, _) in &loaded {
            self.count(hold);
        }
        self.order(loaded);
    }

    /// Replaces all holds with these (ordered by id, and already counted).
    fn order(&mut self, holds: Vec<(Hold, Length)>) {
        let lengths: Vec<Length>;
        (self.rows, lengths) = holds.into_iter().unzip();
        self.by_id = self.rows.iter().zip(0..).map(|(_, row)| row).collect();
        let lapses = self.by_id.iter().zip(lengths).map(|(&row, length)| Lapse { row, length });
        let mut by_end: Vec<Lapse> = lapses.collect();
        // The sort is stable, so holds with the same end stay ordered by id.
        by_end.sort_by_key(|lapse| self.hold(lapse.row).map_or(0, Hold::end_us));
        self.by_end = by_end.into();
        self.note_lengths();
        self.shrink_to_fit();
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        to.vec(&mut self.rows);
        to.ring(&mut self.by_id);
        to.ring(&mut self.by_end);
        to.vec(&mut self.tracks);
        to.vec(&mut self.numbers);
        for hold in &mut self.rows {
            hold.visit_heap(to);
        }
        for track in &mut self.tracks {
            track.visit_heap(to);
        }
    }
}
