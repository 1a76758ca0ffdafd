//! A track: data shared by the holds of one state.
//!
//! Each charge stores the number of its track, and the track stores the place of its state. After a
//! check has dropped or replaced the state, the track's charges give nothing back.

use super::hold::{Hold, Id};
use super::least::LeastDebts;
use crate::algorithm::Meter;
use crate::algorithm::log::Consumption;
use crate::heap::HeapVisitor;

#[derive(Clone, Debug)]
pub struct Track {
    /// The index of its state among the key's states; `None` if the state is gone.
    pub place: Option<u16>,
    /// The number of charges of holds.
    pub charges: u32,
    /// The sum of the charges' units.
    pub units: u64,
    pub kind: TrackKind,
}

/// What else is stored, depending on the state's algorithm.
#[derive(Clone, Debug)]
pub enum TrackKind {
    /// A window counter, or slots: nothing.
    Plain,
    /// A log: nothing; the charges store what their log rules need.
    Log,
    /// A token bucket: the least debts since its holds were taken.
    Bucket(LeastDebts),
    /// A leaky bucket: the id of the hold that queued last, if nothing queued after it.
    Queue { last: Option<Id> },
}

impl TrackKind {
    /// True if a hold's charge finds its units in the state by their time alone.
    pub const fn finds_units_by_stamp(&self) -> bool {
        match self {
            Self::Plain | Self::Log => true,
            Self::Bucket(_) | Self::Queue { .. } => false,
        }
    }
}

impl Track {
    /// A track without a state.
    pub const UNUSED: Self = Self { place: None, charges: 0, units: 0, kind: TrackKind::Plain };

    pub fn of(place: u16, meter: &Meter) -> Self {
        let kind = match meter {
            Meter::Log(_) => TrackKind::Log,
            Meter::Debt(debt) if debt.is_leaky() => TrackKind::Queue { last: None },
            Meter::Debt(_) => TrackKind::Bucket(LeastDebts::default()),
            Meter::Window(_)
            | Meter::Fixed(_)
            | Meter::FixedWithPast(_)
            | Meter::Interval(_)
            | Meter::Slots(_) => TrackKind::Plain,
        };
        Self { kind, place: Some(place), ..Self::UNUSED }
    }

    pub const fn is_in_use(&self) -> bool {
        self.place.is_some() || self.charges > 0
    }

    /// Records a consumption from the state. Before it, the state's
    /// [level](crate::algorithm::Algorithm::level) was `before`.
    /// A charged denial gets no turn, so it does not queue.
    pub fn note_consumption(&mut self, before: u128, consumption: Consumption) {
        match &mut self.kind {
            TrackKind::Bucket(leasts) => leasts.cut_to(before),
            TrackKind::Queue { last } if consumption == Consumption::Admitted => *last = None,
            TrackKind::Plain | TrackKind::Log | TrackKind::Queue { .. } => {}
        }
    }

    /// True if nothing queued after `hold` in the leaky bucket.
    pub fn queued_last(&self, hold: &Hold) -> bool {
        matches!(&self.kind, TrackKind::Queue { last: Some(id) } if id.as_bytes() == hold.id())
    }

    /// Forgets an ended hold if it queued last.
    pub fn forget_last(&mut self, hold: &Hold) {
        if let TrackKind::Queue { last } = &mut self.kind {
            last.take_if(|id| id.as_bytes() == hold.id());
        }
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        match &mut self.kind {
            TrackKind::Plain | TrackKind::Log | TrackKind::Queue { last: None } => {}
            TrackKind::Queue { last: Some(id) } => id.visit_heap(to),
            TrackKind::Bucket(leasts) => leasts.visit_heap(to),
        }
    }
}
