//! Replies of a command that stands in for another, on servers before 7.0.
//!
//! There a command that a module calls always replies in RESP2, whose nulls are an error
//! in RESP3. So its reply is read, and written again for the client that waits.

use std::ffi::{c_char, c_long, c_void};
use std::slice;

use redis_module::raw;

use super::call::Call;
use super::log::c_string;

/// A reply, in the order in which it is written.
#[derive(Debug, Default)]
pub struct Relay(Vec<Part>);

#[derive(Debug)]
enum Part {
    Integer(i64),
    Text(Box<[u8]>),
    Error(Box<[u8]>),
    Null,
    /// So many parts follow.
    Array(usize),
}

impl Relay {
    /// # Safety
    /// The reply is alive.
    pub(super) unsafe fn read(reply: *mut raw::RedisModuleCallReply) -> Self {
        let mut relay = Self::default();
        // SAFETY: the caller's promise.
        unsafe { relay.add(reply) };
        relay
    }

    /// # Safety
    /// The reply is alive.
    unsafe fn add(&mut self, reply: *mut raw::RedisModuleCallReply) {
        // SAFETY: the caller's promise; elements live as long as the whole.
        unsafe {
            let kind = raw::RedisModule_CallReplyType.map_or(-1, |kind| kind(reply));
            match isize::try_from(kind).unwrap_or(raw::REDISMODULE_REPLY_NULL) {
                raw::REDISMODULE_REPLY_INTEGER => {
                    let integer = raw::RedisModule_CallReplyInteger.map_or(0, |of| of(reply));
                    self.0.push(Part::Integer(integer));
                }
                raw::REDISMODULE_REPLY_STRING => self.0.push(Part::Text(text(reply))),
                raw::REDISMODULE_REPLY_ERROR => self.0.push(Part::Error(text(reply))),
                raw::REDISMODULE_REPLY_ARRAY => {
                    let len = raw::RedisModule_CallReplyLength.map_or(0, |len| len(reply));
                    self.0.push(Part::Array(len));
                    for index in 0..len {
                        if let Some(element) = raw::RedisModule_CallReplyArrayElement {
                            self.add(element(reply, index));
                        }
                    }
                }
                _ => self.0.push(Part::Null),
            }
        }
    }

    /// Passes the reply through the server as private data of a blocked client.
    pub(super) fn into_raw(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// # Safety
    /// The data came from [`Self::into_raw`], and nothing changes it for all of 'a.
    pub(super) unsafe fn borrow<'a>(data: *mut c_void) -> Option<&'a Self> {
        // SAFETY: the caller's promise.
        unsafe { data.cast::<Self>().as_ref() }
    }

    /// # Safety
    /// The data came from [`Self::into_raw`], and is not used again.
    pub(super) unsafe fn free(data: *mut c_void) {
        if !data.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(data.cast::<Self>()) });
        }
    }
}

/// # Safety
/// The reply is alive, and a string or an error.
unsafe fn text(reply: *mut raw::RedisModuleCallReply) -> Box<[u8]> {
    let mut len = 0;
    // SAFETY: the caller's promise; the text lives as long as the reply.
    unsafe {
        let start = raw::RedisModule_CallReplyStringPtr.map(|text| text(reply, &raw mut len));
        match start.filter(|start| !start.is_null()) {
            Some(start) => slice::from_raw_parts(start.cast::<u8>(), len).into(),
            None => Box::default(),
        }
    }
}

impl Call<'_> {
    /// Replies with what another command replied.
    pub fn relay(&self, Relay(parts): &Relay) {
        self.begin_reply();
        for part in parts {
            // SAFETY: the context is alive; texts are copied before the calls return.
            unsafe {
                match part {
                    Part::Integer(integer) => {
                        raw::RedisModule_ReplyWithLongLong.map(|to| to(self.ctx(), *integer));
                    }
                    Part::Text(text) => {
                        let start = text.as_ptr().cast::<c_char>();
                        raw::RedisModule_ReplyWithStringBuffer
                            .map(|to| to(self.ctx(), start, text.len()));
                    }
                    Part::Error(text) => {
                        let text = c_string(&String::from_utf8_lossy(text));
                        raw::RedisModule_ReplyWithError.map(|to| to(self.ctx(), text.as_ptr()));
                    }
                    Part::Null => {
                        raw::RedisModule_ReplyWithNull.map(|to| to(self.ctx()));
                    }
                    Part::Array(len) => {
                        let len = c_long::try_from(*len).unwrap_or(c_long::MAX);
                        raw::RedisModule_ReplyWithArray.map(|to| to(self.ctx(), len));
                    }
                }
            }
        }
    }
}
