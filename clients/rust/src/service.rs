//! The service: asks before each request, and answers those that are denied.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use redis::aio::ConnectionLike;
use tower_service::Service;

use crate::{Decision, OnError, RateLimitLayer, Target, Verdict, fields};

/// A service whose requests the server decides first. [`RateLimitLayer`] makes it.
#[derive(Debug)]
pub struct RateLimit<S, C, T> {
    pub(crate) service: S,
    pub(crate) layer: RateLimitLayer<C, T>,
}

impl<S: Clone, C, T> Clone for RateLimit<S, C, T> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), layer: self.layer.clone() }
    }
}

impl<S, C, T, B, R> Service<Request<B>> for RateLimit<S, C, T>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    C: ConnectionLike + Clone + Send + Sync + 'static,
    T: Target<B> + Send + Sync + 'static,
    B: Send + 'static,
    R: From<String>,
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
        let limits = self.layer.inner.clone();
        Box::pin(async move {
            let Some(check) = limits.target.check(&request) else {
                return service.call(request).await;
            };
            let decision = match limits.decide(check).await {
                Ok(decision) => decision,
                Err(error) => match (limits.on_error)(&error) {
                    OnError::Allow => return service.call(request).await,
                    OnError::Refuse => return Ok(refusal()),
                },
            };
            if decision.verdict != Verdict::Allowed {
                return Ok(denial(&decision));
            }
            if let Some(turn) = decision.wait.filter(|wait| !wait.is_zero()) {
                tokio::time::sleep(turn).await;
            }
            request.extensions_mut().insert(decision.clone());
            let mut response = service.call(request).await?;
            fields::add(&decision, response.headers_mut());
            Ok(response)
        })
    }
}

/// The answer to a request that is denied.
fn denial<R: From<String>>(decision: &Decision) -> Response<R> {
    let mut response = Response::new(fields::problem(decision).into());
    *response.status_mut() = match decision.verdict {
        Verdict::Blocked => StatusCode::FORBIDDEN,
        Verdict::Allowed | Verdict::Limited => StatusCode::TOO_MANY_REQUESTS,
    };
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    fields::add(decision, response.headers_mut());
    response
}

/// The answer to a request that was not decided.
fn refusal<R: From<String>>() -> Response<R> {
    let mut response = Response::new(String::from("No decision of the rate limiter\n").into());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}
