//! One timer of the server's event loop, for the earliest instant at which the module has
//! something to do.
//!
//! Any code that runs under the server's lock may set it, also a callback of a data type, which
//! gets no context: this file keeps a context and makes the timer with that. The server calls
//! the timer outside of any command, so what it calls may write.
//!
//! The server's timers go by the wall clock: after a step back each is late by the step. Times here
//! never step, so the server's cron, ten times a second, finds a timer that is late and sets it anew.
//!
//! Redis 6.2 and 7.0 keep what is left of a timer in 32 bits of microseconds: beyond 35 minutes they
//! would call their handler without a pause. So this file sets a timer for half an hour at most,
//! and its handler sets the next.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use redis_module::raw;

use super::args::Args;
use super::call::Call;
use super::callback::guarded;
use super::clock;

/// What the timer calls.
pub type OnAlarm = fn(&AlarmContext);

/// The context of a timer's callback.
#[derive(Debug)]
pub struct AlarmContext {
    ctx: *mut raw::RedisModuleCtx,
}

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

impl Call<'_> {
    /// Allows [`set`] from here on, and names what the timer calls.
    pub fn prepare_alarm(&self, on_alarm: OnAlarm) {
        ON_ALARM.get_or_init(|| on_alarm);
        if DETACHED.load(Ordering::Relaxed).is_null() {
            // SAFETY: the context is alive; the new one is never freed, as the module is
            // never unloaded.
            let detached = unsafe {
                raw::RedisModule_GetDetachedThreadSafeContext
                    .map_or(ptr::null_mut(), |detached| detached(self.ctx()))
            };
            DETACHED.store(detached, Ordering::Relaxed);
        }
    }
}

/// Sets the timer for a time of [`clock::steady_us`], unless it is set for an earlier one.
pub fn set(at_us: u64) {
    let mut armed = armed();
    if armed.is_none_or(|armed| armed.at_us > at_us) {
        arm(&mut armed, at_us);
    }
}

/// Sets the timer anew if it is late.
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
    let ctx = DETACHED.load(Ordering::Relaxed);
    if ctx.is_null() {
        return;
    }
    let now_us = clock::steady_us();
    let at_us = at_us.min(now_us.saturating_add(LONGEST_US));
    let left_us = at_us.saturating_sub(now_us);
    let left_ms = i64::try_from(left_us.div_ceil(1_000)).unwrap_or(i64::MAX);
    // SAFETY: the context lives for good, and nothing else uses it: this runs under the
    // server's lock. The timer to be stopped has not been called.
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

/// How long to wait before a handler that panicked is called again.
const RETRY_US: u64 = 100_000;

unsafe extern "C" fn on_time(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    *armed() = None;
    let handled = guarded(false, || {
        if let Some(on_alarm) = ON_ALARM.get() {
            on_alarm(&AlarmContext { ctx });
        }
        true
    });
    if !handled {
        set(clock::steady_us().saturating_add(RETRY_US));
    }
}

impl AlarmContext {
    /// Runs a body with these arguments in this database, as if they were a command.
    pub fn call<T>(&self, db: c_int, args: Args<'_>, body: impl FnOnce(&Call<'_>) -> T) -> T {
        // SAFETY: the context is that of a running callback, under the server's lock.
        unsafe {
            if let Some(select) = raw::RedisModule_SelectDb {
                select(self.ctx, db);
            }
            body(&Call::new(self.ctx, args))
        }
    }
}
