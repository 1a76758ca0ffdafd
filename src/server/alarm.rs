//! One timer of the server's event loop, for the earliest instant at which the module has
//! something to do.
//!
//! Any code that runs under the server's lock may set it, also a callback of a data type, which
//! gets no context: this file keeps a context and makes the timer with that. The server calls
//! the timer outside of any command, so what it calls may write. It is called again if it
//! panicked, and later while the module must not replicate.
//!
//! The server's timers go by the wall clock: after a step back each is late by the step. Times here
//! never step, so the server's cron, ten times a second, finds a timer that is late and sets it again.
//!
//! Redis 6.2 and 7.0 keep what is left of a timer in 32 bits of microseconds: beyond 35 minutes they
//! would call their handler without a pause. So this file sets a timer for half an hour at most,
//! and its handler sets the next.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use redis_module::{Context, raw};

use super::callback::guarded;
use super::clock;
use super::propagation::must_not_replicate;

/// What the timer calls, with the context of its callback.
type OnAlarm = fn(*mut raw::RedisModuleCtx);

/// The timer that is set.
#[derive(Clone, Copy, Debug)]
struct Armed {
    id: raw::RedisModuleTimerID,
    at_us: u64,
}

/// A context that no command ends.
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());
static ON_ALARM: OnceLock<OnAlarm> = OnceLock::new();
static ARMED: Mutex<Option<Armed>> = Mutex::new(None);

fn armed() -> MutexGuard<'static, Option<Armed>> {
    ARMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allows [`set`] from here on, and names what the timer calls.
pub(super) fn prepare(ctx: &Context, on_alarm: OnAlarm) {
    ON_ALARM.get_or_init(|| on_alarm);
    // SAFETY: the context is the one the module is being loaded with; the new one is never
    // freed, as the module is never unloaded.
    let detached = unsafe {
        raw::RedisModule_GetDetachedThreadSafeContext
            .map_or(ptr::null_mut(), |detached| detached(ctx.ctx))
    };
    DETACHED.store(detached, Ordering::Relaxed);
}

/// A context that lives for good, to be used under the server's lock alone.
pub(super) fn detached() -> Option<NonNull<raw::RedisModuleCtx>> {
    NonNull::new(DETACHED.load(Ordering::Relaxed))
}

/// Sets the timer for a time of [`clock::steady_us`], unless it is set for an earlier one.
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

/// The longest timer.
const LONGEST_US: u64 = 1_800_000_000;

/// Sets the timer in place of the one that is set.
fn arm(armed: &mut Option<Armed>, at_us: u64) {
    let Some(ctx) = detached().map(NonNull::as_ptr) else { return };
    let now_us = clock::steady_us();
    let at_us = at_us.min(now_us.saturating_add(LONGEST_US));
    let left_us = at_us.saturating_sub(now_us);
    let left_ms = i64::try_from(left_us.div_ceil(1_000)).unwrap_or(i64::MAX);
    // SAFETY: the context lives for good, and this runs under the server's lock. The timer to
    // be stopped has not been called.
    unsafe {
        if let (Some(stop), Some(before)) = (raw::RedisModule_StopTimer, *armed) {
            stop(ctx, before.id, ptr::null_mut());
        }
        *armed = raw::RedisModule_CreateTimer.map(|create| {
            let id = create(ctx, left_ms, Some(on_time), ptr::null_mut());
            Armed { id, at_us }
        });
    }
}

/// How long to wait before what panicked is called again.
const RETRY_US: u64 = 100_000;
/// How long to wait before the next look whether the module may replicate again.
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
