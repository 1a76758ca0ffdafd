//! `/healthcheck` and `/metrics`.

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;

pub fn routes(counts: PrometheusHandle) -> Router {
    let metrics = move || async move {
        counts.run_upkeep();
        counts.render()
    };
    Router::new().route("/healthcheck", get("OK\n")).route("/metrics", get(metrics))
}
