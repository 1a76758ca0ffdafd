//! Servers that answer, but do not limit: what users get, and how it is reported.

use tower_redis_ratelimit::{Outage, RateLimiter, Source, is_outage, redis};

use crate::support::app::{App, limits};
use crate::support::cluster::Cluster;
use crate::support::log::Log;
use crate::support::server::Server;
use crate::support::until;

const KEY: &str = "user:secret";
const RULE: &str = "1234/h";

async fn source(limiter: &RateLimiter) -> Source {
    limiter.check((KEY, RULE)).await.expect("the process decides").source
}

#[tokio::test]
async fn without_a_listener_the_log_says_what_to_do_and_no_key_or_rule() {
    let log = Log::start();
    let mut server = Server::without_module("redis-7.0", &["--enable-module-command", "yes"]);
    let limiter = server.builder().outage(Outage::Allow).build().expect("options");
    for _ in 0..20 {
        assert_eq!(source(&limiter).await, Source::Outage);
    }
    let errors = log.with("ERROR");
    assert!(
        matches!(&errors[..], [line] if line.contains("load the module: loadmodule")),
        "{errors:?}"
    );
    server.load_module();
    assert_eq!(source(&limiter).await, Source::Server);
    server.kill();
    until("it is away", async || source(&limiter).await == Source::Outage && limiter.away()).await;
    server.restart();
    server.load_module();
    until("it is back", async || source(&limiter).await == Source::Server).await;
    assert_eq!(log.with("WARN").len(), 2, "{:?}", log.with("WARN"));
    assert_eq!((log.with("a server is away").len(), log.with("a server is back").len()), (1, 1));
    assert!(log.with("secret").is_empty() && log.with("1234").is_empty(), "{:?}", log.with(""));
}

#[tokio::test]
async fn a_client_sees_nothing_of_errors() {
    let log = Log::start();
    let server = Server::without_module("redis-7.0", &[]);
    let raising = server.builder().build().expect("options");
    assert!(is_outage(&raising.check((KEY, RULE)).await.expect_err("it cannot limit")));
    let module = Server::start("redis-7.0");
    module.send(&format!("SET {KEY} text"));
    let of_wrong_type = module.builder().outage(Outage::Allow).build().expect("options");
    let key = format!("x-key: {KEY}");
    for (limiter, rule, status, title) in [
        (raising, RULE, 503, "Service Unavailable"),
        (of_wrong_type.clone(), RULE, 500, "Internal Server Error"),
        (of_wrong_type, "1234/fortnight", 500, "Internal Server Error"),
    ] {
        let app = App::start(limits(limiter, &[rule])).await;
        let answer = app.ask(&[&key]).await;
        let body = format!(r#"{{"title": "{title}", "status": {status}}}"#);
        assert_eq!((answer.status, answer.body, app.served()), (status, body, 0));
    }
    assert_eq!(log.with("a request is refused: the server gives no decision").len(), 1);
    let failed = log.with("a request cannot be checked");
    assert!(failed.len() == 2 && failed[0].contains("WRONGTYPE"), "{failed:?}");
    assert!(failed[1].contains("1234/fortnight"), "{failed:?}");
}

#[tokio::test]
async fn a_redirection_without_a_client_of_a_cluster_is_no_outage() {
    let cluster = Cluster::start("valkey-9.1");
    let [node, _] = cluster.addresses();
    let client = redis::Client::open(node).expect("an address");
    let given = client.get_multiplexed_async_connection().await.expect("it runs");
    for of in [RateLimiter::server(client), RateLimiter::on(given)] {
        let limiter = of.outage(Outage::Allow).build().expect("options");
        let mut redirected = 0;
        for key in ["a", "b", "c", "d", "e", "f"] {
            if let Err(error) = limiter.check((key, "9/h")).await {
                assert!(
                    !is_outage(&error) && error.to_string().contains("RateLimiter::cluster"),
                    "{error}"
                );
                redirected += 1;
            }
        }
        assert!(redirected > 0 && limiter.outages() == 0);
    }
}
