//! The service: asks the limiter before each request, and answers the refused ones.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::RETRY_AFTER;
use http::{Request, Response};
use redis::RedisError;
use tower_layer::Layer;
use tower_service::Service;

use crate::check::Check;
use crate::fields;
use crate::layer::{Count, Limits, RateLimitLayer, Target};
use crate::limiter::RateLimiter;
use crate::outage::{is_outage, is_saturated};
use crate::refusal::{Problem, Refusal, Refuse};
use crate::settlement::Settlement;

/// A service that asks the limiter before it serves a request. [`RateLimitLayer`] makes it.
#[derive(Debug)]
pub struct RateLimit<S, T, F = Problem> {
    service: S,
    layer: RateLimitLayer<T, F>,
}

impl<S, T, F> Layer<S> for RateLimitLayer<T, F> {
    type Service = RateLimit<S, T, F>;

    fn layer(&self, service: S) -> Self::Service {
        RateLimit { service, layer: self.clone() }
    }
}

impl<S: Clone, T, F> Clone for RateLimit<S, T, F> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), layer: self.layer.clone() }
    }
}

impl<S, T, F, B, R> Service<Request<B>> for RateLimit<S, T, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    T: Target<B> + Send + Sync + 'static,
    F: Refuse<R> + Send + Sync + 'static,
    B: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The service that is ready serves this request; its clone waits for the next.
        let clone = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, clone);
        let limits = self.layer.limits.clone();
        Box::pin(async move {
            let Limits { limiter, target, headers, count, refuse, .. } = &*limits;
            let check = match target.check(&request) {
                Ok(Some(check)) => check,
                Ok(None) => return service.call(request).await,
                Err(error) => return Ok(failed(refuse, limiter, error)),
            };
            let decided = match count {
                Count::All => limiter.check_all(check).await.map(|report| (report, None)),
                Count::Failed | Count::Successful => {
                    let settlement = settlement(count.counts(None), &check);
                    let charged = limiter.charge(&check, settlement).await;
                    charged.map(|(report, receipt)| (report, Some((receipt, check))))
                }
            };
            let (report, charge) = match decided {
                Ok((report, charge)) if report.is_allowed() => (report, charge),
                Ok((report, _)) => {
                    let mut response = refused(refuse, Refusal::Denied(report.clone()));
                    fields::add(&report, *headers, response.headers_mut());
                    return Ok(response);
                }
                Err(error) => return Ok(failed(refuse, limiter, error)),
            };
            if let Some(turn) = report.wait.filter(|wait| !wait.is_zero()) {
                tokio::time::sleep(turn).await;
            }
            request.extensions_mut().insert(report.clone());
            let mut response = service.call(request).await?;
            if let Some((mut receipt, check)) = charge {
                receipt.settlement = settlement(count.counts(Some(response.status())), &check);
            }
            fields::add(&report, *headers, response.headers_mut());
            Ok(response)
        })
    }
}

/// How a request's hold ends. If the request counts and the application asked for the hold, the
/// application itself settles it.
fn settlement(counts: bool, check: &Check) -> Option<Settlement> {
    match (counts, check.hold) {
        (false, _) => Some(Settlement::Refund),
        (true, None) => Some(Settlement::AsCharged),
        (true, Some(_)) => None,
    }
}

/// The log has the error; the client learns nothing of it.
fn failed<R>(refuse: &impl Refuse<R>, limiter: &RateLimiter, error: RedisError) -> Response<R> {
    if is_saturated(&error) {
        tracing::warn!("a request is refused: this process is saturated");
    } else if !is_outage(&error) {
        tracing::error!(%error, "a request cannot be checked");
    } else if !limiter.away() {
        // The limiter logs that the server is away, but not each request after that.
        tracing::warn!(code = error.code(), "a request is refused: the server gives no decision");
    }
    let is_undecided = is_saturated(&error) || is_outage(&error);
    let mut response = refused(refuse, Refusal::Failed(error));
    if is_undecided {
        response.headers_mut().insert(RETRY_AFTER, 1.into());
    }
    response
}

fn refused<R>(refuse: &impl Refuse<R>, why: Refusal) -> Response<R> {
    let mut response = refuse.refuse(&why);
    response.extensions_mut().insert(why);
    response
}
