//! One timer in the server's event loop, set for the earliest time at which the module has
//! something to do.
//!
//! Any code that holds the server's lock may set it, even a callback of a data type. Such a callback
//! gets no context, so this file keeps one to create the timer with. The server runs the timer
//! outside of commands, so its handler may write. The handler runs again if it panicked, and is put
//! off while the module must not replicate.
//!
//! The server's timers follow the wall clock: when it steps back, they become late by that step.
//! This file reads a clock that never steps, so it can notice a late timer. Ten times a second, the
//! server's cron calls `catch_up`, which sets a late timer again.
//!
//! Redis 6.2 and 7.0 store a timer's remaining time in 32 bits of microseconds: beyond 35 minutes
//! they would call the handler nonstop. So this file sets a timer for at most half an hour, and its
//! handler sets the next.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use redis_module::{Context, raw};

use super::api::api;
use super::callback::guarded;
use super::clock;
use super::propagation::must_not_replicate;

/// The handler of the timer, called with the context of the callback.
type OnAlarm = fn(*mut raw::RedisModuleCtx);

/// The timer that is set.
#[derive(Clone, Copy)]
struct Armed {
    id: raw::RedisModuleTimerID,
    at_us: u64,
}

/// A context that outlives commands.
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());
static ON_ALARM: OnceLock<OnAlarm> = OnceLock::new();
static ARMED: Mutex<Option<Armed>> = Mutex::new(None);

fn armed() -> MutexGuard<'static, Option<Armed>> {
    ARMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores the timer's handler. Must be called before [`set`].
pub(super) fn prepare(ctx: &Context, on_alarm: OnAlarm) {
    ON_ALARM.get_or_init(|| on_alarm);
    // SAFETY: the context is the one the module is being loaded with; the new one is never
    // freed, as the module is never unloaded.
    let detached = unsafe { api(raw::RedisModule_GetDetachedThreadSafeContext)(ctx.ctx) };
    DETACHED.store(detached, Ordering::Relaxed);
}

/// A context that lives forever; use it only under the server's lock.
pub(super) fn detached() -> Option<NonNull<raw::RedisModuleCtx>> {
    NonNull::new(DETACHED.load(Ordering::Relaxed))
}

/// Sets the timer for `at_us` on the clock of [`clock::steady_us`], unless it is set for an earlier
/// time.
pub fn set(at_us: u64) {
    let mut armed = armed();
    if armed.is_none_or(|armed| armed.at_us > at_us) {
        arm(&mut armed, at_us);
    }
}

/// Sets the timer again if it is late.
pub fn catch_up() {
    let mut armed = armed();
    let late = armed.filter(|armed| armed.at_us < clock::steady_us());
    if let Some(late) = late {
        arm(&mut armed, late.at_us);
    }
}

/// The longest time of one timer.
const LONGEST_US: u64 = 1_800_000_000;

/// Sets the timer, and replaces the one that is set.
fn arm(armed: &mut Option<Armed>, at_us: u64) {
    let Some(ctx) = detached().map(NonNull::as_ptr) else { return };
    let now_us = clock::steady_us();
    let at_us = at_us.min(now_us.saturating_add(LONGEST_US));
    let left_us = at_us.saturating_sub(now_us);
    let left_ms = i64::try_from(left_us.div_ceil(1_000)).unwrap_or(i64::MAX);
    // SAFETY: the context lives forever, and this runs under the server's lock. The timer to stop
    // has not run yet.
    unsafe {
        if let Some(before) = *armed {
            api(raw::RedisModule_StopTimer)(ctx, before.id, ptr::null_mut());
        }
        let create = api(raw::RedisModule_CreateTimer);
        let id = create(ctx, left_ms, Some(on_time), ptr::null_mut());
        *armed = Some(Armed { id, at_us });
    }
}

/// How long to wait after a panic of the handler before calling it again.
const RETRY_US: u64 = 100_000;
/// How long to wait before testing again whether the module may replicate.
const PAUSED_US: u64 = 10_000;

unsafe extern "C" fn on_time(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    *armed() = None;
    let again_in_us = guarded(Some(RETRY_US), || {
        if must_not_replicate() {
            return Some(PAUSED_US);
        }
        if let Some(on_alarm) = ON_ALARM.get() {
            on_alarm(ctx);
        }
        None
    });
    if let Some(again_in_us) = again_in_us {
        set(clock::steady_us().saturating_add(again_in_us));
    }
}
