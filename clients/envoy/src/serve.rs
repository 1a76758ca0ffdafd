//! Serves until the process is asked to end.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use crate::config::texts;
use crate::connect;
use crate::decision::Decider;
use crate::options::Options;
use crate::reload::Reader;
use crate::response::FieldNames;
use crate::rpc::RateLimitServer;
use crate::service::Service;
use crate::{environment, grpc, metering};

/// The name of the service in health checks, which is that of the reference.
const HEALTH: &str = "ratelimit";
/// How long requests may take to end. Meanwhile no connection begins another request. A stream that stays
/// open keeps its leases from being dropped; they settle by themselves within this time.
const GRACE: Duration = Duration::from_secs(10);

pub async fn serve(options: Options) -> Result<()> {
    for name in environment::without_effect() {
        tracing::warn!(name, "this variable has no effect");
    }
    let counts = metering::start()?;
    let known = texts(&options.files)?;
    let (limiter, asks) = (connect::limiter(&options)?, connect::asks(&options));
    let Options { listen, answers, redis, files, .. } = options;
    let prefix = redis.cache_key_prefix;
    let reader = Reader { files, limiter: limiter.clone(), prefix: prefix.clone() };
    let config = reader.read(&known).await?;
    metering::loaded("success");
    let (changes, config) = watch::channel(Arc::new(config));
    tokio::spawn(reader.follow(Some(known), changes));
    tokio::spawn(metering::keep_up(counts.clone(), limiter.clone()));
    let fields = FieldNames {
        limit: answers.limit_limit_header,
        remaining: answers.limit_remaining_header,
        reset: answers.limit_reset_header,
    };
    let service = RateLimitServer::new(Service {
        config,
        decider: Decider::new(limiter.clone(), asks),
        prefix,
        fields: answers.limit_response_headers_enabled.then_some(fields),
        shadow: answers.shadow,
        near: answers.near_limit_ratio,
    });

    let (health, checks) = tonic_health::server::health_reporter();
    health.set_service_status(HEALTH, ServingStatus::Serving).await;
    let (end, ending) = watch::channel(false);
    let port = bind(listen.grpc_host, listen.grpc_port).await?;
    let web = bind(listen.host, listen.port).await?;
    tracing::info!(grpc = %port.local_addr()?, http = %web.local_addr()?, "serving");
    let router =
        move |mut server: Server| server.add_service(checks.clone()).add_service(service.clone());
    let files = grpc::files(&listen)?;
    let grpc = tokio::spawn(grpc::serve(listen, files, port, router, ending.clone()));
    let metrics = move || async move { counts.render() };
    let pages = Router::new().route("/healthcheck", get("OK\n")).route("/metrics", get(metrics));
    let web = tokio::spawn(
        axum::serve(web, pages).with_graceful_shutdown(grpc::ended(ending)).into_future(),
    );

    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    tracing::info!("ending");
    health.set_service_status(HEALTH, ServingStatus::NotServing).await;
    health.set_service_status("", ServingStatus::NotServing).await;
    end.send_replace(true);
    let both = async { tokio::join!(grpc, web) };
    if let Ok((grpc, web)) = tokio::time::timeout(GRACE, both).await {
        grpc??;
        web??;
    }
    // The leases that are not settled were dropped, and now settle at what they used.
    limiter.close().await;
    Ok(())
}

async fn bind(host: std::net::IpAddr, port: u16) -> Result<TcpListener> {
    let address = SocketAddr::new(host, port);
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}
