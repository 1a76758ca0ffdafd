//! A command being executed, and the state that commands share.

use std::borrow::Cow;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use redis_module::raw;

use super::api::{api, has_flag};
use super::args::{Arg, Args};
use super::commands;
use super::log::c_string;

/// Why a command replies with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// Too few or too many arguments: the error shows the usage.
    WrongArity,
    /// The error's text, without the leading `ERR`.
    Because(Cow<'static, str>),
    /// A rule names a policy that this server does not have. The error's text, without `ERR`.
    UnknownPolicy(Cow<'static, str>),
    /// The error's text with its code, which may be other than `ERR`.
    Whole(Cow<'static, str>),
    /// A panic, or the failure of a module API call that should not fail.
    Internal,
}

impl CommandError {
    /// The key holds a value of another type.
    pub const WRONG_TYPE: Self =
        Self::whole("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(super) const NOT_SERVED: Self =
        Self::whole("UNBLOCKED this node no longer serves the key's slot");
    /// The server is saving the key, and does not let a command that it has not delayed write it.
    pub(super) const NOT_NOW: Self = Self::whole("TRYAGAIN The server is saving the key");
    pub(super) const CLUSTER_DOWN: Self = Self::whole("CLUSTERDOWN The cluster is down");

    /// True if the server is saving the key of a call that the module made.
    pub fn is_not_now(&self) -> bool {
        *self == Self::NOT_NOW
    }

    /// True if this node does not serve the key of a call that the module made.
    pub fn is_of_cluster(&self) -> bool {
        [Self::NOT_SERVED, Self::CLUSTER_DOWN].contains(self)
    }

    const fn whole(error: &'static str) -> Self {
        Self::Whole(Cow::Borrowed(error))
    }

    pub const fn because(why: &'static str) -> Self {
        Self::Because(Cow::Borrowed(why))
    }
}

/// A command being executed. Its arguments, flags, keyspace events and errors are here; its keys,
/// reply and propagation in `key`, `reply` and `replicate`.
#[derive(Debug)]
pub struct Call<'a> {
    pub(super) ctx: *mut raw::RedisModuleCtx,
    args: Args<'a>,
    /// True if a reply has begun.
    pub(super) replied: Cell<bool>,
    /// True if the server has counted the call as a change.
    pub(super) counted: Cell<bool>,
}

impl<'a> Call<'a> {
    /// # Safety
    /// The context is that of a command being executed, for all of 'a.
    pub(super) unsafe fn new(ctx: *mut raw::RedisModuleCtx, args: Args<'a>) -> Self {
        Self { ctx, args, replied: Cell::new(false), counted: Cell::new(false) }
    }

    /// All arguments, the command's name first.
    pub const fn args(&self) -> Args<'a> {
        self.args
    }

    /// The key of a command whose first argument is its key.
    ///
    /// # Errors
    /// [`CommandError::WrongArity`] if it is missing.
    pub fn key_name(&self) -> Result<Arg<'a>, CommandError> {
        // Not `ok_or`, which would create and drop an unused error at each call.
        let Some(name) = self.args.get(1) else { return Err(CommandError::WrongArity) };
        Ok(name)
    }

    /// Tests that the call has at least as many arguments as the command's shortest form. The name
    /// and the key count as arguments.
    ///
    /// # Errors
    /// [`CommandError::WrongArity`] if there are fewer.
    pub fn require_args(&self, least: usize) -> Result<(), CommandError> {
        if self.args.len() < least { Err(CommandError::WrongArity) } else { Ok(()) }
    }

    /// The arguments after the key.
    pub fn after_key(&self) -> Args<'a> {
        self.args.from(2)
    }

    /// True if the call comes from a source that must not be refused: this server's primary, a slot
    /// migrating here, or the AOF being loaded.
    pub fn must_be_obeyed(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_REPLICATED) || self.is_of_loader()
    }

    /// True if the call comes from the AOF being loaded.
    pub fn is_of_loader(&self) -> bool {
        // A replica that loads in the background (ASYNC_LOADING) serves clients meanwhile, so
        // LOADING alone does not identify the loader.
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
            && !self.has_flag(raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING)
    }

    /// True if this server is a replica.
    pub fn is_on_replica(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }

    /// True if one of these flags is set.
    pub(super) fn has_flag(&self, flag: u32) -> bool {
        // SAFETY: the context is alive.
        unsafe { has_flag(self.ctx, flag) }
    }

    /// The database of the call.
    pub fn db(&self) -> c_int {
        // SAFETY: the context is alive.
        unsafe { api(raw::RedisModule_GetSelectedDb)(self.ctx) }
    }

    /// The name of the ACL user that sent the command. `None` inside a script or a module's call, which
    /// have no client that the server can find.
    pub fn user(&self) -> Option<Vec<u8>> {
        // SAFETY: the context is alive. The name is read before it is freed.
        unsafe {
            let id = api(raw::RedisModule_GetClientId)(self.ctx);
            // Missing before 6.2.1.
            let raw = NonNull::new(raw::RedisModule_GetClientUserNameById?(self.ctx, id))?;
            let name = Arg::new(raw.as_ptr()).bytes().to_vec();
            api(raw::RedisModule_FreeString)(self.ctx, raw.as_ptr());
            Some(name)
        }
    }

    /// Invalidates the key for `WATCH` and client-side caches.
    pub fn signal_modified(&self, key: Arg<'_>) {
        // SAFETY: context and key name are alive.
        unsafe { api(raw::RedisModule_SignalModifiedKey)(self.ctx, key.raw) };
    }

    /// Publishes a keyspace event of this module, such as `rl.ban`.
    pub fn notify(&self, event: &CStr, key: Arg<'_>) {
        self.publish(raw::REDISMODULE_NOTIFY_MODULE, event, key);
    }

    /// Publishes a keyspace event in one of the server's classes.
    pub(super) fn publish(&self, class: c_int, event: &CStr, key: Arg<'_>) {
        // SAFETY: context, name and key name are alive.
        unsafe {
            let notify = api(raw::RedisModule_NotifyKeyspaceEvent);
            notify(self.ctx, class, event.as_ptr(), key.raw);
        }
    }

    /// Replies with the error, unless a reply has begun.
    pub(super) fn fail(&self, error: &CommandError) {
        if self.replied.get() {
            return;
        }
        let text: Cow<'_, str> = match error {
            CommandError::WrongArity => {
                let usage = commands::usage_of(self.args).unwrap_or_default();
                Cow::Owned(format!("ERR wrong number of arguments, usage: {usage}"))
            }
            CommandError::Because(why) | CommandError::UnknownPolicy(why) => {
                Cow::Owned(format!("ERR {why}"))
            }
            CommandError::Whole(error) => Cow::Borrowed(&**error),
            CommandError::Internal => Cow::Borrowed("ERR internal error, see the server's log"),
        };
        self.replied.set(true);
        let text = c_string(&text);
        // SAFETY: the text is one line that ends with NUL.
        unsafe { api(raw::RedisModule_ReplyWithError)(self.ctx, text.as_ptr()) };
    }
}

