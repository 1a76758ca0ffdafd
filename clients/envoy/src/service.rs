//! The gRPC method `ShouldRateLimit`.

use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use metrics::counter;
use prost::DecodeError;
use redis::RedisError;
use tokio::sync::watch;
use tonic::Status;
use tower_redis_ratelimit::{is_outage, is_saturated};

use crate::config::Config;
use crate::decision::{Decider, Decision};
use crate::metering;
use crate::request::{Asked, Request, Way};
use crate::response::{self, FieldNames};
use crate::wire::RateLimitRequest;

pub struct Service {
    pub config: watch::Receiver<Arc<Config>>,
    pub decider: Decider,
    pub prefix: String,
    /// The fields by which clients are told their limit, if they are.
    pub fields: Option<FieldNames>,
    /// Whether every request passes.
    pub shadow: bool,
    /// The part of a limit above which hits count as near it.
    pub near: f64,
}

impl Service {
    /// Answers and measures a request.
    pub async fn answer(
        &self,
        request: Result<RateLimitRequest, DecodeError>,
    ) -> Result<RateLimitResponse, Status> {
        let start = Instant::now();
        let answer = self.decide(request).await;
        metering::answered(start.elapsed());
        answer
    }

    async fn decide(
        &self,
        request: Result<RateLimitRequest, DecodeError>,
    ) -> Result<RateLimitResponse, Status> {
        let config = Arc::clone(&self.config.borrow());
        let request = request.map_err(|error| {
            tracing::warn!(%error, "a request cannot be decoded");
            Status::invalid_argument("the request cannot be decoded")
        });
        let request = request.and_then(|request| {
            if !config.has(&request.domain) {
                metering::unknown_domain(&request.domain);
            }
            Request::read(&request, &config, &self.prefix)
        });
        let request = request.inspect_err(|_| metering::failed("service_error"))?;
        let decision = self.decider.decide(&request.asked).await.map_err(failed)?;
        self.count(&request.asked, &decision);
        let mut response = response::of(&request, &decision, self.fields.as_ref());
        if self.shadow && !decision.is_allowed {
            counter!("ratelimit_service_global_shadow_mode").increment(1);
            response.overall_code = Code::Ok.into();
            response.response_headers_to_add.retain(|field| field.key != "Retry-After");
        }
        Ok(response)
    }

    fn count(&self, asked: &[Asked], decision: &Decision) {
        let asked =
            asked.iter().zip(&decision.outcomes).filter(|(one, _)| one.way != Way::GiveBack);
        for (Asked { limit, hits, way, .. }, outcome) in asked {
            let counters = &limit.counters;
            counters.hits.increment(*hits);
            if outcome.is_denied || outcome.is_shadow {
                counters.over.increment(*hits);
            }
            if outcome.is_remembered {
                counters.remembered.increment(*hits);
            }
            if outcome.is_shadow && decision.is_allowed {
                counters.shadow.increment(*hits);
            }
            let is_charged = decision.is_allowed || (*way == Way::Charge && !outcome.is_denied);
            if is_charged && !outcome.is_shadow {
                counters.within.increment(*hits);
                if let Some(rule) = &outcome.rule {
                    let used = rule.limit.saturating_sub(rule.remaining);
                    counters.near.increment(near(*hits, used, rule.limit, self.near));
                }
            }
        }
    }
}

/// How many of these hits, the last of the used units, are above this part of the limit.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
fn near(hits: u64, used: u64, limit: u64, part: f64) -> u64 {
    // Limits are at most 1,000,000,000: a float is exact.
    let threshold = (limit as f64 * part).floor() as u64;
    used.saturating_sub(threshold).min(hits)
}

/// Envoy, and perhaps its log, gets only the kind of an error.
#[allow(clippy::needless_pass_by_value, reason = "callers have no other use for it")]
fn failed(error: RedisError) -> Status {
    if is_outage(&error) || is_saturated(&error) {
        metering::failed("redis_error");
        return Status::unavailable("Redis or Valkey gave no decision");
    }
    metering::failed("service_error");
    tracing::error!(%error, "a decision was refused");
    Status::internal("the decision was refused, see the log")
}
