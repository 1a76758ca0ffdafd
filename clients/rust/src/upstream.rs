//! A service that others use too, the upstream: what its answers say about its limits.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use ratelimit_core::rule::{MAX_PERIOD_US, Rule};
use redis::RedisResult;

use crate::check::ms;
use crate::limiter::{RateLimiter, read};

/// The longest pause.
const LONGEST: Duration = Duration::from_micros(MAX_PERIOD_US);

impl RateLimiter {
    /// Denies every check of the key for this time: `RL.PAUSE`. Replies with what is left, which is more
    /// if a pause was in effect that ends later.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn pause(&self, key: impl AsRef<[u8]>, time: Duration) -> RedisResult<Duration> {
        let key = key.as_ref();
        let mut command = redis::cmd("RL.PAUSE");
        command.arg(key).arg("PX").arg(ms(time).max(1));
        read(self.ask(&command, key).await?).map(Duration::from_millis)
    }

    /// Ends a pause: `RL.RESUME`. `false`: there was none.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn resume(&self, key: impl AsRef<[u8]>) -> RedisResult<bool> {
        let key = key.as_ref();
        self.forget(key);
        let mut command = redis::cmd("RL.RESUME");
        command.arg(key);
        read(self.ask(&command, key).await?)
    }

    /// Lowers what remains under a rule to this number of units: `RL.SYNC`. Replies with the units
    /// consumed for that.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn sync(
        &self,
        key: impl AsRef<[u8]>,
        remaining: u64,
        rule: &str,
    ) -> RedisResult<u64> {
        let key = key.as_ref();
        let mut command = redis::cmd("RL.SYNC");
        command.arg(key).arg("REMAINING").arg(remaining).arg(rule);
        read(self.ask(&command, key).await?)
    }

    /// Lets all callers of an upstream follow its answer: a 429 or 503 with `Retry-After` pauses the key,
    /// and what remains lowers rules. `remaining` names the fields that tell what remains, such as
    /// `ratelimit` or `x-ratelimit-remaining-requests`, each with its rule.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn follow<'a>(
        &self,
        key: impl AsRef<[u8]>,
        status: StatusCode,
        fields: &HeaderMap,
        remaining: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> RedisResult<()> {
        let key = key.as_ref();
        let refuses = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        let wait = retry_after(fields).filter(|wait| !wait.is_zero());
        if let Some(wait) = wait.filter(|_| refuses.contains(&status)) {
            self.pause(key, wait).await?;
        }
        for (field, rule) in remaining {
            let Some(units) = units(fields, field) else { continue };
            // The server refuses more than the rule can have.
            let most = Rule::from_text(rule.as_bytes()).map_or(u64::MAX, |rule| rule.capacity());
            self.sync(key, units.min(most), rule).await?;
        }
        Ok(())
    }
}

/// How long an answer asks to wait by `Retry-After`: seconds, or until a date.
fn retry_after(fields: &HeaderMap) -> Option<Duration> {
    let text = fields.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds).min(LONGEST));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    Some(until.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST))
}

/// What a field says remains: a number, or the least `r=` of draft-ietf-httpapi-ratelimit-headers-11.
fn units(fields: &HeaderMap, name: &str) -> Option<u64> {
    let text = fields.get(name)?.to_str().ok()?;
    let parts = text.split([';', ',']).map(str::trim);
    parts.filter_map(|part| part.strip_prefix("r=").unwrap_or(part).parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn fields(name: &'static str, text: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), text.parse().unwrap())])
    }

    #[test]
    fn fields_of_answers_are_read() {
        let wait = |text: &str| retry_after(&fields("retry-after", text));
        assert_eq!((wait("30"), wait("soon")), (Some(Duration::from_secs(30)), None));
        assert_eq!(wait("99999999999999"), Some(LONGEST));
        let soon = SystemTime::now() + Duration::from_secs(60);
        let until = wait(&httpdate::fmt_http_date(soon)).unwrap();
        assert!((58..=60).contains(&until.as_secs()), "{until:?}");
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        for (text, expected) in [
            ("12", Some(12)),
            (r#""a";r=9;t=60, "b";r=7;t=3600"#, Some(7)),
            ("many", None),
            ("-1", None),
        ] {
            assert_eq!(units(&fields("ratelimit", text), "ratelimit"), expected, "{text}");
        }
    }
}
