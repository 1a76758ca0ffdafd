//! What the answers of an upstream, a service that others use too, say about its limits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use ratelimit_core::MAX_PERIOD;
use redis::RedisResult;

use crate::check::ms;
use crate::limiter::RateLimiter;
use crate::outage::{Outage, is_outage};
use crate::settlement::command;
use crate::value;

impl RateLimiter {
    /// Denies every check of the key for this time; a pause that lasts longer stays: `RL.PAUSE`. Replies
    /// with the time that is left.
    ///
    /// # Errors
    /// Those of the server, and an outage, except under [`Outage::Local`]: then the process keeps the
    /// pause.
    pub async fn pause(
        &self,
        key: impl AsRef<[u8]>,
        time: Duration,
        reason: Option<&str>,
    ) -> RedisResult<Duration> {
        self.asker().need_module("pause")?;
        let key = value::key(&key)?;
        value::time("the time of a pause", time)?;
        let mut command = command("RL.PAUSE", key);
        command.arg("PX").arg(ms(time));
        command.arg(reason.map(|reason| ["REASON", reason].to_vec()));
        let (asker, local) = (self.asker(), self.asker().local.answer(&command));
        let left = match asker.number(&command, key).await {
            Err(error) if is_outage(&error) && asker.outage == Outage::Local => {
                Ok(local?.try_into().unwrap_or_default())
            }
            left => left,
        };
        left.map(Duration::from_millis)
    }

    /// Ends a pause: `RL.RESUME`. `false`: there was none.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn resume(&self, key: impl AsRef<[u8]>) -> RedisResult<bool> {
        let key = value::key(&key)?;
        let _freeing = self.asker().freeing(key);
        let command = command("RL.RESUME", key);
        self.asker().flag_of_both(&command, key).await
    }

    /// Lowers the remaining units of a rule to this number, and never raises them: `RL.SYNC`. Replies
    /// with the units consumed for that.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn sync(
        &self,
        key: impl AsRef<[u8]>,
        remaining: u64,
        rule: &str,
    ) -> RedisResult<u64> {
        let key = value::key(&key)?;
        value::units(remaining)?;
        let mut command = command("RL.SYNC", key);
        command.arg("REMAINING").arg(remaining).arg(rule);
        self.asker().number(&command, key).await
    }

    /// Does what an upstream's answer says: a 429, 503, 529 or 403 may pause the key, and a field that says how many
    /// units remain lowers the rule to that number. `remaining` pairs each such field with its rule:
    /// `("x-ratelimit-remaining-tokens", "bucket:30000/m")`.
    /// A pause lasts as long as `Retry-After` says or, for a 429 or 403 without it, until the reset of a
    /// limit of which nothing is left: at most 366 days. Replies with what is left of the pause, or zero. Fields that make
    /// no sense change nothing.
    ///
    /// # Errors
    /// Those of the server, but no outage: other processes learn the limits from their own answers.
    pub async fn follow<'a>(
        &self,
        key: impl AsRef<[u8]>,
        status: StatusCode,
        headers: &HeaderMap,
        remaining: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> RedisResult<Duration> {
        self.asker().need_module("follow")?;
        let (key, mut paused) = (key.as_ref(), Duration::ZERO);
        let done = async {
            if let Some(time) = pause_of(status, headers, SystemTime::now()) {
                paused = self.pause(key, time, Some(status.as_str())).await?;
            }
            for (field, rule) in remaining {
                let Some(left) = joined(headers, field).and_then(|text| units(&text)) else {
                    continue;
                };
                let known = self.peek_all((key, rule)).await?;
                if known.rules.iter().any(|rule| rule.remaining > left) {
                    self.sync(key, left, rule).await?;
                }
            }
            Ok(())
        };
        match done.await {
            Err(error) if !is_outage(&error) => Err(error),
            _ => Ok(paused),
        }
    }
}

/// The fields of a name, joined.
fn joined(fields: &HeaderMap, name: &str) -> Option<String> {
    let texts = fields.get_all(name).iter().map(|value| value.to_str());
    let texts = texts.collect::<Result<Vec<_>, _>>().ok()?;
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// How long no caller should ask: what `Retry-After` says, else the reset of a limit that is used up.
fn pause_of(status: StatusCode, fields: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let now = joined(fields, "date").and_then(|text| date(&text)).unwrap_or(now);
    let asked = || joined(fields, "retry-after").and_then(|text| wait(&text, now));
    let time = match status.as_u16() {
        403 | 429 => asked().or_else(|| reset(status, fields, now))?,
        503 | 529 => asked()?,
        _ => return None,
    };
    (!time.is_zero() && time <= MAX_PERIOD).then_some(time)
}

/// `Retry-After`: seconds, or a date.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    seconds(text).or_else(|| Some(date(text)?.duration_since(now).unwrap_or_default()))
}

/// `t=` of a limit that is used up, else `RateLimit-Reset` or `X-RateLimit-Reset`, seconds or a Unix
/// time, unless its `-Remaining` says that units are left. A 403 is a denial only if none are left.
fn reset(status: StatusCode, fields: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let items = items(&joined(fields, "ratelimit").unwrap_or_default());
    let used_up = items.iter().filter(|item| item.remaining == Some(0));
    if let Some(time) = used_up.filter_map(|item| item.time).max() {
        return Some(Duration::from_secs(time));
    }
    let time = ["ratelimit", "x-ratelimit"].iter().find_map(|name| {
        let time = seconds(&joined(fields, &format!("{name}-reset"))?)?;
        let left = joined(fields, &format!("{name}-remaining")).and_then(|text| units(&text));
        let is_used_up = left.map_or(status == StatusCode::TOO_MANY_REQUESTS, |left| left == 0);
        is_used_up.then_some(time)
    })?;
    // A time longer than any pause is a Unix time.
    if time <= MAX_PERIOD {
        return Some(time);
    }
    time.checked_sub(now.duration_since(UNIX_EPOCH).ok()?)
}

