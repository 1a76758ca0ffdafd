//! A command's arguments, borrowed from the server while the command runs. Also server strings that
//! the module creates, to use as arguments.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::{ptr, slice};

use redis_module::raw;

use super::api::api;

/// One argument.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Arg<'a> {
    pub(super) raw: *mut raw::RedisModuleString,
    lives: PhantomData<&'a [u8]>,
}

impl<'a> Arg<'a> {
    /// # Safety
    /// The string lives, unchanged, for all of 'a.
    pub(super) const unsafe fn new(raw: *mut raw::RedisModuleString) -> Self {
        Self { raw, lives: PhantomData }
    }

    /// The bytes, which may be invalid UTF-8.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string lives for 'a; its bytes neither move nor change while
        // the command runs.
        unsafe {
            let start = api(raw::RedisModule_StringPtrLen)(self.raw, &raw mut len);
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }
}

/// The bytes of a key's name that a callback got from the server.
///
/// # Safety
/// The string lives, unchanged, for all of 'a.
pub(crate) unsafe fn key_name<'a>(string: *mut raw::RedisModuleString) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { Arg::new(string) }.bytes()
}

/// Consecutive arguments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Args<'a>(&'a [Arg<'a>]);

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` points to `argc` live strings, all of which outlive 'a unchanged.
    pub(super) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Self {
        let len = usize::try_from(argc).unwrap_or(0);
        if argv.is_null() || len == 0 {
            return Self(&[]);
        }
        // SAFETY: the caller's promise; an `Arg` is a pointer to a string.
        Self(unsafe { slice::from_raw_parts(argv.cast(), len) })
    }

    pub const fn len(self) -> usize {
        self.0.len()
    }

    pub fn get(self, index: usize) -> Option<Arg<'a>> {
        self.0.get(index).copied()
    }

    /// The arguments from `index` on; empty if there are fewer.
    pub fn from(self, index: usize) -> Self {
        Self(self.0.get(index..).unwrap_or_default())
    }

    /// The last `count` arguments, or all if there are fewer.
    pub fn last(self, count: usize) -> Self {
        self.from(self.len().saturating_sub(count))
    }

    /// The first `count` arguments, or all if there are fewer.
    pub fn first(self, count: usize) -> Self {
        Self(self.0.get(..count).unwrap_or(self.0))
    }

    pub fn iter(self) -> impl Iterator<Item = Arg<'a>> + Clone {
        self.0.iter().copied()
    }

    /// The bytes of each argument.
    pub fn bytes(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.iter().map(Arg::bytes)
    }

    /// Arguments joined from several places.
    pub const fn joined(args: &'a [Arg<'a>]) -> Self {
        Self(args)
    }

    /// The strings, each a `*mut RedisModuleString`.
    pub(super) const fn raw(self) -> &'a [Arg<'a>] {
        self.0
    }
}

/// Server strings that the module creates and owns, so that it can propagate them many times
/// without copying them.
#[derive(Debug)]
pub struct Texts(Box<[Arg<'static>]>);

// SAFETY: the server counts a string's references without locking, so strings are created,
// replicated and freed only under the server's lock, which commands, loading and events hold. Other
// threads only store them.
unsafe impl Send for Texts {}
// SAFETY: see `Send`.
unsafe impl Sync for Texts {}

impl Texts {
    /// Copies the texts.
    pub fn new<T: AsRef<[u8]>>(texts: impl Iterator<Item = T>) -> Self {
        // SAFETY: the bytes are copied; without a context the string is ours to free. Outside a
        // server, where unit tests run, there are no strings.
        let string = |text: T| unsafe {
            let (start, len) = (text.as_ref().as_ptr(), text.as_ref().len());
            let string = raw::RedisModule_CreateString?(ptr::null_mut(), start.cast(), len);
            Some(Arg::new(string))
        };
        Self(texts.filter_map(string).collect())
    }

    pub const fn args(&self) -> Args<'_> {
        Args(&self.0)
    }
}

impl Drop for Texts {
    fn drop(&mut self) {
        for text in &self.0 {
            // SAFETY: `new` made the string, and it is freed only here.
            unsafe { api(raw::RedisModule_FreeString)(ptr::null_mut(), text.raw) };
        }
    }
}
