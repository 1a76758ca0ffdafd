//! What operators use: configuration, metrics, health, rights, TLS, the log and options.

use std::fs;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use tonic::transport::{Certificate, Channel, ClientTlsConfig};

use crate::server::{Server, free_port};
use crate::support::get;
use crate::support::service::{Client, PATIENCE, Service, command, descriptor};

fn config(limit: u32) -> String {
    format!(
        "
domain: shop
descriptors:
  - key: user
    rate_limit: {{unit: day, requests_per_unit: {limit}}}
  - key: trial
    rate_limit: {{unit: day, requests_per_unit: 0}}
    shadow_mode: true
"
    )
}

#[tokio::test]
async fn a_changed_file_takes_effect_and_a_broken_one_does_not() {
    let server = Server::start("valkey-9.1");
    let service = Service::start(&server, &config(5), &[]);
    let mut client = service.client().await;
    assert_eq!(client.codes(&["user=ann"]).await, "ok [ok:4/5]");
    let start = Instant::now();
    service.configure("domain: shop\ndescriptors: [{key: user, quota_mode: true}]");
    while !get(service.http, "/metrics").contains("config_load_error 1") {
        assert!(start.elapsed() < PATIENCE, "the broken file was not seen");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(client.codes(&["user=ann"]).await, "ok [ok:3/5]");
    service.configure(&config(9));
    while !client.codes(&["user=bob"]).await.ends_with("/9]") {
        assert!(start.elapsed() < PATIENCE * 2, "the new file was not read");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(client.codes(&["user=ann"]).await, "ok [ok:6/9]", "the units used stay used");
}

#[tokio::test]
async fn clients_get_their_limit_if_enabled_and_always_a_retry_after() {
    let server = Server::start("redis-7.0");
    for (enabled, number) in [("true", 3), ("false", 0)] {
        let options = [("LIMIT_RESPONSE_HEADERS_ENABLED", enabled), ("CACHE_KEY_PREFIX", enabled)];
        let service = Service::start(&server, &config(1), &options);
        let mut client = service.client().await;
        let passed = client.ask(&["user=ann"]).await.response_headers_to_add;
        assert_eq!(passed.len(), number);
        let denied = client.ask(&["user=ann"]).await.response_headers_to_add;
        assert_eq!(denied.len(), number + 1);
        let found =
            |name: &str| denied.iter().find(|field| field.key == name).map(|field| &*field.value);
        let wait = found("Retry-After").expect("a field").parse::<u64>().expect("seconds");
        assert!((1..=86_400).contains(&wait), "{wait}");
        if number > 0 {
            assert_eq!(
                (found("RateLimit-Limit"), found("RateLimit-Remaining")),
                (Some("1"), Some("0"))
            );
        }
    }
}

#[tokio::test]
async fn in_shadow_mode_everything_passes_and_is_counted() {
    let server = Server::start("redis-7.0");
    let service = Service::start(&server, &config(0), &[("SHADOW_MODE", "true")]);
    let mut client = service.client().await;
    assert_eq!(client.codes(&["user=ann"]).await, "ok [over:0/0]");
    assert!(get(service.http, "/metrics").contains("ratelimit_service_global_shadow_mode 1"));
}

#[tokio::test]
async fn the_service_reports_its_health_and_ends_in_order() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    let server = Server::start("redis-7.0");
    let mut service = Service::start(&server, &config(1), &[]);
    assert!(get(service.http, "/healthcheck").starts_with("HTTP/1.1 200 "));
    let mut health = HealthClient::new(service.channel().await);
    for name in ["", "ratelimit"] {
        let request = HealthCheckRequest { service: name.to_string() };
        let status = health.check(request).await.expect("an answer").into_inner().status;
        assert_eq!(status, 1, "serving");
    }
    assert!(service.end(), "it ends with success");
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let readme = include_str!("../../README.md");
    let (rights, _) =
        readme.split_once("needs `").and_then(|(_, rest)| rest.split_once('`')).unwrap();
    let server = Server::start("valkey-9.1");
    server.send(&format!("ACL SETUSER envoy on >secret {rights}"));
    server.send("ACL SETUSER default off");
    let service = Service::start(&server, &config(5), &[("REDIS_AUTH", "envoy:secret")]);
    assert_eq!(service.client().await.codes(&["user=ann"]).await, "ok [ok:4/5]");
    let service = Service::start(&server, &config(5), &[("REDIS_AUTH", "envoy:wrong")]);
    let error = service.client().await.send(vec![descriptor("user=ann")]).await;
    assert_eq!(error.expect_err("nobody decides").code(), tonic::Code::Unavailable);
}

#[test]
fn the_log_is_text_or_json() {
    let folder = tempfile::TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("config")).expect("a folder");
    fs::write(folder.path().join("config/shop.yaml"), config(7)).expect("a file");
    for (format, start) in
        [("text", "20"), ("json", "{\"timestamp\":\"20"), ("JSON", "{\"timestamp\":\"20")]
    {
        let mut service = command(&folder.path().display().to_string())
            .envs([("LOG_FORMAT", format), ("HOST", "127.0.0.1"), ("GRPC_HOST", "127.0.0.1")])
            .env("USE_STATSD", "true")
            .envs(
                [("PORT", free_port()), ("GRPC_PORT", free_port())]
                    .map(|(name, port)| (name, port.to_string())),
            )
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the service");
        let log = BufReader::new(service.stderr.take().expect("it is piped"));
        let mut lines = log.lines().map(|line| line.expect("text"));
        let line = lines.next().expect("a line");
        assert!(line.contains("USE_STATSD") && line.contains("has no effect"), "{line}");
        let line = lines.find(|line| line.contains("serving")).expect("it serves");
        assert!(line.starts_with(start), "{line}");
        service.kill().and_then(|()| service.wait()).expect("a child");
    }
}