/// What a field says remains: a number, or the least `r=` of a `RateLimit`.
fn units(text: &str) -> Option<u64> {
    whole(text.trim()).or_else(|| items(text).iter().filter_map(|item| item.remaining).min())
}

/// An item of `RateLimit: "name";r=12;t=30`: what remains, and the seconds until more does.
#[derive(Default)]
struct Item {
    remaining: Option<u64>,
    time: Option<u64>,
}

fn items(text: &str) -> Vec<Item> {
    let unquoted = text.split('"').step_by(2).collect::<String>();
    let item = |text: &str| {
        let mut item = Item::default();
        for parameter in text.split(';').skip(1) {
            match parameter.trim().split_once('=') {
                Some(("r", number)) => item.remaining = whole(number),
                Some(("t", number)) => item.time = whole(number),
                _ => {}
            }
        }
        item
    };
    unquoted.split(',').map(item).collect()
}

/// Seconds, perhaps with a fraction.
fn seconds(text: &str) -> Option<Duration> {
    let (number, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let fraction = fraction.bytes().all(|byte| byte.is_ascii_digit()).then_some(fraction)?;
    let part = format!("0.{fraction}").parse::<f64>().ok()?;
    Some(Duration::from_secs(whole(number)?).saturating_add(Duration::from_secs_f64(part)))
}

/// A number of at most twelve digits.
fn whole(text: &str) -> Option<u64> {
    let is_number = text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// One of the three forms of RFC 9110, 5.6.7, or the first with an offset of zero.
fn date(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let in_gmt = text.strip_suffix("+0000").map(|start| format!("{start}GMT"));
    httpdate::parse_http_date(in_gmt.as_deref().unwrap_or(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    const NOW_S: u64 = 1_800_000_000;
    const DAYS_366_S: u64 = 366 * 86_400;

    fn date_of(after_s: i64) -> String {
        let at = Duration::from_secs(NOW_S.checked_add_signed(after_s).unwrap());
        httpdate::fmt_http_date(UNIX_EPOCH + at)
    }

    #[test]
    fn answers_say_how_long_to_pause() {
        for (status, fields, ms) in [
            (429, &[("retry-after", "30")][..], 30_000),
            (503, &[("retry-after", " 0.25 ")], 250),
            (200, &[("retry-after", "30")], 0),
            (429, &[("retry-after", &date_of(30))], 30_000),
            (429, &[("retry-after", &date_of(30)), ("date", &date_of(10))], 20_000),
            (429, &[("retry-after", &DAYS_366_S.to_string())], DAYS_366_S * 1000),
            (429, &[("retry-after", &(DAYS_366_S + 1).to_string())], 0),
            (429, &[("retry-after", &"9".repeat(40))], 0),
            (429, &[("retry-after", &date_of(DAYS_366_S.cast_signed() + 1))], 0),
            (429, &[("retry-after", &date_of(-1))], 0),
            (429, &[("retry-after", "0"), ("x-ratelimit-reset", "30")], 0),
            (429, &[("retry-after", "-30")], 0),
            (429, &[("retry-after", "1.x")], 0),
            (429, &[("retry-after", "soon"), ("x-ratelimit-reset", "7")], 7000),
            (429, &[], 0),
            (429, &[("ratelimit", r#""burst";r=0;t=30"#)], 30_000),
            (
                429,
                &[("ratelimit", r#""a,;t=9";r=0;t=1, "b";t=60;r=0;pk=:YQ==:, "c";r=5;t=3600"#)],
                60_000,
            ),
            (429, &[("ratelimit", r#""a";r=0;t=1"#), ("ratelimit", r#""b";r=0;t=2"#)], 2000),
            (429, &[("ratelimit", r#""burst";r=0;t=-30"#)], 0),
            (429, &[("ratelimit", r#""burst";r=0;t=1e9"#)], 0),
            (429, &[("ratelimit-reset", "2")], 2000),
            (429, &[("x-ratelimit-reset", &(NOW_S + 90).to_string())], 90_000),
            (429, &[("x-ratelimit-reset", &(NOW_S - 90).to_string())], 0),
            (503, &[("x-ratelimit-reset", "7")], 0),
            (529, &[("retry-after", "7")], 7000),
            (403, &[("retry-after", "7")], 7000),
            (403, &[("x-ratelimit-reset", "7")], 0),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7")], 7000),
            (429, &[("x-ratelimit-remaining", "4990"), ("x-ratelimit-reset", "1200")], 0),
            (429, &[("ratelimit", r#""day";r=4990;t=1200"#)], 0),
        ] {
            let mut map = HeaderMap::new();
            for (name, text) in fields {
                map.append(HeaderName::from_static(name), text.parse().unwrap());
            }
            let now = UNIX_EPOCH + Duration::from_secs(NOW_S);
            let pause = pause_of(StatusCode::from_u16(status).unwrap(), &map, now);
            assert_eq!(pause.map_or(0, |pause| pause.as_millis()), ms.into(), "{fields:?}");
        }
    }

    #[test]
    fn answers_say_what_remains() {
        for (text, expected) in [
            ("12", Some(12)),
            (" 0 ", Some(0)),
            (r#""a";r=9;t=60, "b;r=1";r=7"#, Some(7)),
            (r#""a";t=60"#, None),
            (r#""a";r=-3"#, None),
            (r#""a";r=many"#, None),
            ("", None),
            ("-1", None),
            ("many", None),
            ("1.5", None),
            (&"9".repeat(40), None),
        ] {
            assert_eq!(units(text), expected, "{text}");
        }
    }
}
