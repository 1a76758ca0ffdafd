//! The saved form of a limiter: one versioned payload.
//!
//! ```text
//! | version: 1 byte | bincode (standard: little endian, variable integers) |
//! ```
//!
//! The types of `form` are not those in memory, so that a change in memory is no change
//! on disk. A change of these types is a new version, with golden payloads added to the
//! tests; every version stays readable.
//!
//! Decoding is total: any byte string gives a limiter or an error. It takes no more
//! memory than the value will hold, and is an error if there is not that much.
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
mod holds;
mod load;
#[cfg(any(test, fuzzing))]
pub mod parts;
mod save;

pub use self::error::DecodeError;
use self::error::{FIRST, WITH_BANS, WITH_HISTORY, WITH_HOLDS, WITH_NEEDS};
use self::form::{
    Bytes, SavedAccess, SavedBans, SavedLimiter, SavedLimiter3, SavedLimiter4, SavedLimiter5,
    SavedState, put, take,
};
use self::holds::{load_holds, save_holds};
use self::load::{load_access, load_bans, load_history, load_states};
use self::save::{save_history, save_meter};
use super::access::Access;
use super::bans::BanCount;
use super::limiter::Limiter;
use crate::rule::Name;
use std::num::NonZeroU64;

/// The saved form, in the lowest version that can hold the value, so that older
/// modules can read as many values as possible.
#[must_use]
pub fn encode(limiter: &Limiter) -> Vec<u8> {
    let (mut states, mut version) = (Vec::new(), FIRST);
    for state in limiter.states() {
        let name = state.name();
        let name = name.as_ref().map(Name::as_str);
        let meter = save_meter(state.meter());
        version = version.max(meter.since());
        put(&mut states, &SavedState { name, meter });
    }
    let access = limiter.access().map(|access| SavedAccess {
        exempt: access.kind == Access::Exempt,
        until_us: access.until_us,
        reason: &access.reason,
    });
    let ban_us = limiter.access().and_then(|access| access.ban_us).map(NonZeroU64::get);
    let history = limiter.history().map(save_history);
    let states = Bytes::from(states);
    if history.is_some() {
        version = version.max(WITH_HISTORY);
    }
    if ban_us.is_some() {
        version = version.max(WITH_NEEDS);
    }
    let holds = limiter.holds();
    if holds.is_some() {
        version = version.max(WITH_HOLDS);
    }
    let bans = limiter.bans().map(|&BanCount { bans, forgotten_us, span_us }| {
        version = WITH_BANS;
        SavedBans { bans, forgotten_us, span_us }
    });
    let mut payload = vec![version];
    if version < WITH_NEEDS {
        put(&mut payload, &SavedLimiter { states, access });
        if let Some(history) = history {
            put(&mut payload, &history);
        }
        return payload;
    }
    let saved = SavedLimiter3 { states, access, ban_us, history };
    if version < WITH_HOLDS {
        put(&mut payload, &saved);
        return payload;
    }
    let holds = holds.map(|holds| save_holds(limiter.states(), holds)).unwrap_or_default();
    let limiter = SavedLimiter4 { limiter: saved, holds };
    match bans {
        Some(bans) => put(&mut payload, &SavedLimiter5 { limiter, bans }),
        None => put(&mut payload, &limiter),
    }
    payload
}

/// Reads a saved form.
///
/// # Errors
/// [`DecodeError`] for any byte string that [`encode`] could not have written.
pub fn decode(payload: &[u8]) -> Result<Limiter, DecodeError> {
    let (&version, body) = payload.split_first().ok_or(DecodeError::Empty)?;
    let (mut holds, mut bans) = (Bytes::default(), None);
    let (saved, left) = match version {
        FIRST | WITH_HISTORY => {
            let (SavedLimiter { states, access }, left) = take(body)?;
            let (history, left) = match version {
                WITH_HISTORY => take(left).map(|(history, left)| (Some(history), left))?,
                _ => (None, left),
            };
            (SavedLimiter3 { states, access, ban_us: None, history }, left)
        }
        WITH_NEEDS => take(body)?,
        WITH_HOLDS => {
            let (saved, left): (SavedLimiter4<'_>, _) = take(body)?;
            holds = saved.holds;
            (saved.limiter, left)
        }
        WITH_BANS => {
            let (saved, left): (SavedLimiter5<'_>, _) = take(body)?;
            (holds, bans) = (saved.limiter.holds, Some(saved.bans));
            (saved.limiter.limiter, left)
        }
        version => return Err(DecodeError::Version(version)),
    };
    let history = saved.history.map(|history| load_history(&history)).transpose()?;
    if !left.is_empty() {
        return Err(DecodeError::Trailing(left.len()));
    }
    let mut states = load_states(&saved.states, version)?;
    let holds = load_holds(&holds, &mut states)?;
    if states.iter().any(|state| state.meter().is_empty() && state.track().is_none()) {
        return Err(DecodeError::Idle);
    }
    let ban_us = saved.ban_us;
    let access = saved.access.map(|access| load_access(access, ban_us)).transpose()?;
    let bans = bans.map(load_bans).transpose()?;
    let limiter = Limiter::from_parts(states, access, bans, history, holds);
    if limiter.is_empty() { Err(DecodeError::Idle) } else { Ok(limiter) }
}

#[cfg(test)]
mod tests;
