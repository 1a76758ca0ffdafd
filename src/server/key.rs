//! A key, opened: of our type or missing, never another; closed by Drop.
//!
//! ```text
//!  open_read  -> None | ReadKey  .value()
//!  open_write -> WriteKey        .value() None: missing   .set() .delete() .expire_at()
//! ```
//!
//! Opening compares the key's type with ours by address: the numbers of the
//! built-in types grow with each server, and one that a binding does not know
//! must not matter.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use super::OK;
use super::args::Arg;
use super::call::{Call, CommandError, KeyspaceEvent};
use super::clock;

/// What a key of ours holds.
pub trait Value {
    /// The block of memory that whoever opens the key will look at first, as
    /// far as that can be said without looking there. It may be empty.
    fn first_block(&self) -> *const [u8];
}

/// A data type of ours, whose values are boxes of `T`.
#[derive(Debug)]
pub struct NativeType<T> {
    name: &'static CStr,
    encoding: c_int,
    methods: raw::RedisModuleTypeMethods,
    registered: AtomicPtr<raw::RedisModuleType>,
    value: PhantomData<fn() -> T>,
}

// SAFETY: name, encoding and methods are never written; the rest is atomic.
unsafe impl<T> Sync for NativeType<T> {}

impl<T> NativeType<T> {
    pub(super) const fn name(&self) -> &'static CStr {
        self.name
    }

    /// # Safety
    /// The methods take and give values of this type as boxes of `T`
    /// (`Box::into_raw`), and free them as such.
    #[must_use]
    pub const unsafe fn new(
        name: &'static CStr,
        encoding: c_int,
        methods: raw::RedisModuleTypeMethods,
    ) -> Self {
        assert!(name.count_bytes() == 9, "the server wants nine letters");
        Self {
            name,
            encoding,
            methods,
            registered: AtomicPtr::new(ptr::null_mut()),
            value: PhantomData,
        }
    }

    /// Makes the type known to the server. For `redis_module!`, while loading.
    ///
    /// # Errors
    /// If the server does not take it.
    pub(crate) fn create_data_type(&self, ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
        let mut methods = self.methods;
        // SAFETY: the server copies name and methods; it reads those fields
        // that its version of the structure has.
        let registered = unsafe {
            raw::RedisModule_CreateDataType.map_or(ptr::null_mut(), |create| {
                create(ctx, self.name.as_ptr(), self.encoding, &raw mut methods)
            })
        };
        self.registered.store(registered, Ordering::Relaxed);
        if registered.is_null() { Err(()) } else { Ok(()) }
    }

    fn is_type_of(&self, key: NonNull<raw::RedisModuleKey>) -> bool {
        let ours = self.registered.load(Ordering::Relaxed);
        // SAFETY: the key is open.
        let found = unsafe { raw::RedisModule_ModuleTypeGetType.map(|of| of(key.as_ptr())) };
        !ours.is_null() && found == Some(ours)
    }
}

/// An open key of ours or none.
#[derive(Debug)]
struct OpenKey<'c, T> {
    key: NonNull<raw::RedisModuleKey>,
    call: &'c Call<'c>,
    name: Arg<'c>,
    /// Null if the key is missing. It stays where it is while the key is open:
    /// nothing is defragmented within a command, and modules must not write in
    /// keyspace events, which opening another key can publish.
    value: *mut T,
    done: Done,
}

/// What was done to an open key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Nothing,
    /// It got a value, and with it no expiry.
    Set,
    Deleted,
}

impl<T> Drop for OpenKey<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the key is open, and closed only here.
        unsafe {
            if let Some(close) = raw::RedisModule_CloseKey {
                close(self.key.as_ptr());
            }
        }
        // Only now, for whoever listens may open the key.
        if self.done == Done::Deleted {
            self.call.notify(KeyspaceEvent::Deleted, self.name);
        }
    }
}

impl<'c, T: Value> OpenKey<'c, T> {
    fn open(
        call: &'c Call<'c>,
        name: Arg<'c>,
        kind: &NativeType<T>,
        mode: u32,
    ) -> Result<Option<Self>, CommandError> {
        let mode = c_int::try_from(mode).map_err(|_| CommandError::Internal)?;
        // SAFETY: context and name are alive.
        let opened = unsafe {
            raw::RedisModule_OpenKey
                .map_or(ptr::null_mut(), |open| open(call.ctx(), name.raw(), mode))
        };
        let Some(key) = NonNull::new(opened.cast::<raw::RedisModuleKey>()) else { return Ok(None) };
        let mut key = Self { key, call, name, value: ptr::null_mut(), done: Done::Nothing };
        if !kind.is_type_of(key.key) {
            return if key.is_missing() { Ok(Some(key)) } else { Err(CommandError::WrongType) };
        }
        // SAFETY: the key is open, and of our type.
        key.value = unsafe {
            raw::RedisModule_ModuleTypeGetValue
                .map_or(ptr::null_mut(), |of| of(key.key.as_ptr()).cast())
        };
        // SAFETY: as of `ReadKey::value`.
        if let Some(value) = unsafe { key.value.as_ref() } {
            prefetch(value.first_block());
        }
        Ok(Some(key))
    }

    fn is_missing(&self) -> bool {
        // SAFETY: the key is open.
        let kind = unsafe { raw::RedisModule_KeyType.map(|of| of(self.key.as_ptr())) };
        kind == Some(raw::REDISMODULE_KEYTYPE_EMPTY as c_int)
    }

