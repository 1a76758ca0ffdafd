//! A section of `INFO`.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::OnceLock;

use redis_module::{Context, raw};

use super::callback::guarded;

/// Takes the fields of the section. Their names get the module's in front:
/// `checks` is shown as `ratelimit_checks`.
#[derive(Debug)]
pub struct Fields {
    ctx: *mut raw::RedisModuleInfoCtx,
}

impl Fields {
    pub fn add(&self, name: &CStr, value: u64) {
        // SAFETY: the context is alive; the server copies the name.
        unsafe {
            if let Some(add) = raw::RedisModule_InfoAddFieldULongLong {
                add(self.ctx, name.as_ptr(), value);
            }
        }
    }
}

/// Writes the fields. Also while the server crashes: no locks, no allocation.
pub type WriteFields = fn(&Fields);

static WRITE: OnceLock<WriteFields> = OnceLock::new();

/// Makes `INFO ratelimit` show what the function writes.
pub fn register(ctx: &Context, write: WriteFields) {
    // A module is loaded once.
    let _ = WRITE.set(write);
    // SAFETY: the context is the one the module is being loaded with.
    unsafe {
        if let Some(register) = raw::RedisModule_RegisterInfoFunc {
            register(ctx.ctx, Some(section));
        }
    }
}

unsafe extern "C" fn section(ctx: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    guarded((), || {
        // SAFETY: the context is the one of this callback; without a name the
        // section has the module's.
        let wanted = unsafe {
            raw::RedisModule_InfoAddSection.is_some_and(|add| add(ctx, ptr::null()) == super::OK)
        };
        if let (true, Some(write)) = (wanted, WRITE.get()) {
            write(&Fields { ctx });
        }
    });
}
