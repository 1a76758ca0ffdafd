//! The data type `ratelimit`: how a [`Limiter`] lives as a key's value.
//!
//! ```text
//! rdb      RDB files, DUMP and RESTORE, a replica's first synchronisation
//! aof      rewriting the AOF
//! aux      policies, which lie beside the keys
//! upkeep   freeing, measuring, copying, digesting
//! defrag   moving
//! blocks   the heap blocks of a value, for the last two
//! ```
//!
//! A value is a `Box<Limiter>`. All that leaves the process is the one payload
//! of `limit::encode`, whose first byte is its version; the encoding version
//! the server keeps per value only says that there is one payload.

mod aof;
mod aux;
mod defrag;
mod heap;
mod rdb;
mod upkeep;

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use crate::limit::{self, Limiter};
use crate::metrics;
use crate::server::{CommandError, NativeType, ReadKey, Value, WriteKey};

/// How values are laid out in an RDB file: 1, one payload.
const ENCODING: i32 = 1;

// SAFETY: every method takes and gives a value as `Box<Limiter>`.
pub static LIMITER: NativeType<Limiter> =
    unsafe { NativeType::new(c"ratelimit", ENCODING, METHODS) };

const METHODS: raw::RedisModuleTypeMethods = raw::RedisModuleTypeMethods {
    version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
    rdb_load: Some(rdb::load),
    rdb_save: Some(rdb::save),
    aof_rewrite: Some(aof::rewrite),
    mem_usage: Some(upkeep::mem_usage),
    digest: Some(upkeep::digest),
    free: Some(upkeep::free),
    aux_load: Some(aux::load),
    aux_save: Some(aux::save),
    aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as i32,
    free_effort: Some(upkeep::free_effort),
    unlink: None,
    copy: Some(upkeep::copy),
    defrag: Some(defrag::defrag),
    mem_usage2: None,
    free_effort2: None,
    unlink2: None,
    copy2: None,
    aux_save2: Some(aux::save_if_any),
};

impl Value for Limiter {
    #[inline]
    fn first_block(&self) -> *const [u8] {
        Self::first_block(self)
    }
}

/// Changes a key's value. Where there is none, one is made, and kept if it then
/// holds something.
///
/// # Errors
/// [`CommandError::Internal`] if the server does not take the value.
#[inline]
pub fn update<T>(
    key: &mut WriteKey<'_, Limiter>,
    change: impl FnOnce(&mut Limiter) -> T,
) -> Result<T, CommandError> {
    try_update(key, |limiter| Ok(change(limiter)))
}

/// As [`update`], of a change that may fail and then changes nothing.
///
/// # Errors
/// The change's, or [`CommandError::Internal`] if the server does not take the value.
#[inline]
pub fn try_update<T>(
    key: &mut WriteKey<'_, Limiter>,
    change: impl FnOnce(&mut Limiter) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    if let Some(limiter) = key.value() {
        return change(limiter);
    }
    let mut limiter = Limiter::default();
    let result = change(&mut limiter)?;
    if !limiter.is_empty() {
        key.set(&LIMITER, limiter)?;
        metrics::value_made();
    }
    Ok(result)
}

/// A key's value to change, made first where there is none: as [`update`], but
/// for changes that are not over before something else is done.
#[derive(Debug)]
pub struct Held<'k> {
    key: WriteKey<'k, Limiter>,
    made: Limiter,
}

impl<'k> Held<'k> {
    #[must_use]
    pub fn new(key: WriteKey<'k, Limiter>) -> Self {
        Self { key, made: Limiter::default() }
    }

    pub fn limiter(&mut self) -> &mut Limiter {
        self.key.value().unwrap_or(&mut self.made)
    }

    pub const fn key(&mut self) -> &mut WriteKey<'k, Limiter> {
        &mut self.key
    }

    /// Makes what was made the key's value, if it holds something.
    ///
    /// # Errors
    /// [`CommandError::Internal`] if the server does not take the value.
    pub fn keep(&mut self) -> Result<(), CommandError> {
        if !self.made.is_empty() {
            self.key.set(&LIMITER, std::mem::take(&mut self.made))?;
            metrics::value_made();
        }
        Ok(())
    }
}

/// The memory of a key's value, in bytes; 0 if it has none. Measuring walks
/// through the value as its owner would, so nobody may be looking at it.
#[must_use]
pub fn bytes(key: &mut ReadKey<'_, Limiter>) -> usize {
    // SAFETY: a value of ours or null, which the server leaves alone while the
    // key is open; the borrow of the handle rules out any other reference.
    unsafe { upkeep::mem_usage(key.raw_value().cast_const().cast()) }
}

/// What is saved of a value.
fn payload(limiter: &Limiter) -> Vec<u8> {
    #[cfg(feature = "fault-injection")]
    assert!(
        limiter.access().is_none_or(|access| &*access.reason != b"panic-while-saved"),
        "the panic that a test asked for"
    );
    limit::encode(limiter)
}

/// A value for the server to own.
fn give(limiter: Limiter) -> *mut c_void {
    metrics::value_made();
    give_back(Box::new(limiter))
}

fn give_back(limiter: Box<Limiter>) -> *mut c_void {
    Box::into_raw(limiter).cast()
}

/// A value the server owns, to look at.
///
/// # Safety
/// `value` came from [`give`] and stays as it is for all of 'a.
const unsafe fn lend<'a>(value: *const c_void) -> Option<&'a Limiter> {
    // SAFETY: the caller's promise.
    unsafe { value.cast::<Limiter>().as_ref() }
}

/// A value the server gives back.
///
/// # Safety
/// `value` came from [`give`] and is not used again.
unsafe fn take_back(value: *mut c_void) -> Option<Box<Limiter>> {
    // SAFETY: the caller's promise.
    (!value.is_null()).then(|| unsafe { Box::from_raw(value.cast()) })
}

/// "No value": the server takes it for a failure.
const NOTHING: *mut c_void = ptr::null_mut();
