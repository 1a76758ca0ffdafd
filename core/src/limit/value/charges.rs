//! What each hold was charged, as it is compared, saved and shown: by the state, not by
//! the numbers of rows, tracks and positions, which differ from server to server.

use crate::limit::algorithm::state::State;
use crate::limit::holds::{Charge, Hold, Holds, Places, Position, TrackKind};

/// A charge of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeView {
    /// Which of the key's states; `None` if it is gone.
    pub state: Option<usize>,
    pub stamp_us: u64,
    pub units: u32,
    pub limit: u32,
    pub by_default: bool,
    pub shadow: bool,
    pub detail: DetailView,
}

/// What only charges of some algorithms have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetailView {
    Plain,
    /// Of a log: the longest window of the hold's log rules.
    Log {
        window_us: u64,
    },
    /// Of a token bucket: how many holds that still live were charged before it, and the
    /// least debt since, in fractions of a unit.
    Least {
        older: u32,
        owed: u128,
    },
    /// Of a leaky bucket: how long after its stamp its turn comes, and whether nothing
    /// queued after it.
    Turn {
        ms: u32,
        is_last: bool,
    },
}

/// Sees charges by the states of their key.
pub struct ChargeViews<'a> {
    holds: &'a Holds,
    places: Places,
    /// The positions of live holds in each track, in order.
    positions: Vec<Vec<Position>>,
}

impl<'a> ChargeViews<'a> {
    pub fn new(states: &[State], holds: &'a Holds) -> Self {
        let places = Places::of(states);
        let positions = vec![vec![]; places.tracks()];
        let mut views = Self { holds, places, positions };
        for charge in holds.in_order_of_ids().flat_map(Hold::charges) {
            let positions = views.positions.get_mut(usize::from(charge.track));
            if let (Some(positions), Some(position)) = (positions, charge.detail.position())
                && holds.least(charge).is_some()
            {
                positions.push(position);
            }
        }
        views.positions.iter_mut().for_each(|positions| positions.sort_unstable());
        views
    }

    /// The charges of one of the holds.
    pub fn of(&self, hold: &'a Hold) -> impl Iterator<Item = ChargeView> {
        hold.charges().iter().map(|charge| self.view(hold, charge))
    }

    fn view(&self, hold: &Hold, charge: &Charge) -> ChargeView {
        let state = self.places.get(charge.track);
        let Charge { stamp_us, units, limit, by_default, shadow, detail: _, track: _ } = *charge;
        let detail = state.map_or(DetailView::Plain, |_| self.detail(hold, charge));
        ChargeView { state, stamp_us, units, limit, by_default, shadow, detail }
    }

    fn detail(&self, hold: &Hold, charge: &Charge) -> DetailView {
        let number = usize::from(charge.track);
        let Some(track) = self.holds.track(charge.track) else { return DetailView::Plain };
        match (&track.kind, charge.detail.position()) {
            (TrackKind::Bucket(leasts), Some(position)) => {
                let older =
                    self.positions.get(number).map(|all| all.partition_point(|&p| p < position));
                let older = older.and_then(|older| u32::try_from(older).ok()).unwrap_or(u32::MAX);
                DetailView::Least { older, owed: leasts.get(position) }
            }
            (TrackKind::Queue { .. }, _) => DetailView::Turn {
                ms: charge.detail.turn_ms(),
                is_last: self.holds.queued_last(charge.track, hold.id()),
            },
            (TrackKind::Log, _) => DetailView::Log { window_us: charge.detail.window_us() },
            (TrackKind::Plain | TrackKind::Bucket(_), _) => DetailView::Plain,
        }
    }
}

/// Whether two keys have equal holds.
pub fn equal(own: (&[State], Option<&Holds>), other: (&[State], Option<&Holds>)) -> bool {
    let ((own_states, Some(own)), (other_states, Some(other))) = (own, other) else {
        return own.1.is_none() && other.1.is_none();
    };
    let (ours, theirs) = (ChargeViews::new(own_states, own), ChargeViews::new(other_states, other));
    let alike = |(hold, twin): (&Hold, &Hold)| {
        hold.id() == twin.id()
            && hold.end_us() == twin.end_us()
            && hold.refunds() == twin.refunds()
            && hold.log_names() == twin.log_names()
            && ours.of(hold).eq(theirs.of(twin))
    };
    own.len() == other.len() && own.in_order_of_ids().zip(other.in_order_of_ids()).all(alike)
}
