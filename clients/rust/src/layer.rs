//! The layer: what it is configured with, and how it asks the server.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use redis::aio::ConnectionLike;
use redis::{FromRedisValue, RedisError, cmd};
use tower_layer::Layer;

use crate::{Check, Decision, RateLimit};

/// How long a request waits for a decision, by default.
const PATIENCE: Duration = Duration::from_millis(250);

/// What becomes of a request that the server could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It passes, without limits: right where limits protect comfort.
    Allow,
    /// It is answered with 503: right where limits protect money or secrets.
    Refuse,
}

type ErrorHandler = dyn Fn(&RedisError) -> OnError + Send + Sync;

/// Wraps services so that the server decides which requests reach them.
pub struct RateLimitLayer<C, T> {
    pub(crate) inner: Arc<Inner<C, T>>,
}

pub(crate) struct Inner<C, T> {
    redis: C,
    rules: Vec<String>,
    pub target: T,
    patience: Duration,
    pub on_error: Arc<ErrorHandler>,
}

impl<C, T> RateLimitLayer<C, T> {
    /// Limits requests by these rules, such as `["10/s", "240/h"]`. `target` says what to check: the key that
    /// counts, or `None` for a request that is not limited.
    ///
    /// `redis` is any asynchronous connection that tasks can share, best a `ConnectionManager`, which connects
    /// again after a failure.
    pub fn new(redis: C, rules: impl IntoIterator<Item = impl Into<String>>, target: T) -> Self {
        Self {
            inner: Arc::new(Inner {
                redis,
                rules: rules.into_iter().map(Into::into).collect(),
                target,
                patience: PATIENCE,
                on_error: Arc::new(|_| OnError::Allow),
            }),
        }
    }
}

impl<C: Clone, T: Clone> RateLimitLayer<C, T> {
    /// How long a request waits for a decision before `on_error` is asked: 250 ms by default. A server that is
    /// gone or busy costs each request this much at most.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        Arc::make_mut(&mut self.inner).patience = patience;
        self
    }

    /// Chooses what becomes of a request that the server could not decide, and is the place to log why. By
    /// default such requests pass, because without its limiter an application should go on.
    ///
    /// Errors are a server that cannot be reached or does not answer in time, and its own, such as those about a
    /// rule that it cannot read.
    #[must_use]
    pub fn on_error(
        mut self,
        handler: impl Fn(&RedisError) -> OnError + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.inner).on_error = Arc::new(handler);
        self
    }
}

impl<C: ConnectionLike + Clone, T> Inner<C, T> {
    /// Asks the server, for as long as a request may wait.
    pub async fn decide(&self, check: Check) -> Result<Decision, RedisError> {
        let mut command = cmd("RL.CHECK");
        command.arg(check.key).arg("COST").arg(check.cost).arg("FULL");
        command.arg(check.rules.as_ref().unwrap_or(&self.rules));
        let mut redis = self.redis.clone();
        let answer = tokio::time::timeout(self.patience, redis.req_packed_command(&command)).await;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no decision in time");
        Ok(Decision::from_redis_value(answer.map_err(late)??)?)
    }
}

impl<C: Clone, T: Clone> Clone for Inner<C, T> {
    fn clone(&self) -> Self {
        Self {
            redis: self.redis.clone(),
            rules: self.rules.clone(),
            target: self.target.clone(),
            patience: self.patience,
            on_error: Arc::clone(&self.on_error),
        }
    }
}

impl<C, T> Clone for RateLimitLayer<C, T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C, T> fmt::Debug for RateLimitLayer<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { rules, patience, .. } = &*self.inner;
        f.debug_struct("RateLimitLayer").field("rules", rules).field("patience", patience).finish()
    }
}

impl<S, C, T> Layer<S> for RateLimitLayer<C, T> {
    type Service = RateLimit<S, C, T>;

    fn layer(&self, service: S) -> Self::Service {
        RateLimit { service, layer: self.clone() }
    }
}
