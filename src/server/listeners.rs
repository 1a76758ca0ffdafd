//! Whether anybody is told what commands do.
//!
//! `RedisModule_Replicate` builds its arguments before it asks, which is half of
//! what a check costs. A server without replicas and without an append-only file
//! drops them, so it pays to know that it will.
//!
//! Nobody can begin to listen unnoticed. A replica begins with a snapshot, and
//! so does an append-only file that is switched on; a snapshot is made by a
//! child, and that it was born is told before another command runs. What a
//! snapshot holds need not be told, and what comes after it is:
//!
//! ```text
//!   nobody listens          | fork                   | child gone: asked again
//!   ------------------------+------------------------+---------------------------
//!   a replica asks, waits   | it listens from here   | backlog, replicas, AOF?
//! ```
//!
//! Where that is not known to hold (a cluster, whose slots can migrate, and
//! servers yet to come) somebody is taken to listen always. So is one when the
//! server cannot tell.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

/// Read for each effect, written when a child is born or gone.
static LISTENED: AtomicBool = AtomicBool::new(true);

/// Whether there may be somebody to tell.
#[inline]
pub fn any() -> bool {
    LISTENED.load(Ordering::Relaxed)
}

/// Somebody may listen from here on.
pub fn may_come() {
    LISTENED.store(true, Ordering::Relaxed);
}

/// Asks the server whether somebody listens.
///
/// # Safety
/// The context is alive.
pub unsafe fn ask(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the caller's promise.
    let listened = unsafe { somebody_listens(ctx) };
    LISTENED.store(listened.unwrap_or(true), Ordering::Relaxed);
}

/// # Safety
/// The context is alive.
unsafe fn somebody_listens(ctx: *mut raw::RedisModuleCtx) -> Option<bool> {
    let section = |name: &CStr| -> Option<Section> {
        // SAFETY: the caller's promise; the name is copied.
        let data = unsafe { raw::RedisModule_GetServerInfo?(ctx, name.as_ptr()) };
        (!data.is_null()).then_some(Section { ctx, data })
    };
    let (replication, persistence) = (section(c"replication")?, section(c"persistence")?);
    let (server, cluster) = (section(c"server")?, section(c"cluster")?);
    Some(
        !server.makes_snapshots_in_children()
            || cluster.number(c"cluster_enabled")? != 0
            || persistence.number(c"aof_enabled")? != 0
            || replication.text(c"role")? != b"master"
            || replication.number(c"connected_slaves")? != 0
            || replication.number(c"repl_backlog_active")? != 0,
    )
}

/// A section of `INFO`, freed by Drop.
struct Section {
    ctx: *mut raw::RedisModuleCtx,
    data: *mut raw::RedisModuleServerInfoData,
}

impl Section {
    fn number(&self, field: &CStr) -> Option<u64> {
        let mut error: c_int = super::OK;
        // SAFETY: the section is alive; the field's name is read.
        let number = unsafe {
            raw::RedisModule_ServerInfoGetFieldUnsigned?(self.data, field.as_ptr(), &raw mut error)
        };
        (error == super::OK).then_some(number)
    }

    fn text(&self, field: &CStr) -> Option<&[u8]> {
        // SAFETY: the section is alive, and with it the text.
        unsafe {
            let text = raw::RedisModule_ServerInfoGetFieldC?(self.data, field.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes())
        }
    }

    /// Of a server's own section: Redis to 8 and Valkey to 9 are known to.
    fn makes_snapshots_in_children(&self) -> bool {
        let major = |field| {
            let version = std::str::from_utf8(self.text(field)?).ok()?;
            version.split('.').next()?.parse::<u32>().ok()
        };
        match (major(c"valkey_version"), major(c"redis_version")) {
            (Some(valkey), _) => valkey <= 9,
            (None, Some(redis)) => redis <= 8,
            (None, None) => false,
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // SAFETY: got once, freed once.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeServerInfo {
                free(self.ctx, self.data);
            }
        }
    }
}
