//! Decides whether effects have to be propagated at all.
//!
//! `RedisModule_Replicate` builds its arguments before it looks for a receiver, and that is half of
//! the cost of a check. A server without replicas and without an append-only file then drops them,
//! so it pays to know beforehand that there is no receiver.
//!
//! No receiver can appear unnoticed. A replica starts from a snapshot, and so does an append-only
//! file when it is switched on. A child process writes the snapshot, and the server reports the
//! fork before it runs another command: changes before the fork are in the snapshot, changes after
//! it are propagated. The only exception is a restarted primary that finds its backlog in the RDB
//! file: replicas continue from it without a snapshot. The server reports the loading of that file
//! too.
//!
//! ```text
//!   not needed              | fork                    | child exited
//!   ------------------------+-------------------------+----------------------------
//!   a replica asks, waits   | needed from here on     | backlog, replicas, AOF?
//!
//!                           | loading                 | loaded: backlog, replicas, AOF?
//! ```
//!
//! Propagation counts as needed wherever a receiver might appear unnoticed all the same: in a cluster,
//! whose slots can migrate; where snapshots may be made without a fork; on future versions of the server;
//! and where the server does not answer the question or report these events.

use super::api::{OK, api};
use super::args::{Arg, Args};
use super::call::Call;
use super::module::may_save_forkless;
use super::propagation;
use redis_module::raw;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

/// Read for each effect; written on the events described above.
static NEEDED: AtomicBool = AtomicBool::new(true);

/// True if there may be a receiver.
#[inline]
pub fn is_needed() -> bool {
    NEEDED.load(Ordering::Relaxed)
}

/// Starts propagating, because there may soon be a receiver.
pub fn assume_needed() {
    NEEDED.store(true, Ordering::Relaxed);
}

/// True if the module must not replicate, not even to the AOF alone: while clients are paused, and
/// while a server hands over to its replica. If the module replicated then, the server would abort.
pub fn must_not_replicate() -> bool {
    // SAFETY: it takes nothing and reads a flag.
    unsafe { api(raw::RedisModule_AvoidReplicaTraffic)() != 0 }
}

/// Asks the server whether there is a receiver.
///
/// # Safety
/// The context is alive.
pub unsafe fn refresh(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the caller's promise.
    let needed = unsafe { has_receiver(ctx) };
    NEEDED.store(needed.unwrap_or(true), Ordering::Relaxed);
}

/// Whether there is a receiver, or one could appear unnoticed; `None` if the server does not report
/// it.
///
/// # Safety
/// The context is alive.
unsafe fn has_receiver(ctx: *mut raw::RedisModuleCtx) -> Option<bool> {
    // SAFETY: the caller's promise.
    let section = |name| unsafe { ServerInfo::of(ctx, name) };
    let (replication, persistence) = (section(c"replication")?, section(c"persistence")?);
    let (server, cluster) = (section(c"server")?, section(c"cluster")?);
    Some(
        may_save_forkless()
            || !makes_snapshots_in_children(&server)
            || cluster.number(c"cluster_enabled")? != 0
            || persistence.number(c"aof_enabled")? != 0
            || replication.text(c"role")? != b"master"
            || replication.number(c"connected_slaves")? != 0
            || replication.number(c"repl_backlog_active")? != 0,
    )
}

/// True if the server is known to write snapshots in child processes, unless it may save without a fork:
/// Redis 6.2 to 8 and Valkey up to 9.
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

/// One section of the server's `INFO`, freed by Drop.
pub struct ServerInfo {
    ctx: *mut raw::RedisModuleCtx,
    data: *mut raw::RedisModuleServerInfoData,
}

impl ServerInfo {
    /// # Safety
    /// The context is alive as long as the section is.
    pub unsafe fn of(ctx: *mut raw::RedisModuleCtx, section: &CStr) -> Option<Self> {
        // SAFETY: the caller's promise; the name is copied.
        let data = unsafe { api(raw::RedisModule_GetServerInfo)(ctx, section.as_ptr()) };
        (!data.is_null()).then_some(Self { ctx, data })
    }

