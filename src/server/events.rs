//! What happens to the server's data as a whole.
//!
//! What a module keeps beside the keys has to follow them: when a replica
//! throws its data away for its primary's, when it loads the new beside the
//! old, and when the AOF is rewritten as commands, for which there is no hook.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{ptr, slice};

use redis_module::{Context, raw};

use super::OK;
use super::args::Args;
use super::callback::guarded;
use super::propagation;
use super::server_info::ServerInfo;

/// What is about to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// What a primary sends is loaded from here on.
    LoadsFromPrimary,
    /// What is loaded from here on must not be in force yet.
    StagingBegins,
    /// What was loaded is in force.
    StagingDone,
    /// What was loaded is to be forgotten.
    StagingFailed,
    /// Loading, from wherever, came to its end.
    Loaded,
    /// Loading, from wherever, failed.
    NotLoaded,
    /// This server follows no primary any more.
    Promoted,
    /// The module is loaded, and what the server loads at start; from here on it
    /// can replicate.
    Ready,
    /// In a process that writes an AOF: it begins.
    WritesAof,
    /// In a process that wrote something: it is over.
    HasWritten,
    /// The AOF is being rewritten as commands; what is replicated from now on
    /// comes after them.
    AofRewriteBegan,
}

/// Of those that a server tells what it does, one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicateTo {
    Aof,
    Replicas,
}

/// Where an event is told.
#[derive(Debug)]
pub struct EventContext {
    ctx: *mut raw::RedisModuleCtx,
}

type OnTimer = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void);

/// What to do then.
pub type OnServerEvent = fn(&EventContext, ServerEvent);

static HANDLER: OnceLock<OnServerEvent> = OnceLock::new();

/// The version of each event's description.
const VERSION: u64 = 1;

/// Tells the function of each event.
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
        status == Some(super::OK)
    };
    subscribe(raw::REDISMODULE_EVENT_CRON_LOOP);
    subscribe(raw::REDISMODULE_EVENT_PERSISTENCE);
    // Of these two each server knows one.
    subscribe(raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD);
    subscribe(raw::REDISMODULE_EVENT_REPL_BACKUP);
    let told_of_propagation = [
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    ];
    if told_of_propagation.map(subscribe) == [true; 3] {
        // SAFETY: as above.
        unsafe { propagation::refresh(ctx.ctx) };
    }
}

unsafe extern "C" fn on_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    guarded((), || {
        let ctx = EventContext { ctx };
        match event.id {
            // A module is not told that it was loaded itself; the next turn of the
            // server's clock is after that.
            raw::REDISMODULE_EVENT_CRON_LOOP => {
                if !WAS_READY.load(Ordering::Relaxed) {
                    ctx.soon_ready();
                }
            }
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
                propagation::assume_needed();
                if subevent == NOW_PRIMARY {
                    ctx.dispatch(ServerEvent::Promoted);
                }
            }
            // SAFETY: the context is that of this callback.
            raw::REDISMODULE_EVENT_FORK_CHILD if subevent == DIED => unsafe {
                propagation::refresh(ctx.ctx);
            },
            raw::REDISMODULE_EVENT_FORK_CHILD if subevent == BORN => {
                propagation::assume_needed();
                if ctx.rewrites_aof() && !ctx.rewrites_as_rdb() {
                    ctx.dispatch_soon();
                }
            }
            id => {
                if id == raw::REDISMODULE_EVENT_LOADING {
                    // With the data may come a backlog, and replicas that go on
                    // from it without a snapshot. Whether it is kept is known
                    // when the server is back in its event loop.
                    propagation::assume_needed();
                    if [LOADED, NOT_LOADED].contains(&subevent) {
                        ctx.soon_ready();
                    }
                }
                if let Some(event) = server_event(id, subevent) {
                    ctx.dispatch(event);
                }
            }
        }
    });
}

/// The events of a child.
const BORN: u64 = 0;
const DIED: u64 = 1;
/// The beginnings of an AOF, in a child and in the server, and the ends of saving.
const AOF_START: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START;
const SYNC_AOF_START: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_AOF_START;
const SAVED: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED;
const NOT_SAVED: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED;
/// A change of role.
const NOW_PRIMARY: u64 = 0;
/// The ends of a loading.
const LOADED: u64 = 3;
const NOT_LOADED: u64 = 4;

/// Whether the server was ready once.
static WAS_READY: AtomicBool = AtomicBool::new(false);
/// Whether a timer is set for the moment when the server is ready.
static IS_READY_SOON: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn on_ready(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guarded((), || {
        // SAFETY: the context is that of this callback.
        unsafe { propagation::refresh(ctx) };
        let ctx = EventContext { ctx };
        if must_not_replicate() {
            ctx.set_timer(PAUSED_MS, on_ready);
        } else {
            IS_READY_SOON.store(false, Ordering::Relaxed);
            WAS_READY.store(true, Ordering::Relaxed);
            ctx.dispatch(ServerEvent::Ready);
        }
    });
}

