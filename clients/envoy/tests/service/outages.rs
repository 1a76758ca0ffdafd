//! The answers while the server gives no decision.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::server::Server;
use crate::support::service::{PATIENCE, Service, descriptor};

const CONFIG: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 4}
";

#[tokio::test]
async fn the_option_outage_decides_while_the_server_is_away_and_the_server_afterwards() {
    for (outage, expected) in
        [("allow", "ok [ok:0]"), ("deny", "over [over:0]"), ("local", "ok [ok:1/2]")]
    {
        let mut server = Server::start("valkey-9.1");
        let options = [("OUTAGE", outage), ("REPLICAS", "2")];
        let service = Service::start(&server, CONFIG, &options);
        let mut client = service.client().await;
        assert_eq!(client.codes(&["user=ann"]).await, "ok [ok:3/4]");
        server.kill();
        assert_eq!(client.codes(&["user=ann"]).await, expected, "{outage}");
        server.restart();
        let start = Instant::now();
        while client.codes(&["user=bob"]).await != "ok [ok:3/4]" {
            assert!(start.elapsed() < PATIENCE, "{outage}: the server is not asked again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn without_the_option_outage_envoy_decides() {
    let mut server = Server::start("redis-6.2");
    let service = Service::start(&server, CONFIG, &[]);
    let mut client = service.client().await;
    server.kill();
    let error = client.send(vec![descriptor("user=ann")]).await.expect_err("nobody decides");
    assert_eq!(error.code(), Code::Unavailable);
}
