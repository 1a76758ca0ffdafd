//! The bans of a key in `RL.INFO`.

use std::collections::BTreeMap;

use redis::{Connection, FromRedisValue, Value, cmd};

/// The count of bans, and when it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bans {
    pub bans: i64,
    pub forgiven_ms: i64,
}

/// `None` if there is no such key.
pub fn info_of(c: &mut Connection, key: &str) -> Option<Bans> {
    let reply: Value = cmd("RL.INFO").arg(key).query(c).expect("RL.INFO");
    if reply == Value::Nil {
        return None;
    }
    let fields: BTreeMap<String, Value> = FromRedisValue::from_redis_value(reply).expect("a map");
    let number = |field: &str| {
        let value = fields.get(field).expect(field).clone();
        i64::from_redis_value(value).expect("a number")
    };
    Some(Bans { bans: number("bans"), forgiven_ms: number("forgiven_ms") })
}
