//! The layer: which requests it checks, and how it tells clients.

use std::fmt;
use std::sync::Arc;

use http::{Request, StatusCode};
use redis::RedisResult;

use crate::check::Check;
use crate::fields::Headers;
use crate::limiter::RateLimiter;
use crate::refusal::Problem;
use crate::rules::Rules;

/// Which requests count. If not all of them count, each check takes a hold while the service works,
/// for an hour at most. A request that does not count then gets its cost back. If the process dies,
/// its requests count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// All.
    #[default]
    All,
    /// Requests answered with a status from 400 on, or not at all.
    Failed,
    /// Requests answered with a status below 400.
    Successful,
}

impl Count {
    /// Whether a request with this answer counts.
    pub(crate) fn counts(self, status: Option<StatusCode>) -> bool {
        let failed = status.is_none_or(|status| status.as_u16() >= 400);
        match self {
            Self::All => true,
            Self::Failed => failed,
            Self::Successful => !failed,
        }
    }
}

/// Finds what to check for a request. Any `Fn(&Request<B>)` that returns a [`Check`], or an
/// `Option` of one, is a target.
pub trait Target<B> {
    /// The check of this request; `None` lets it pass.
    ///
    /// # Errors
    /// The reason why there is no check: the log has it, and the request is answered with 500.
    fn check(&self, request: &Request<B>) -> RedisResult<Option<Check>>;
}

impl<B, F, C> Target<B> for F
where
    F: Fn(&Request<B>) -> C,
    C: Into<Option<Check>>,
{
    fn check(&self, request: &Request<B>) -> RedisResult<Option<Check>> {
        Ok(self(request).into())
    }
}

/// Wraps services so that the limiter decides which requests reach them.
#[must_use]
pub struct RateLimitLayer<T, F = Problem> {
    pub(crate) limits: Arc<Limits<T, F>>,
}

pub(crate) struct Limits<T, F> {
    pub limiter: RateLimiter,
    /// The rules of all requests, if the target always gives the same.
    pub rules: Rules,
    pub target: T,
    pub headers: Headers,
    pub count: Count,
    pub refuse: F,
}

impl<T> Limits<T, Problem> {
    pub fn new(limiter: RateLimiter, target: T, rules: Rules) -> Self {
        let (headers, count) = (Headers::default(), Count::default());
        Self { limiter, rules, target, headers, count, refuse: Problem }
    }
}

impl<T> RateLimitLayer<T> {
    /// Lets the limiter decide on each request. `target` says what to check: keys and rules, or
    /// `None` for a request that is not limited.
    pub fn new(limiter: RateLimiter, target: T) -> Self {
        Self::of(Limits::new(limiter, target, Rules::default()))
    }
}

impl<T: Clone, F: Clone> RateLimitLayer<T, F> {
    /// Which fields tell clients their limits: those of draft 11 by default.
    pub fn headers(self, headers: Headers) -> Self {
        Self::of(Limits { headers, ..self.limits() })
    }

    /// Which requests count: all by default.
    ///
    /// # Errors
    /// A rule with `ban=`: requests are charged before their outcome is known, so several at once would
    /// ban a client although all of them end well. Rules that a function gives are tested with each
    /// request.
    pub fn count(self, count: Count) -> RedisResult<Self> {
        let limits = self.limits();
        if count != Count::All {
            Rules::refuse_bans(limits.rules.texts().iter().map(String::as_str))?;
        }
        Ok(Self::of(Limits { count, ..limits }))
    }

    /// What answers a request that does not reach the service: [`Problem`] by default. See
    /// [`Refuse`](crate::Refuse).
    pub fn refuse<G>(self, refuse: G) -> RateLimitLayer<T, G> {
        let Limits { limiter, rules, target, headers, count, .. } = self.limits();
        RateLimitLayer::of(Limits { limiter, rules, target, headers, count, refuse })
    }

    pub(crate) fn limits(self) -> Limits<T, F> {
        let Limits { limiter, rules, target, headers, count, refuse } = &*self.limits;
        Limits {
            limiter: limiter.clone(),
            rules: rules.clone(),
            target: target.clone(),
            headers: *headers,
            count: *count,
            refuse: refuse.clone(),
        }
    }
}

impl<T, F> RateLimitLayer<T, F> {
    pub(crate) fn of(limits: Limits<T, F>) -> Self {
        Self { limits: Arc::new(limits) }
    }
}

impl<T, F> Clone for RateLimitLayer<T, F> {
    fn clone(&self) -> Self {
        Self { limits: Arc::clone(&self.limits) }
    }
}

impl<T, F> fmt::Debug for RateLimitLayer<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", &self.limits.limiter)
            .finish_non_exhaustive()
    }
}
