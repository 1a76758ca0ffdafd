//! Replies. A compound reply first announces its number of elements: maps and rows count them; for
//! other arrays the caller does.

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
    #[inline(always)]
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

/// A value in a compound reply.
#[derive(Clone, Copy)]
pub enum Value<'v> {
    Integer(i64),
    /// A non-negative integer.
    Count(u64),
    Text(&'v [u8]),
    Null,
    /// A compound value that a function writes.
    Nested(&'v dyn Fn(&Writer<'_>)),
}

/// The name and the value of a map's entry.
pub type Field<'v> = (&'static str, Value<'v>);

/// Writes the elements of a compound reply. A caller that begins an array must write exactly the
/// number of elements that it announced.
#[derive(Debug)]
pub struct Writer<'c> {
    call: &'c Call<'c>,
}

impl Writer<'_> {
    pub fn array(&self, len: usize) {
        self.call.array(len);
    }

    /// An array with an element for each item, which `write` writes.
    pub fn list<T>(
        &self,
        items: impl IntoIterator<IntoIter: ExactSizeIterator<Item = T>>,
        write: impl Fn(&Self, T),
    ) {
        let items = items.into_iter();
        self.array(items.len());
        items.for_each(|item| write(self, item));
    }

    /// An array of these values.
    pub fn row(&self, values: &[Value<'_>]) {
        self.array(values.len());
        for &value in values {
            self.value(value);
        }
    }

    /// A map of the fields that are not `None`.
    pub fn map<'v, const N: usize>(&self, fields: [Option<Field<'v>>; N]) {
        self.begin_map(fields.iter().flatten().count());
        for (name, value) in fields.into_iter().flatten() {
            self.text(name);
            self.value(value);
        }
    }

    /// Begins a map if the server (from 7.0 on) and the protocol (RESP3) have maps; otherwise an
    /// array of alternating names and values.
    pub(super) fn begin_map(&self, len: usize) {
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

    pub(super) fn value(&self, value: Value<'_>) {
        match value {
            Value::Integer(value) => self.call.integer(value),
            Value::Count(value) => self.call.integer(i64::try_from(value).unwrap_or(i64::MAX)),
            Value::Text(text) => self.text(text),
            Value::Null => self.null(),
            Value::Nested(write) => write(self),
        }
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

    /// A status, which must be one line.
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
}