    fn expires_at_ms(&self) -> Option<u64> {
        // SAFETY: the key is open.
        unsafe {
            if let Some(at_ms) = raw::RedisModule_GetAbsExpire {
                return u64::try_from(at_ms(self.key.as_ptr())).ok();
            }
            let left_ms = raw::RedisModule_GetExpire.map(|left| left(self.key.as_ptr()));
            left_ms
                .and_then(|left| u64::try_from(left).ok())
                .map(|left| now_ms().saturating_add(left))
        }
    }
}

/// Bytes that come from memory together.
const LINE: usize = 64;

/// Begins to load what lies there, which will be looked at soon.
#[inline]
fn prefetch(block: *const [u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..block.len().div_ceil(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = block.cast::<[i8; LINE]>().wrapping_add(line);
        // SAFETY: any address will do, nothing is read from it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

/// A key of ours, to look at.
#[derive(Debug)]
pub struct ReadKey<'c, T>(OpenKey<'c, T>);

impl<T: Value> ReadKey<'_, T> {
    /// The value as the server keeps it; null if the key is missing.
    pub(crate) fn raw_value(&self) -> *mut T {
        self.0.value
    }

    /// When the key expires, unix milliseconds.
    #[must_use]
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.0.expires_at_ms()
    }

    #[must_use]
    pub fn value(&self) -> Option<&T> {
        // SAFETY: a box of T by `NativeType::new`'s contract, which nothing
        // changes or frees while the key is open for reading by this call.
        unsafe { self.0.value.as_ref() }
    }
}

/// A key of ours, or a missing one, to change.
#[derive(Debug)]
pub struct WriteKey<'c, T>(OpenKey<'c, T>);

impl<T: Value> WriteKey<'_, T> {
    /// The value, if the key exists.
    #[must_use]
    pub fn value(&mut self) -> Option<&mut T> {
        // SAFETY: a box of T by `NativeType::new`'s contract; the borrow of
        // this handle, the only one, keeps it unique.
        unsafe { self.0.value.as_mut() }
    }

    /// Makes this the key's value, which frees the one before.
    ///
    /// # Errors
    /// [`CommandError::Internal`] if the server refuses.
    pub fn set(&mut self, kind: &NativeType<T>, value: T) -> Result<(), CommandError> {
        let value = Box::into_raw(Box::new(value));
        let registered = kind.registered.load(Ordering::Relaxed);
        // SAFETY: the key is open for writing, the value a box of T as the
        // type's methods expect; the server owns it from here on.
        let status = unsafe {
            raw::RedisModule_ModuleTypeSetValue
                .map(|set| set(self.0.key.as_ptr(), registered, value.cast::<c_void>()))
        };
        if status == Some(OK) {
            self.0.value = value;
            self.0.done = Done::Set;
            return Ok(());
        }
        // SAFETY: the server did not take the box made above.
        drop(unsafe { Box::from_raw(value) });
        Err(CommandError::Internal)
    }

    /// Deletes the key; the event `del` is published when it is closed.
    pub fn delete(&mut self) {
        // SAFETY: the key is open for writing.
        unsafe {
            if let Some(delete) = raw::RedisModule_DeleteKey {
                delete(self.0.key.as_ptr());
            }
        }
        self.0.value = ptr::null_mut();
        self.0.done = Done::Deleted;
    }

    /// When the key expires, unix milliseconds.
    #[must_use]
    pub fn expires_at_ms(&self) -> Option<u64> {
        if self.0.done == Done::Set { None } else { self.0.expires_at_ms() }
    }

    /// Makes the key expire at a time, unix milliseconds, or never.
    pub fn expire_at_ms(&mut self, at_ms: Option<u64>) {
        if self.0.done == Done::Set {
            self.0.done = Done::Nothing;
        }
        let never = i64::from(raw::REDISMODULE_NO_EXPIRE);
        let clamp = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        // SAFETY: the key is open for writing.
        unsafe {
            if let Some(expire_at) = raw::RedisModule_SetAbsExpire {
                expire_at(self.0.key.as_ptr(), at_ms.map_or(never, clamp));
            } else if let Some(expire_in) = raw::RedisModule_SetExpire {
                // 6.2.0 and 6.2.1 know only what is left.
                let left = |at: u64| clamp(at.saturating_sub(now_ms()).max(1));
                expire_in(self.0.key.as_ptr(), at_ms.map_or(never, left));
            }
        }
    }
}

fn now_ms() -> u64 {
    clock::now_us() / 1_000
}

impl Call<'_> {
    /// Opens a key to look at it; `None` if it is missing.
    ///
    /// # Errors
    /// [`CommandError::WrongType`] if it holds something else.
    pub fn open_read<'c, T: Value>(
        &'c self,
        name: Arg<'c>,
        kind: &NativeType<T>,
    ) -> Result<Option<ReadKey<'c, T>>, CommandError> {
        Ok(OpenKey::open(self, name, kind, raw::REDISMODULE_READ)?.map(ReadKey))
    }

    /// Opens a key to show it: as `open_read`, but it does not count as used.
    ///
    /// # Errors
    /// [`CommandError::WrongType`] if it holds something else.
    pub fn open_shown<'c, T: Value>(
        &'c self,
        name: Arg<'c>,
        kind: &NativeType<T>,
    ) -> Result<Option<ReadKey<'c, T>>, CommandError> {
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH;
        Ok(OpenKey::open(self, name, kind, mode)?.map(ReadKey))
    }

    /// Opens a key to change it, missing or not.
    ///
    /// # Errors
    /// [`CommandError::WrongType`] if it holds something else.
    pub fn open_write<'c, T: Value>(
        &'c self,
        name: Arg<'c>,
        kind: &NativeType<T>,
    ) -> Result<WriteKey<'c, T>, CommandError> {
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;
        OpenKey::open(self, name, kind, mode)?.map(WriteKey).ok_or(CommandError::Internal)
    }
}
