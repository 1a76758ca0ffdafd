//! What an upstream says about its limits.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use tower_redis_ratelimit::{Check, Outage, Source, Verdict};

use crate::support::server::{ALL, Server};

#[tokio::test]
async fn every_server_lets_all_callers_follow_an_upstream() {
    for name in ALL {
        let server = Server::start(name);
        let limiter = server.limiter();
        let rule = "100/m,name=requests";
        let left = async || limiter.peek(("api", rule)).await.expect(name).remaining;
        assert!(limiter.check(("api", rule)).await.expect(name).is_allowed());
        assert_eq!(limiter.sync("api", 60, rule).await, Ok(39), "{name}");

        let fields = [
            ("retry-after", "30"),
            ("x-ratelimit-remaining-requests", "12"),
            ("ratelimit", "\"x\";r=500;t=9"),
        ];
        let fields =
            fields.map(|(name, text)| (HeaderName::from_static(name), text.parse().expect(text)));
        let fields = HeaderMap::from_iter(fields);
        let rules =
            [("x-ratelimit-remaining-requests", rule), ("ratelimit", rule), ("x-other", "5/s")];
        let paused = limiter.follow("api", StatusCode::OK, &fields, rules).await;
        assert_eq!(paused, Ok(Duration::ZERO), "{name}");
        assert_eq!(left().await, Some(12), "{name}: lowered, and not raised");
        let paused = limiter.follow("api", StatusCode::TOO_MANY_REQUESTS, &fields, []).await;
        assert_eq!(paused, Ok(Duration::from_secs(30)), "{name}");
        let info: redis::Value =
            limiter.call(redis::cmd("RL.INFO").arg("api"), "api").await.expect(name);
        assert!(format!("{info:?}").contains("429"), "the reason: {info:?}");
        let paused = limiter.check(("api", rule)).await.expect(name);
        let half_a_minute = Duration::from_secs(29)..=Duration::from_secs(30);
        assert_eq!(paused.verdict, Verdict::Limited);
        assert!(paused.wait.is_some_and(|wait| half_a_minute.contains(&wait)), "{paused:?}");
        let left = limiter.pause("api", Duration::from_secs(5), None).await.expect(name);
        assert!(half_a_minute.contains(&left), "it only grows: {left:?}");
        assert_eq!(limiter.resume("api").await, Ok(true));
        assert_eq!(limiter.resume("api").await, Ok(false));
        assert!(limiter.check(("api", rule)).await.expect(name).is_allowed());
    }
}

#[tokio::test]
async fn a_pause_that_others_end_is_not_remembered_for_long() {
    let server = Server::start("redis-7.0");
    let limiter = server.builder().remember_denials(10).build().expect("options");
    let other = server.limiter();
    for full in [false, true] {
        let source = async || {
            if full {
                limiter.check_all(("k", "1/m")).await.expect("it runs").source
            } else {
                limiter.check(("k", "1/m")).await.expect("it runs").source
            }
        };
        other.pause("k", Duration::from_secs(120), None).await.expect("it runs");
        assert_eq!((source().await, source().await), (Source::Server, Source::Denial));
        assert_eq!(other.resume("k").await, Ok(true));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(source().await, Source::Server);
        limiter.reset("k").await.expect("it runs");
    }
}

#[tokio::test]
async fn without_the_server_a_process_keeps_its_own_pauses() {
    let mut server = Server::start("redis-7.0");
    let with = |outage| server.builder().outage(outage).build().expect("options");
    let local = with(Outage::Local);
    let others = [Outage::Raise, Outage::Allow, Outage::Deny].map(with);
    server.kill();
    let remaining = "x-ratelimit-remaining";
    let fields = [("retry-after", "2.5"), (remaining, "1")];
    let fields =
        fields.map(|(name, text)| (HeaderName::from_static(name), text.parse().expect(text)));
    let fields = HeaderMap::from_iter(fields);
    let too_many = StatusCode::TOO_MANY_REQUESTS;
    let paused = local.follow("k", too_many, &fields, [(remaining, "5/m")]).await;
    assert_eq!(paused, Ok(Duration::from_millis(2500)));
    let denied = local.check(("k", "5/m")).await.expect("it decides");
    assert_eq!((denied.verdict, denied.source), (Verdict::Limited, Source::Local));
    let both = Check::new("other", "5/m").and("k", "5/m");
    assert!(!local.check_all(both).await.expect("it decides").is_allowed());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(local.check(("k", "5/m")).await.expect("it decides").remaining, Some(4));
    let minute = Duration::from_secs(60);
    assert_eq!(local.pause("k", minute, None).await, Ok(minute));
    assert!(local.resume("k").await.is_err(), "the server does not hear of it");
    assert!(local.check(("k", "5/m")).await.expect("it decides").is_allowed());
    for limiter in others {
        assert!(limiter.pause("k", minute, None).await.is_err());
        let paused = limiter.follow("k", too_many, &fields, [(remaining, "5/m")]).await;
        assert_eq!(paused, Ok(Duration::ZERO), "{limiter:?}");
    }
}
