//! Numbers for Prometheus. Numbers that the reference also has keep the reference's names.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Label, counter, describe_counter, describe_histogram, histogram};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tower_redis_ratelimit::RateLimiter;

use crate::wire::Entry;

/// The bounds of the response time's buckets, in seconds.
const BUCKETS: [f64; 12] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0];

/// Starts to count. Events before that are not counted.
pub fn start() -> Result<PrometheusHandle, BuildError> {
    let counts = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    let described = [
        ("rate_limit_total_hits", "Hits of requests that this limit was checked for."),
        ("rate_limit_within_limit", "Hits of requests that passed."),
        ("rate_limit_near_limit", "Hits within the limit, but above NEAR_LIMIT_RATIO of it."),
        ("rate_limit_over_limit", "Hits of requests that this limit denied, also in shadow mode."),
        (
            "rate_limit_over_limit_with_local_cache",
            "Hits that were denied without asking the server.",
        ),
        ("rate_limit_shadow_mode", "Hits that passed only because of the limit's shadow mode."),
        ("rate_limit_domain_not_found", "Requests of a domain without a configuration."),
        ("total_requests", "Requests of Envoy."),
        ("should_rate_limit_error", "Requests without an answer, by err_type."),
        ("outage", "Requests that were answered while the server gave no decision."),
        ("global_shadow_mode", "Denied requests that passed by SHADOW_MODE."),
        ("config_load_success", "Configurations that were read."),
        ("config_load_error", "Configurations that were refused."),
    ];
    for (name, what) in described {
        describe_counter!(format!("ratelimit_service_{name}"), what);
    }
    describe_histogram!("ratelimit_service_response_time_seconds", "How long answers took.");
    Ok(counts)
}

/// Makes room for new response times, even if nobody reads them, and copies the limiter's count of
/// outages.
pub async fn keep_up(counts: PrometheusHandle, limiter: RateLimiter) {
    loop {
        counts.run_upkeep();
        counter!("ratelimit_service_outage").absolute(limiter.outages());
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// The counters of a limit.
#[derive(Clone, Debug)]
pub struct Counters {
    pub hits: Counter,
    pub within: Counter,
    pub near: Counter,
    pub over: Counter,
    pub remembered: Counter,
    pub shadow: Counter,
}

impl Counters {
    /// The counters of a limit that a request brings. The labels have the values of its entries, as in
    /// the reference, but clients choose values: after the first 1,000 the labels have only the keys.
    pub fn brought(domain: &[u8], entries: &[Entry]) -> Self {
        let path = |name: fn(&Entry) -> String| {
            let names = entries.iter().map(name);
            [text(domain)].into_iter().chain(names).collect::<Vec<_>>()
        };
        let whole = path(|entry| match &*text(&entry.value) {
            "" => text(&entry.key),
            value => format!("{}_{value}", text(&entry.key)),
        });
        if is_kept(&whole) { Self::of(&whole) } else { Self::of(&path(|entry| text(&entry.key))) }
    }

    /// The labels are `domain`, and `key1`, `key2` and so on for the levels of the configuration.
    pub fn of(path: &[String]) -> Self {
        let name = |at| if at == 0 { "domain".to_string() } else { format!("key{at}") };
        let labels = path.iter().enumerate().map(|(at, part)| Label::new(name(at), part.clone()));
        let labels = labels.collect::<Vec<_>>();
        let of =
            |name: &str| counter!(format!("ratelimit_service_rate_limit_{name}"), labels.clone());
        Self {
            hits: of("total_hits"),
            within: of("within_limit"),
            near: of("near_limit"),
            over: of("over_limit"),
            remembered: of("over_limit_with_local_cache"),
            shadow: of("shadow_mode"),
        }
    }
}

/// Label values that requests choose, which are bounded.
static CHOSEN: Mutex<Option<HashSet<Vec<String>>>> = Mutex::new(None);
const MOST_CHOSEN: usize = 1_000;

/// Whether these values are among the first ones that requests chose.
fn is_kept(values: &[String]) -> bool {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    let chosen = chosen.get_or_insert_default();
    chosen.contains(values) || (chosen.len() < MOST_CHOSEN && chosen.insert(values.to_vec()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn unknown_domain(domain: &[u8]) {
    let mut domain = [text(domain)];
    if !is_kept(&domain) {
        domain = ["other".to_string()];
    }
    let [domain] = domain;
    counter!("ratelimit_service_rate_limit_domain_not_found", "domain" => domain).increment(1);
}

/// Counts an answer, also an error, and how long it took.
pub fn answered(time: Duration) {
    const METHOD: (&str, &str) = ("grpc_method", "ShouldRateLimit");
    counter!("ratelimit_service_total_requests", &[METHOD]).increment(1);
    histogram!("ratelimit_service_response_time_seconds", &[METHOD]).record(time);
}

pub fn failed(kind: &'static str) {
    counter!("ratelimit_service_should_rate_limit_error", "err_type" => kind).increment(1);
}

pub fn loaded(end: &str) {
    counter!(format!("ratelimit_service_config_load_{end}")).increment(1);
}
