//! Reports outages and misconfigurations to the application's listeners, or else to its log.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tokio::time::Instant;

use crate::outage::Misconfiguration;
use crate::reply::{Source, Verdict};

/// The interval at which a misconfiguration, or that a key has too many holds, is reported while it
/// lasts.
const AGAIN: Duration = Duration::from_secs(60);

/// A node has gone away, or is back.
#[derive(Clone, Debug)]
pub struct OutageEvent {
    /// Whether it is away: no request asks it.
    pub away: bool,
    /// Its address.
    pub node: String,
    /// Why it is, or was, away.
    pub error: RedisError,
    /// How many requests got no decision from the server since it went away.
    pub answered: u64,
}

/// A check was decided.
#[derive(Clone, Debug)]
pub struct DecisionEvent {
    /// Who decided.
    pub source: Source,
    /// Whether the request passes.
    pub verdict: Verdict,
    /// The rule that decided, by its name or else its text, if that is known: the first one that denies,
    /// or the only one.
    pub rule: Option<String>,
    /// How long the check took, in milliseconds.
    pub ms: f64,
}

/// The server answers, but does not limit.
#[derive(Clone, Debug)]
pub struct MisconfiguredEvent {
    /// The reply. Its text may have keys and rules in it.
    pub error: RedisError,
    /// What to do about it.
    pub advice: &'static str,
    /// How many requests got no decision because of a misconfiguration since the last event.
    pub answered: u64,
}

pub type Listener<E> = Arc<dyn Fn(&E) + Send + Sync>;

#[derive(Default)]
pub struct Events {
    pub on_outage: Option<Listener<OutageEvent>>,
    pub on_misconfigured: Option<Listener<MisconfiguredEvent>>,
    pub on_decision: Option<Listener<DecisionEvent>>,
    /// The number of requests that got no decision from the server.
    answered: AtomicU64,
    /// The number of requests left undecided by a misconfiguration since the last report of one.
    untold: AtomicU64,
    /// When each misconfiguration, or else too many holds, was last reported.
    told: Mutex<HashMap<Option<Misconfiguration>, Instant>>,
}

impl Events {
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// A request got no decision from the server, because of this error.
    pub fn count(&self, error: &RedisError) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if Misconfiguration::of(error).is_some() {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reports an error that the server replied, if it is a misconfiguration.
    pub fn replied(&self, now: Instant, error: &RedisError) {
        let Some(misconfiguration) = Misconfiguration::of(error) else { return };
        if !self.is_due(now, Some(misconfiguration)) {
            return;
        }
        let (error, advice) = (error.clone(), misconfiguration.advice());
        let answered = self.untold.swap(0, Ordering::Relaxed);
        let event = MisconfiguredEvent { error, advice, answered };
        if !tell(self.on_misconfigured.as_ref(), &event) {
            let code = event.error.code().unwrap_or("AUTH");
            tracing::error!(code, answered, "the server does not limit: {advice}");
        }
    }

    /// A request got no hold, because its key has too many.
    pub fn lacked_a_hold(&self, now: Instant) {
        if self.is_due(now, None) {
            tracing::warn!(
                "a key has too many holds, see max-holds: a request cannot be given back"
            );
        }
    }

    fn is_due(&self, now: Instant, what: Option<Misconfiguration>) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let last = told.get(&what).map(|at| now.saturating_duration_since(*at));
        let is_due = last.is_none_or(|ago| ago >= AGAIN);
        if is_due {
            told.insert(what, now);
        }
        is_due
    }

    /// A node has gone away, or is back.
    pub fn changed(&self, away: bool, node: &str, error: RedisError, answered: u64) {
        let event = OutageEvent { away, node: node.to_string(), error, answered };
        if tell(self.on_outage.as_ref(), &event) {
            return;
        }
        let error = summary(&event.error);
        if away {
            tracing::warn!(node, error, "a server is away: the limiter probes it");
        } else {
            tracing::warn!(node, error, answered, "a server is back: the limiter asks it again");
        }
    }

    pub fn decided(&self, event: &DecisionEvent) {
        tell(self.on_decision.as_ref(), event);
    }
}

/// Calls the listener. A panic of the listener ends no request. `false`: there is no listener.
fn tell<E>(listener: Option<&Listener<E>>, event: &E) -> bool {
    listener.is_some_and(|listener| {
        let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
        true
    })
}

/// The part of an outage's error that a log may have: a server's text may have keys in it.
fn summary(error: &RedisError) -> String {
    match (error.kind(), error.code()) {
        (ErrorKind::Io, _) => error.to_string(),
        (_, Some(code)) => code.to_string(),
        _ => error.category().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misconfiguration_is_told_at_once_and_then_once_a_minute() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        let listener = move |event: &MisconfiguredEvent| {
            log.lock().unwrap().push((event.advice, event.answered));
            panic!("a fault of the listener");
        };
        let events = Events { on_misconfigured: Some(Arc::new(listener)), ..Events::default() };
        let of = |text: &str| {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            reply.extract_error().unwrap_err()
        };
        let start = Instant::now();
        for (after_s, text) in [
            (0, "NOAUTH Authentication required."),
            (1, "NOAUTH Authentication required."),
            (2, "OOM command not allowed"),
            (2, "NOPERM this user has no permissions"),
            (59, "NOAUTH Authentication required."),
            (60, "NOAUTH Authentication required."),
        ] {
            events.replied(start + Duration::from_secs(after_s), &of(text));
            events.count(&of(text));
        }
        let [password, rights] =
            [Misconfiguration::Password, Misconfiguration::Rights].map(Misconfiguration::advice);
        assert_eq!(*told.lock().unwrap(), [(password, 0), (rights, 2), (password, 2)]);
        assert_eq!(events.answered(), 6);
    }
}
