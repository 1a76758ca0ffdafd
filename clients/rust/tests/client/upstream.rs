//! What an upstream says about its limits.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use tower_redis_ratelimit::Verdict;

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
        limiter.follow("api", StatusCode::OK, &fields, rules).await.expect(name);
        assert_eq!(left().await, Some(12), "{name}: lowered, and not raised");
        limiter.follow("api", StatusCode::TOO_MANY_REQUESTS, &fields, []).await.expect(name);
        let paused = limiter.check(("api", rule)).await.expect(name);
        let half_a_minute = Duration::from_secs(29)..=Duration::from_secs(30);
        assert_eq!(paused.verdict, Verdict::Limited);
        assert!(paused.wait.is_some_and(|wait| half_a_minute.contains(&wait)), "{paused:?}");
        let left = limiter.pause("api", Duration::from_secs(5)).await.expect(name);
        assert!(half_a_minute.contains(&left), "it only grows: {left:?}");
        assert_eq!(limiter.resume("api").await, Ok(true));
        assert_eq!(limiter.resume("api").await, Ok(false));
        assert!(limiter.check(("api", rule)).await.expect(name).is_allowed());
    }
}
