//! A hold: it keeps the charge of a check open, to be corrected later.

use core::time::Duration;
use ratelimit_engine::check::Refusal;
use ratelimit_engine::key::{self, HoldOption, MAX_ID};
use ratelimit_engine::rule::{MAX_PERIOD_US, MAX_UNITS, MS_US};
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

/// How settling a hold corrects its charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The charge stands.
    AsCharged,
    /// The charge is given back.
    Refund,
    /// The real cost of the request in units, which may be more or less than its charge. The charge
    /// of a rule with `cost=` stands.
    Cost(u32),
}

impl Settlement {
    pub(super) fn of_engine(self) -> key::Settlement<'static> {
        match self {
            Self::AsCharged => key::Settlement::AsCharged,
            Self::Refund => key::Settlement::Refund,
            Self::Cost(units) => {
                key::Settlement::Costs { default: Some(units.min(MAX_UNITS)), named: &[] }
            }
        }
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
    /// The limiter has 50,000 holds, or has a hold with this id at another cost. Nothing changed.
    #[error(transparent)]
    Refused(Refusal),
}
