//! Decides whether to ask the server.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisError;
use tokio::time::Instant;

/// After this number of outages in a row nobody asks the server ...
const FAILURES: u32 = 3;
/// ... for this long; then one request tries.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// The last outage, and when to try again.
    last: Option<(RedisError, Instant)>,
    trying: bool,
}

impl State {
    const fn is_open(&self) -> bool {
        self.failures >= FAILURES
    }
}

/// What an answer of the server changed.
#[derive(Debug)]
pub enum Change {
    Opened(RedisError),
    Closed(RedisError),
}

/// The right to ask. Dropped without an answer, it leaves the try to the next request.
#[derive(Debug)]
pub struct Try<'a> {
    breaker: &'a Breaker,
    is_only: bool,
}

impl Breaker {
    pub fn is_open(&self) -> bool {
        self.state().is_open()
    }

    /// The right to ask the server, or the last outage.
    pub fn enter(&self, now: Instant) -> Result<Try<'_>, RedisError> {
        let mut state = self.state();
        let is_only = state.is_open();
        match &state.last {
            Some((error, retry_at)) if is_only && (state.trying || now < *retry_at) => {
                return Err(error.clone());
            }
            _ => state.trying |= is_only,
        }
        Ok(Try { breaker: self, is_only })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Try<'_> {
    /// The server replied.
    pub fn succeeded(self) -> Option<Change> {
        let mut state = self.breaker.state();
        let was_open = state.is_open();
        state.failures = 0;
        let (error, _) = state.last.take()?;
        was_open.then_some(Change::Closed(error))
    }

    /// An outage.
    pub fn failed(self, now: Instant, error: &RedisError) -> Option<Change> {
        let mut state = self.breaker.state();
        state.failures = state.failures.saturating_add(1);
        state.last = now.checked_add(PAUSE).map(|retry_at| (error.clone(), retry_at));
        (state.failures == FAILURES).then(|| Change::Opened(error.clone()))
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        if self.is_only {
            self.breaker.state().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> RedisError {
        std::io::Error::from(std::io::ErrorKind::TimedOut).into()
    }

    #[test]
    fn three_outages_stop_the_requests_for_a_second_and_then_one_tries() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        let fail = |at| breaker.enter(at).unwrap().failed(at, &error());
        assert!(fail(start).is_none() && fail(start).is_none());
        assert!(breaker.enter(start).unwrap().succeeded().is_none(), "not in a row");
        assert!(fail(start).is_none() && fail(start).is_none() && !breaker.is_open());
        assert!(matches!(fail(start), Some(Change::Opened(_))));
        let later = start + PAUSE;
        assert!(breaker.enter(later - Duration::from_millis(1)).is_err());
        let only = breaker.enter(later).unwrap();
        assert!(breaker.enter(later).is_err(), "one request tries");
        drop(only);
        assert!(breaker.enter(later).unwrap().failed(later, &error()).is_none());
        assert!(breaker.enter(later).is_err(), "for another second");
        let only = breaker.enter(later + PAUSE).unwrap();
        assert!(matches!(only.succeeded(), Some(Change::Closed(_))));
        assert!(breaker.enter(later).is_ok() && !breaker.is_open());
    }
}
