//! A command being executed: its arguments, its key, its reply, its effect.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::args::{Arg, Args};
use super::log::c_string;
use super::usage;

/// Why a command replies with an error instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// Too few or too many arguments: the answer is the usage.
    WrongArity,
    /// The key holds a value of another type.
    WrongType,
    /// What is wrong, without the leading `ERR`.
    Because(Cow<'static, str>),
    /// A panic, or a call to the server that failed as it never should.
    Internal,
}

impl CommandError {
    #[must_use]
    pub const fn because(why: &'static str) -> Self {
        Self::Because(Cow::Borrowed(why))
    }
}

/// The call of a command. Valid as long as the server waits for us.
#[derive(Debug)]
pub struct Call<'a> {
    ctx: *mut raw::RedisModuleCtx,
    args: Args<'a>,
    replied: Cell<bool>,
    changed: Cell<bool>,
}

/// What happened to a key, for those who subscribed to keyspace events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyspaceEvent {
    /// An event of this module, by its name.
    Own(&'static CStr),
    /// It held nothing any more.
    Deleted,
}

impl<'a> Call<'a> {
    /// # Safety
    /// The context is that of a command being executed, for all of 'a.
    pub(super) unsafe fn new(ctx: *mut raw::RedisModuleCtx, args: Args<'a>) -> Self {
        Self { ctx, args, replied: Cell::new(false), changed: Cell::new(false) }
    }

    pub(super) const fn ctx(&self) -> *mut raw::RedisModuleCtx {
        self.ctx
    }

    /// All arguments, the command's name first.
    #[must_use]
    pub const fn args(&self) -> Args<'a> {
        self.args
    }

    /// The key of a command that has its key first.
    ///
    /// # Errors
    /// [`CommandError::WrongArity`] if it is missing.
    pub fn key_name(&self) -> Result<Arg<'a>, CommandError> {
        self.args.get(1).ok_or(CommandError::WrongArity)
    }

    /// What follows the key.
    #[must_use]
    pub fn after_key(&self) -> Args<'a> {
        self.args.from(2)
    }

    /// Whether the call comes from where it cannot be refused: this server's
    /// primary, a slot that migrates here, or the AOF being loaded.
    #[must_use]
    pub fn must_be_obeyed(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_REPLICATED) || self.is_of_loader()
    }

    /// Whether the call comes from the AOF being loaded.
    #[must_use]
    pub fn is_of_loader(&self) -> bool {
        // While a replica loads in the background (ASYNC_LOADING) it serves
        // clients, so LOADING alone does not tell the loader then.
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
            && !self.has_flag(raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING)
    }

    /// Whether this server follows a primary.
    #[must_use]
    pub fn is_on_replica(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }

    /// Whether this was asked before: once is enough for what nobody is told.
    pub(super) fn replace_changed(&self) -> bool {
        self.changed.replace(true)
    }

    fn has_flag(&self, flag: u32) -> bool {
        // SAFETY: the context is alive.
        let flags = unsafe { raw::RedisModule_GetContextFlags.map(|flags| flags(self.ctx)) };
        flags.is_some_and(|flags| flags.cast_unsigned() & flag != 0)
    }

    /// Tells `WATCH` and client-side caches that the key changed.
    pub fn signal_modified(&self, key: Arg<'_>) {
        // SAFETY: context and key name are alive.
        unsafe {
            if let Some(signal) = raw::RedisModule_SignalModifiedKey {
                signal(self.ctx, key.raw());
            }
        }
    }

    /// Publishes a keyspace event: one of the module's own (`rl.ban`), or one
    /// that every type has (`del`).
    pub fn notify(&self, event: KeyspaceEvent, key: Arg<'_>) {
        let (class, name) = match event {
            KeyspaceEvent::Own(name) => (raw::REDISMODULE_NOTIFY_MODULE, name),
            KeyspaceEvent::Deleted => (raw::REDISMODULE_NOTIFY_GENERIC, c"del"),
        };
        // SAFETY: context, name and key name are alive.
        unsafe {
            if let Some(notify) = raw::RedisModule_NotifyKeyspaceEvent {
                notify(self.ctx, class as c_int, name.as_ptr(), key.raw());
            }
        }
    }

    /// Replies with the error, unless a reply was begun.
    pub(super) fn fail(&self, failure: &CommandError) {
        if self.replied.get() {
            return;
        }
        let text: Cow<'_, str> = match failure {
            CommandError::WrongArity => {
                let usage = usage::of(self.args).unwrap_or_default();
                Cow::Owned(format!("ERR wrong number of arguments, usage: {usage}"))
            }
            CommandError::WrongType => {
                Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            CommandError::Because(why) => Cow::Owned(format!("ERR {why}")),
            CommandError::Internal => Cow::Borrowed("ERR internal error, see the server's log"),
        };
        self.begin_reply();
        let text = c_string(&text);
        // SAFETY: the text is one line that ends with NUL.
        unsafe {
            if let Some(reply) = raw::RedisModule_ReplyWithError {
                reply(self.ctx, text.as_ptr());
            }
        }
    }

    pub(super) fn begin_reply(&self) {
        self.replied.set(true);
    }
}
