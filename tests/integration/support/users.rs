//! Users, and the calls that they may make or not.

use std::fmt::Debug;

use redis::{Connection, RedisResult, ToRedisArgs, Value, cmd};

use crate::support::server::{Flavor, Server};

/// What limits, and is all that `+@ratelimit` gives.
pub const LIMITING: [&str; 10] = [
    "cl.throttle",
    "rl.check",
    "rl.explain",
    "rl.info",
    "rl.log",
    "rl.mcheck",
    "rl.peek",
    "rl.refund",
    "rl.reset",
    "rl.throttle",
];

/// What decides over keys, or tells of more than one.
pub const OPERATING: [&str; 6] =
    ["rl.block", "rl.blocks", "rl.exempt", "rl.top", "rl.unblock", "rl.unexempt"];

/// A call of each of these, on the key if it has one.
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

/// What decides over the server.
pub const ADMINISTERING: [&[&str]; 4] = [
    &["RL.POLICY", "SET", "free", "5/m"],
    &["RL.POLICY", "GET", "free"],
    &["RL.POLICY", "LIST"],
    &["RL.POLICY", "DEL", "free"],
];

/// What only a primary's link and the loader may say, each in a form that would be right from them.
pub const INTERNAL: [&[&str]; 3] = [
    &["RL.APPLY", "rl:1", "1:0:admit:1", "5/m"],
    &["RL.LOAD", "rl:1", "payload"],
    &["RL.APPLY", "rl:1", "1:-1:block:-1", "abuse"],
];

/// Whether modules can bring an ACL category of their own: from Redis 7.4 and Valkey 8.0 on.
pub fn has_own_category(flavor: Flavor) -> bool {
    flavor.version >= if flavor.is_valkey() { (8, 0) } else { (7, 4) }
}

/// Whether modules can put their commands into the server's categories: from 7.2 on.
pub fn has_categories(flavor: Flavor) -> bool {
    flavor.version >= (7, 2)
}

/// The right to limit, in the words of `ACL SETUSER`.
fn right_to_limit(flavor: Flavor) -> Vec<String> {
    if has_own_category(flavor) {
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

/// Makes a user with these rights, as the default user, and connects as it.
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

/// Connects as a user that has the right to limit, and these to keys; it is one user, so earlier
/// connections of it get these too.
pub fn connect_as_limiting(server: &Server, keys: &[&str]) -> Connection {
    let mut rights = right_to_limit(server.flavor());
    rights.extend(keys.iter().map(ToString::to_string));
    connect_as(server, "app", &rights)
}

/// The same for a user that may limit, and what operators do besides, by name.
pub fn connect_as_operating(server: &Server, keys: &[&str]) -> Connection {
    let mut rights = right_to_limit(server.flavor());
    rights.extend(OPERATING.map(|name| format!("+{name}")));
    rights.extend(keys.iter().map(ToString::to_string));
    connect_as(server, "oncall", &rights)
}