    pub fn number(&self, field: &CStr) -> Option<u64> {
        let mut error: c_int = OK;
        // SAFETY: the section is alive; the field's name is read.
        let number = unsafe {
            let number = api(raw::RedisModule_ServerInfoGetFieldUnsigned);
            number(self.data, field.as_ptr(), &raw mut error)
        };
        (error == OK).then_some(number)
    }

    pub fn text(&self, field: &CStr) -> Option<&[u8]> {
        // SAFETY: the section is alive, and with it the text.
        unsafe {
            let text = api(raw::RedisModule_ServerInfoGetFieldC)(self.data, field.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes())
        }
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        // SAFETY: the section is freed only here.
        unsafe { api(raw::RedisModule_FreeServerInfo)(self.ctx, self.data) };
    }
}

impl Call<'_> {
    /// True if a replica or the append-only file needs the effects of this call, which has changed
    /// something.
    #[inline]
    pub fn propagates(&self) -> bool {
        let is_needed = propagation::is_needed();
        if !is_needed && !self.counted.replace(true) {
            // No receiver gets this. But the server counts a change, which save points (`save 60
            // 1000`) need.
            self.replicate_verbatim();
        }
        is_needed
    }

    /// Replicates and persists `command key head [text] [text] [arg ...]`.
    pub fn replicate(
        &self,
        command: &CStr,
        key: Arg<'_>,
        head: &[u8],
        texts: [Option<&[u8]>; 2],
        args: Args<'_>,
    ) {
        let (ctx, command, key) = (self.ctx, command.as_ptr(), key.raw);
        let (head, head_len) = (head.as_ptr(), head.len());
        let (start, len) = (args.raw().as_ptr(), args.len());
        // SAFETY: each format describes the arguments after it: `s` a string,
        // `b` a buffer with its length, `v` a vector of strings with its length.
        // All are alive.
        let replicate = || unsafe {
            let replicate = api(raw::RedisModule_Replicate);
            match (texts, args.raw()) {
                ([None, _], &[arg]) => {
                    replicate(ctx, command, c"sbs".as_ptr(), key, head, head_len, arg.raw)
                }
                ([None, _], _) => {
                    replicate(ctx, command, c"sbv".as_ptr(), key, head, head_len, start, len)
                }
                ([Some(one), None], _) => {
                    let (format, one, one_len) = (c"sbbv".as_ptr(), one.as_ptr(), one.len());
                    replicate(ctx, command, format, key, head, head_len, one, one_len, start, len)
                }
                ([Some(one), Some(two)], _) => {
                    let (format, one, one_len) = (c"sbbbv".as_ptr(), one.as_ptr(), one.len());
                    let (two, two_len) = (two.as_ptr(), two.len());
                    replicate(
                        ctx, command, format, key, head, head_len, one, one_len, two, two_len,
                        start, len,
                    )
                }
            };
        };
        #[cfg(feature = "fault-injection")]
        let replicate = super::fault::around(replicate);
        replicate();
    }

    /// Replicates and persists the first arguments of the call.
    pub fn replicate_first(&self, command: &CStr, arguments: usize) {
        let args = self.args().from(1).first(arguments);
        // SAFETY: the format describes the arguments after it; all are alive.
        unsafe {
            let (replicate, format) = (api(raw::RedisModule_Replicate), c"v".as_ptr());
            replicate(self.ctx, command.as_ptr(), format, args.raw().as_ptr(), args.len());
        }
    }

    /// Replicates and persists the call unchanged.
    pub fn replicate_verbatim(&self) {
        // SAFETY: the context is alive.
        unsafe { api(raw::RedisModule_ReplicateVerbatim)(self.ctx) };
    }
}
