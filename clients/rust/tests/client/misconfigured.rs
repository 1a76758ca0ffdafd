//! Servers that answer, but do not limit: what users get, and how it is reported.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use tower_redis_ratelimit::{Outage, RateLimiter, Rules, Settlement, Source, is_outage, redis};

use crate::support::app::{App, limits};
use crate::support::cluster::Cluster;
use crate::support::log::Log;
use crate::support::server::Server;
use crate::support::until;

const KEY: &str = "user:secret";
const RULE: &str = "1234/h";

/// The advice of each report, and its number of requests.
type Told = Arc<Mutex<Vec<(&'static str, u64)>>>;

fn telling(client: redis::Client) -> (RateLimiter, Told) {
    let told = Told::default();
    let log = Arc::clone(&told);
    let limiter =
        RateLimiter::server(client).outage(Outage::Local).on_misconfigured(move |event| {
            log.lock().expect("no panic").push((event.advice, event.answered));
        });
    (limiter.build().expect("options"), told)
}

fn as_user(server: &Server, user: &str) -> redis::Client {
    let url = format!("redis://{user}@127.0.0.1:{}", server.port());
    redis::Client::open(url).expect("an address")
}

async fn source(limiter: &RateLimiter) -> Source {
    limiter.check((KEY, RULE)).await.expect("the process decides").source
}

#[tokio::test]
async fn a_server_that_does_not_limit_is_an_outage_reported_once() {
    let bare = Server::without_module("valkey-9.1", &["--enable-module-command", "yes"]);
    let closed = Server::start("redis-7.0");
    closed.send("CONFIG SET requirepass pw");
    let weak = Server::start("redis-8.2");
    weak.send("ACL SETUSER weak on >pw ~a -@all +ping +hello +client");
    for (server, client, advice) in [
        (
            &bare,
            bare.client(),
            "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'",
        ),
        (&closed, closed.client(), "give the client the password"),
        (&weak, as_user(&weak, "weak:wrong"), "give the client the password"),
        (
            &weak,
            as_user(&weak, "weak:pw"),
            "give the user the rights +@ratelimit ~keys, see SECURITY.md",
        ),
    ] {
        let (limiter, told) = telling(client);
        for _ in 0..250 {
            assert_eq!(source(&limiter).await, Source::Local, "{advice}");
        }
        assert!(limiter.away() && limiter.outages() == 250, "{advice}");
        let told = told.lock().expect("no panic").clone();
        assert_eq!(told, [(advice, 0)]);
        let _ = server;
    }
    // Three connections at first, then one a second; the test needs some too.
    let (limiter, _told) = telling(as_user(&weak, "weak:wrong"));
    let before = weak.connections();
    for _ in 0..250 {
        source(&limiter).await;
    }
    assert!(weak.connections() - before < 50, "no connection for each request");
}

#[tokio::test]
async fn a_server_that_gets_its_module_decides() {
    let server = Server::without_module("valkey-9.1", &["--enable-module-command", "yes"]);
    let (limiter, _told) = telling(server.client());
    for _ in 0..3 {
        assert_eq!(source(&limiter).await, Source::Local);
    }
    server.load_module();
    until("it is asked again", async || source(&limiter).await == Source::Server).await;
}

#[tokio::test]
async fn a_command_that_the_application_misspells_stops_no_limit() {
    let server = Server::start("valkey-9.1");
    server.send("ACL SETUSER weak on >pw ~* +@all -rl.info");
    let (limiter, told) = telling(as_user(&server, "weak:pw"));
    for _ in 0..3 {
        for (name, says) in [("RL.CHEKC", "unknown command"), ("RL.INFO", "no permissions")] {
            let mut command = redis::cmd(name);
            let called = limiter.call::<redis::Value>(command.arg(KEY), KEY).await;
            let error = called.expect_err("it is no command of this user");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
    assert!(!limiter.away() && told.lock().expect("no panic").is_empty());
    let verdicts = [(); 2].map(|()| limiter.check((KEY, "1/h")));
    let [first, second] = verdicts;
    let first = first.await.expect("it runs");
    assert_eq!((first.source, first.is_allowed()), (Source::Server, true));
    assert!(!second.await.expect("it runs").is_allowed());
}

#[tokio::test]
async fn a_missing_right_to_another_command_stops_no_limit() {
    let (log, server) = (Log::start(), Server::start("redis-6.2"));
    server.send(
        "ACL SETUSER weak on >pw ~* +@all -rl.reset -rl.refund -rl.settle -rl.renew -rl.pause",
    );
    let (limiter, told) = telling(as_user(&server, "weak:pw"));
    let second = Duration::from_secs(1);
    let mut fields = HeaderMap::new();
    fields.insert("retry-after", "1".parse().expect("a value"));
    for _ in 0..3 {
        for error in [
            limiter.reset(KEY).await.expect_err("no right"),
            limiter.refund(KEY, 1, Rules::default()).await.expect_err("no right"),
            limiter.settle(KEY, "id", Settlement::Refund).await.expect_err("no right"),
            limiter.renew(KEY, "id", second).await.expect_err("no right"),
            limiter.pause(KEY, second, None).await.expect_err("no right"),
            limiter
                .follow(KEY, StatusCode::TOO_MANY_REQUESTS, &fields, [])
                .await
                .expect_err("no right"),
        ] {
            assert!(!is_outage(&error) && error.to_string().contains("no permissions"), "{error}");
        }
    }
    assert_eq!(source(&limiter).await, Source::Server);
    drop(limiter.hold((KEY, RULE), second).await.expect("it passes"));
    until("the log tells", async || log.with("a hold is not settled").len() == 1).await;
    assert!(!limiter.away() && limiter.outages() == 0 && told.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn without_a_listener_the_log_says_what_to_do_and_no_key_or_rule() {
    let log = Log::start();
    let server = Server::without_module("redis-7.0", &["--enable-module-command", "yes"]);
    let limiter = server.builder().outage(Outage::Allow).build().expect("options");
    for _ in 0..20 {
        assert_eq!(source(&limiter).await, Source::Outage);
    }
    let errors = log.with("ERROR");
    assert!(
        matches!(&errors[..], [line] if line.contains("load the module: loadmodule")),
        "{errors:?}"
    );
    assert_eq!(log.with("the server is away").len(), 1);
    server.load_module();
    until("it is asked again", async || source(&limiter).await == Source::Server).await;
    assert_eq!(log.with("WARN").len(), 2, "{:?}", log.with("WARN"));
    assert_eq!(log.with("the server is back").len(), 1);
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
