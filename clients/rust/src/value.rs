//! Values: each kind has one test, which runs before anything is sent or counted.

use std::time::Duration;

use redis::{FromRedisValue, RedisError, RedisResult, Value, make_extension_error};

/// Codes that no server replies.
const MISUSE: &str = "MISUSE";
const UNREADABLE: &str = "UNREADABLE";
/// The most units of a cost, as in the module.
const MOST_UNITS: u64 = 1_000_000_000;
/// How much of an unreadable reply its error shows.
const SHOWN: usize = 100;

/// Whether an error says that the caller gave a wrong value, such as an empty key. Nothing was sent or
/// counted then, and it is never an outage.
pub fn is_misuse(error: &RedisError) -> bool {
    error.code() == Some(MISUSE)
}

pub fn misuse(why: impl Into<String>) -> RedisError {
    make_extension_error(MISUSE.to_string(), Some(why.into()))
}

pub fn expect(is_right: bool, why: impl FnOnce() -> String) -> RedisResult<()> {
    if is_right { Ok(()) } else { Err(misuse(why())) }
}

pub fn key<K: AsRef<[u8]>>(key: &K) -> RedisResult<&[u8]> {
    let key = key.as_ref();
    expect(!key.is_empty(), || "the key is empty".to_string()).map(|()| key)
}

pub fn units(units: u64) -> RedisResult<()> {
    expect(units <= MOST_UNITS, || format!("{units} units, expected at most {MOST_UNITS}"))
}

/// A time that means nothing if it is zero.
pub fn time(what: &str, time: Duration) -> RedisResult<()> {
    expect(!time.is_zero(), || format!("{what} is 0, expected more"))
}

/// The error of a reply that does not have the shape of its command's replies.
pub fn unreadable(value: &Value) -> RedisError {
    let shown = format!("unreadable reply: {:.SHOWN$}", format!("{value:?}"));
    make_extension_error(UNREADABLE.to_string(), Some(shown))
}

pub fn is_unreadable(error: &RedisError) -> bool {
    error.code() == Some(UNREADABLE)
}

/// A whole number, also as text.
pub fn whole(value: &Value) -> Option<u64> {
    i64::from_redis_value_ref(value).ok()?.try_into().ok()
}

/// 1 or 0.
pub fn flag(value: &Value) -> Option<bool> {
    whole(value).filter(|number| *number < 2).map(|number| number == 1)
}
