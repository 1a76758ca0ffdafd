//! The data type `ratelimit`: how a [`Limiter`] lives as a key's value.
//!
//! ```text
//! saved    RDB files and the AOF; policies, the data outside of keys
//! upkeep   freeing, measuring, copying, digesting, moving allocations
//! heap     the pointer that the server keeps, and visiting a value's allocations
//! ```
//!
//! A value is a `Box<Limiter>` in memory. Elsewhere it is one payload, which `key::encode` writes. The
//! payload's first byte is its version. The encoding version that the server saves with each value only
//! says that the value is one payload.

mod heap;
mod saved;
mod upkeep;

use redis_module::raw;

use crate::server::{KeyValue, NativeType, ReadKey};
use ratelimit_engine::key::Limiter;

// SAFETY: every method takes and gives values as `heap::into_raw` makes them.
pub static LIMITER: NativeType<Limiter> =
    unsafe { NativeType::new(c"ratelimit", heap::ENCODING, METHODS) };

const METHODS: raw::RedisModuleTypeMethods = raw::RedisModuleTypeMethods {
    version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
    rdb_load: Some(saved::load),
    rdb_save: Some(saved::save),
    aof_rewrite: Some(saved::rewrite),
    mem_usage: Some(upkeep::mem_usage),
    digest: Some(upkeep::digest),
    free: Some(upkeep::free),
    aux_load: Some(saved::load_aux),
    aux_save: Some(saved::save_aux),
    aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as i32,
    free_effort: Some(upkeep::free_effort),
    unlink: Some(upkeep::unlink),
    copy: Some(upkeep::copy),
    defrag: Some(upkeep::defrag),
    mem_usage2: None,
    free_effort2: None,
    unlink2: None,
    copy2: None,
    aux_save2: Some(saved::save_aux_if_any),
};

impl KeyValue for Limiter {
    #[inline]
    fn first_allocation(&self) -> *const u8 {
        Self::first_allocation(self)
    }
}

/// The memory of a key's value in bytes; 0 if the key is missing. Measuring visits the value's
/// allocations through their owner, so it needs the only borrow of the key.
pub fn bytes(key: &mut ReadKey<'_, Limiter>) -> usize {
    // SAFETY: the value is the module's or null, and the server does not touch it while
    // the key is open; the borrow of the handle rules out any other reference.
    unsafe { upkeep::mem_usage(key.raw_value().cast_const().cast()) }
}
