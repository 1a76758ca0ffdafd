//! Users with rights, and calls that need rights.

use std::fmt::Debug;

use redis::{Connection, RedisResult, ToRedisArgs, Value, cmd};

use crate::support::server::{Flavor, Server};

/// The commands of the ACL category `ratelimit`: all that an application needs.
pub const LIMITING: [&str; 16] = [
    "cl.throttle",
    "rl.check",
    "rl.explain",
    "rl.info",
    "rl.log",
    "rl.mcheck",
    "rl.pause",
    "rl.peek",
    "rl.refund",
    "rl.renew",
    "rl.reset",
    "rl.resume",
    "rl.settle",
    "rl.sync",
    "rl.throttle",
    "rl.wait",
];

/// The commands of operators: they block and exempt keys, or show more than one key.
pub const OPERATING: [&str; 6] =
    ["rl.block", "rl.blocks", "rl.exempt", "rl.top", "rl.unblock", "rl.unexempt"];

/// A call of each command in [`OPERATING`], on the key if it takes one.
pub fn operating_calls(key: &str) -> [Vec<&str>; 6] {
    [
        vec!["RL.BLOCK", key, "EX", "100", "REASON", "abuse"],
        vec!["RL.UNBLOCK", key],
        vec!["RL.EXEMPT", key],
        vec!["RL.UNEXEMPT", key],
        vec!["RL.BLOCKS", "0"],
        vec!["RL.TOP"],
    ]
}

/// Calls of the commands of administrators, which set policies and bind them to keys.
pub const ADMINISTERING: [&[&str]; 6] = [
    &["RL.POLICY", "SET", "free", "5/m"],
    &["RL.POLICY", "GET", "free"],
    &["RL.POLICY", "LIST"],
    &["RL.POLICY", "DEL", "free"],
    &["RL.PLAN", "rl:1", "free"],
    &["RL.UNPLAN", "rl:1"],
];

/// Calls that only a primary's link and the loader may make, in the forms that these send.
pub const INTERNAL: [&[&str]; 3] = [
    &["RL.APPLY", "rl:1", "v1:1:0:admit:1", "5/m"],
    &["RL.LOAD", "rl:1", "payload"],
    &["RL.APPLY", "rl:1", "1:-1:block:-1", "abuse"],
];

/// Whether modules can add an ACL category: from Redis 7.4 and Valkey 8.0 on.
pub fn has_ratelimit_category(flavor: Flavor) -> bool {
    flavor.version >= if flavor.is_valkey() { (8, 0) } else { (7, 4) }
}

/// Whether `ACL CAT` lists the commands of modules. Redis 7.4 and Valkey 8.0 leave them out.
pub fn lists_ratelimit_category(flavor: Flavor) -> bool {
    flavor.version >= if flavor.is_valkey() { (8, 1) } else { (8, 0) }
}

/// Whether modules can put their commands into the server's categories: from 7.2 on.
pub fn has_categories(flavor: Flavor) -> bool {
    flavor.version >= (7, 2)
}

/// The right to call all of [`LIMITING`], as `ACL SETUSER` takes it.
fn right_to_limit(flavor: Flavor) -> Vec<String> {
    if has_ratelimit_category(flavor) {
        vec!["+@ratelimit".to_string()]
    } else {
        LIMITING.map(|name| format!("+{name}")).to_vec()
    }
}

pub fn run(c: &mut Connection, words: &[&str]) -> RedisResult<Value> {
    cmd(words[0]).arg(&words[1..]).query(c)
}

pub fn assert_allowed(c: &mut Connection, words: &[&str]) {
    if let Err(error) = run(c, words) {
        panic!("{}: {error}", words.join(" "));
    }
}

pub fn assert_no_permission(c: &mut Connection, words: &[&str]) {
    let error = run(c, words).expect_err(&words.join(" "));
    assert_eq!(error.code(), Some("NOPERM"), "{}: {error}", words.join(" "));
}

/// Adds rights to a user, creates the user if necessary, and connects as this user.
pub fn connect_as(server: &Server, user: &str, rights: &[impl ToRedisArgs + Debug]) -> Connection {
    let mut c = server.connect();
    let () = cmd("ACL")
        .arg("SETUSER")
        .arg(user)
        .arg(&["on", ">secret"])
        .arg(rights)
        .query(&mut c)
        .unwrap_or_else(|error| panic!("{rights:?}: {error}"));
    let () = cmd("AUTH").arg(user).arg("secret").query(&mut c).unwrap();
    c
}

/// Connects as the user `app`, who may call [`LIMITING`] on these keys. This also gives the
/// right to these keys to earlier connections of `app`.
pub fn connect_as_limiting(server: &Server, keys: &[&str]) -> Connection {
    let mut rights = right_to_limit(server.flavor());
    rights.extend(keys.iter().map(ToString::to_string));
    connect_as(server, "app", &rights)
}

/// Connects as the user `oncall`, who may call [`LIMITING`] and [`OPERATING`] on these keys.
pub fn connect_as_operating(server: &Server, keys: &[&str]) -> Connection {
    let mut rights = right_to_limit(server.flavor());
    rights.extend(OPERATING.map(|name| format!("+{name}")));
    rights.extend(keys.iter().map(ToString::to_string));
    connect_as(server, "oncall", &rights)
}
