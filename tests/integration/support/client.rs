//! Short ways to send a command and read its reply.
//!
//! ```ignore
//! assert_eq!(ask::<[i64; 5]>(&mut c, "RL.CHECK k 5/m"), [0, 5, 4, 0, 60_000]);
//! assert!(refusal(&mut c, "RL.CHECK k 5/x").contains("5/x"));
//! ```

use std::collections::BTreeMap;

use redis::{
    Cmd, Connection, ConnectionLike, FromRedisValue, Pipeline, RedisResult, ToRedisArgs, Value,
    cmd, from_redis_value, pipe,
};

use crate::support::server::{Flavor, Server, eventually};

/// 2100-01-01T00:00:00Z, the start of a minute, an hour and a day, in Unix microseconds. It is
/// so far ahead that no key with times given by `AT` expires while a test runs.
pub const START_US: u64 = 4_102_444_800_000_000;

/// A command from a line of words with single spaces between them.
pub fn command(line: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(line.split(' ').collect::<Vec<_>>());
    command
}

/// The reply to a command that may fail.
pub fn attempt(c: &mut Connection, line: &str) -> RedisResult<Value> {
    command(line).query(c)
}

/// The reply to a command that must succeed.
pub fn ask<T: FromRedisValue>(c: &mut Connection, line: &str) -> T {
    command(line).query(c).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// The error that a command must fail with.
pub fn refusal(c: &mut Connection, line: &str) -> String {
    match attempt(c, line) {
        Err(error) => error.to_string(),
        Ok(value) => panic!("{line}: answered with {value:?}"),
    }
}

/// The reply as received: an error is a value, even inside an array.
pub fn raw_reply(c: &mut Connection, line: &str) -> Value {
    c.req_command(&command(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// The first integer that `RL.CHECK` or `RL.PEEK` replies: 0 allowed, 1 limited, 2 blocked.
pub fn verdict(c: &mut Connection, line: &str) -> i64 {
    ask::<[i64; 5]>(c, line)[0]
}

/// Whether the verdict of `RL.CHECK` or `RL.PEEK` is "allowed".
pub fn allowed(c: &mut Connection, line: &str) -> bool {
    verdict(c, line) == 0
}

/// The third integer that `RL.CHECK` or `RL.PEEK` replies: the units left.
pub fn remaining(c: &mut Connection, line: &str) -> i64 {
    ask::<[i64; 5]>(c, line)[2]
}

pub fn dump(c: &mut Connection, key: &str) -> Option<Vec<u8>> {
    ask(c, &format!("DUMP {key}"))
}

/// A row of `RL.BLOCKS`: key, `blocked` or `exempt`, time left in milliseconds, reason.
pub type BlockRow<Reason = String> = (String, String, i64, Reason);

/// The rows of a complete scan by `RL.BLOCKS`, sorted. The server may return a key twice.
pub fn blocks(c: &mut Connection, options: &str) -> Vec<BlockRow> {
    let (mut cursor, mut all) = ("0".to_string(), Vec::new());
    loop {
        let line = format!("RL.BLOCKS {cursor} {options}");
        let (next, rows): (String, Vec<BlockRow>) = ask(c, line.trim_end());
        all.extend(rows);
        if next == "0" {
            all.sort();
            all.dedup();
            return all;
        }
        cursor = next;
    }
}

/// Whether a command touches a key, and so aborts a transaction that watches it.
pub fn touches(server: &Server, key: &str, line: &str) -> bool {
    let (mut watcher, mut c) = (server.connect(), server.connect());
    let () = ask(&mut watcher, &format!("WATCH {key}"));
    let _ = raw_reply(&mut c, line);
    let () = ask(&mut watcher, "MULTI");
    let () = ask(&mut watcher, "PING");
    ask::<Option<Vec<Value>>>(&mut watcher, "EXEC").is_none()
}

pub fn exists(c: &mut Connection, key: &str) -> bool {
    ask(c, &format!("EXISTS {key}"))
}

/// The server's clock, Unix microseconds.
pub fn now_us(c: &mut Connection) -> u64 {
    let (seconds, micros): (u64, u64) = ask(c, "TIME");
    seconds * 1_000_000 + micros
}

/// The server's clock, Unix milliseconds.
pub fn now_ms(c: &mut Connection) -> i64 {
    (now_us(c) / 1_000).cast_signed()
}

/// When a key expires: Unix milliseconds, -1 without an expiry, -2 without the key.
pub fn expires_ms(c: &mut Connection, flavor: Flavor, key: &str) -> i64 {
    expiries_ms(c, flavor, &[key])[0]
}

/// When each of some keys expires: Unix milliseconds, -1 without an expiry, -2 without the key.
pub fn expiries_ms(c: &mut Connection, flavor: Flavor, keys: &[impl ToRedisArgs]) -> Vec<i64> {
    let mut asked = pipe();
    if flavor.is_7_or_later() {
        for key in keys {
            asked.cmd("PEXPIRETIME").arg(key);
        }
        return asked.query(c).expect("times");
    }
    // 6.2 replies only the time left. The sum with the clock is right if the clock reads the same
    // before and after.
    for key in keys {
        asked.cmd("TIME").cmd("PTTL").arg(key).cmd("TIME");
    }
    let mut known = vec![None; keys.len()];
    while known.contains(&None) {
        let replies: Vec<Value> = asked.query(c).expect("times");
        let unknown = known.iter_mut().zip(replies.chunks_exact(3));
        for (known, reply) in unknown.filter(|(known, _)| known.is_none()) {
            let reply = Value::Array(reply.to_vec());
            let (before, left, after): ((i64, i64), i64, (i64, i64)) =
                from_redis_value(reply).expect("times");
            let [before, after] = [before, after].map(|(s, us)| s * 1_000 + us / 1_000);
            if left < 0 {
                *known = Some(left);
            } else if before == after {
                *known = Some(before + left);
            }
        }
    }
    known.into_iter().flatten().collect()
}

/// The text of a field of `INFO`.
pub fn info_text(c: &mut Connection, section: &str, field: &str) -> String {
    info_field(c, section, field).unwrap_or_else(|| panic!("INFO {section} has no {field}"))
}

fn info_field(c: &mut Connection, section: &str, field: &str) -> Option<String> {
    let text: String = ask(c, &format!("INFO {section}"));
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == field)
        .map(|(_, value)| value.to_string())
}

/// The number in a field of `INFO`; 0 without such a field.
pub fn info(c: &mut Connection, section: &str, field: &str) -> f64 {
    info_field(c, section, field).map_or(0.0, |value| value.parse().expect("a number"))
}

/// Whether a child process saves or rewrites a file, or is about to.
pub fn is_saving(c: &mut Connection) -> bool {
    let text: String = ask(c, "INFO persistence");
    ["rdb_bgsave_in_progress:1", "aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"]
        .iter()
        .any(|busy| text.contains(busy))
}

/// How many times the server executed a command.
pub fn calls(c: &mut Connection, name: &str) -> u64 {
    command_stat(c, name, "calls=").map_or(0, |calls| calls.parse().expect("a number"))
}

/// A part of a command's statistics in `INFO`; `None` before its first call.
fn command_stat(c: &mut Connection, name: &str, part: &str) -> Option<String> {
    let stats = info_field(c, "commandstats", &format!("cmdstat_{name}"))?;
    let value = stats.split(',').find_map(|found| found.strip_prefix(part));
    Some(value.unwrap_or_else(|| panic!("no {part} in {stats}")).to_string())
}

/// The server's microseconds per call of a command in each of these pipelines. The least of ten
/// rounds counts, so that another running test does not matter.
pub fn least_usec_per_call<const N: usize>(
    c: &mut Connection,
    name: &str,
    pipelines: [&Pipeline; N],
) -> [f64; N] {
    let mut least = [f64::INFINITY; N];
    for _ in 0..10 {
        for (least, calls) in least.iter_mut().zip(pipelines) {
            let () = ask(c, "CONFIG RESETSTAT");
            let _: Value = calls.query(c).expect("replies");
            *least = least.min(usec_per_call(c, name));
        }
    }
    least
}

/// The server's microseconds per call, on average since the last `CONFIG RESETSTAT`.
fn usec_per_call(c: &mut Connection, name: &str) -> f64 {
    command_stat(c, name, "usec_per_call=").expect("it was called").parse().expect("a number")
}

/// A digest of all data of the server.
pub fn digest(c: &mut Connection) -> String {
    ask(c, "DEBUG DIGEST")
}

/// A digest of a key's value.
pub fn digest_of(c: &mut Connection, key: &str) -> Vec<String> {
    ask(c, &format!("DEBUG DIGEST-VALUE {key}"))
}

/// A replica that has loaded its primary's data and follows its stream.
pub fn replica_of(primary: &Server) -> Server {
    let replica = primary.flavor().builder().replica_of(primary).start();
    eventually_linked(&replica);
    replica
}

/// Waits until the link of a replica to its primary is up.
pub fn eventually_linked(replica: &Server) {
    let mut c = replica.connect();
    eventually("the link to the primary", || {
        info_text(&mut c, "replication", "master_link_status") == "up"
    });
}

/// Makes every attempt of a replica to connect to its primary fail, until [`let_in`].
pub fn lock_out(replica: &mut Connection) {
    authenticate_as(replica, "nobody", "nothing");
}

/// Ends [`lock_out`].
pub fn let_in(replica: &mut Connection) {
    authenticate_as(replica, "", "");
}

fn authenticate_as(replica: &mut Connection, user: &str, password: &str) {
    for (name, value) in [("masteruser", user), ("masterauth", password)] {
        let () = command("CONFIG SET").arg(name).arg(value).query(replica).expect("OK");
    }
}

/// Waits until one replica has everything that this connection wrote.
pub fn replicated(c: &mut Connection) {
    assert_eq!(ask::<i64>(c, "WAIT 1 15000"), 1, "no replica caught up");
}

/// The bans of a key in `RL.INFO`: their count, and when it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bans {
    pub bans: i64,
    pub forgiven_ms: i64,
}

/// The bans of a key; `None` if there is no such key.
pub fn bans_of(c: &mut Connection, key: &str) -> Option<Bans> {
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
