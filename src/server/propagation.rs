//! Whether anybody is told what commands do.
//!
//! `RedisModule_Replicate` builds its arguments before it asks, which is half of
//! what a check costs. A server without replicas and without an append-only file
//! drops them, so it pays to know that it will.
//!
//! Nobody can begin to listen unnoticed. A replica begins with a snapshot, and
//! so does an append-only file that is switched on; a snapshot is made by a
//! child, and that it was born is told before another command runs. What a
//! snapshot holds need not be told, and what comes after it is. Or a replica
//! goes on from the backlog that its primary found in the RDB file when it was
//! started again; that something is loaded is told too.
//!
//! ```text
//!   nobody listens          | fork                   | child gone: asked again
//!   ------------------------+------------------------+---------------------------
//!   a replica asks, waits   | it listens from here   | backlog, replicas, AOF?
//!
//!                           | loading                | loaded: asked again
//! ```
//!
//! Where that is not known to hold (a cluster, whose slots can migrate, and
//! servers yet to come) somebody is taken to listen always. So is one when the
//! server cannot tell, or would not tell of these events.

use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::server_info::ServerInfo;

/// Read for each effect, written when something of the above happens.
static NEEDED: AtomicBool = AtomicBool::new(true);

/// Whether there may be somebody to tell.
#[inline]
pub fn is_needed() -> bool {
    NEEDED.load(Ordering::Relaxed)
}

/// Somebody may listen from here on.
pub fn assume_needed() {
    NEEDED.store(true, Ordering::Relaxed);
}

/// Asks the server whether somebody listens.
///
/// # Safety
/// The context is alive.
pub unsafe fn refresh(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the caller's promise.
    let needed = unsafe { ask_server(ctx) };
    NEEDED.store(needed.unwrap_or(true), Ordering::Relaxed);
}

/// # Safety
/// The context is alive.
unsafe fn ask_server(ctx: *mut raw::RedisModuleCtx) -> Option<bool> {
    // SAFETY: the caller's promise.
    let section = |name| unsafe { ServerInfo::of(ctx, name) };
    let (replication, persistence) = (section(c"replication")?, section(c"persistence")?);
    let (server, cluster) = (section(c"server")?, section(c"cluster")?);
    Some(
        !makes_snapshots_in_children(&server)
            || cluster.number(c"cluster_enabled")? != 0
            || persistence.number(c"aof_enabled")? != 0
            || replication.text(c"role")? != b"master"
            || replication.number(c"connected_slaves")? != 0
            || replication.number(c"repl_backlog_active")? != 0,
    )
}

/// Redis 6.2 to 8 and Valkey to 9 are known to.
fn makes_snapshots_in_children(server: &ServerInfo) -> bool {
    let version = |field| {
        let version = std::str::from_utf8(server.text(field)?).ok()?;
        let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
        Some((parts.next()??, parts.next()??))
    };
    match (version(c"valkey_version"), version(c"redis_version")) {
        (Some((major, _)), _) => major <= 9,
        (None, Some((6, 2) | (7..=8, _))) => true,
        (None, _) => false,
    }
}
