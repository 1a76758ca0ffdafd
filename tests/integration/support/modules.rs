//! Other modules, for a server to load beside this one.

use std::path::PathBuf;

use crate::support::server::from_env;

pub fn redis_cell() -> PathBuf {
    fetched(from_env("RATELIMIT_REDIS_CELL", ".cache/redis-cell/libredis_cell.so"))
}

/// The module in the wheel of Redis 8.2. Only that server can load it.
pub fn falkordb() -> PathBuf {
    fetched(from_env("RATELIMIT_SERVERS", ".cache/servers").join("redis-8.2/falkordb.so"))
}

fn fetched(module: PathBuf) -> PathBuf {
    assert!(module.exists(), "no {}: run `make fetch`", module.display());
    module
}
