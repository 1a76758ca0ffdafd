//! The server's own `INFO`, field by field.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::api::{OK, api};

/// One section of the server's `INFO`, freed by Drop.
pub struct ServerInfo {
    ctx: *mut raw::RedisModuleCtx,
    data: *mut raw::RedisModuleServerInfoData,
}

impl ServerInfo {
    /// # Safety
    /// The context is alive as long as the section is.
    pub unsafe fn of(ctx: *mut raw::RedisModuleCtx, section: &CStr) -> Option<Self> {
        // SAFETY: the caller's promise; the name is copied.
        let data = unsafe { api(raw::RedisModule_GetServerInfo)(ctx, section.as_ptr()) };
        (!data.is_null()).then_some(Self { ctx, data })
    }

    pub fn number(&self, field: &CStr) -> Option<u64> {
        let mut error: c_int = OK;
        // SAFETY: the section is alive; the field's name is read.
        let number = unsafe {
            let number = api(raw::RedisModule_ServerInfoGetFieldUnsigned);
            number(self.data, field.as_ptr(), &raw mut error)
        };
        (error == OK).then_some(number)
    }

    pub fn text(&self, field: &CStr) -> Option<&[u8]> {
        // SAFETY: the section is alive, and with it the text.
        unsafe {
            let text = api(raw::RedisModule_ServerInfoGetFieldC)(self.data, field.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes())
        }
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        // SAFETY: the section is freed only here.
        unsafe { api(raw::RedisModule_FreeServerInfo)(self.ctx, self.data) };
    }
}
