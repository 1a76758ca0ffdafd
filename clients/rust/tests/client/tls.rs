//! Connections that TLS protects. Of the servers to test, Debian's Redis 7.0 is the one that is built
//! with it.

use std::fs;
use std::time::{Duration, Instant};

use redis::{Client, TlsCertificates};
use tower_redis_ratelimit::{Check, Outage, RateLimiter, Source};

use crate::support::server::{Server, free_port};

const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tls/cert.pem");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tls/key.pem");
const MINUTE: Duration = Duration::from_secs(60);

/// A server, and its port for TLS.
fn start() -> (Server, u16) {
    // Fails if another test has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let port = free_port();
    let number: &str = Box::leak(port.to_string().into_boxed_str());
    let options = [
        ["--tls-port", number],
        ["--tls-cert-file", CERTIFICATE],
        ["--tls-key-file", KEY],
        ["--tls-ca-cert-file", CERTIFICATE],
        ["--tls-auth-clients", "no"],
    ];
    (Server::start_with("redis-7.0", Box::leak(options.concat().into_boxed_slice())), port)
}

/// A client that trusts the server's certificate, which is for `localhost`.
fn trusting(host: &str, port: u16) -> Client {
    let root_cert = Some(fs::read(CERTIFICATE).expect("a file"));
    let certificates = TlsCertificates { client_tls: None, root_cert };
    Client::build_with_tls(format!("rediss://{host}:{port}"), certificates).expect("a client")
}

#[tokio::test]
async fn commands_are_encrypted() {
    let (_server, port) = start();
    let limiter = RateLimiter::server(trusting("localhost", port)).build().expect("options");
    assert_eq!(limiter.check(("a", "3/h")).await.expect("it decides").remaining, Some(2));
    let hold = limiter.hold(("a", "3/h"), MINUTE).await.expect("it passes");
    assert!(hold.settle().await.expect("it was held"));
    let waited = limiter.wait(("a", "3/h"), MINUTE).await.expect("it decides");
    assert_eq!((waited.remaining, waited.source), (Some(0), Source::Server));
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_an_outage() {
    let (server, port) = start();
    let distrusting = Client::open(format!("rediss://localhost:{port}")).expect("a client");
    for client in [distrusting, trusting("127.0.0.1", port)] {
        let limiter = RateLimiter::server(client).timeout(MINUTE).outage(Outage::Allow);
        let limiter = limiter.build().expect("options");
        let start = Instant::now();
        let check = || Check::new("c", "1/h");
        assert_eq!(limiter.check(check()).await.expect("an answer").source, Source::Outage);
        assert_eq!(limiter.wait(check(), MINUTE).await.expect("an answer").source, Source::Outage);
        assert!(start.elapsed() < MINUTE, "no time-out is waited for");
    }
    let peeked = server.limiter().peek(("c", "1/h")).await.expect("it decides");
    assert_eq!(peeked.remaining, Some(1), "nothing is sent");
}
