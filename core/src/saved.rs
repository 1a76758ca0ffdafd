//! A limiter as bytes.

use crate::limiter::Limiter;
use alloc::vec::Vec;
use ratelimit_engine::key::{self, DecodeError};
use thiserror::Error;

impl Limiter {
    /// Saves what was consumed: bytes that name their version. Later releases read them.
    ///
    /// ```
    /// use ratelimit_core::{Limiter, Rules};
    /// use std::time::Duration;
    ///
    /// let (rules, now): (Rules, _) = ("1/h".parse()?, Duration::from_secs(1_800_000_000));
    /// let mut limiter = Limiter::new();
    /// assert!(limiter.check(&rules, now).is_allowed());
    /// let mut limiter = Limiter::from_bytes(&limiter.to_bytes())?;
    /// assert!(!limiter.check(&rules, now).is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        key::encode(&self.0)
    }

    /// Loads what [`to_bytes`](Self::to_bytes) saved. Takes no more memory than the limiter.
    ///
    /// # Errors
    /// [`SavedError`] if the bytes are cut off, exceed a bound or are of an unknown version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SavedError> {
        match key::decode(bytes) {
            Err(DecodeError::Idle) if bytes == Self::new().to_bytes() => Ok(Self::new()),
            decoded => decoded.map(Self).map_err(SavedError),
        }
    }
}

/// Why bytes are no saved limiter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct SavedError(DecodeError);
