//! Decides whether to ask the server.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisError;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// After this number of outages in a row no request asks the server ...
const FAILURES: u32 = 3;
/// ... for this long; then one request tries in each such time.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Breaker {
    state: Mutex<State>,
    opens: Notify,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// The last outage.
    error: Option<RedisError>,
    retry_at: Option<Instant>,
}

impl State {
    const fn is_open(&self) -> bool {
        self.failures >= FAILURES
    }

    /// The last outage, if no request may ask the server now.
    fn rest(&self, now: Instant) -> Option<&RedisError> {
        let rests = self.is_open() && self.retry_at.is_some_and(|at| now < at);
        self.error.as_ref().filter(|_| rests)
    }
}

/// What an answer of the server changed.
#[derive(Debug)]
pub enum Change {
    Opened(RedisError),
    Closed(RedisError),
}

/// The right to ask.
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
        state.retry_at = now.checked_add(PAUSE); // for all requests but this one
        Ok(Try { breaker: self, is_only: state.is_open() })
    }

    /// Ends when the breaker opens, even if it opens before the first poll.
    pub fn opens(&self) -> Notified<'_> {
        self.opens.notified()
    }

    /// The last outage.
    pub fn last(&self) -> Option<RedisError> {
        self.state().error.clone()
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
        let error = state.error.take()?;
        was_open.then_some(Change::Closed(error))
    }

    /// An outage. After the breaker has opened, an outage does not delay the next try.
    pub fn failed(self, now: Instant, error: &RedisError) -> Option<Change> {
        let mut state = self.breaker.state();
        state.error = Some(error.clone());
        state.failures = state.failures.saturating_add(1);
        let opens = state.failures == FAILURES;
        if opens {
            state.retry_at = now.checked_add(PAUSE);
        }
        drop(state);
        opens.then(|| {
            self.breaker.opens.notify_waiters();
            Change::Opened(error.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    fn error() -> RedisError {
        std::io::Error::from(std::io::ErrorKind::TimedOut).into()
    }

    #[test]
    fn limiters_stop_asking_alike_in_all_languages() {
        let all: Json = serde_json::from_str(include_str!("../../cases/breaker.json")).unwrap();
        for case in all["cases"].as_array().unwrap() {
            let (breaker, start) = (Breaker::default(), Instant::now());
            let asking = || Try { breaker: &breaker, is_only: false };
            for call in case["calls"].as_array().unwrap() {
                let now = start + Duration::from_millis(call["at_ms"].as_u64().unwrap());
                let was_open = breaker.is_open();
                if let Some(asks) = call["asks"].as_bool() {
                    let asking = breaker.enter(now);
                    assert_eq!(asking.is_ok(), asks, "{call}");
                    assert!(asking.map_or(true, |asking| asking.is_only() == was_open), "{call}");
                } else if let Some(open) = call["failed"].as_bool() {
                    let change = asking().failed(now, &error());
                    assert_eq!(matches!(change, Some(Change::Opened(_))), open && !was_open);
                    assert_eq!(breaker.is_open(), open, "{call}");
                } else {
                    let change = asking().succeeded();
                    assert_eq!(matches!(change, Some(Change::Closed(_))), was_open);
                    assert_eq!(json!(breaker.is_open()), call["served"], "{call}");
                }
            }
        }
    }
}
