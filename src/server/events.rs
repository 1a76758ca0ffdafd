//! Server events: what happens to the data as a whole.
//!
//! The data that the module has outside of keys must follow them: a replica drops its
//! data for its primary's, or loads the new data while it still serves the old, and a
//! server rewrites its AOF as commands, where no callback saves such data.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{ptr, slice};

use redis_module::{Context, raw};

use super::alarm;
use super::args::Args;
use super::callback::guarded;
use super::changes::{self, Changes};
use super::module::end_if_child;
use super::propagation::{self, must_not_replicate};
use super::server_info::ServerInfo;
use super::status::OK;

/// What happens to the server's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// This replica begins to load a snapshot of its primary.
    LoadingFromPrimary,
    /// Data loaded from here on must not take effect yet.
    StagingStarted,
    /// The data loaded since `StagingStarted` takes effect.
    StagingCompleted,
    /// The data loaded since `StagingStarted` must be dropped.
    StagingAborted,
    /// The server has loaded an RDB file, an AOF or a primary's snapshot.
    LoadingEnded,
    /// The server could not load an RDB file, an AOF or a primary's snapshot.
    LoadingFailed,
    /// This replica has become a primary.
    Promoted,
    /// The module and the data of a start are loaded; the module may replicate from
    /// here on.
    Ready,
    /// This process, a child as a rule, begins to write an AOF.
    AofWriteStarted,
    /// This process has written a file, or has failed to.
    WriteEnded,
    /// The AOF is being rewritten as commands. What the server replicates from here on
    /// follows them in the file.
    AofRewriteStarted,
}

/// A receiver of what the server propagates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicateTo {
    Aof,
    Replicas,
}

/// What the handler of an event can request from the server.
#[derive(Debug)]
pub struct EventContext {
    ctx: *mut raw::RedisModuleCtx,
}

type OnTimer = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void);

/// Handles events.
pub type OnServerEvent = fn(&EventContext, ServerEvent);

static HANDLER: OnceLock<OnServerEvent> = OnceLock::new();

/// The version of each event's description.
const VERSION: u64 = 1;

/// Registers the function that handles all events.
pub fn register(ctx: &Context, handler: OnServerEvent) {
    // A module is loaded once.
    let _ = HANDLER.set(handler);
    let subscribe = |id| {
        let event = raw::RedisModuleEvent { id, dataver: VERSION };
        // SAFETY: the context is the one the module is being loaded with.
        let status = unsafe {
            raw::RedisModule_SubscribeToServerEvent
                .map(|subscribe| subscribe(ctx.ctx, event, Some(on_event)))
        };
        status == Some(OK)
    };
    subscribe(raw::REDISMODULE_EVENT_CRON_LOOP);
    subscribe(raw::REDISMODULE_EVENT_PERSISTENCE);
    subscribe(raw::REDISMODULE_EVENT_FLUSHDB);
    subscribe(raw::REDISMODULE_EVENT_SWAPDB);
    // Each server has one of these two.
    subscribe(raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD);
    subscribe(raw::REDISMODULE_EVENT_REPL_BACKUP);
    let reported = [
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    ];
    // Without these events a receiver could appear unnoticed.
    if reported.map(subscribe) == [true; 3] {
        // SAFETY: the context is the one the module is being loaded with.
        unsafe { propagation::refresh(ctx.ctx) };
    }
}

unsafe extern "C" fn on_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    let handled = guarded(false, || {
        let ctx = EventContext { ctx };
        match event.id {
            // No event reports that the module was loaded. The first turn of the server's
            // cron comes after that.
            raw::REDISMODULE_EVENT_CRON_LOOP => {
                alarm::catch_up();
                if !WAS_READY.load(Ordering::Relaxed) {
                    ctx.dispatch_ready_soon();
                }
            }
            raw::REDISMODULE_EVENT_LOADING => ctx.on_loading(subevent),
            raw::REDISMODULE_EVENT_FORK_CHILD => ctx.on_child(subevent),
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
                propagation::assume_needed();
                // A replica admits nobody.
                changes::report(|| Changes::Everything);
                if subevent == NOW_PRIMARY {
                    ctx.dispatch(ServerEvent::Promoted);
                }
            }
            raw::REDISMODULE_EVENT_FLUSHDB | raw::REDISMODULE_EVENT_SWAPDB => {
                changes::report(|| Changes::Everything);
            }
            raw::REDISMODULE_EVENT_PERSISTENCE => match subevent {
                AOF_START | SYNC_AOF_START => ctx.dispatch(ServerEvent::AofWriteStarted),
                SAVED | NOT_SAVED => ctx.dispatch(ServerEvent::WriteEnded),
                _ => {}
            },
            // 6.2 makes a backup of the old data. It discards the backup when the new data
            // is complete, and restores it when loading failed.
            raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD | raw::REDISMODULE_EVENT_REPL_BACKUP => {
                match subevent {
                    STARTED_OR_BACKED_UP => ctx.dispatch(ServerEvent::StagingStarted),
                    ABORTED_OR_RESTORED => ctx.dispatch(ServerEvent::StagingAborted),
                    COMPLETED_OR_DISCARDED => ctx.dispatch(ServerEvent::StagingCompleted),
                    _ => {}
                }
            }
            _ => {}
        }
        true
    });
    if !handled {
        // A file of this child could lack the policies, as could the AOF of the server.
        end_if_child();
        EventContext { ctx }.dispatch_rewrite_soon();
    }
}

