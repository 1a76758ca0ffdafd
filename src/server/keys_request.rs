//! A request for the positions of a command's keys. It may come on a thread that does not hold the
//! server's lock (in Valkey 9.1, on a thread that reads requests), so it only gives access to the
//! arguments.

use std::ffi::c_int;

use redis_module::raw;

use super::api::api;
use super::args::Args;

/// The server asks for the command's keys without executing it.
pub struct KeysRequest<'a> {
    ctx: *mut raw::RedisModuleCtx,
    args: Args<'a>,
}

impl<'a> KeysRequest<'a> {
    /// The request, if the server called the command's handler for its keys.
    ///
    /// # Safety
    /// Context and arguments are those the server called with, for all of 'a.
    pub(super) unsafe fn of(ctx: *mut raw::RedisModuleCtx, args: Args<'a>) -> Option<Self> {
        // SAFETY: the caller's promise.
        let is_request = unsafe { api(raw::RedisModule_IsKeysPositionRequest)(ctx) } != 0;
        is_request.then_some(Self { ctx, args })
    }

    /// All arguments, the command's name first.
    pub const fn args(&self) -> Args<'a> {
        self.args
    }

    /// Reports every argument except the command's name as a key.
    pub(super) fn add_all(&self) {
        for position in 1..self.args.len() {
            self.add(position);
        }
    }

    /// Reports the argument at this position as a key.
    pub fn add(&self, position: usize) {
        if let Ok(position) = c_int::try_from(position) {
            // SAFETY: the context is alive, and asks for keys.
            unsafe { api(raw::RedisModule_KeyAtPos)(self.ctx, position) };
        }
    }
}
