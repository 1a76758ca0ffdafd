//! Every server has all counters that the alerts and the dashboard query.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;

use super::alerts::{RULES, alerts};
use super::dashboard::queries;
use super::prometheus::{Exporter, Prometheus};
use crate::support::client::{ask, refusal, verdict};
use crate::support::server::{self, Server, eventually};

/// Calls whose counters the dashboard shows.
fn work(c: &mut Connection) {
    verdict(c, "RL.CHECK k @free");
    verdict(c, "RL.CHECK k HOLD r EX 1 bucket:9/s slots:9");
    finds_no_memory(c);
}

/// A check that gets `OOM`.
fn finds_no_memory(c: &mut Connection) {
    let () = ask(c, "CONFIG SET maxmemory 1");
    assert!(refusal(c, "RL.CHECK k 5/m").contains("OOM"));
    let () = ask(c, "CONFIG SET maxmemory 1gb");
}

/// The selectors in a text: `redis_up`, `redis_script_values{key="..."}`.
fn selectors(text: &str) -> BTreeSet<&str> {
    let is_name = |char: char| char.is_ascii_lowercase() || char == '_';
    let starts = text.match_indices("redis_").map(|(at, _)| &text[at..]);
    let with_name = starts.map(|rest| rest.split_at(rest.find(|c| !is_name(c)).expect("an end")));
    let selectors = with_name.map(|(name, rest)| match rest.strip_prefix('{') {
        Some(labels) => name.len() + labels.find('}').expect("an end") + 2,
        None => name.len(),
    });
    text.match_indices("redis_")
        .zip(selectors)
        .map(|((at, _), length)| &text[at..at + length])
        .collect()
}

/// The names of a selector with alternatives, such as `key=~"ratelimit_(limited|blocked)"`.
fn alternatives(text: &str) -> impl Iterator<Item = &str> {
    let lists = text.split(r#"key=~"ratelimit_("#).skip(1);
    lists.flat_map(|rest| rest.split(r#")""#).next().expect("an end").split('|'))
}

/// The expressions of the rules, without comments and texts.
fn expressions() -> String {
    let is_text = |line: &&str| {
        let line = line.trim();
        !line.starts_with('#') && !line.starts_with("summary:")
    };
    RULES.lines().filter(is_text).collect::<Vec<_>>().join("\n")
}

#[test]
fn alerts_and_dashboard_ask_for_what_the_exporter_has() {
    let policy = ["policy", "free=5/m"];
    let start = |flavor: server::Flavor| -> Server {
        let builder = flavor.builder().config("maxmemory-policy", "noeviction");
        builder.module_args(&policy).config("maxmemory", "1gb").start()
    };
    let mut servers: Vec<_> = server::all().into_iter().map(start).collect();
    let exporters: Vec<_> = servers.iter().map(|s| (s.flavor().name, Exporter::start(s))).collect();
    let prometheus = Prometheus::start(&exporters);
    let mut clients: Vec<_> = servers.iter().map(Server::connect).collect();
    let is_watched = |name: &str| {
        let rate =
            format!(r#"rate(redis_commands_total{{cmd="rl.check", instance="{name}"}}[5s]) > 0"#);
        prometheus.finds(&rate)
    };
    eventually("each server is scraped twice while it works", || {
        clients.iter_mut().for_each(work);
        thread::sleep(Duration::from_millis(200));
        exporters.iter().all(|(name, _)| is_watched(name))
    });
    let queries = queries();
    for (name, _) in &exporters {
        let has = |query: &str| {
            let here = format!(r#"({query}) and on (instance) redis_up{{instance="{name}"}}"#);
            assert!(prometheus.finds(&here), "{name}: {query}");
        };
        for (title, query) in &queries {
            let query = query.replace("$instance", name).replace("$__rate_interval", "5s");
            assert!(prometheus.finds(&query), "{name}: {title}: {query}");
        }
        selectors(&expressions()).into_iter().for_each(has);
        let queries = queries.iter().map(|(_, query)| query.as_str());
        for field in queries.chain([RULES]).flat_map(alternatives).collect::<BTreeSet<_>>() {
            has(&format!(r#"redis_script_values{{key=~"ratelimit_{field}"}}"#));
        }
    }
    let rules = prometheus.rules();
    assert_eq!(rules.matches(r#""health":"ok""#).count(), alerts().len() + 2, "{rules}");
    // The most important alert, tested from end to end.
    let down = |name| format!(r#"ALERTS{{alertname="RatelimitServerDown", instance="{name}"}}"#);
    servers[0].kill9();
    eventually("an alert", || prometheus.finds(&down(exporters[0].0)));
    assert!(!prometheus.finds(&down(exporters[1].0)));
}

/// With the time that each alert waits. Only the scrapes come earlier than usual.
#[test]
fn an_operator_learns_within_a_minute_of_checks_that_are_errors_or_limit_nothing() {
    let start = || server::one().builder().module_args(&["policy", "free=5/m"]).start();
    let servers = [start(), start(), start()];
    let [bad, _, off] = &servers;
    let names = ["bad", "good", "off"].into_iter();
    let exporters: Vec<_> = names.zip(servers.iter().map(Exporter::start)).collect();
    let prometheus = Prometheus::start(&exporters);
    let is_scraped =
        |(name, _): &_| prometheus.finds(&format!(r#"rate(redis_up{{instance="{name}"}}[9s])"#));
    eventually("each server is scraped twice", || exporters.iter().all(is_scraped));

    let (mut c, began) = (bad.connect(), Instant::now());
    let () = ask(&mut off.connect(), "CONFIG SET ratelimit.enforce off");
    let () = ask(&mut c, "RL.POLICY SET pro 9/m");
    let mut made_up = redis::pipe();
    for user in 0..20_000 {
        made_up.cmd("RL.CHECK").arg(format!("user:{user}")).arg("5/m").ignore();
    }
    let () = made_up.query(&mut c).expect("replies");
    let expected = [
        ("RatelimitUnknownPolicy", "bad"),
        ("RatelimitCheckErrors", "bad"),
        ("RatelimitOutOfMemory", "bad"),
        ("RatelimitKeysGrow", "bad"),
        ("RatelimitNotEnforcing", "off"),
        ("RatelimitPoliciesDiffer", ""),
    ];
    for (alert, instance) in expected {
        eventually(alert, || {
            for _ in 0..1_000 {
                refusal(&mut c, "RL.CHECK k @gone");
                refusal(&mut c, "RL.CHECK k 5/x");
            }
            finds_no_memory(&mut c);
            let firing = r#"alertstate="firing""#;
            prometheus.finds(&format!(
                r#"ALERTS{{alertname="{alert}", instance="{instance}", {firing}}}"#
            ))
        });
        let took = began.elapsed();
        assert!(took < Duration::from_secs(60), "{alert} took {took:?}");
    }
    assert!(!prometheus.finds(r#"ALERTS{instance="good"}"#));
}
