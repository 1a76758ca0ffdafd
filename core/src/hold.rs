//! A hold: it keeps the charge of a check open, to be corrected later.

use core::time::Duration;
use ratelimit_engine::check::Refusal as EngineRefusal;
use ratelimit_engine::key::{HoldOption, MAX_ID};
use ratelimit_engine::rule::{MAX_PERIOD_US, MS_US};
use thiserror::Error;

/// The id of a hold, and how long it lasts.
///
/// [`Limiter::hold`](crate::Limiter::hold) takes it with a check. A hold that is neither settled
/// nor renewed in time lapses. Then its slots come back. Its charge stands or, if the hold is
/// [`refunding`](Self::refunding), is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold<'a>(pub(super) HoldOption<'a>);

impl<'a> Hold<'a> {
    /// A hold that lasts 1 ms to 366 days. Its id has 1 to 64 bytes, and is unique among the holds of
    /// a limiter.
    ///
    /// # Errors
    /// [`HoldError::Id`] and [`HoldError::Ttl`], if these bounds are exceeded.
    pub fn new<I: AsRef<[u8]> + ?Sized>(id: &'a I, ttl: Duration) -> Result<Self, HoldError> {
        let id = id.as_ref();
        if !(1..=MAX_ID).contains(&id.len()) {
            return Err(HoldError::Id { bytes: id.len() });
        }
        let hold_us = u64::try_from(ttl.as_micros()).ok();
        let hold_us = hold_us.filter(|us| (MS_US..=MAX_PERIOD_US).contains(us));
        let hold_us = hold_us.ok_or(HoldError::Ttl { ttl })?;
        Ok(Self(HoldOption { id, hold_us, refund: false }))
    }

    /// Makes the hold give back its charge when it lapses.
    #[must_use]
    pub const fn refunding(self) -> Self {
        Self(HoldOption { refund: true, ..self.0 })
    }
}

/// Why a hold cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The id is empty or too long.
    #[error("the id of the hold is {bytes} bytes long, expected 1..{MAX_ID}")]
    Id {
        /// The length of the id.
        bytes: usize,
    },
    /// The hold would be too short or too long.
    #[error("the hold lasts {ttl:?}, expected 1ms..366d")]
    Ttl {
        /// What was given.
        ttl: Duration,
    },
    /// The limiter has 50,000 holds, or holds on 200,000 rules in total. Nothing changed.
    #[error("{0}")]
    Full(#[source] Refusal),
    /// A live hold with this id was taken at another cost. Nothing changed.
    #[error("{0}")]
    OtherCost(#[source] Refusal),
}

impl HoldError {
    /// The error of a check that the engine refused.
    pub(crate) fn of(why: EngineRefusal) -> Self {
        match why {
            EngineRefusal::OtherCost { .. } => Self::OtherCost(Refusal(why)),
            _ => Self::Full(Refusal(why)),
        }
    }
}

/// Why a limiter refused a hold, as a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct Refusal(EngineRefusal);
