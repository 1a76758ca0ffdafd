//! Replies. A compound reply begins with the number of its elements: a method takes
//! all of them, or the number, and the caller then writes the elements.

use std::ffi::{CStr, c_char, c_long, c_longlong};

use redis_module::raw;

use super::call::Call;
use super::log::c_string;

impl Call<'_> {
    /// Replies with an integer.
    pub fn reply_integer(&self, value: i64) {
        self.begin_reply();
        self.integer(value);
    }

    /// Replies with an array of integers.
    pub fn reply_integers(&self, values: &[i64]) {
        self.begin_reply();
        self.array(values.len());
        // SAFETY: the context is alive.
        unsafe {
            let Some(reply) = raw::RedisModule_ReplyWithLongLong else { return };
            for &value in values {
                reply(self.ctx(), c_longlong::from(value));
            }
        }
    }

    /// Replies with the status `OK`.
    pub fn reply_ok(&self) {
        self.begin_reply();
        self.status(c"OK");
    }

    /// Replies with what `body` writes, element by element.
    pub fn reply(&self, body: impl FnOnce(&Writer<'_>)) {
        self.begin_reply();
        body(&Writer { call: self });
    }

    fn status(&self, text: &CStr) {
        // SAFETY: context and text are alive.
        unsafe {
            if let Some(reply) = raw::RedisModule_ReplyWithSimpleString {
                reply(self.ctx(), text.as_ptr());
            }
        }
    }

    fn integer(&self, value: i64) {
        // SAFETY: the context is alive.
        unsafe {
            if let Some(reply) = raw::RedisModule_ReplyWithLongLong {
                reply(self.ctx(), c_longlong::from(value));
            }
        }
    }

    fn array(&self, len: usize) {
        // SAFETY: the context is alive.
        unsafe {
            if let Some(reply) = raw::RedisModule_ReplyWithArray {
                reply(self.ctx(), c_long::try_from(len).unwrap_or(c_long::MAX));
            }
        }
    }
}

/// Writes the elements of a compound reply. The caller of `array` or `map` writes as
/// many elements after it; for a map, a name and a value each.
#[derive(Debug)]
pub struct Writer<'c> {
    call: &'c Call<'c>,
}

impl Writer<'_> {
    pub fn array(&self, len: usize) {
        self.call.array(len);
    }

    /// A map where protocol and server have maps (RESP3, 7.0), else an array of names
    /// and values in turn.
    pub fn map(&self, len: usize) {
        // SAFETY: the context is alive.
        unsafe {
            match raw::RedisModule_ReplyWithMap {
                Some(reply) => {
                    reply(self.call.ctx(), c_long::try_from(len).unwrap_or(c_long::MAX));
                }
                None => self.call.array(len.saturating_mul(2)),
            }
        }
    }

    pub fn integer(&self, value: i64) {
        self.call.integer(value);
    }

    /// A number that is never negative.
    pub fn count(&self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub fn text(&self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        // SAFETY: the bytes are copied before the call returns.
        unsafe {
            if let Some(reply) = raw::RedisModule_ReplyWithStringBuffer {
                reply(self.call.ctx(), text.as_ptr().cast::<c_char>(), text.len());
            }
        }
    }

    /// A line without line feeds.
    pub fn status(&self, line: &str) {
        self.call.status(&c_string(line));
    }

    pub fn null(&self) {
        // SAFETY: the context is alive.
        unsafe {
            if let Some(reply) = raw::RedisModule_ReplyWithNull {
                reply(self.call.ctx());
            }
        }
    }

    /// The name and the integer of a map's entry.
    pub fn integer_field(&self, name: &str, value: i64) {
        self.text(name);
        self.integer(value);
    }

    /// The name and the text of a map's entry.
    pub fn text_field(&self, name: &str, value: impl AsRef<[u8]>) {
        self.text(name);
        self.text(value);
    }
}