/// State that commands share: a value that each command takes out while it runs, then puts back. It
/// needs no lock, because commands run under the server's lock. Two commands never refer to the value
/// at once: a command within a command (from a module that reacts to a keyspace event) finds no value
/// and uses a new one.
pub struct PerServer<T>(UnsafeCell<Option<Box<T>>>);

// SAFETY: a `Call` exists only while a command is executed, so only on the thread that holds the
// server's lock. A request for a command's keys, which comes without the lock, is not a `Call`
// (`KeysRequest`). The value is passed on to the thread that takes the lock next.
unsafe impl<T: Send> Sync for PerServer<T> {}

impl<T> PerServer<T> {
    pub const fn empty() -> Self {
        Self(UnsafeCell::new(None))
    }

    #[inline]
    fn replace(&self, _: &Call<'_>, value: Option<Box<T>>) -> Option<Box<T>> {
        // SAFETY: no other thread has a call. On this thread, no reference to the stored value
        // outlives the exchange, which runs no code of T.
        unsafe { std::mem::replace(&mut *self.0.get(), value) }
    }
}

impl<T: Default> PerServer<T> {
    /// Runs a body with the value. If the body panics, the value is lost.
    #[inline]
    pub fn with<R>(&self, call: &Call<'_>, body: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.replace(call, None).unwrap_or_default();
        let result = body(&mut value);
        drop(self.replace(call, Some(value)));
        result
    }
}
