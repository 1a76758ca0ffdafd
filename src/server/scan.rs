//! Scanning the keyspace for keys of the module's type: one step of the server's own
//! `SCAN`, with its cost and its guarantees.

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;
use std::slice;

use redis_module::raw;

use super::args::Arg;
use super::call::{Call, CommandError};
use super::key::{NativeType, Value};

/// A step of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub cursor: u64,
    pub pattern: Option<&'a [u8]>,
    /// About how many keys a step looks at.
    pub count: u64,
}

/// A reply to a call of the server, freed by Drop.
struct Reply(NonNull<raw::RedisModuleCallReply>);

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: the reply is ours, and freed only here.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeCallReply {
                free(self.0.as_ptr());
            }
        }
    }
}

/// A server string that the module owns, freed by Drop.
struct Owned<'c> {
    call: &'c Call<'c>,
    string: NonNull<raw::RedisModuleString>,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the string is ours, and freed only here.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeString {
                free(self.call.ctx(), self.string.as_ptr());
            }
        }
    }
}

impl<'c> Call<'c> {
    /// Calls a function with the name and the value of each key that a step of the scan
    /// finds. Returns the cursor of the next step, 0 at the end.
    ///
    /// # Errors
    /// [`CommandError::Internal`] if the server does not scan.
    pub fn scan<T: Value>(
        &'c self,
        kind: &NativeType<T>,
        step: &Step<'_>,
        mut each: impl FnMut(&[u8], &T),
    ) -> Result<Vec<u8>, CommandError> {
        let reply = self.scan_step(kind, step).ok_or(CommandError::Internal)?;
        let (cursor, names) = (element(&reply, 0), element(&reply, 1));
        let next = cursor.map(text).ok_or(CommandError::Internal)?.to_vec();
        let names = names.ok_or(CommandError::Internal)?;
        // SAFETY: the reply is alive.
        let len = unsafe { raw::RedisModule_CallReplyLength.map_or(0, |len| len(names.as_ptr())) };
        for index in 0..len {
            let Some(name) = element_of(names, index).and_then(|name| self.string_of(name)) else {
                continue;
            };
            // SAFETY: the string lives as long as `name`, longer than the key
            // that is opened by it here.
            let arg = unsafe { Arg::new(name.string.as_ptr()) };
            // An error or `None`: the key has expired or been replaced.
            if let Ok(Some(key)) = self.open_shown(arg, kind)
                && let Some(value) = key.value()
            {
                each(arg.bytes(), value);
            }
        }
        Ok(next)
    }

    fn scan_step<T>(&self, kind: &NativeType<T>, step: &Step<'_>) -> Option<Reply> {
        let (cursor, count) = (step.cursor.to_string(), step.count.to_string());
        // The server skips the matching for this pattern.
        let pattern = step.pattern.unwrap_or(b"*");
        let start = |text: &[u8]| text.as_ptr().cast::<c_char>();
        // SAFETY: the format describes the arguments: `b` a buffer with its
        // length, `c` a C string.
        let reply = unsafe {
            raw::RedisModule_Call?(
                self.ctx(),
                c"SCAN".as_ptr(),
                c"bcbcccb".as_ptr(),
                start(cursor.as_bytes()),
                cursor.len(),
                c"COUNT".as_ptr(),
                start(count.as_bytes()),
                count.len(),
                c"TYPE".as_ptr(),
                kind.name().as_ptr(),
                c"MATCH".as_ptr(),
                start(pattern),
                pattern.len(),
            )
        };
        NonNull::new(reply).map(Reply)
    }

    fn string_of(&'c self, name: NonNull<raw::RedisModuleCallReply>) -> Option<Owned<'c>> {
        // SAFETY: the reply is alive; the string made of it is ours.
        let string =
            unsafe { raw::RedisModule_CreateStringFromCallReply.map(|make| make(name.as_ptr()))? };
        Some(Owned { call: self, string: NonNull::new(string)? })
    }
}

fn element(reply: &Reply, index: usize) -> Option<NonNull<raw::RedisModuleCallReply>> {
    element_of(reply.0, index)
}

/// An element of a reply; `None` if the reply is no array or a shorter one.
fn element_of(
    array: NonNull<raw::RedisModuleCallReply>,
    index: usize,
) -> Option<NonNull<raw::RedisModuleCallReply>> {
    // SAFETY: the reply is alive; the server looks at its type and length.
    unsafe {
        let is_array = raw::RedisModule_CallReplyType
            .is_some_and(|of| of(array.as_ptr()) == raw::REDISMODULE_REPLY_ARRAY as c_int);
        if !is_array {
            return None;
        }
        NonNull::new(raw::RedisModule_CallReplyArrayElement?(array.as_ptr(), index))
    }
}

/// The bytes of a string, valid as long as the whole reply lives.
fn text<'r>(string: NonNull<raw::RedisModuleCallReply>) -> &'r [u8] {
    let mut len = 0;
    // SAFETY: the reply is alive; the caller copies the bytes while it is.
    unsafe {
        let Some(bytes_of) = raw::RedisModule_CallReplyStringPtr else { return &[] };
        let start = bytes_of(string.as_ptr(), &raw mut len);
        if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
    }
}
