//! Calls commands from the module, and reads their replies.

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use redis_module::raw;

use super::api::api;
use super::args::Args;
use super::call::{Call, CommandError};
use super::reply::Writer;

/// The reply to a command that the module called, freed by Drop.
pub struct CallReply<'c> {
    reply: NonNull<raw::RedisModuleCallReply>,
    /// The server reads the context of the call when it frees the reply.
    context: PhantomData<&'c ()>,
}

impl Drop for CallReply<'_> {
    fn drop(&mut self) {
        // SAFETY: the reply is ours, and freed only here.
        unsafe { api(raw::RedisModule_FreeCallReply)(self.reply.as_ptr()) };
    }
}

/// A reply of any type, or an element of a reply. Reading it as another type gives no bytes and no
/// elements.
#[derive(Clone, Copy)]
pub struct Part<'r> {
    reply: NonNull<raw::RedisModuleCallReply>,
    lives: PhantomData<&'r ()>,
}

impl CallReply<'_> {
    /// Takes ownership of what `RedisModule_Call` returned; `None` if the server did not call the
    /// command.
    ///
    /// # Safety
    /// Nothing else frees the reply, and the context of the call outlives it.
    pub(super) unsafe fn own(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(|reply| Self { reply, context: PhantomData })
    }

    pub const fn whole(&self) -> Part<'_> {
        Part { reply: self.reply, lives: PhantomData }
    }
}

impl<'r> Part<'r> {
    fn kind(self) -> isize {
        // SAFETY: the reply is alive.
        unsafe { api(raw::RedisModule_CallReplyType)(self.reply.as_ptr()) as isize }
    }

    fn integer(self) -> i64 {
        // SAFETY: the reply is alive.
        unsafe { api(raw::RedisModule_CallReplyInteger)(self.reply.as_ptr()) }
    }

    /// The bytes of a text or an error.
    pub fn bytes(self) -> &'r [u8] {
        let mut len = 0;
        // SAFETY: the reply is alive, and with it the text.
        unsafe {
            let start = api(raw::RedisModule_CallReplyStringPtr)(self.reply.as_ptr(), &raw mut len);
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }

    /// The length of an array or a map.
    fn len(self) -> usize {
        // SAFETY: the reply is alive.
        unsafe { api(raw::RedisModule_CallReplyLength)(self.reply.as_ptr()) }
    }

    /// An element of an array.
    pub fn element(self, index: usize) -> Option<Self> {
        // SAFETY: the reply is alive, and with it the element.
        let element =
            unsafe { api(raw::RedisModule_CallReplyArrayElement)(self.reply.as_ptr(), index) };
        NonNull::new(element).map(|reply| Self { reply, ..self })
    }

    /// The elements of an array.
    pub fn elements(self) -> impl Iterator<Item = Self> {
        (0..self.len()).map_while(move |index| self.element(index))
    }

    /// An entry of a map: its name and its value.
    fn entry(self, index: usize) -> Option<[Self; 2]> {
        let (mut name, mut value) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the reply is alive, and with it name and value.
        unsafe {
            let entry = raw::RedisModule_CallReplyMapElement?;
            entry(self.reply.as_ptr(), index, &raw mut name, &raw mut value);
        }
        let part = |reply| NonNull::new(reply).map(|reply| Self { reply, ..self });
        Some([part(name)?, part(value)?])
    }
}

/// The format of a call that propagates what the command replicates. Servers from 7.0 on reply in
/// RESP3, which has maps.
pub(super) fn propagating() -> &'static CStr {
    // SAFETY: the pointer is only tested.
    if unsafe { raw::RedisModule_CallReplyMapElement }.is_some() { c"!3v" } else { c"!v" }
}

/// The format of a call of a command that only reads. Servers reply in RESP2.
pub(super) const READING: &CStr = c"v";

/// Calls a command. The server tests that this node serves its key.
///
/// # Errors
/// The error of the command, or [`CommandError::Whole`] if another node serves the key's slot or the
/// cluster is down.
///
/// # Safety
/// The context is alive for all of 'c.
pub(super) unsafe fn call<'c>(
    ctx: *mut raw::RedisModuleCtx,
    format: &CStr,
    command: &CStr,
    args: Args<'_>,
) -> Result<CallReply<'c>, CommandError> {
    let args = args.raw();
    #[cfg(feature = "fault-injection")]
    let _called = super::fault::Called::new();
    // SAFETY: each format describes the arguments after it: a vector of strings with its length.
    let reply = unsafe {
        let call = api(raw::RedisModule_Call);
        CallReply::own(call(ctx, command.as_ptr(), format.as_ptr(), args.as_ptr(), args.len()))
    };
    let reply = reply.ok_or_else(|| match io::Error::last_os_error().raw_os_error() {
        Some(libc::EPERM) => CommandError::NOT_SERVED,
        Some(libc::EROFS | libc::ENETDOWN) => CommandError::CLUSTER_DOWN,
        _ => CommandError::Internal,
    })?;
    if reply.whole().kind() == raw::REDISMODULE_REPLY_ERROR {
        let error = String::from_utf8_lossy(reply.whole().bytes()).into_owned();
        return Err(CommandError::Whole(error.into()));
    }
    Ok(reply)
}

impl Call<'_> {
    /// Calls a command with this call's arguments, and propagates what the command replicates.
    ///
    /// # Errors
    /// Those of [`call`].
    pub fn call(&self, command: &CStr) -> Result<CallReply<'_>, CommandError> {
        // SAFETY: the context is alive as long as the call.
        unsafe { call(self.ctx, propagating(), command, self.args().from(1)) }
    }

    /// Replies with what a called command replied.
    pub fn repeat(&self, reply: &CallReply<'_>) {
        self.reply(|to| to.repeat(reply.whole()));
    }
}

impl Writer<'_> {
    fn repeat(&self, part: Part<'_>) {
        match part.kind() {
            raw::REDISMODULE_REPLY_INTEGER => self.integer(part.integer()),
            raw::REDISMODULE_REPLY_STRING => self.text(part.bytes()),
            raw::REDISMODULE_REPLY_ARRAY => {
                self.array(part.len());
                part.elements().for_each(|element| self.repeat(element));
            }
            raw::REDISMODULE_REPLY_MAP => {
                self.begin_map(part.len());
                let entries = (0..part.len()).filter_map(|index| part.entry(index));
                entries.flatten().for_each(|part| self.repeat(part));
            }
            _ => self.null(),
        }
    }
}
