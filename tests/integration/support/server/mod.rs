//! Real servers for the integration tests: each started with the module in a folder of its own,
//! and stopped when dropped.
//!
//! ```ignore
//! mod server;
//! use redis::cmd;
//!
//! #[test]
//! fn a_first_request_is_allowed() {
//!     server::on_all(|server| {
//!         let mut connection = server.connect();
//!         let check = cmd("RL.CHECK").arg("key").arg("5/m").to_owned();
//!         let reply: Vec<i64> = check.query(&mut connection).unwrap();
//!         assert_eq!(reply, [0, 5, 4, 0, 60_000]);
//!     });
//! }
//! ```
//!
//! `RATELIMIT_SERVERS` says where the servers are (default `.cache/servers`, filled by
//! `make fetch`), `RATELIMIT_MODULE` where the module is (default
//! `target/release/libredis_ratelimit.so`), and `RATELIMIT_FAULTY_MODULE` where the one with a fault
//! is (default `target/faulty/libredis_ratelimit.so`, made by `make faulty`). What is missing fails the test: a matrix with holes
//! would pass for the wrong reason.

mod builder;
pub mod cluster;
mod process;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

pub use builder::Builder;
pub use process::Server;

/// How long anything may take before a test gives up on it. Generous: only failures wait it out.
const DEADLINE: Duration = Duration::from_secs(20);

/// A server program of the test matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavor {
    /// Such as `redis-6.2`: the folder it is fetched into, and its name in failures.
    pub name: &'static str,
    /// Major and minor version, of the line the name begins with.
    pub version: (u8, u8),
}

/// Every server that the module promises to run in, oldest first.
pub fn all() -> Vec<Flavor> {
    [
        ("redis-6.2", (6, 2)),
        ("redis-7.0", (7, 0)),
        ("redis-8.2", (8, 2)),
        ("valkey-8.1", (8, 1)),
        ("valkey-9.1", (9, 1)),
    ]
    .map(|(name, version)| Flavor { name, version })
    .to_vec()
}

impl Flavor {
    /// Starts this server with the module and nothing else out of the ordinary.
    pub fn start(self) -> Server {
        self.builder().start()
    }

    /// For a server with arguments to the module, directives, or a folder of the test's choice.
    pub fn builder(self) -> Builder {
        Builder::new(self)
    }

    pub fn is_valkey(self) -> bool {
        self.name.starts_with("valkey")
    }

    /// Whether it has what Redis 7.0 brought: module configs, `enable-debug-command`, functions.
    pub fn is_7_or_later(self) -> bool {
        self.version >= (7, 0)
    }

    fn program(self) -> PathBuf {
        let program =
            from_env("RATELIMIT_SERVERS", ".cache/servers").join(self.name).join("server");
        assert!(program.exists(), "no {} at {}: run `make fetch`", self.name, program.display());
        program
    }
}

/// Runs a test on each server, started plainly.
pub fn on_all(body: impl Fn(&mut Server)) {
    on_all_with(|builder| builder, body);
}

/// Runs a test on each server, started as `configure` says. All of them get their turn, then the
/// panic names those that failed. A crash of the server fails the test even if the test missed it.
pub fn on_all_with(configure: impl Fn(Builder) -> Builder, body: impl Fn(&mut Server)) {
    let failed: Vec<_> = all()
        .into_iter()
        .filter(|&flavor| {
            let test = || {
                let mut server = configure(flavor.builder()).start();
                let failed = catch_unwind(AssertUnwindSafe(|| body(&mut server))).is_err()
                    || server.has_ended();
                if failed {
                    eprintln!(
                        "---- that was {}; the end of its log:\n{}",
                        flavor.name,
                        server.log_tail()
                    );
                }
                failed
            };
            // A server that does not even start has said so in its own panic.
            catch_unwind(AssertUnwindSafe(test)).unwrap_or(true)
        })
        .map(|flavor| flavor.name)
        .collect();
    assert!(failed.is_empty(), "failed on {}", failed.join(", "));
}

/// Waits for something that a server does in its own time, such as a replica catching up.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A path from the environment, or its default inside the repository.
fn from_env(variable: &str, default: &str) -> PathBuf {
    env::var_os(variable)
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(default), PathBuf::from)
}
