//! Which of a key's states has a track.

use crate::limit::algorithm::state::State;

/// The places of the states that have tracks, by the tracks' numbers. A charge finds its state
/// here at once, however many states there are.
#[derive(Clone, Debug)]
pub struct Places(Vec<Option<usize>>);

impl Places {
    pub fn of(states: &[State]) -> Self {
        let tracks = states.iter().filter_map(State::track).max();
        let mut places = vec![None; tracks.map_or(0, |most| usize::from(most).saturating_add(1))];
        for (index, state) in states.iter().enumerate() {
            let place = state.track().and_then(|number| places.get_mut(usize::from(number)));
            if let Some(place) = place {
                *place = Some(index);
            }
        }
        Self(places)
    }

    /// How many tracks there may be: more than each track's number.
    pub fn tracks(&self) -> usize {
        self.0.len()
    }

    /// The place of the state that has a track; `None` if no state has it.
    pub fn get(&self, track: u16) -> Option<usize> {
        self.0.get(usize::from(track)).copied().flatten()
    }
}
