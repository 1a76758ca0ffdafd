//! Decides whether to ask the server.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisError;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// After this number of outages in a row no request asks the server ...
const FAILURES: u32 = 3;
/// ... for this long; then one request tries.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Breaker {
    state: Mutex<State>,
    opens: Notify,
}

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

    /// The last outage, if no request may ask the server now.
    fn rest(&self, now: Instant) -> Option<&RedisError> {
        let (error, retry_at) = self.last.as_ref()?;
        (self.is_open() && (self.trying || now < *retry_at)).then_some(error)
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

    /// The last outage as an error, if no request may ask the server now.
    pub fn rest(&self, now: Instant) -> Result<(), RedisError> {
        self.state().rest(now).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The right to ask the server, or the last outage.
    pub fn enter(&self, now: Instant) -> Result<Try<'_>, RedisError> {
        let mut state = self.state();
        if let Some(error) = state.rest(now) {
            return Err(error.clone());
        }
        let is_only = state.is_open();
        state.trying |= is_only;
        Ok(Try { breaker: self, is_only })
    }

    /// Ends when the breaker opens, even if it opens before the first poll.
    pub fn opens(&self) -> Notified<'_> {
        self.opens.notified()
    }

    /// The last outage.
    pub fn last(&self) -> Option<RedisError> {
        self.state().last.as_ref().map(|(error, _)| error.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Try<'_> {
    /// Whether this is the only request that asks.
    pub const fn is_only(&self) -> bool {
        self.is_only
    }

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
        // A later failure, such as that of a wait, does not delay the next try.
        if self.is_only || !state.is_open() {
            state.last = now.checked_add(PAUSE).map(|retry_at| (error.clone(), retry_at));
        }
        state.failures = state.failures.saturating_add(1);
        let opens = state.failures == FAILURES;
        drop(state);
        opens.then(|| {
            self.breaker.opens.notify_waiters();
            Change::Opened(error.clone())
        })
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

    #[test]
    fn failures_after_the_third_outage_do_not_delay_the_next_try() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        let [first, second, third, wait, other] = [(); 5].map(|()| breaker.enter(start).unwrap());
        for one in [first, second, third] {
            one.failed(start, &error());
        }
        let late = start + PAUSE - Duration::from_millis(1);
        assert!(wait.failed(late, &error()).is_none());
        let only = breaker.enter(start + PAUSE).unwrap();
        assert!(only.is_only());
        assert!(other.failed(start + PAUSE, &error()).is_none());
        assert!(breaker.enter(start + PAUSE).is_err(), "one request tries");
        only.failed(start + PAUSE, &error());
        assert!(breaker.enter(late + PAUSE).is_err(), "for another second");
        assert!(breaker.enter(start + PAUSE + PAUSE).is_ok());
    }
}
