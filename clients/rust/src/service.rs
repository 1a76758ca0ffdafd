//! The service: asks before each request, and answers those that are refused.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use tokio::runtime::Handle;
use tower_service::Service;

use crate::layer::Limits;
use crate::refusal::{Problem, Refusal, Refuse};
use crate::{Check, Count, RateLimitLayer, RateLimiter, Report, Target, fields};

/// A service whose requests the limiter decides first. [`RateLimitLayer`] makes it.
#[derive(Debug)]
pub struct RateLimit<S, T, F = Problem> {
    pub(crate) service: S,
    pub(crate) layer: RateLimitLayer<T, F>,
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
            let Limits { limiter, target, headers, count, refuse } = &*limits;
            let check = match target.check(&request) {
                Ok(Some(check)) => check,
                Ok(None) => return service.call(request).await,
                Err(error) => return Ok(refused(refuse, Refusal::Failed(error))),
            };
            let report = match limiter.check_all(check.clone()).await {
                Ok(report) if report.is_allowed() => report,
                Ok(report) => {
                    let mut response = refused(refuse, Refusal::Denied(report.clone()));
                    fields::add(&report, *headers, response.headers_mut());
                    return Ok(response);
                }
                Err(error) => return Ok(refused(refuse, Refusal::Failed(error))),
            };
            let mut charge =
                Charge { limiter: limiter.clone(), check, report, count: *count, status: None };
            if let Some(turn) = charge.report.wait.filter(|wait| !wait.is_zero()) {
                tokio::time::sleep(turn).await;
            }
            request.extensions_mut().insert(charge.report.clone());
            let mut response = service.call(request).await?;
            charge.status = Some(response.status());
            fields::add(&charge.report, *headers, response.headers_mut());
            Ok(response)
        })
    }
}

fn refused<R>(refuse: &impl Refuse<R>, why: Refusal) -> Response<R> {
    let mut response = refuse.refuse(&why);
    response.extensions_mut().insert(why);
    response
}

/// What a request was charged, until it has been answered or its client has gone.
struct Charge {
    limiter: RateLimiter,
    check: Check,
    report: Report,
    count: Count,
    status: Option<StatusCode>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.count.counts(self.status) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let Self { limiter, check, report, .. } = self;
            let (limiter, check, report) = (limiter.clone(), check.clone(), report.clone());
            // The request is over: nobody hears of an error.
            runtime.spawn(async move { limiter.give_back(&check, &report).await.ok() });
        }
    }
}
