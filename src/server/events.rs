//! Server events: what happens to the whole data set.
//!
//! The module's data outside of keys must follow these events. A replica replaces its data with its
//! primary's, perhaps while it still serves the old data. And a server that rewrites its AOF as
//! commands calls no function that saves data outside of keys.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::{Context, raw};

use super::alarm;
use super::api::{OK, api, has_flag};
use super::args::{Args, Texts};
use super::call::{Call, CommandError};
use super::call_reply::{self, CallReply, READING, propagating};
use super::callback::completes;
use super::changes::{self, Changes};
use super::clock;
use super::module::end_if_child;
use super::propagation::{self, ServerInfo};

/// What happens to the server's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// This replica starts to load a snapshot of its primary.
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
    /// The server has loaded the module and its data. From here on the module may replicate.
    Ready,
    /// This process, usually a child, starts to write an AOF.
    AofWriteStarted,
    /// This process has written a file, or has failed to.
    WriteEnded,
    /// The AOF is being rewritten as commands. What the server replicates from here on comes after
    /// these commands in the file.
    AofRewriteStarted,
    /// The timer of `alarm` ran, perhaps before the time it was set for.
    Alarm,
    /// In a cluster, while somebody listens to changes: the server's cron ran, ten times a second
    /// by default. Dispatched from the timer, which may call commands.
    ClusterTick,
}

/// Where to replicate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicateTo {
    Aof,
    Replicas,
}

/// What the handler of an event can ask of the server.
pub struct EventContext {
    ctx: *mut raw::RedisModuleCtx,
}

/// A handler of events.
pub type OnServerEvent = fn(&EventContext, ServerEvent);

static HANDLER: OnceLock<OnServerEvent> = OnceLock::new();

/// The version of each event's description.
const VERSION: u64 = 1;

