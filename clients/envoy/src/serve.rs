//! Serves until the process is asked to end.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;

use crate::config::{Config, texts};
use crate::connect;
use crate::decision::Decider;
use crate::options::{Listen, Options};
use crate::service::Service;
use crate::{metering, reload};

/// The name of the service in health checks, which is that of the reference.
const HEALTH: &str = "ratelimit";
/// The largest message to accept. The headers of Envoy's requests have at most 60 KiB by default.
const LARGEST: usize = 1 << 20;
/// How long requests may take to end.
const GRACE: Duration = Duration::from_secs(10);

pub async fn serve(options: Options) -> Result<()> {
    let counts = metering::start()?;
    let known = texts(&options.files)?;
    let config = Config::of(&known, &options.files)?;
    metering::loaded("success");
    let (changes, config) = watch::channel(Arc::new(config));
    tokio::spawn(reload::follow(options.files.clone(), Some(known), changes));
    let limiter = connect::limiter(&options)?;
    tokio::spawn(metering::keep_up(counts.clone(), limiter.clone()));
    let Options { listen, answers, redis, .. } = options;
    let service = Service {
        config,
        decider: Decider::new(limiter),
        prefix: redis.cache_key_prefix.clone(),
        has_fields: answers.limit_response_headers_enabled,
        shadow: answers.shadow,
    };
    let service = RateLimitServiceServer::new(service).max_decoding_message_size(LARGEST);

    let (health, checks) = tonic_health::server::health_reporter();
    health.set_service_status(HEALTH, ServingStatus::Serving).await;
    let (end, ending) = watch::channel(false);
    let mut server = Server::builder().max_connection_age(listen.grpc_max_connection_age);
    if listen.grpc_server_use_tls {
        server = server.tls_config(tls(&listen)?)?;
    }
    let grpc = bind(listen.grpc_host, listen.grpc_port).await?;
    let web = bind(listen.host, listen.port).await?;
    tracing::info!(grpc = %grpc.local_addr()?, http = %web.local_addr()?, "serving");
    let grpc = TcpIncoming::from(grpc).with_nodelay(Some(true));
    let router = server.add_service(checks).add_service(service);
    let grpc = tokio::spawn(router.serve_with_incoming_shutdown(grpc, ended(ending.clone())));
    let metrics = move || async move { counts.render() };
    let pages = Router::new().route("/healthcheck", get("OK\n")).route("/metrics", get(metrics));
    let web =
        tokio::spawn(axum::serve(web, pages).with_graceful_shutdown(ended(ending)).into_future());

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
    // The leases were dropped, and now settle at what they used.
    tokio::time::sleep(redis.redis_timeout.saturating_mul(2)).await;
    Ok(())
}

async fn bind(host: std::net::IpAddr, port: u16) -> Result<TcpListener> {
    let address = SocketAddr::new(host, port);
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}

fn tls(listen: &Listen) -> Result<ServerTlsConfig> {
    let files = listen.grpc_server_tls_cert.as_ref().zip(listen.grpc_server_tls_key.as_ref());
    let (cert, key) = files.context("TLS needs a certificate and its key")?;
    let own = Identity::from_pem(connect::read(cert)?, connect::read(key)?);
    let tls = ServerTlsConfig::new().identity(own);
    let clients = listen.grpc_client_tls_cacert.as_ref().map(|file| connect::read(file));
    let clients = clients.transpose()?.map(Certificate::from_pem);
    Ok(clients.into_iter().fold(tls, ServerTlsConfig::client_ca_root))
}

async fn ended(mut ending: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is an end too.
    let _ = ending.wait_for(|is_over| *is_over).await;
}
