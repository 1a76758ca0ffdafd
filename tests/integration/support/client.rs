//! What tests say to a server, in few words.
//!
//! ```ignore
//! assert_eq!(ask::<[i64; 5]>(&mut c, "RL.CHECK k 5/m"), [0, 5, 4, 0, 60_000]);
//! assert!(refusal(&mut c, "RL.CHECK k 5/x").contains("5/x"));
//! ```

use redis::{
    Cmd, Connection, ConnectionLike, FromRedisValue, Pipeline, RedisResult, ToRedisArgs, Value,
    from_redis_value, pipe,
};

use crate::support::server::{Flavor, Server, eventually};

/// Rules of every kind that let five through, and no more while a test runs.
pub const FIVE: [&str; 6] = [
    "log:5/h",
    "window:5/366d,res=3",
    "fixed:5/366d,align=first",
    "bucket:1/366d,burst=5",
    "bucket:5/366d,refill=interval",
    "leaky:1/366d,queue=4",
];

/// A command as one types it: words between spaces.
pub fn command(line: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(line.split(' ').collect::<Vec<_>>());
    command
}

/// The reply to a command that must succeed.
pub fn ask<T: FromRedisValue>(c: &mut Connection, line: &str) -> T {
    command(line).query(c).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// What a command that must fail is answered with.
pub fn refusal(c: &mut Connection, line: &str) -> String {
    let reply: RedisResult<Value> = command(line).query(c);
    match reply {
        Err(error) => error.to_string(),
        Ok(value) => panic!("{line}: answered with {value:?}"),
    }
}

/// The reply as it came: an error, also one inside, is a value like others.
pub fn raw_reply(c: &mut Connection, line: &str) -> Value {
    c.req_command(&command(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Whether the answer of `RL.CHECK` or `RL.PEEK` is "allowed".
pub fn allowed(c: &mut Connection, line: &str) -> bool {
    ask::<[i64; 5]>(c, line)[0] == 0
}

/// The third integer of `RL.CHECK` or `RL.PEEK`.
pub fn remaining(c: &mut Connection, line: &str) -> i64 {
    ask::<[i64; 5]>(c, line)[2]
}

pub fn dump(c: &mut Connection, key: &str) -> Option<Vec<u8>> {
    ask(c, &format!("DUMP {key}"))
}

pub fn exists(c: &mut Connection, key: &str) -> bool {
    ask(c, &format!("EXISTS {key}"))
}

/// The server's clock, unix microseconds.
pub fn now_us(c: &mut Connection) -> u64 {
    let (seconds, micros): (u64, u64) = ask(c, "TIME");
    seconds * 1_000_000 + micros
}

/// The server's clock, unix milliseconds.
pub fn now_ms(c: &mut Connection) -> i64 {
    (now_us(c) / 1_000).cast_signed()
}

/// When a key expires, exactly: unix milliseconds, -1 for never, -2 for no key.
pub fn expires_ms(c: &mut Connection, flavor: Flavor, key: &str) -> i64 {
    expiries_ms(c, flavor, &[key])[0]
}

/// The same of several keys.
pub fn expiries_ms(c: &mut Connection, flavor: Flavor, keys: &[impl ToRedisArgs]) -> Vec<i64> {
    let mut asked = pipe();
    if flavor.is_7_or_later() {
        for key in keys {
            asked.cmd("PEXPIRETIME").arg(key);
        }
        return asked.query(c).expect("times");
    }
    // Before 7.0 only what is left can be had: added to a clock that did not move meanwhile.
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

/// A field of `INFO`.
fn info_field(c: &mut Connection, section: &str, field: &str) -> Option<String> {
    let text: String = ask(c, &format!("INFO {section}"));
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == field)
        .map(|(_, value)| value.to_string())
}

/// A number from `INFO`; 0 if there is no such field.
pub fn info(c: &mut Connection, section: &str, field: &str) -> f64 {
    info_field(c, section, field).map_or(0.0, |value| value.parse().expect("a number"))
}

/// Whether a child writes a file, or is about to.
pub fn is_saving(c: &mut Connection) -> bool {
    let text: String = ask(c, "INFO persistence");
    ["rdb_bgsave_in_progress:1", "aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"]
        .iter()
        .any(|busy| text.contains(busy))
}

/// How often a command was executed, by whomever.
pub fn calls(c: &mut Connection, name: &str) -> u64 {
    command_stat(c, name, "calls=").map_or(0, |calls| calls.parse().expect("a number"))
}

/// A part of what `INFO` says of a command that was executed.
fn command_stat(c: &mut Connection, name: &str, part: &str) -> Option<String> {
    let stats = info_field(c, "commandstats", &format!("cmdstat_{name}"))?;
    let value = stats.split(',').find_map(|found| found.strip_prefix(part));
    Some(value.unwrap_or_else(|| panic!("no {part} in {stats}")).to_string())
}

/// Microseconds that a call of a command takes the server in each of these pipelines, when nothing
/// disturbs it: the least of some rounds in which all of them have their turn.
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

/// On average since the last `CONFIG RESETSTAT`.
fn usec_per_call(c: &mut Connection, name: &str) -> f64 {
    command_stat(c, name, "usec_per_call=").expect("it was called").parse().expect("a number")
}

/// Everything the server holds, in one number.
pub fn digest(c: &mut Connection) -> String {
    ask(c, "DEBUG DIGEST")
}

/// A key's value in one number.
pub fn digest_of(c: &mut Connection, key: &str) -> Vec<String> {
    ask(c, &format!("DEBUG DIGEST-VALUE {key}"))
}

/// A replica that has what its primary has, and gets what happens there from now on.
pub fn replica_of(primary: &Server) -> Server {
    let replica = primary.flavor().builder().replica_of(primary).start();
    let mut c = replica.connect();
    eventually("the replica to be linked", || {
        info_field(&mut c, "replication", "master_link_status").as_deref() == Some("up")
    });
    replica
}

/// Has a replica's next attempt to link up fail, and every one after it.
pub fn lock_out(replica: &mut Connection) {
    authenticate_as(replica, "nobody", "nothing");
}

/// Ends `lock_out`.
pub fn let_in(replica: &mut Connection) {
    authenticate_as(replica, "", "");
}

fn authenticate_as(replica: &mut Connection, user: &str, password: &str) {
    for (name, value) in [("masteruser", user), ("masterauth", password)] {
        let () = command("CONFIG SET").arg(name).arg(value).query(replica).expect("OK");
    }
}

/// Waits until one replica has everything this connection wrote.
pub fn replicated(c: &mut Connection) {
    assert_eq!(ask::<i64>(c, "WAIT 1 15000"), 1, "no replica caught up");
}
