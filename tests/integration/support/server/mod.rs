//! Real servers for tests: each starts with the module, in a temporary folder, and ends when it is
//! dropped.
//!
//! ```ignore
//! #[test]
//! fn a_first_request_is_allowed() {
//!     server::on_all(|server| {
//!         let mut c = server.connect();
//!         assert_eq!(ask::<[i64; 5]>(&mut c, "RL.CHECK key 5/m"), [0, 5, 4, 0, 60_000]);
//!     });
//! }
//! ```
//!
//! The environment can override some paths and choices. The default follows the colon:
//!
//! ```text
//! RATELIMIT_SERVERS        the servers: .cache/servers, by make fetch
//! RATELIMIT_MODULE         the module: target/faulty/libredis_ratelimit.so, by make faulty
//! RATELIMIT_FAULTY_MODULE  the module that panics on request: the same
//! RATELIMIT_OTHER_SERVERS  servers of the other processor: .cache/servers, by make fetch
//! RATELIMIT_OTHER_MODULE   their module: target/release/libredis_ratelimit.so, by make build
//! RATELIMIT_PROMETHEUS     Prometheus and redis_exporter: .cache/prometheus, by make fetch
//! RATELIMIT_ONLY           the servers to test, by name: all
//! RATELIMIT_LONG           dear tests run on all servers, if set: not set
//! RATELIMIT_MORE           servers to test besides, each as NAME=PROGRAM, such as redis-7.4=/opt/redis-server: none
//! RATELIMIT_WRAPPER        a tool that servers run under, with its arguments: none
//! RATELIMIT_PATIENCE       the factor of all deadlines: 1
//! RATELIMIT_CC             the compiler of libraries that are preloaded into servers: gcc
//! ```
//!
//! A server or module that is missing fails the test: with fewer servers it would prove less.

mod builder;
pub mod cluster;
mod environment;
mod matrix;
mod process;
mod processor;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

pub use builder::{Builder, free_port, module};
pub use environment::{DEADLINE, SLOWDOWN};
pub use matrix::{oldest_and_newest, one_is_enough};
pub use process::Server;
pub use processor::Processor;

/// A server program of the test matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavor {
    /// Such as `redis-6.2`: its folder, and its name in failures.
    pub name: &'static str,
    /// Major and minor version, of Redis or of Valkey.
    pub version: (u8, u8),
}

/// The servers to test: the test matrix and `RATELIMIT_MORE`, or those of them that
/// `RATELIMIT_ONLY` names, or those that a dear test needs: `matrix.rs`.
pub fn all() -> Vec<Flavor> {
    let wanted: Vec<_> = [
        ("redis-6.2", (6, 2)),
        ("redis-7.0", (7, 0)),
        ("redis-8.2", (8, 2)),
        ("valkey-8.1", (8, 1)),
        ("valkey-9.1", (9, 1)),
    ]
    .map(|(name, version)| Flavor { name, version })
    .into_iter()
    .chain(environment::more_flavors())
    .filter(|flavor| environment::is_wanted(flavor.name))
    .collect();
    assert!(!wanted.is_empty(), "RATELIMIT_ONLY names no server");
    matrix::needed(wanted)
}

/// A single server, for a test that does not depend on the server.
pub fn one() -> Flavor {
    preferred(&all())
}

fn preferred(servers: &[Flavor]) -> Flavor {
    servers.get(1).or(servers.first()).copied().expect("a server to test")
}

impl Flavor {
    /// Starts this server with the module and the default configuration.
    pub fn start(self) -> Server {
        self.builder().start()
    }

    /// A server to configure before it starts.
    pub fn builder(self) -> Builder {
        Builder::new(self)
    }

    pub fn is_valkey(self) -> bool {
        self.name.starts_with("valkey")
    }

    /// Whether its allocator is a library, glibc's or jemalloc's, so that a test can preload
    /// another. It is false for the servers of `make integration-more`, as it is unknown there.
    pub fn has_shared_malloc(self) -> bool {
        self.name != "redis-8.2" && environment::more_program(self).is_none()
    }

    /// Whether it has CLUSTER MIGRATESLOTS, by which a slot moves as a stream of commands. Redis
    /// has another command for that since 8.4.
    pub fn migrates_slots(self) -> bool {
        self.is_valkey() && self.version >= (9, 0)
    }

    /// Whether it has the features of Redis 7.0: settings of modules, subcommands, functions.
    pub fn is_7_or_later(self) -> bool {
        self.version >= (7, 0)
    }
}

/// Runs a test on each server with the default configuration.
pub fn on_all(body: impl Fn(&mut Server)) {
    on_all_with(|builder| builder, body);
}

/// Runs a test on each server, one after the other, as `configure` configures it. After all
/// servers have run, a panic names those that failed. A server that crashed fails even if
/// `body` passed.
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
            // If a server does not start, that panic has given the reason.
            catch_unwind(AssertUnwindSafe(test)).unwrap_or(true)
        })
        .map(|flavor| flavor.name)
        .collect();
    assert!(failed.is_empty(), "failed on {}", failed.join(", "));
}

/// Runs a test on all servers at the same time; `body` starts its own. A panic names those that
/// failed.
pub fn on_each_at_once(body: impl Fn(Flavor) + Sync) {
    let body = &body;
    let failed: Vec<_> = thread::scope(|scope| {
        let runs = all().into_iter().map(|flavor| (flavor.name, scope.spawn(move || body(flavor))));
        let runs: Vec<_> = runs.collect();
        runs.into_iter().filter_map(|(name, run)| run.join().is_err().then_some(name)).collect()
    });
    assert!(failed.is_empty(), "failed on {}", failed.join(", "));
}

/// Waits for something that a server does in its own time, such as a replica catching up.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < *DEADLINE, "not within {:?}: {what}", *DEADLINE);
        thread::sleep(Duration::from_millis(10));
    }
}

/// A path from the environment, or its default inside the repository.
pub fn from_env(variable: &str, default: &str) -> PathBuf {
    env::var_os(variable)
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(default), PathBuf::from)
}

/// redis-cell, for a server to load beside this module.
pub fn redis_cell() -> PathBuf {
    fetched(from_env("RATELIMIT_REDIS_CELL", ".cache/redis-cell/libredis_cell.so"))
}

/// Another module, from the wheel of Redis 8.2. Only that server can load it.
pub fn falkordb() -> PathBuf {
    fetched(from_env("RATELIMIT_SERVERS", ".cache/servers").join("redis-8.2/falkordb.so"))
}

fn fetched(module: PathBuf) -> PathBuf {
    assert!(module.exists(), "no {}: run `make fetch`", module.display());
    module
}
