//! A section of `INFO`.

use std::ffi::{CStr, c_char, c_int};
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

    /// Two numbers in one field: `name:one=1,other=2`.
    pub fn add_pair(&self, name: &CStr, one: (&CStr, u64), other: (&CStr, u64)) {
        // SAFETY: as above; a field that was begun is ended.
        unsafe {
            if let (Some(begin), Some(end)) =
                (raw::RedisModule_InfoBeginDictField, raw::RedisModule_InfoEndDictField)
                && begin(self.ctx, name.as_ptr()) == super::OK
            {
                self.add(one.0, one.1);
                self.add(other.0, other.1);
                end(self.ctx);
            }
        }
    }
}

/// Writes the fields of a section.
pub type WriteFields = fn(&Fields);

/// What `INFO` shows of the module.
#[derive(Clone, Copy, Debug)]
pub struct Sections {
    /// The section with the module's name. It is shown also while the server
    /// crashes, so whoever writes it takes no lock and allocates nothing.
    pub main: WriteFields,
    /// Another, by its name.
    pub other: (&'static CStr, WriteFields),
}

static SECTIONS: OnceLock<Sections> = OnceLock::new();

/// Makes `INFO ratelimit` show what the functions write.
pub fn register(ctx: &Context, sections: Sections) {
    // A module is loaded once.
    let _ = SECTIONS.set(sections);
    // SAFETY: the context is the one the module is being loaded with.
    unsafe {
        if let Some(register) = raw::RedisModule_RegisterInfoFunc {
            register(ctx.ctx, Some(section));
        }
    }
}

unsafe extern "C" fn section(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    guarded((), || {
        let Some(sections) = SECTIONS.get() else { return };
        // SAFETY: the context is the one of this callback, and a section without
        // a name has the module's; the server copies names.
        let begin = |name: *const c_char| unsafe {
            raw::RedisModule_InfoAddSection.is_some_and(|add| add(ctx, name) == super::OK)
        };
        if begin(ptr::null()) {
            (sections.main)(&Fields { ctx });
        }
        let (name, write) = sections.other;
        if for_crash_report == 0 && begin(name.as_ptr()) {
            write(&Fields { ctx });
        }
    });
}
