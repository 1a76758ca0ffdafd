//! The saved form of a limiter: one versioned payload.
//!
//! ```text
//! | version: 1 byte | bincode (standard: little endian, variable integers) |
//! ```
//!
//! The types of `form` are not those in memory, so a change in memory does not change the saved
//! form. A change of these types is a new version, with golden payloads added to the tests; every
//! released version stays readable.
//!
//! Decoding is total: any byte string gives a limiter or an error. It takes no more memory than the
//! value will, and fails if memory is short.
//!
//! ```text
//! error   versions, and why a payload is refused
//! form    what is saved, written and read
//! save    limiter -> what is saved
//! load    what is saved -> limiter
//! holds   the same for holds
//! parts   payloads for tests, any bytes as one part of them
//! ```

mod error;
mod form;
pub mod holds;
mod load;
#[cfg(any(test, fuzzing))]
pub mod parts;
mod save;

pub use self::error::DecodeError;
use self::error::VERSION;
use self::form::{SavedLimiter, put, take};
use self::holds::{load_holds, save_holds};
use self::load::{load_access, load_bans, load_history, load_states};
use self::save::{save_access, save_bans, save_history, save_states};
use super::limiter::Limiter;

/// Encodes a limiter in its saved form.
#[must_use]
pub fn encode(limiter: &Limiter) -> Vec<u8> {
    let saved = SavedLimiter {
        states: save_states(limiter.states()),
        access: limiter.access().map(save_access),
        history: limiter.history().map(save_history),
        holds: limiter.holds().map(save_holds).unwrap_or_default(),
        bans: limiter.bans().map(save_bans),
    };
    let mut payload = vec![VERSION];
    put(&mut payload, &saved);
    payload
}

/// Decodes a saved limiter.
///
/// # Errors
/// [`DecodeError`] for any byte string that [`encode`] could not have written.
pub fn decode(payload: &[u8]) -> Result<Limiter, DecodeError> {
    let (&version, body) = payload.split_first().ok_or(DecodeError::Empty)?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let (saved, left): (SavedLimiter<'_>, _) = take(body)?;
    let history = saved.history.map(|history| load_history(&history)).transpose()?;
    if !left.is_empty() {
        return Err(DecodeError::Trailing(left.len()));
    }
    let states = load_states(&saved.states)?;
    let holds = load_holds(&saved.holds, &states)?;
    let held = |place| holds.as_ref().is_some_and(|holds| holds.track_of(place).is_some());
    if (0..).zip(&states).any(|(place, state)| state.meter().is_empty() && !held(place)) {
        return Err(DecodeError::Idle);
    }
    let access = saved.access.map(load_access).transpose()?;
    let bans = saved.bans.map(load_bans).transpose()?;
    let limiter = Limiter::from_parts(states, access, bans, history, holds);
    if limiter.is_empty() { Err(DecodeError::Idle) } else { Ok(limiter) }
}

#[cfg(test)]
mod tests;
