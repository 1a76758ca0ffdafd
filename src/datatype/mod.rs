//! The data type `ratelimit`: how a [`Limiter`] lives as a key's value.
//!
//! ```text
//! rdb      RDB files, DUMP and RESTORE, full synchronizations
//! aof      rewriting the AOF
//! aux      policies, the data outside of keys
//! upkeep   freeing, measuring, copying, digesting
//! defrag   moving allocations
//! heap     visiting a value's allocations, for upkeep and defrag
//! value    the pointer that the server keeps
//! ```
//!
//! A value is a `Box<Limiter>` in memory. Elsewhere it is one payload, written by `limit::encode`,
//! whose first byte is its version. The encoding version that the server saves with each value only
//! tells that there is one payload.

mod aof;
mod aux;
mod defrag;
mod heap;
mod rdb;
mod upkeep;
mod value;

use redis_module::raw;

use crate::metrics;
use crate::server::{CommandError, KeyValue, NativeType, ReadKey, WriteKey};
use ratelimit_core::limit::Limiter;

// SAFETY: every method takes and gives values as `value::into_raw` makes them.
pub static LIMITER: NativeType<Limiter> =
    unsafe { NativeType::new(c"ratelimit", value::ENCODING, METHODS) };

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
    unlink: Some(upkeep::unlink),
    copy: Some(upkeep::copy),
    defrag: Some(defrag::defrag),
    mem_usage2: None,
    free_effort2: None,
    unlink2: None,
    copy2: None,
    aux_save2: Some(aux::save_if_any),
};

impl KeyValue for Limiter {
    #[inline]
    fn first_allocation(&self) -> *const u8 {
        Self::first_allocation(self)
    }
}

/// Stores the value that a command created for a missing key, unless it is empty.
///
/// ```text
/// let mut new = Limiter::default();
/// change(key.value().unwrap_or(&mut new));
/// store(&mut key, new)?;
/// ```
///
/// # Errors
/// [`CommandError::Internal`] if the server refuses the value.
#[inline]
pub fn store(key: &mut WriteKey<'_, Limiter>, new: Limiter) -> Result<(), CommandError> {
    if !new.is_empty() {
        key.set(&LIMITER, new)?;
        metrics::value_made();
    }
    Ok(())
}

/// The memory of a key's value in bytes; 0 if the key is missing. Measuring visits the value's
/// allocations through their owner, so it needs the only borrow of the key.
#[must_use]
pub fn bytes(key: &mut ReadKey<'_, Limiter>) -> usize {
    // SAFETY: the value is the module's or null, and the server does not touch it while
    // the key is open; the borrow of the handle rules out any other reference.
    unsafe { upkeep::mem_usage(key.raw_value().cast_const().cast()) }
}