fn server_event(event: u64, subevent: u64) -> Option<ServerEvent> {
    match (event, subevent) {
        (raw::REDISMODULE_EVENT_LOADING, 2) => Some(ServerEvent::LoadsFromPrimary),
        (raw::REDISMODULE_EVENT_LOADING, LOADED) => Some(ServerEvent::Loaded),
        (raw::REDISMODULE_EVENT_LOADING, NOT_LOADED) => Some(ServerEvent::NotLoaded),
        (raw::REDISMODULE_EVENT_PERSISTENCE, AOF_START | SYNC_AOF_START) => {
            Some(ServerEvent::WritesAof)
        }
        (raw::REDISMODULE_EVENT_PERSISTENCE, SAVED | NOT_SAVED) => Some(ServerEvent::HasWritten),
        // 6.2 makes a backup, and restores or discards it: the same thing, told
        // from the other side.
        (raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD | raw::REDISMODULE_EVENT_REPL_BACKUP, what) => {
            match what {
                0 => Some(ServerEvent::StagingBegins),
                1 => Some(ServerEvent::StagingFailed),
                2 => Some(ServerEvent::StagingDone),
                _ => None,
            }
        }
        _ => None,
    }
}

unsafe extern "C" fn on_rewrite(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guarded((), || {
        let ctx = EventContext { ctx };
        if must_not_replicate() {
            ctx.set_timer(PAUSED_MS, on_rewrite);
        } else {
            ctx.dispatch(ServerEvent::AofRewriteBegan);
        }
    });
}

/// How long to wait before looking whether a pause is over.
const PAUSED_MS: i64 = 10;

/// Whether nothing is to be replicated, not even to the file alone: while
/// clients are paused, and while a server hands over to its replica. The server
/// would not survive it.
fn must_not_replicate() -> bool {
    // SAFETY: it takes nothing and reads a flag.
    unsafe { raw::RedisModule_AvoidReplicaTraffic.is_some_and(|avoid| avoid() != 0) }
}

impl EventContext {
    fn dispatch(&self, event: ServerEvent) {
        if let Some(handle) = HANDLER.get() {
            handle(self, event);
        }
    }

    /// Tells of the rewriting when whatever began it is over. Were it a
    /// `BGREWRITEAOF`, the server would take what is replicated meanwhile for
    /// its effect, and replicate and save the command itself beside it.
    fn dispatch_soon(&self) {
        self.set_timer(0, on_rewrite);
    }

    /// Tells that the server is ready when it is back in its event loop.
    fn soon_ready(&self) {
        if !IS_READY_SOON.swap(true, Ordering::Relaxed) {
            self.set_timer(0, on_ready);
        }
    }

    /// Whether this server follows no other.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        // SAFETY: the context is alive.
        let flags = unsafe { raw::RedisModule_GetContextFlags.map(|flags| flags(self.ctx)) };
        let master = raw::REDISMODULE_CTX_FLAGS_MASTER;
        let is_master = flags.is_some_and(|flags| flags.cast_unsigned() & master != 0);
        is_master && !self.is_cluster_replica()
    }

    /// Whether the cluster's description has this server as a replica. A replica
    /// that was started again counts as a master until it has connected to its
    /// own, which is after it has loaded its data.
    fn is_cluster_replica(&self) -> bool {
        const ID: usize = raw::REDISMODULE_NODE_ID_LEN as usize;
        // SAFETY: the context is alive; an id is `ID` bytes, without a NUL, which the
        // other call wants; what is null is not asked for.
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
            let told =
                node_info(self.ctx, id.as_ptr(), none, none, ptr::null_mut(), &raw mut flags);
            told == OK && flags.cast_unsigned() & raw::REDISMODULE_NODE_SLAVE != 0
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

    /// Whether the child that was just born rewrites the AOF.
    fn rewrites_aof(&self) -> bool {
        // SAFETY: the context is alive.
        let persistence = unsafe { ServerInfo::of(self.ctx, c"persistence") };
        let rewrites =
            persistence.and_then(|server_info| server_info.number(c"aof_rewrite_in_progress"));
        rewrites == Some(1)
    }

    /// Whether it writes an RDB file in front, which has a place for what lies
    /// beside the keys.
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

    /// Tells `command subcommand name texts...` to the append-only file or to the
    /// replicas; the others have it.
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
        // SAFETY: the format describes the arguments after it (see
        // `Call::replicate_effect`). All are alive.
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
