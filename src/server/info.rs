//! Sections of `INFO`.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::OnceLock;

use redis_module::{Context, raw};

use super::api::{OK, api};
use super::callback::guarded;

/// The reply to `INFO` being written.
pub struct Info {
    ctx: *mut raw::RedisModuleInfoCtx,
}

impl Info {
    /// Starts the section of this name, or of the module's name. Returns false if the client did not
    /// request it.
    pub fn section(&self, name: Option<&CStr>) -> bool {
        let name = name.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the context is alive; the server copies the name.
        unsafe { api(raw::RedisModule_InfoAddSection)(self.ctx, name) == OK }
    }

    /// Adds a field to the section. The server prefixes its name with the module's: `checks` is
    /// shown as `ratelimit_checks`.
    pub fn add(&self, name: &CStr, value: u64) {
        // SAFETY: the context is alive; the server copies the name.
        unsafe { api(raw::RedisModule_InfoAddFieldULongLong)(self.ctx, name.as_ptr(), value) };
    }

    /// Adds a field with a text.
    pub fn add_text(&self, name: &CStr, text: &CStr) {
        // SAFETY: the context is alive; the server copies the name and the text.
        unsafe {
            api(raw::RedisModule_InfoAddFieldCString)(self.ctx, name.as_ptr(), text.as_ptr())
        };
    }

    /// Adds several numbers in one field: `name:one=1,other=2`.
    pub fn add_several(&self, name: &CStr, numbers: &[(&CStr, u64)]) {
        // SAFETY: the context is alive; the server copies the names; a field that was
        // begun is ended.
        unsafe {
            if api(raw::RedisModule_InfoBeginDictField)(self.ctx, name.as_ptr()) == OK {
                numbers.iter().for_each(|(name, number)| self.add(name, *number));
                api(raw::RedisModule_InfoEndDictField)(self.ctx);
            }
        }
    }
}

/// The functions that write the module's part of `INFO`.
#[derive(Clone, Copy)]
pub struct Sections {
    /// Also called for a crash report, so it must not lock or allocate.
    pub always: fn(&Info),
    /// Not called for a crash report, so it may lock and allocate.
    pub unless_crashing: fn(&Info),
}

static SECTIONS: OnceLock<Sections> = OnceLock::new();

/// Makes `INFO ratelimit` show what the functions write.
pub fn register(ctx: &Context, sections: Sections) {
    // A module is loaded once.
    let _ = SECTIONS.set(sections);
    // SAFETY: the context is the one the module is being loaded with.
    unsafe { api(raw::RedisModule_RegisterInfoFunc)(ctx.ctx, Some(write)) };
}

unsafe extern "C" fn write(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    guarded((), || {
        if let Some(sections) = SECTIONS.get() {
            let info = Info { ctx };
            (sections.always)(&info);
            if for_crash_report == 0 {
                (sections.unless_crashing)(&info);
            }
        }
    });
}