/// Subevents of `LOADING`.
const FROM_PRIMARY: u64 = 2;
const LOADED: u64 = 3;
const NOT_LOADED: u64 = 4;
/// Subevents of `FORK_CHILD`.
const BORN: u64 = 0;
const DIED: u64 = 1;
/// A subevent of `REPLICATION_ROLE_CHANGED`.
const NOW_PRIMARY: u64 = 0;
/// Subevents of `PERSISTENCE`: a child or the server itself begins to write an AOF;
/// the writing of any file ends.
const AOF_START: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START;
const SYNC_AOF_START: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_AOF_START;
const SAVED: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED;
const NOT_SAVED: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED;
/// Subevents of `REPL_ASYNC_LOAD` or, on 6.2, of `REPL_BACKUP`.
const STARTED_OR_BACKED_UP: u64 = 0;
const ABORTED_OR_RESTORED: u64 = 1;
const COMPLETED_OR_DISCARDED: u64 = 2;

/// Whether `Ready` was dispatched before.
static WAS_READY: AtomicBool = AtomicBool::new(false);
/// Whether a timer is set that will dispatch `Ready`.
static READY_IS_DUE: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn on_ready(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    let handled = guarded(false, || {
        // SAFETY: the context is that of this callback.
        unsafe { propagation::refresh(ctx) };
        let ctx = EventContext { ctx };
        if must_not_replicate() {
            ctx.set_timer(PAUSED_MS, on_ready);
        } else {
            READY_IS_DUE.store(false, Ordering::Relaxed);
            WAS_READY.store(true, Ordering::Relaxed);
            ctx.dispatch(ServerEvent::Ready);
        }
        true
    });
    if !handled {
        EventContext { ctx }.set_timer(RETRY_MS, on_ready);
    }
}

unsafe extern "C" fn on_rewrite(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    let handled = guarded(false, || {
        let ctx = EventContext { ctx };
        if must_not_replicate() {
            ctx.set_timer(PAUSED_MS, on_rewrite);
        } else {
            ctx.dispatch(ServerEvent::AofRewriteStarted);
        }
        true
    });
    if !handled {
        EventContext { ctx }.set_timer(RETRY_MS, on_rewrite);
    }
}

/// How long to wait before checking whether a pause is over.
pub const PAUSED_MS: i64 = 10;
/// How long to wait before a timer that panicked is called again.
const RETRY_MS: i64 = 100;

impl EventContext {
    fn on_loading(&self, subevent: u64) {
        // The file may contain a backlog, from which replicas continue without a
        // snapshot. The server decides whether to keep it before it is back in its
        // event loop.
        propagation::assume_needed();
        match subevent {
            FROM_PRIMARY => self.dispatch(ServerEvent::LoadingFromPrimary),
            LOADED => {
                self.dispatch_ready_soon();
                self.dispatch(ServerEvent::LoadingEnded);
            }
            NOT_LOADED => {
                self.dispatch_ready_soon();
                self.dispatch(ServerEvent::LoadingFailed);
            }
            _ => {}
        }
    }

    fn on_child(&self, subevent: u64) {
        match subevent {
            BORN => {
                propagation::assume_needed();
                if self.rewrites_aof() && !self.rewrites_as_rdb() {
                    self.dispatch_rewrite_soon();
                }
            }
            // SAFETY: the context is that of this callback.
            DIED => unsafe { propagation::refresh(self.ctx) },
            _ => {}
        }
    }

    fn dispatch(&self, event: ServerEvent) {
        if let Some(handle) = HANDLER.get() {
            handle(self, event);
        }
    }

    /// Dispatches `AofRewriteStarted` when the server is back in its event loop. During
    /// a `BGREWRITEAOF`, the server would take replicated commands for the effect of that
    /// command, and propagate it as well.
    fn dispatch_rewrite_soon(&self) {
        self.set_timer(0, on_rewrite);
    }

