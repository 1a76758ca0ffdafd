//! The gRPC method `ShouldRateLimit`.

use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use metrics::{counter, histogram};
use redis::RedisError;
use tokio::sync::watch;
use tonic::{Response, Status};
use tower_redis_ratelimit::{Source, is_outage, is_saturated};

use crate::config::Config;
use crate::decision::{Decider, Decision};
use crate::metering;
use crate::request::{Asked, Request};
use crate::response;

pub struct Service {
    pub config: watch::Receiver<Arc<Config>>,
    pub decider: Decider,
    pub prefix: String,
    /// Whether clients are told their limit.
    pub has_fields: bool,
    /// Whether every request passes.
    pub shadow: bool,
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let start = Instant::now();
        let config = Arc::clone(&self.config.borrow());
        let request = Request::read(request.get_ref(), &config, &self.prefix);
        let request = request.inspect_err(|_| metering::failed("service_error"))?;
        let decision = self.decider.decide(&request.asked).await.map_err(failed)?;
        count(&request.asked, &decision);
        let mut response = response::of(&request, &decision, self.has_fields);
        if self.shadow && !decision.is_allowed {
            counter!("ratelimit_service_global_shadow_mode").increment(1);
            response.overall_code = Code::Ok.into();
            response.response_headers_to_add.retain(|field| field.key != "Retry-After");
        }
        histogram!("ratelimit_service_response_time_seconds").record(start.elapsed());
        Ok(Response::new(response))
    }
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

fn count(asked: &[Asked], decision: &Decision) {
    let asked = asked.iter().zip(&decision.outcomes).filter(|(one, _)| !one.gives_back);
    for (Asked { limit, hits, .. }, outcome) in asked {
        let counters = &limit.counters;
        counters.hits.increment(*hits);
        if outcome.is_denied || outcome.is_shadow {
            counters.over.increment(*hits);
        }
        if outcome.is_denied && decision.source == Source::Denial {
            counters.remembered.increment(*hits);
        }
        if outcome.is_shadow {
            counters.shadow.increment(*hits);
        }
        if decision.is_allowed && !outcome.is_shadow {
            counters.within.increment(*hits);
        }
    }
}
