//! Clients that are answered later.
//!
//! ```text
//!  block  -> the client waits        -> answer   the module answers
//!                                    -> H::unblocked   CLIENT UNBLOCK id
//!                                    -> H::gone        it left, was killed, was unblocked
//!                                                      with an error, or the server became
//!                                                      a replica
//! ```
//!
//! A client is blocked without a time-out of the server's, which serves time-outs ten times
//! a second, and not on its key: servers serve clients that are blocked on a key only while
//! that key exists.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::ptr;
use std::ptr::NonNull;

use redis_module::raw;

use super::args::Args;
use super::call::{Call, CommandError};
use super::callback::{guarded, reply_or_fail};
use super::relay::Relay;
use super::status::OK;

/// What is done when a blocked client ends its wait by itself.
pub trait WhileWaiting {
    /// `CLIENT UNBLOCK` ends the wait as its deadline would: reply through the call, and let
    /// go of the [`WaitingClient`].
    fn unblocked(call: &Call<'_>, id: ClientId) -> Result<(), CommandError>;
    /// The client cannot be answered any more: let go of the [`WaitingClient`].
    fn gone(id: ClientId);
}

/// Identifies a blocked client as long as it is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(usize);

/// A blocked client. Its drop lets the client go on.
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
    #[must_use]
    pub fn id(&self) -> ClientId {
        ClientId(self.handle.as_ptr() as usize)
    }

    /// Answers the client: another command replies for it, which is called in the client's
    /// database with these arguments.
    pub fn delegate(self, command: &CStr, args: Args<'_>) {
        // SAFETY: the handle is valid. The context lives until it is freed below, and this
        // runs under the server's lock.
        unsafe {
            let (Some(context), Some(free)) =
                (raw::RedisModule_GetThreadSafeContext, raw::RedisModule_FreeThreadSafeContext)
            else {
                return;
            };
            let ctx = context(self.handle.as_ptr());
            let call = Call::new(ctx, args);
            let mut relayed = None;
            reply_or_fail(&call, |call| {
                relayed = call.call(command)?;
                Ok(())
            });
            free(ctx);
            if let Some(relay) = relayed {
                self.unblock(relay.into_raw());
                std::mem::forget(self);
            }
        }
    }

    fn unblock(&self, data: *mut c_void) {
        // SAFETY: the handle is valid until this call, which is made once.
        unsafe {
            if let Some(unblock) = raw::RedisModule_UnblockClient {
                unblock(self.handle.as_ptr(), data);
            }
        }
    }
}

impl Call<'_> {
    /// Whether the caller can wait. A transaction, a script, a function and a module that
    /// calls a command cannot.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        const DENIED: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        !self.has_flag(DENIED)
    }

    /// Blocks the client, which must be able to wait; `None` if the server cannot.
    pub fn let_wait<H: WhileWaiting>(&self) -> Option<WaitingClient> {
        // SAFETY: the context is that of a command whose client may be blocked.
        unsafe {
            let set_on_gone = raw::RedisModule_SetDisconnectCallback?;
            let blocked = raw::RedisModule_BlockClient?(
                self.ctx(),
                Some(relayed),
                Some(unblocked::<H>),
                Some(free_relay),
                0,
            );
            let handle = NonNull::new(blocked)?;
            set_on_gone(blocked, Some(gone::<H>));
            self.begin_reply();
            Some(WaitingClient { handle })
        }
    }

    /// Calls a command in this call's place: it gets this call's arguments, and its reply is
    /// this call's. The server tests that the key is served here, and propagates what the
    /// command replicates.
    ///
    /// # Errors
    /// [`CommandError::NotServed`] if the key's slot is served by another node,
    /// [`CommandError::ClusterDown`] if the cluster is down.
    pub fn delegate(&self, command: &CStr) -> Result<(), CommandError> {
        if let Some(relay) = self.call(command)? {
            self.relay(&relay);
        }
        Ok(())
    }

    /// Calls a command with this call's arguments, and replies what it replies or, before 7.0,
    /// returns that.
    fn call(&self, command: &CStr) -> Result<Option<Relay>, CommandError> {
        let args = self.args().from(1).raw();
        // SAFETY: the format describes the arguments after it: a vector of strings with its
        // length. The reply is used before it is freed, once.
        unsafe {
            // Such servers can answer in the protocol of the client, as `0` asks.
            let knows_protocols = { raw::RedisModule_CallReplyMapElement }.is_some();
            let format = if knows_protocols { c"!0v" } else { c"!v" };
            let (Some(call), Some(forward), Some(free)) = (
                raw::RedisModule_Call,
                raw::RedisModule_ReplyWithCallReply,
                raw::RedisModule_FreeCallReply,
            ) else {
                return Err(CommandError::Internal);
            };
            let (name, format) = (command.as_ptr(), format.as_ptr());
            let reply = call(self.ctx(), name, format, args.as_ptr(), args.len());
            if reply.is_null() {
                return Err(match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EPERM) => CommandError::NotServed,
                    Some(libc::EROFS | libc::ENETDOWN) => CommandError::ClusterDown,
                    _ => CommandError::Internal,
                });
            }
            self.begin_reply();
            let relay = if knows_protocols {
                forward(self.ctx(), reply);
                None
            } else {
                Some(Relay::read(reply))
            };
            free(reply);
            Ok(relay)
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
        let call = Call::new(ctx, Args::new(argv, argc));
        let handle = raw::RedisModule_GetBlockedClientHandle.map(|handle| handle(ctx));
        let id = ClientId(handle.map_or(0, |handle| handle as usize));
        let mut handled = false;
        reply_or_fail(&call, |call| {
            let outcome = H::unblocked(call, id);
            handled = true;
            outcome
        });
        if !handled {
            let_go::<H>(id);
        }
    }
    OK
}

/// Lets go of a client that the server forgets, after the function that should have done
/// so panicked: its handle must not be used again.
fn let_go<H: WhileWaiting>(id: ClientId) {
    guarded((), || H::gone(id));
}

/// Replies what [`WaitingClient::delegate`] could not.
unsafe extern "C" fn relayed(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server calls with the context of a client that is unblocked, and with the
    // private data that unblocked it.
    unsafe {
        let data = raw::RedisModule_GetBlockedClientPrivateData.map(|data| data(ctx));
        if let Some(relay) = data.and_then(|data| Relay::borrow(data)) {
            reply_or_fail(&Call::new(ctx, Args::new(argv, argc)), |call| {
                call.relay(relay);
                Ok(())
            });
        }
    }
    OK
}

unsafe extern "C" fn free_relay(_ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    // SAFETY: the server gives up the private data.
    guarded((), || unsafe { Relay::free(data) });
}

unsafe extern "C" fn gone<H: WhileWaiting>(
    _ctx: *mut raw::RedisModuleCtx,
    handle: *mut raw::RedisModuleBlockedClient,
) {
    let id = ClientId(handle as usize);
    let handled = guarded(false, || {
        H::gone(id);
        true
    });
    if !handled {
        let_go::<H>(id);
    }
}
