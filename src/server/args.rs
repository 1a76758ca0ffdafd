//! A command's arguments, borrowed from the server while the command runs. Also server strings that
//! the module creates, to use as arguments.

use std::ffi::{c_char, c_int};
use std::marker::PhantomData;
use std::{ptr, slice};

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

    /// The bytes, which may be invalid UTF-8.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string lives for 'a; its bytes neither move nor change while
        // the command runs.
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

/// The bytes of a key's name that a callback got from the server.
///
/// # Safety
/// The string lives, unchanged, for all of 'a.
#[must_use]
pub(crate) unsafe fn name<'a>(string: *mut raw::RedisModuleString) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { Arg::new(string) }.bytes()
}

/// Consecutive arguments.
#[derive(Clone, Copy, Debug, Default)]
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
    pub fn get(self, index: usize) -> Option<Arg<'a>> {
        self.strings.get(index).map(|&string| Arg { string, lives: PhantomData })
    }

    /// The arguments from `index` on; empty if there are fewer.
    #[must_use]
    pub fn from(self, index: usize) -> Self {
        Self { strings: self.strings.get(index..).unwrap_or_default() }
    }

    /// The last `count` arguments, or all if there are fewer.
    #[must_use]
    pub fn last(self, count: usize) -> Self {
        self.from(self.len().saturating_sub(count))
    }

    /// The first `count` arguments, or all if there are fewer.
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        Self { strings: self.strings.get(..count).unwrap_or(self.strings) }
    }

    pub fn iter(self) -> impl Iterator<Item = Arg<'a>> + Clone {
        self.strings.iter().map(|&string| Arg { string, lives: PhantomData })
    }

    /// The bytes of each argument.
    pub fn bytes(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.iter().map(Arg::bytes)
    }

    pub(super) const fn raw(self) -> &'a [*mut raw::RedisModuleString] {
        self.strings
    }
}

/// Arguments joined from several places.
#[derive(Debug, Default)]
pub struct JoinedArgs<'a> {
    strings: Vec<*mut raw::RedisModuleString>,
    lives: PhantomData<&'a [u8]>,
}

impl<'a> JoinedArgs<'a> {
    pub fn push(&mut self, arg: Arg<'a>) {
        self.strings.push(arg.string);
    }

    pub fn extend(&mut self, args: Args<'a>) {
        self.strings.extend_from_slice(args.strings);
    }

    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args { strings: &self.strings }
    }
}

/// Server strings that the module creates and owns, so that it can propagate them many times
/// without copying them.
#[derive(Debug)]
pub struct Texts {
    strings: Box<[*mut raw::RedisModuleString]>,
}

// SAFETY: the server counts a string's references without locking, so strings are created,
// replicated and freed only under the server's lock, which commands, loading and events hold. Other
// threads only store them.
unsafe impl Send for Texts {}
// SAFETY: see `Send`.
unsafe impl Sync for Texts {}

impl Texts {
    /// Copies the texts.
    #[must_use]
    pub fn new<T: AsRef<[u8]>>(texts: impl Iterator<Item = T>) -> Self {
        let string = |text: T| {
            let text = text.as_ref();
            // SAFETY: the bytes are copied; without a context the string is
            // ours to free.
            unsafe {
                raw::RedisModule_CreateString.map_or(ptr::null_mut(), |create| {
                    create(ptr::null_mut(), text.as_ptr().cast::<c_char>(), text.len())
                })
            }
        };
        Self { strings: texts.map(string).filter(|string| !string.is_null()).collect() }
    }

    #[must_use]
    pub const fn args(&self) -> Args<'_> {
        Args { strings: &self.strings }
    }
}

impl Drop for Texts {
    fn drop(&mut self) {
        for &string in &self.strings {
            // SAFETY: `new` made the string, and it is freed only here.
            unsafe {
                if let Some(free) = raw::RedisModule_FreeString {
                    free(ptr::null_mut(), string);
                }
            }
        }
    }
}