/// Envoy's connections to the service, and the service's connections to the server.
#[tokio::test]
async fn all_connections_can_be_encrypted() {
    let cert = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tls/cert.pem");
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tls/key.pem");
    let port = free_port();
    let tls = &*Box::leak(port.to_string().into_boxed_str());
    let options = ["--tls-port", tls, "--tls-cert-file", cert, "--tls-key-file", key];
    let options =
        [&options[..], &["--tls-auth-clients", "no", "--tls-ca-cert-file", cert]].concat();
    let _server = Server::start_with("redis-7.0", options.leak());
    let options = [
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", cert),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", cert),
        ("GRPC_SERVER_TLS_KEY", key),
    ];
    let service = Service::on(&format!("localhost:{port}"), &config(5), &options);
    let own = Certificate::from_pem(fs::read(cert).expect("a file"));
    let trusted = ClientTlsConfig::new().ca_certificate(own);
    let endpoint = Channel::from_shared(format!("https://localhost:{}", service.grpc));
    let endpoint = endpoint.expect("an address").tls_config(trusted).expect("a certificate");
    let channel = endpoint.connect().await.expect("it listens");
    assert_eq!(Client::on(channel).codes(&["user=ann"]).await, "ok [ok:4/5]");
    // A service that does not trust the certificate asks nobody.
    let trusts_others = [("REDIS_TLS", "true"), ("OUTAGE", "deny")];
    let service = Service::on(&format!("localhost:{port}"), &config(5), &trusts_others);
    assert_eq!(service.client().await.codes(&["user=ann"]).await, "over [over:0]");
}

/// The example for Kubernetes contains a valid configuration.
#[test]
fn the_limits_of_the_example_for_kubernetes_are_read() {
    let example = include_str!("../../../../examples/envoy/kubernetes.yaml");
    let (_, after) = example.split_once("shop.yaml: |\n").expect("a file");
    let lines = after.lines().take_while(|line| line.starts_with("    "));
    let text = lines.flat_map(|line| [&line[4..], "\n"]).collect::<String>();
    let folder = tempfile::TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("config")).expect("a folder");
    fs::write(folder.path().join("config/shop.yaml"), text).expect("a file");
    let checked = command(&folder.path().display().to_string()).arg("--check-config").output();
    let shown = String::from_utf8(checked.expect("it runs").stdout).expect("text");
    assert_eq!(shown, "shop.user: bucket:50/s,burst=100 fixed:100000/d\n");
}

#[tokio::test]
async fn changed_certificates_are_used_for_new_connections() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let [cert, key] = ["cert", "key"].map(|name| folder.path().join(name));
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tls");
    let read = |name| fs::read(format!("{fixtures}/{name}.pem")).expect("a file");
    let (old, new) = (read("cert"), read("other-cert"));
    fs::write(&cert, &old).expect("a file");
    fs::write(&key, read("key")).expect("a file");
    let server = Server::start("redis-7.0");
    let [cert_text, key_text] = [&cert, &key].map(|file| file.display().to_string());
    let options = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &cert_text),
        ("GRPC_SERVER_TLS_KEY", &key_text),
    ];
    let service = Service::start(&server, &config(50), &options);
    let connect = async |trusted: &[u8]| {
        let trusted = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trusted));
        let endpoint = Channel::from_shared(format!("https://localhost:{}", service.grpc));
        endpoint.expect("an address").tls_config(trusted).expect("TLS").connect().await
    };
    let mut client = Client::on(connect(&old).await.expect("the old certificate"));
    assert!(client.passes(&["user=ann"]).await);
    fs::write(&cert, "broken").expect("a file");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    connect(&old).await.expect("a broken file changes nothing");
    fs::write(&cert, &new).expect("a file");
    fs::write(&key, read("other-key")).expect("a file");
    let start = Instant::now();
    while connect(&new).await.is_err() {
        assert!(start.elapsed() < PATIENCE, "the new certificate is not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(connect(&old).await.is_err(), "the old one is not used any more");
}
