//! What a check costs and answers while the server is away. Limiters have the default options,
//! except where a test sets others.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tower_redis_ratelimit::{Builder, Check, Outage, RateLimiter, Source};

use crate::support::cluster::Cluster;
use crate::support::server::Server;
use crate::support::until;

/// Less than the 5 s that 20 time-outs of 250 ms would take.
const FEW_TIMEOUTS: Duration = Duration::from_secs(4);

fn of(server: &Server) -> Builder {
    RateLimiter::server(server.client())
}

/// Asks 20 times, and returns the sources of the answers, without repetitions.
async fn sources(limiter: &RateLimiter) -> Vec<Source> {
    let start = Instant::now();
    let mut sources = Vec::new();
    for _ in 0..20 {
        let reply = limiter.check(("a", "1000/h")).await.expect("no outage is an error");
        assert!(reply.is_allowed(), "{reply:?}");
        sources.push(reply.source);
    }
    assert!(start.elapsed() < FEW_TIMEOUTS, "{:?}", start.elapsed());
    sources.dedup();
    sources
}

/// Asks until the server answers again.
async fn comes_back(limiter: &RateLimiter) {
    let start = Instant::now();
    while limiter.check(("b", "1000/h")).await.expect("no outage is an error").source
        != Source::Server
    {
        assert!(start.elapsed() < Duration::from_secs(15), "the server is not asked again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!limiter.away());
}

#[tokio::test]
async fn a_stopped_server_costs_three_timeouts_and_is_asked_again() {
    let server = Server::start("redis-7.0");
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let limiter = of(&server).outage(Outage::Local).on_outage(move |event| {
        log.lock().expect("no panic").push((event.away, event.answered, event.error.is_timeout()));
        panic!("a fault of the listener");
    });
    let limiter = limiter.build().expect("options");
    comes_back(&limiter).await;
    let before = limiter.outages();
    server.freeze(true);
    let start = Instant::now();
    assert_eq!(sources(&limiter).await, [Source::Local]);
    assert!(start.elapsed() >= Duration::from_millis(750), "{:?}", start.elapsed());
    assert_eq!((limiter.away(), limiter.outages()), (true, before + 20));
    server.freeze(false);
    comes_back(&limiter).await;
    let told = told.lock().expect("no panic");
    let answered = limiter.outages() - before - 2;
    assert_eq!(told[..], [(true, 0, true), (false, answered, true)]);
}

#[tokio::test]
async fn a_server_that_is_down_or_restarts_costs_few_time_outs() {
    let mut server = Server::start("valkey-9.1");
    let limiter = of(&server).outage(Outage::Local).build().expect("options");
    limiter.check(("a", "1000/h")).await.expect("it runs");
    server.kill();
    assert_eq!(sources(&limiter).await, [Source::Local]);
    server.restart();
    comes_back(&limiter).await;
}

#[tokio::test]
async fn a_server_that_never_ran_is_an_outage() {
    let mut server = Server::start("redis-6.2");
    server.kill();
    let limiter = of(&server).outage(Outage::Allow).build().expect("options");
    assert_eq!(sources(&limiter).await, [Source::Outage]);
}

#[tokio::test]
async fn a_server_that_loads_is_an_outage() {
    let mut server = Server::start("redis-7.0");
    server.restart_slowly();
    let limiter = of(&server).outage(Outage::Local).build().expect("options");
    assert_eq!(sources(&limiter).await, [Source::Local]);
    is_an_outage(&server, "LOADING").await;
}

#[tokio::test]
async fn a_server_without_memory_is_an_outage() {
    let server = Server::start("valkey-8.1");
    let limiter = of(&server).outage(Outage::Local).build().expect("options");
    server.send("CONFIG SET maxmemory 1");
    assert_eq!(sources(&limiter).await, [Source::Local]);
    server.send("CONFIG SET maxmemory 0");
    comes_back(&limiter).await;
}

#[tokio::test]
async fn a_primary_that_became_a_replica_is_an_outage() {
    let (server, primary) = (Server::start("redis-8.2"), Server::start("redis-8.2"));
    let limiter = of(&server).outage(Outage::Local).build().expect("options");
    server.send(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    assert_eq!(sources(&limiter).await, [Source::Local]);
    server.send("REPLICAOF NO ONE");
    comes_back(&limiter).await;
}

/// Tests that a reply with this code, to a check of two keys in one slot, is an outage.
async fn is_an_outage(server: &Server, code: &str) {
    let told = Arc::new(Mutex::new(String::new()));
    let log = Arc::clone(&told);
    let limiter = RateLimiter::on(server.patient_connection().await)
        .timeout(Duration::from_secs(10))
        .outage(Outage::Local)
        .on_outage(move |event| {
            *log.lock().expect("no panic") = event.error.code().unwrap_or_default().to_string();
        });
    let limiter = limiter.build().expect("options");
    for _ in 0..3 {
        let check = Check::new("{a}1", "9/m").and("{a}2", "9/m");
        let report = limiter.check_all(check).await.expect("no outage is an error");
        assert_eq!(report.source, Source::Local, "{code}");
    }
    assert_eq!(*told.lock().expect("no panic"), code);
}

#[tokio::test]
async fn replies_of_a_server_that_cannot_serve_now_are_outages() {
    for (code, commands) in [
        ("NOREPLICAS", &["CONFIG SET min-replicas-to-write 1"][..]),
        ("OOM", &["CONFIG SET maxmemory 1"]),
        ("READONLY", &["REPLICAOF 127.0.0.1 1"]),
        (
            "MASTERDOWN",
            &[
                "CONFIG SET replica-serve-stale-data no",
                "CONFIG SET replica-read-only no",
                "REPLICAOF 127.0.0.1 1",
            ],
        ),
    ] {
        let server = Server::start("valkey-9.1");
        commands.iter().for_each(|line| server.send(line));
        is_an_outage(&server, code).await;
    }
}

#[tokio::test]
async fn a_server_that_runs_a_long_script_is_an_outage() {
    let server = Server::start_with("valkey-9.1", &["--busy-reply-threshold", "1"]);
    server.run_a_long_script();
    is_an_outage(&server, "BUSY").await;
}

#[tokio::test]
async fn a_server_that_cannot_save_is_an_outage() {
    let server = Server::start_with("valkey-9.1", &["--save", "3600 1000000"]);
    server.fail_to_save();
    is_an_outage(&server, "MISCONF").await;
}

#[tokio::test]
async fn a_node_without_slots_or_with_a_moving_one_is_an_outage() {
    let node = Server::start_with("valkey-9.1", &["--cluster-enabled", "yes"]);
    is_an_outage(&node, "CLUSTERDOWN").await;
    let cluster = Cluster::start("valkey-9.1");
    is_an_outage(cluster.move_one_of_two_keys(), "TRYAGAIN").await;
}

#[tokio::test]
async fn too_many_clients_are_an_outage() {
    let server = Server::start("redis-7.0");
    let keeps = server.client().get_connection().expect("it runs");
    server.send("CONFIG SET maxclients 1");
    let limiter = of(&server).outage(Outage::Local).build().expect("options");
    assert_eq!(sources(&limiter).await, [Source::Local]);
    drop(keeps);
    comes_back(&limiter).await;
}

#[tokio::test]
async fn a_cluster_without_quorum_or_nodes_is_an_outage() {
    let mut cluster = Cluster::start("valkey-9.1");
    let limiter = RateLimiter::cluster(cluster.client()).outage(Outage::Local).separately(true);
    let limiter = limiter.build().expect("options");
    limiter.check(("a", "1000/h")).await.expect("it runs");
    cluster.lose_quorum();
    let check = Check::new("ip:1", "1000/h").and("user:1", "1000/h");
    let report = limiter.check_all(check).await.expect("no outage is an error");
    assert_eq!(report.source, Source::Local);
    assert_eq!(sources(&limiter).await, [Source::Local]);
    drop(cluster);
    assert_eq!(sources(&limiter).await, [Source::Local]);
}

#[tokio::test]
async fn the_limiter_follows_a_cluster_to_the_successor_of_a_node_that_hangs() {
    let cluster = Cluster::with_a_replica("valkey-9.1");
    let limiter = RateLimiter::cluster(cluster.client()).outage(Outage::Allow);
    let limiter = limiter.build().expect("options");
    let is_served = async || {
        limiter.check(("a", "1000/h")).await.expect("no outage is an error").source
            == Source::Server
    };
    until("it is served", is_served).await;
    cluster.fail_over();
    until("its successor serves it", is_served).await;
}

#[tokio::test]
async fn a_cluster_that_never_ran_is_an_outage() {
    let client = redis::cluster::ClusterClient::new(["redis://127.0.0.1:1"]).expect("an address");
    let limiter = RateLimiter::cluster(client).outage(Outage::Local).build().expect("options");
    assert_eq!(sources(&limiter).await, [Source::Local]);
}

#[tokio::test]
async fn by_default_an_outage_returns_the_last_error_at_once() {
    let mut server = Server::start("redis-7.0");
    server.kill();
    let limiter = of(&server).build().expect("options");
    for _ in 0..3 {
        assert!(limiter.check(("a", "1/h")).await.is_err());
    }
    assert!(limiter.away());
    let error = limiter.check(("a", "1/h")).await.expect_err("it is away");
    assert!(error.is_connection_refusal(), "{error}");
    assert!(limiter.refund("a", 1, "1/h").await.is_err(), "nothing else answers a refund");
}

#[tokio::test]
async fn the_process_decides_as_the_server_does() {
    let mut server = Server::start("redis-7.0");
    let limiter = of(&server).outage(Outage::Local).processes(3).policies([("free", "6/h")]);
    let limiter = limiter.build().expect("options");
    let check = Check::new("a", ["bucket:9/h,burst=30,name=x", "6/h,name=y"]);
    let check = check.and("b", "@free").and("c", "@unknown").cost([("x", 4)]);
    server.kill();
    let report = limiter.check_all(check).await.expect("it decides");
    let numbers =
        report.rules.iter().map(|rule| (rule.limit, rule.quota, rule.cost, rule.remaining));
    assert_eq!(numbers.collect::<Vec<_>>(), [(10, 3, 4, 6), (2, 2, 1, 1), (2, 2, 1, 1)]);
    assert_eq!((report.source, report.key.as_deref()), (Source::Local, Some(&b"a"[..])));
    assert_eq!(limiter.peek(("a", "6/h,name=y")).await.expect("it decides").remaining, Some(1));
    assert!(limiter.check(("a", "6/x")).await.is_err(), "a wrong rule stays an error");
    // The server never learns of these checks.
    server.restart();
    let start = Instant::now();
    while limiter.peek(("b", "6/h")).await.expect("it decides").source == Source::Local {
        assert!(start.elapsed() < Duration::from_secs(15));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(limiter.peek(("b", "6/h")).await.expect("it runs").remaining, Some(6));
}

/// The first key stands for the others, and a range is granted whole or not at all.
#[tokio::test]
async fn the_answer_of_nobody_has_a_key_and_what_was_granted() {
    let mut server = Server::start("redis-7.0");
    server.kill();
    let check = Check::new("a", "9/m").and("b", "9/m").cost(2..=7);
    for (outage, granted) in [(Outage::Allow, 7), (Outage::Deny, 0), (Outage::Local, 7)] {
        let limiter = server.builder().outage(outage).build().expect("options");
        let all = limiter.check_all(check.clone()).await.expect("it answers");
        assert_eq!(all.granted, Some(granted), "{outage:?}");
        limiter.reset("a").await.expect_err("it is away");
        let any = limiter.check_any(check.clone()).await.expect("it answers");
        assert_eq!((any.key.as_deref(), any.granted), (Some(&b"a"[..]), Some(granted)));
        assert!(any.rules.iter().all(|rule| rule.key == any.key), "{outage:?}");
        if outage != Outage::Local {
            assert_eq!(all.key.as_deref(), Some(&b"a"[..]), "{outage:?}");
            let one = Check::new("a", "9/m").cost(2..=7);
            assert_eq!(limiter.check(one).await.expect("it answers").granted, Some(granted));
        }
    }
}

/// A failure to connect is not remembered: the next request connects again.
#[tokio::test]
async fn a_server_that_is_back_decides_at_the_first_try() {
    let mut server = Server::start("redis-7.0");
    let config = ConnectionManagerConfig::new().set_number_of_retries(0);
    let manager = ConnectionManager::new_lazy_with_config(server.client(), config);
    let given = RateLimiter::on(manager.expect("an address")).timeout(Duration::from_secs(10));
    let limiters =
        [server.builder(), given].map(|of| of.outage(Outage::Allow).build().expect("options"));
    let source = async |limiter: &RateLimiter| {
        limiter.check(("a", "1000/h")).await.expect("no outage is an error").source
    };
    server.kill();
    for limiter in &limiters {
        while !limiter.away() {
            assert_eq!(source(limiter).await, Source::Outage);
        }
    }
    let away = Instant::now();
    // Meanwhile the `ConnectionManager` connects again, is refused, and remembers the refusal.
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.restart();
    tokio::time::sleep_until((away + Duration::from_secs(1)).into()).await;
    for limiter in &limiters {
        assert_eq!(source(limiter).await, Source::Server);
    }
}

#[tokio::test]
async fn one_refused_connection_is_forgotten() {
    let mut server = Server::start("valkey-9.1");
    let limiter = server.builder().outage(Outage::Allow).build().expect("options");
    server.kill();
    assert_eq!(limiter.check(("a", "9/h")).await.expect("it passes").source, Source::Outage);
    server.restart();
    assert_eq!(limiter.check(("a", "9/h")).await.expect("it passes").source, Source::Server);
}

#[tokio::test]
async fn requests_under_way_end_when_the_limiter_stops_asking() {
    let server = Server::start("redis-8.2");
    let time = Duration::from_secs(4);
    let limiter = of(&server).timeout(time).concurrency(13).outage(Outage::Allow);
    let limiter = limiter.build().expect("options");
    limiter.check(("a", "1000/h")).await.expect("it runs");
    server.freeze(true);
    let ask = async |first: Duration| {
        tokio::time::sleep(first).await;
        limiter.check(("a", "1000/h")).await.expect("no outage is an error").source
    };
    let start = Instant::now();
    let opening =
        async { tokio::join!(ask(Duration::ZERO), ask(Duration::ZERO), ask(Duration::ZERO)) };
    // Ten requests are sent, and ten wait for a place.
    let others = async {
        let mut asked = Vec::new();
        for _ in 0..20 {
            let limiter = limiter.clone();
            asked.push(tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                limiter.check(("a", "1000/h")).await.expect("no outage is an error").source
            }));
        }
        for asked in asked {
            assert_eq!(asked.await.expect("no panic"), Source::Outage);
        }
    };
    tokio::join!(opening, others);
    assert!(start.elapsed() < time + Duration::from_millis(1500), "{:?}", start.elapsed());
    assert_eq!(limiter.outages(), 23);
    server.freeze(false);
}
