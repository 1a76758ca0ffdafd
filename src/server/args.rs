//! A command's arguments, borrowed from the server for as long as it runs.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::slice;

use redis_module::raw;

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct Arg<'a> {
    string: *mut raw::RedisModuleString,
    lives: PhantomData<&'a [u8]>,
}

impl<'a> Arg<'a> {
    /// # Safety
    /// The string lives, unchanged, for all of 'a.
    pub(super) const unsafe fn new(string: *mut raw::RedisModuleString) -> Self {
        Self { string, lives: PhantomData }
    }

    /// The bytes, any bytes at all.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: `Args::new` promised a live string for 'a; its bytes do not
        // move or change while the command runs.
        unsafe {
            let Some(bytes_of) = raw::RedisModule_StringPtrLen else { return &[] };
            let start = bytes_of(self.string, &raw mut len);
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }

    pub(super) const fn raw(self) -> *mut raw::RedisModuleString {
        self.string
    }
}

/// Several arguments in a row.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    strings: &'a [*mut raw::RedisModuleString],
}

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` points to `argc` live strings, all of which outlive 'a unchanged.
    pub(super) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Self {
        let len = usize::try_from(argc).unwrap_or(0);
        if argv.is_null() || len == 0 {
            return Self { strings: &[] };
        }
        // SAFETY: the caller's promise.
        Self { strings: unsafe { slice::from_raw_parts(argv, len) } }
    }

    #[must_use]
    pub const fn len(self) -> usize {
        self.strings.len()
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.strings.is_empty()
    }

    #[must_use]
    pub fn get(self, index: usize) -> Option<Arg<'a>> {
        self.strings.get(index).map(|&string| Arg { string, lives: PhantomData })
    }

    /// Those from `index` on; none if there are fewer.
    #[must_use]
    pub fn from(self, index: usize) -> Self {
        Self { strings: self.strings.get(index..).unwrap_or_default() }
    }

    /// The last `count`, or all if there are fewer.
    #[must_use]
    pub fn last(self, count: usize) -> Self {
        self.from(self.len().saturating_sub(count))
    }

    /// The bytes of each in order.
    pub fn bytes(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.strings.iter().map(|&string| Arg { string, lives: PhantomData }.bytes())
    }

    pub(super) const fn raw(self) -> &'a [*mut raw::RedisModuleString] {
        self.strings
    }
}
