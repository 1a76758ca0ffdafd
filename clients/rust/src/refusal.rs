//! The answers to requests that do not reach the service.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use redis::RedisError;

use crate::fields::quoted;
use crate::outage::{is_outage, is_saturated};
use crate::reply::{Report, Source, Verdict};

/// Why a request does not reach the service. Outer layers find it in the extensions of the response.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// It was denied.
    Denied(Report),
    /// The request for a decision was wrong; the server is away, under
    /// [`Outage::Raise`](crate::Outage::Raise); or this process [is saturated](is_saturated). The error's
    /// text is for the log, not for clients.
    Failed(RedisError),
}

impl Refusal {
    /// 429 if a rule denies, 403 if the key is blocked, 503 if nobody could decide, 500 if the request
    /// for a decision was wrong.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Denied(Report { source: Source::Outage, .. }) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Denied(Report { verdict: Verdict::Blocked, .. }) => StatusCode::FORBIDDEN,
            Self::Denied(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Failed(error) if is_outage(error) || is_saturated(error) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Answers requests that do not reach the service. Any `Fn(&Refusal) -> Response<R>` can.
pub trait Refuse<R> {
    /// The answer. The layer adds the fields about limits, and `Retry-After`.
    fn refuse(&self, why: &Refusal) -> Response<R>;
}

impl<R, F: Fn(&Refusal) -> Response<R>> Refuse<R> for F {
    fn refuse(&self, why: &Refusal) -> Response<R> {
        self(why)
    }
}

/// Answers with the status of the [`Refusal`] and a problem of RFC 9457.
#[derive(Clone, Copy, Debug, Default)]
pub struct Problem;

impl<R: From<String>> Refuse<R> for Problem {
    fn refuse(&self, why: &Refusal) -> Response<R> {
        let status = why.status();
        let mut response = Response::new(body(why, status).into());
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

fn body(why: &Refusal, status: StatusCode) -> String {
    let (title, number) = (status.canonical_reason().unwrap_or_default(), status.as_u16());
    match why {
        Refusal::Denied(report) if status == StatusCode::TOO_MANY_REQUESTS => {
            let denies = report.rules.iter().filter(|rule| rule.denies && !rule.shadow);
            let names = denies.map(|rule| quoted(rule.label())).collect::<Vec<_>>().join(", ");
            format!(
                r#"{{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Too many requests", "status": {number}, "violated-policies": [{names}]}}"#
            )
        }
        _ => format!(r#"{{"title": "{title}", "status": {number}}}"#),
    }
}