/// Registers the function that handles all events.
pub fn register(ctx: &Context, handler: OnServerEvent) {
    // A module is loaded once.
    let _ = HANDLER.set(handler);
    alarm::prepare(ctx, on_alarm);
    let subscribe = |id| {
        let event = raw::RedisModuleEvent { id, dataver: VERSION };
        // SAFETY: the context is the one the module is being loaded with.
        let status =
            unsafe { api(raw::RedisModule_SubscribeToServerEvent)(ctx.ctx, event, Some(on_event)) };
        status == OK
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
    // Without all of these events, a receiver could appear unnoticed.
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
    let handled = completes(|| {
        let ctx = EventContext { ctx };
        match event.id {
            // No event reports that the module was loaded. The server's first cron cycle comes
            // after that.
            raw::REDISMODULE_EVENT_CRON_LOOP => {
                alarm::catch_up();
                if clock::was_set() {
                    // Waits that end by the wall clock end earlier or later now.
                    changes::report(|| Changes::Everything);
                }
                if READY_IS_DUE.load(Ordering::Relaxed) {
                    alarm::set(AT_ONCE);
                }
                if changes::is_heard() && ctx.is_in_cluster() {
                    dispatch_soon(&TICK_IS_DUE);
                }
            }
            raw::REDISMODULE_EVENT_LOADING => ctx.on_loading(subevent),
            raw::REDISMODULE_EVENT_FORK_CHILD => ctx.on_child(subevent),
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
                propagation::assume_needed();
                // A replica admits no request.
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
            // 6.2 backs up the old data. It discards the backup when the new data is complete, and
            // restores it when loading failed.
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
    });
    if !handled {
        // The file that this child writes could lack the policies, and so could the server's AOF.
        end_if_child();
        dispatch_soon(&REWRITE_IS_DUE);
    }
}

/// Subevents of `LOADING`.
const FROM_PRIMARY: u64 = raw::REDISMODULE_SUBEVENT_LOADING_REPL_START;
const LOADED: u64 = raw::REDISMODULE_SUBEVENT_LOADING_ENDED;
const NOT_LOADED: u64 = raw::REDISMODULE_SUBEVENT_LOADING_FAILED;
/// Subevents of `FORK_CHILD`.
const BORN: u64 = raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN;
const DIED: u64 = raw::REDISMODULE_SUBEVENT_FORK_CHILD_DIED;
/// A subevent of `REPLICATION_ROLE_CHANGED`.
const NOW_PRIMARY: u64 = raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER;
/// Subevents of `PERSISTENCE`: a child or the server itself starts to write an AOF; the writing of
/// any file ends.
const AOF_START: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START;
const SYNC_AOF_START: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_AOF_START;
const SAVED: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED;
const NOT_SAVED: u64 = raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED;
/// Subevents of `REPL_ASYNC_LOAD` or, on 6.2, with the same numbers, of `REPL_BACKUP`.
const STARTED_OR_BACKED_UP: u64 = raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED;
const ABORTED_OR_RESTORED: u64 = raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_ABORTED;
const COMPLETED_OR_DISCARDED: u64 = raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED;

/// Set when `Ready` is to be dispatched as soon as the server is back in its event loop: after the
/// module or data was loaded.
static READY_IS_DUE: AtomicBool = AtomicBool::new(true);
/// Set when `AofRewriteStarted` is to be dispatched in the event loop. Inside `BGREWRITEAOF`, the
/// server would take what the module replicates for an effect of that command, and propagate the
/// command itself too.
static REWRITE_IS_DUE: AtomicBool = AtomicBool::new(false);
/// Set when `ClusterTick` is to be dispatched in the event loop.
static TICK_IS_DUE: AtomicBool = AtomicBool::new(false);

fn dispatch_soon(is_due: &AtomicBool) {
    is_due.store(true, Ordering::Relaxed);
    alarm::set(AT_ONCE);
}

/// A time for [`alarm::set`] that has already passed.
const AT_ONCE: u64 = 0;

fn on_alarm(ctx: *mut raw::RedisModuleCtx) {
    let ctx = EventContext { ctx };
    if READY_IS_DUE.load(Ordering::Relaxed) {
        // SAFETY: the context is that of this callback.
        unsafe { propagation::refresh(ctx.ctx) };
        ctx.dispatch(ServerEvent::Ready);
        READY_IS_DUE.store(false, Ordering::Relaxed);
    }
    if REWRITE_IS_DUE.load(Ordering::Relaxed) {
        ctx.dispatch(ServerEvent::AofRewriteStarted);
        REWRITE_IS_DUE.store(false, Ordering::Relaxed);
    }
    if TICK_IS_DUE.swap(false, Ordering::Relaxed) {
        ctx.dispatch(ServerEvent::ClusterTick);
    }
    ctx.dispatch(ServerEvent::Alarm);
}

impl EventContext {
    fn on_loading(&self, subevent: u64) {
        // The file may contain a backlog, from which replicas continue without a snapshot. The
        // server decides whether to keep the backlog before it returns to its event loop.
        propagation::assume_needed();
        if matches!(subevent, LOADED | NOT_LOADED) {
            dispatch_soon(&READY_IS_DUE);
        }
        match subevent {
            FROM_PRIMARY => self.dispatch(ServerEvent::LoadingFromPrimary),
            LOADED => self.dispatch(ServerEvent::LoadingEnded),
            NOT_LOADED => self.dispatch(ServerEvent::LoadingFailed),
            _ => {}
        }
    }

    fn on_child(&self, subevent: u64) {
        match subevent {
            BORN => {
                propagation::assume_needed();
                if self.rewrites_aof() && !self.rewrites_as_rdb() {
                    dispatch_soon(&REWRITE_IS_DUE);
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

    /// Runs a body with a call that has these arguments, in this database.
    pub fn with_call<T>(&self, db: c_int, args: Args<'_>, body: impl FnOnce(&Call<'_>) -> T) -> T {
        // SAFETY: the context is that of a running callback, under the server's lock.
        unsafe {
            api(raw::RedisModule_SelectDb)(self.ctx, db);
            body(&Call::new(self.ctx, args))
        }
    }

    /// Calls a command in this database.
    ///
    /// # Errors
    /// Those of [`Call::call`].
    pub fn call(
        &self,
        db: c_int,
        command: &CStr,
        args: Args<'_>,
    ) -> Result<CallReply<'static>, CommandError> {
        let ctx = alarm::detached().ok_or(CommandError::Internal)?.as_ptr();
        // SAFETY: the context lives for good, and a callback runs, under the server's lock.
        unsafe {
            api(raw::RedisModule_SelectDb)(ctx, db);
            call_reply::call(ctx, propagating(), command, args)
        }
    }

    fn is_in_cluster(&self) -> bool {
        // SAFETY: the context is alive.
        unsafe { has_flag(self.ctx, raw::REDISMODULE_CTX_FLAGS_CLUSTER) }
    }

    /// True if this server is a primary.
    pub fn is_primary(&self) -> bool {
        // SAFETY: the context is alive.
        let is_master = unsafe { has_flag(self.ctx, raw::REDISMODULE_CTX_FLAGS_MASTER) };
        is_master && !self.is_cluster_replica()
    }

    /// True if the cluster lists this server as a replica. A restarted replica's flags say master
    /// until it has connected to its master, and it connects only after loading its data.
    fn is_cluster_replica(&self) -> bool {
        const ID: usize = raw::REDISMODULE_NODE_ID_LEN as usize;
        // SAFETY: the context is alive. An id has `ID` bytes and no NUL; `id` adds the NUL that the
        // other call needs. That call writes no result whose pointer is null.
        unsafe {
            let my_id = api(raw::RedisModule_GetMyClusterID)();
            if my_id.is_null() {
                return false;
            }
            let mut id = [0; ID + 1];
            ptr::copy_nonoverlapping(my_id, id.as_mut_ptr(), ID);
            let (none, mut flags) = (ptr::null_mut(), 0);
            let node_info = api(raw::RedisModule_GetClusterNodeInfo);
            let status =
                node_info(self.ctx, id.as_ptr(), none, none, ptr::null_mut(), &raw mut flags);
            status == OK && flags.cast_unsigned() & raw::REDISMODULE_NODE_SLAVE != 0
        }
    }

    /// True if the child that has just started rewrites the AOF.
    fn rewrites_aof(&self) -> bool {
        // SAFETY: the context is alive.
        let persistence = unsafe { ServerInfo::of(self.ctx, c"persistence") };
        let rewrites = persistence.and_then(|info| info.number(c"aof_rewrite_in_progress"));
        rewrites == Some(1)
    }

    /// True if a rewritten AOF begins with an RDB file, whose auxiliary data includes the data
    /// outside of keys.
    fn rewrites_as_rdb(&self) -> bool {
        let args = Texts::new(["GET", "aof-use-rdb-preamble"].iter());
        // SAFETY: the context is alive.
        let reply = unsafe { call_reply::call(self.ctx, READING, c"CONFIG", args.args()) };
        let value = reply.as_ref().ok().and_then(|reply| reply.whole().element(1));
        value.is_some_and(|value| value.bytes() == b"yes")
    }

    /// Propagates `command subcommand name texts...` only to the AOF, or only to the replicas.
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
        let (ctx, texts, format) = (self.ctx, texts.raw(), format.as_ptr());
        let (command, subcommand) = (command.as_ptr(), subcommand.as_ptr());
        let (name, name_len) = (name.as_ptr(), name.len());
        // SAFETY: the format describes the arguments after it: C string, buffer with its
        // length, vector of strings with its length. All are alive.
        unsafe {
            let replicate = api(raw::RedisModule_Replicate);
            replicate(
                ctx,
                command,
                format,
                subcommand,
                name,
                name_len,
                texts.as_ptr(),
                texts.len(),
            );
        }
    }
}
