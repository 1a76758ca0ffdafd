//! Replies. A compound reply first announces its number of elements. `map`, `row` and `list` count
//! them; callers of `array` count them themselves.

use std::ffi::c_long;

use redis_module::raw;

use super::api::api;
use super::call::Call;
use super::log::c_string;

impl Call<'_> {
    /// Replies with an integer.
    pub fn reply_integer(&self, value: i64) {
        self.reply(|to| to.integer(value));
    }

    /// Replies with an array of integers.
    #[inline(always)]
    pub fn reply_integers(&self, values: &[i64]) {
        self.reply(|to| to.array(values.len()));
        // SAFETY: the context is alive.
        unsafe {
            let reply = api(raw::RedisModule_ReplyWithLongLong);
            for &value in values {
                reply(self.ctx, value);
            }
        }
    }

    /// Replies with the status `OK`.
    pub fn reply_ok(&self) {
        self.reply(|to| to.status("OK"));
    }

    /// Replies with what `body` writes, element by element.
    #[inline]
    pub fn reply(&self, body: impl FnOnce(&Writer<'_>)) {
        self.replied.set(true);
        body(&Writer { call: self });
    }
}

/// A number of elements in the form the API takes.
fn announced(len: usize) -> c_long {
    c_long::try_from(len).unwrap_or(c_long::MAX)
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
pub struct Writer<'c> {
    call: &'c Call<'c>,
}

impl Writer<'_> {
    pub fn array(&self, len: usize) {
        // SAFETY: the context is alive.
        unsafe { api(raw::RedisModule_ReplyWithArray)(self.call.ctx, announced(len)) };
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
    pub fn map<'v>(&self, fields: impl IntoIterator<Item = Option<Field<'v>>, IntoIter: Clone>) {
        let fields = fields.into_iter().flatten();
        self.begin_map(fields.clone().count());
        for (name, value) in fields {
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
                Some(reply) => _ = reply(self.call.ctx, announced(len)),
                None => self.array(len.saturating_mul(2)),
            }
        }
    }

    fn value(&self, value: Value<'_>) {
        match value {
            Value::Integer(value) => self.integer(value),
            Value::Count(value) => self.integer(i64::try_from(value).unwrap_or(i64::MAX)),
            Value::Text(text) => self.text(text),
            Value::Null => self.null(),
            Value::Nested(write) => write(self),
        }
    }

    pub(super) fn integer(&self, value: i64) {
        // SAFETY: the context is alive.
        unsafe { api(raw::RedisModule_ReplyWithLongLong)(self.call.ctx, value) };
    }

    pub fn text(&self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        // SAFETY: the bytes are copied before the call returns.
        unsafe {
            let reply = api(raw::RedisModule_ReplyWithStringBuffer);
            reply(self.call.ctx, text.as_ptr().cast(), text.len());
        }
    }

    /// A status, which must be one line.
    pub fn status(&self, line: &str) {
        let line = c_string(line);
        // SAFETY: context and text are alive.
        unsafe { api(raw::RedisModule_ReplyWithSimpleString)(self.call.ctx, line.as_ptr()) };
    }

    pub fn null(&self) {
        // SAFETY: the context is alive.
        unsafe { api(raw::RedisModule_ReplyWithNull)(self.call.ctx) };
    }
}
