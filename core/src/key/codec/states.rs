//! Saves and loads states.

use crate::algorithm::{Meter, State};
use crate::rule::Name;
use crate::saved::{DecodeError, load_name, put, take, within};
use alloc::vec::Vec;

pub fn save_states(states: &[State]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for state in states {
        put(&mut bytes, &state.name().as_ref().map(Name::as_str));
        state.meter().save(&mut bytes);
    }
    bytes
}

/// The states of a limiter. They are not counted first, because the list takes less memory than the
/// states' own allocations.
pub fn load_states(mut saved: &[u8]) -> Result<Vec<State>, DecodeError> {
    let mut states = Vec::new();
    while !saved.is_empty() {
        let state = load_state(&mut saved)?;
        states.try_reserve(1).map_err(|_| DecodeError::NoMemory(states.len()))?;
        states.push(state);
    }
    states.shrink_to_fit();
    Ok(states)
}

fn load_state(from: &mut &[u8]) -> Result<State, DecodeError> {
    let name: Option<&str> = take(from)?;
    let meter = Meter::load(from)?;
    let name = name.map(load_name).transpose()?;
    within(name.is_none() || !matches!(meter, Meter::Log(_)), "the name of a log")?;
    Ok(State::named(name.as_ref(), meter))
}
