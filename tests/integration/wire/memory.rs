//! What a server still holds after everything was deleted.
//!
//! The first round fills what is never freed: the module's caches and scratch buffers, and the
//! server's tables. After each later round the server must hold no more than after the first,
//! except for [`SLACK`].

use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, Value};

use crate::support::client::{ask, attempt, info};
use crate::support::server::Flavor;
use crate::support::settings::{SETTINGS, config_set};

/// How much memory may differ: server tables that grow by doubling, and buffers.
pub const SLACK: f64 = 192.0 * 1024.0;
/// How long the server may take to free memory in the background, on a machine that is busy with
/// other tests. Leaked memory is never freed.
const FREEING: Duration = Duration::from_secs(20);

/// Deletes everything that clients made the server hold.
pub fn clean(c: &mut Connection, flavor: Flavor) {
    if flavor.is_7_or_later() {
        for setting in &SETTINGS {
            let value = if setting.name == "allow-at" { "yes" } else { setting.default };
            config_set(c, setting, value).expect("a default");
        }
    }
    let names: Vec<String> = ask(c, "RL.POLICY LIST");
    for name in names {
        let () = ask(c, &format!("RL.POLICY DEL {name} FORCE"));
    }
    let deletions = [
        "FLUSHALL SYNC",
        "SCRIPT FLUSH SYNC",
        "SLOWLOG RESET",
        "ACL LOG RESET",
        "LATENCY RESET",
        "CONFIG RESETSTAT",
    ];
    for command in deletions {
        let () = ask(c, command);
    }
    let _: Value = ask(c, "RL.TOP RESET");
    // Only Valkey has logs of long requests and replies, and only servers with jemalloc can
    // purge.
    for command in
        ["COMMANDLOG RESET large-request", "COMMANDLOG RESET large-reply", "MEMORY PURGE"]
    {
        let _: RedisResult<Value> = attempt(c, command);
    }
}

/// The least memory that the server holds after everything was deleted, without client buffers.
/// Stops early once it is at most `enough`.
pub fn held(c: &mut Connection, flavor: Flavor, enough: f64) -> f64 {
    let start = Instant::now();
    let mut least = f64::INFINITY;
    loop {
        clean(c, flavor);
        thread::sleep(Duration::from_millis(50));
        let clients = info(c, "memory", "mem_clients_normal");
        least = least.min(info(c, "memory", "used_memory") - clients);
        if least <= enough || start.elapsed() > FREEING {
            return least;
        }
    }
}
