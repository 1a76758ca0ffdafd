//! Clients that get their reply later.
//!
//! ```text
//!  let_wait  -> the client waits  -> answer        the module answers
//!                                 -> H::unblocked  CLIENT UNBLOCK id
//!                                 -> H::gone       the client left, was killed or unblocked with
//!                                                  an error, or the server became a replica
//! ```
//!
//! A client is blocked without the server's timeout, because the server only checks timeouts ten
//! times a second. It is not blocked on its key, because a server wakes such clients only while
//! the key exists.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::ptr::NonNull;

use redis_module::raw;

use super::api::api;
use super::args::Args;
use super::call::{Call, CommandError};
use super::callback::{completes, guarded, reply_or_fail};

/// What to do when a client's wait ends without an answer.
pub trait WhileWaiting {
    /// `CLIENT UNBLOCK` ended the wait, as its deadline would: reply through the call, and drop the
    /// [`WaitingClient`].
    fn unblocked(call: &Call<'_>, id: ClientId) -> Result<(), CommandError>;
    /// The client can no longer be answered: drop the [`WaitingClient`].
    fn gone(id: ClientId);
}

/// Replies to a client that has waited. The server stores it as private data.
type Answer = Box<dyn Fn(&Call<'_>) -> Result<(), CommandError>>;

/// Identifies a client while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(usize);

/// A waiting client. Dropping it unblocks the client.
#[derive(Debug)]
pub struct WaitingClient {
    handle: NonNull<raw::RedisModuleBlockedClient>,
}

// SAFETY: a handle is used only under the server's lock, where commands and callbacks run;
// other threads only hold it.
unsafe impl Send for WaitingClient {}
// SAFETY: see `Send`.
unsafe impl Sync for WaitingClient {}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.unblock(ptr::null_mut());
    }
}

impl WaitingClient {
    pub fn id(&self) -> ClientId {
        ClientId(self.handle.as_ptr() as usize)
    }

    /// Answers the client with `reply` when the server is back in its event loop.
    pub fn answer(self, reply: impl Fn(&Call<'_>) -> Result<(), CommandError> + 'static) {
        let answer: Box<Answer> = Box::new(Box::new(reply));
        self.unblock(Box::into_raw(answer).cast());
        std::mem::forget(self);
    }

    fn unblock(&self, data: *mut c_void) {
        // SAFETY: the handle is valid until this call, which is made once.
        unsafe { api(raw::RedisModule_UnblockClient)(self.handle.as_ptr(), data) };
    }
}

impl Call<'_> {
    /// True if the caller can wait. Transactions, scripts, functions and modules that call a
    /// command cannot.
    pub fn may_wait(&self) -> bool {
        const CANNOT_WAIT: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        !self.has_flag(CANNOT_WAIT)
    }

    /// Blocks the client, which must be able to wait; `None` if the server cannot block it.
    pub fn let_wait<H: WhileWaiting>(&self) -> Option<WaitingClient> {
        // SAFETY: the context is that of a command whose client may be blocked.
        unsafe {
            let block = api(raw::RedisModule_BlockClient);
            let blocked =
                block(self.ctx, Some(answered), Some(unblocked::<H>), Some(free_answer), 0);
            let handle = NonNull::new(blocked)?;
            api(raw::RedisModule_SetDisconnectCallback)(blocked, Some(gone::<H>));
            self.replied.set(true);
            Some(WaitingClient { handle })
        }
    }
}

unsafe extern "C" fn unblocked<H: WhileWaiting>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server calls with the context of a blocked client and the arguments of its
    // command, which live until this returns.
    unsafe {
        let id = ClientId(api(raw::RedisModule_GetBlockedClientHandle)(ctx) as usize);
        let mut handled = false;
        let status = reply_or_fail(ctx, Args::new(argv, argc), |call| {
            let outcome = H::unblocked(call, id);
            handled = true;
            outcome
        });
        if !handled {
            let_go::<H>(id);
        }
        status
    }
}

/// Drops a client after the function that should have dropped it panicked. The server is about to
/// forget the client, so its handle must not be used again.
fn let_go<H: WhileWaiting>(id: ClientId) {
    guarded((), || H::gone(id));
}

/// Sends the answer, or an error to a client that was dropped without one.
unsafe extern "C" fn answered(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server calls with the context of a client that is unblocked, the arguments of
    // its command, and the private data that unblocked it.
    unsafe {
        let data = api(raw::RedisModule_GetBlockedClientPrivateData)(ctx);
        let answer = data.cast::<Answer>().as_ref();
        reply_or_fail(ctx, Args::new(argv, argc), |call| {
            answer.map_or(Err(CommandError::Internal), |answer| answer(call))
        })
    }
}

unsafe extern "C" fn free_answer(_ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    guarded((), || {
        if !data.is_null() {
            // SAFETY: the server gives up the private data, which `answer` made.
            drop(unsafe { Box::from_raw(data.cast::<Answer>()) });
        }
    });
}

unsafe extern "C" fn gone<H: WhileWaiting>(
    _ctx: *mut raw::RedisModuleCtx,
    handle: *mut raw::RedisModuleBlockedClient,
) {
    let id = ClientId(handle as usize);
    if !completes(|| H::gone(id)) {
        let_go::<H>(id);
    }
}