    /// Dispatches `Ready` when the server is back in its event loop.
    fn dispatch_ready_soon(&self) {
        if !READY_IS_DUE.swap(true, Ordering::Relaxed) {
            self.set_timer(0, on_ready);
        }
    }

    /// Whether this server is a primary.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        // SAFETY: the context is alive.
        let flags = unsafe { raw::RedisModule_GetContextFlags.map(|flags| flags(self.ctx)) };
        let master = raw::REDISMODULE_CTX_FLAGS_MASTER;
        let is_master = flags.is_some_and(|flags| flags.cast_unsigned() & master != 0);
        is_master && !self.is_cluster_replica()
    }

    /// Whether this server is a replica by the cluster's description. The flags of a
    /// restarted replica say master until it has connected to its master, which it does
    /// only after it has loaded its data.
    fn is_cluster_replica(&self) -> bool {
        const ID: usize = raw::REDISMODULE_NODE_ID_LEN as usize;
        // SAFETY: the context is alive; an id is `ID` bytes without a NUL, which the
        // other call needs; the results that are null here are not written.
        unsafe {
            let my_id = raw::RedisModule_GetMyClusterID.map_or(ptr::null(), |my_id| my_id());
            let Some(node_info) = raw::RedisModule_GetClusterNodeInfo else { return false };
            if my_id.is_null() {
                return false;
            }
            let mut id: [c_char; ID + 1] = [0; ID + 1];
            ptr::copy_nonoverlapping(my_id, id.as_mut_ptr(), ID);
            let none = ptr::null_mut::<c_char>();
            let mut flags: c_int = 0;
            let status =
                node_info(self.ctx, id.as_ptr(), none, none, ptr::null_mut(), &raw mut flags);
            status == OK && flags.cast_unsigned() & raw::REDISMODULE_NODE_SLAVE != 0
        }
    }

    fn set_timer(&self, milliseconds: i64, on_time: OnTimer) {
        // SAFETY: the context is alive.
        unsafe {
            if let Some(create_timer) = raw::RedisModule_CreateTimer {
                create_timer(self.ctx, milliseconds, Some(on_time), ptr::null_mut());
            }
        }
    }

    /// Whether the child that has just started rewrites the AOF.
    fn rewrites_aof(&self) -> bool {
        // SAFETY: the context is alive.
        let persistence = unsafe { ServerInfo::of(self.ctx, c"persistence") };
        let rewrites = persistence.and_then(|info| info.number(c"aof_rewrite_in_progress"));
        rewrites == Some(1)
    }

    /// Whether a rewritten AOF begins with an RDB file, which has auxiliary data for
    /// what lies outside of keys.
    fn rewrites_as_rdb(&self) -> bool {
        // SAFETY: the context is alive, the format describes the arguments; the
        // reply is freed, once, and its text read before that.
        unsafe {
            let (Some(call), Some(element), Some(text), Some(free)) = (
                raw::RedisModule_Call,
                raw::RedisModule_CallReplyArrayElement,
                raw::RedisModule_CallReplyStringPtr,
                raw::RedisModule_FreeCallReply,
            ) else {
                return false;
            };
            let (get, name) = (c"GET".as_ptr(), c"aof-use-rdb-preamble".as_ptr());
            let reply = call(self.ctx, c"CONFIG".as_ptr(), c"cc".as_ptr(), get, name);
            if reply.is_null() {
                return false;
            }
            let mut len = 0;
            let value = element(reply, 1);
            let start = if value.is_null() { ptr::null() } else { text(value, &raw mut len) };
            let is_yes =
                !start.is_null() && slice::from_raw_parts(start.cast::<u8>(), len) == b"yes";
            free(reply);
            is_yes
        }
    }

    /// Propagates `command subcommand name texts...` to the AOF or to the replicas
    /// alone.
    pub fn replicate_only(
        &self,
        to: ReplicateTo,
        command: &CStr,
        subcommand: &CStr,
        name: &[u8],
        texts: Args<'_>,
    ) {
        let format = match to {
            ReplicateTo::Aof => c"cbvR",
            ReplicateTo::Replicas => c"cbvA",
        };
        let texts = texts.raw();
        // SAFETY: the format describes the arguments after it: C string, buffer with its
        // length, vector of strings with its length. All are alive.
        unsafe {
            if let Some(replicate) = raw::RedisModule_Replicate {
                replicate(
                    self.ctx,
                    command.as_ptr(),
                    format.as_ptr(),
                    subcommand.as_ptr(),
                    name.as_ptr().cast::<c_char>(),
                    name.len(),
                    texts.as_ptr(),
                    texts.len(),
                );
            }
        }
    }
}
