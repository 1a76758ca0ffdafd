//! An open key: its value is of the module's type, or it is missing. Drop closes it.
//!
//! ```text
//!  open_read  -> None | ReadKey  .value()
//!  open_write -> WriteKey        .value() None: missing   .value_mut() .set() .delete()
//!                                .expire_at_ms()
//! ```
//!
//! Opening compares the key's type with ours by address, not by the number of a built-in type,
//! because newer servers have types that the bindings do not know.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use super::api::{OK, api};
use super::args::Arg;
use super::call::{Call, CommandError};
use super::clock;

/// The value of a key.
pub trait KeyValue {
    /// The address of the allocation that a command reads first, so that it can be prefetched. If the
    /// value does not have that allocation, any address.
    fn first_allocation(&self) -> *const u8;
}

/// A data type of the module, whose values are boxes of `T`.
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
    pub(super) const fn name(&self) -> &'static [u8] {
        self.name.to_bytes()
    }

    /// # Safety
    /// The methods take and give values of this type as boxes of `T`
    /// (`Box::into_raw`), and free them as such.
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

    /// Registers the type. `redis_module!` calls it while the module is being loaded.
    ///
    /// # Errors
    /// If the server refuses the type.
    pub(crate) fn create_data_type(&self, ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
        let mut methods = self.methods;
        // SAFETY: the server copies name and methods; it reads those fields
        // that its version of the structure has.
        let registered = unsafe {
            let create = api(raw::RedisModule_CreateDataType);
            create(ctx, self.name.as_ptr(), self.encoding, &raw mut methods)
        };
        self.registered.store(registered, Ordering::Relaxed);
        if registered.is_null() { Err(()) } else { Ok(()) }
    }
}

/// The type of a missing key.
const EMPTY: c_int = raw::REDISMODULE_KEYTYPE_EMPTY as c_int;

/// An open key, of the module's type or missing.
struct OpenKey<'c, T> {
    key: NonNull<raw::RedisModuleKey>,
    call: &'c Call<'c>,
    name: Arg<'c>,
    /// Null if the key is missing. The value does not move while the key is open: the server does
    /// not defragment within a command, and modules must not write in keyspace events, which
    /// opening another key can publish.
    value: *mut T,
    change: KeyChange,
}

/// How an open key was changed. This decides how the key is closed and which expiry it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyChange {
    None,
    /// The key got a new value and has no expiry yet.
    ValueSet,
    Deleted,
}

impl<T> Drop for OpenKey<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the key is open, and closed only here.
        unsafe { api(raw::RedisModule_CloseKey)(self.key.as_ptr()) };
        // Only after closing, because a subscriber may open the key.
        if self.change == KeyChange::Deleted {
            self.call.publish(raw::REDISMODULE_NOTIFY_GENERIC, c"del", self.name);
        }
    }
}

impl<'c, T: KeyValue> OpenKey<'c, T> {
    #[inline(always)]
    fn open(
        call: &'c Call<'c>,
        name: Arg<'c>,
        kind: &NativeType<T>,
        mode: u32,
    ) -> Result<Option<Self>, CommandError> {
        // SAFETY: context and name are alive.
        let opened = unsafe { api(raw::RedisModule_OpenKey)(call.ctx, name.raw, mode as c_int) };
        let opened = opened.cast::<raw::RedisModuleKey>();
        let Some(key) = NonNull::new(opened) else { return Ok(None) };
        let mut key = Self { key, call, name, value: ptr::null_mut(), change: KeyChange::None };
        // SAFETY: the key is open.
        let found = unsafe { api(raw::RedisModule_ModuleTypeGetType)(opened) };
        if found != kind.registered.load(Ordering::Relaxed) {
            // SAFETY: the key is open.
            return match unsafe { api(raw::RedisModule_KeyType)(opened) } {
                EMPTY => Ok(Some(key)),
                _ => Err(CommandError::WRONG_TYPE),
            };
        }
        // SAFETY: the key is open, and of our type.
        key.value = unsafe { api(raw::RedisModule_ModuleTypeGetValue)(opened) }.cast();
        // SAFETY: a box of T by `NativeType::new`'s contract, which nothing else
        // uses while the key is being opened.
        if let Some(value) = unsafe { key.value.as_ref() } {
            prefetch(value.first_allocation());
        }
        Ok(Some(key))
    }

    fn expires_at_ms(&self) -> Option<u64> {
        // SAFETY: the key is open.
        unsafe {
            if let Some(at_ms) = raw::RedisModule_GetAbsExpire {
                return u64::try_from(at_ms(self.key.as_ptr())).ok();
            }
            let left_ms = u64::try_from(api(raw::RedisModule_GetExpire)(self.key.as_ptr()));
            left_ms.ok().map(|left_ms| now_ms().saturating_add(left_ms))
        }
    }
}

/// Starts to fetch the first cache line of an allocation that a command will soon read.
///
/// With 100,000 keys this saves 1 to 4 % of the server's time for an allowed bucket. (Two runs of
/// 100 rounds, which alternated between builds with and without the prefetch. redis-benchmark sent
/// `RL.CHECK key:__rand_int__ bucket:1000/d`; `INFO cpu` gave the CPU time.) For logs of 60 entries,
/// neither this nor fetching all of their cache lines changes the time.
#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accepts any address and reads nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// An existing key, open for reading.
pub struct ReadKey<'c, T>(OpenKey<'c, T>);

impl<T: KeyValue> ReadKey<'_, T> {
    /// The server's pointer to the value; null if the key is missing.
    pub(crate) fn raw_value(&self) -> *mut T {
        self.0.value
    }

    /// The key's expiry, in Unix milliseconds.
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.0.expires_at_ms()
    }

    pub fn value(&self) -> Option<&T> {
        // SAFETY: a box of T by `NativeType::new`'s contract, which nothing
        // changes or frees while the key is open for reading by this call.
        unsafe { self.0.value.as_ref() }
    }
}

/// An existing or missing key, open for writing.
pub struct WriteKey<'c, T>(OpenKey<'c, T>);

impl<'c, T: KeyValue> WriteKey<'c, T> {
    /// The call that opened the key.
    pub const fn call(&self) -> &'c Call<'c> {
        self.0.call
    }

    pub const fn name(&self) -> Arg<'c> {
        self.0.name
    }

    /// The value, if the key exists.
    pub fn value(&self) -> Option<&T> {
        // SAFETY: a box of T by `NativeType::new`'s contract; this handle is the
        // only one, and it is borrowed.
        unsafe { self.0.value.as_ref() }
    }

    /// The value to change, if the key exists.
    pub fn value_mut(&mut self) -> Option<&mut T> {
        // SAFETY: a box of T by `NativeType::new`'s contract; this handle is the
        // only one, and it is borrowed.
        unsafe { self.0.value.as_mut() }
    }

    /// Sets the key's value. The server frees the old one.
    ///
    /// # Errors
    /// [`CommandError::Internal`] if the server refuses.
    pub fn set(&mut self, kind: &NativeType<T>, value: T) -> Result<(), CommandError> {
        let value = Box::into_raw(Box::new(value));
        let registered = kind.registered.load(Ordering::Relaxed);
        // SAFETY: the key is open for writing, the value a box of T as the
        // type's methods expect; the server owns it from here on.
        let status = unsafe {
            let set = api(raw::RedisModule_ModuleTypeSetValue);
            set(self.0.key.as_ptr(), registered, value.cast())
        };
        if status == OK {
            self.0.value = value;
            self.0.change = KeyChange::ValueSet;
            return Ok(());
        }
        // SAFETY: the server did not take the box created above.
        drop(unsafe { Box::from_raw(value) });
        Err(CommandError::Internal)
    }

    /// Deletes the key. Closing it publishes the event `del`.
    pub fn delete(&mut self) {
        // SAFETY: the key is open for writing.
        unsafe { api(raw::RedisModule_DeleteKey)(self.0.key.as_ptr()) };
        self.0.value = ptr::null_mut();
        self.0.change = KeyChange::Deleted;
    }

    /// The key's expiry, in Unix milliseconds.
    pub fn expires_at_ms(&self) -> Option<u64> {
        if self.0.change == KeyChange::ValueSet { None } else { self.0.expires_at_ms() }
    }

    /// Sets the key's expiry, in Unix milliseconds; `None`: never.
    pub fn expire_at_ms(&mut self, at_ms: Option<u64>) {
        if self.0.change == KeyChange::ValueSet {
            self.0.change = KeyChange::None;
        }
        let never = i64::from(raw::REDISMODULE_NO_EXPIRE);
        let clamp = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        // SAFETY: the key is open for writing.
        unsafe {
            if let Some(expire_at) = raw::RedisModule_SetAbsExpire {
                expire_at(self.0.key.as_ptr(), at_ms.map_or(never, clamp));
            } else {
                // 6.2.0 and 6.2.1 only take the remaining time.
                let left = |at: u64| clamp(at.saturating_sub(now_ms()).max(1));
                api(raw::RedisModule_SetExpire)(self.0.key.as_ptr(), at_ms.map_or(never, left));
            }
        }
    }
}

fn now_ms() -> u64 {
    clock::now_us() / 1_000
}

impl Call<'_> {
    /// Opens a key for reading; `None` if it is missing.
    ///
    /// # Errors
    /// [`CommandError::WRONG_TYPE`] if it holds a value of another type.
    #[inline]
    pub fn open_read<'c, T: KeyValue>(
        &'c self,
        name: Arg<'c>,
        kind: &NativeType<T>,
    ) -> Result<Option<ReadKey<'c, T>>, CommandError> {
        Ok(OpenKey::open(self, name, kind, raw::REDISMODULE_READ)?.map(ReadKey))
    }

    /// Opens a key for reading, without marking it as recently used; `None` if the key is missing.
    ///
    /// # Errors
    /// [`CommandError::WRONG_TYPE`] if it holds a value of another type.
    pub fn open_shown<'c, T: KeyValue>(
        &'c self,
        name: Arg<'c>,
        kind: &NativeType<T>,
    ) -> Result<Option<ReadKey<'c, T>>, CommandError> {
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH;
        Ok(OpenKey::open(self, name, kind, mode)?.map(ReadKey))
    }

    /// Opens a key for writing, existing or missing.
    ///
    /// # Errors
    /// [`CommandError::WRONG_TYPE`] if it holds a value of another type. [`CommandError::NOT_NOW`] while
    /// Valkey 9.2 saves the key without a fork: it delays the commands of clients by their declared
    /// keys, but not commands that a module or a script calls.
    #[inline(always)]
    pub fn open_write<'c, T: KeyValue>(
        &'c self,
        name: Arg<'c>,
        kind: &NativeType<T>,
    ) -> Result<WriteKey<'c, T>, CommandError> {
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;
        #[cfg(feature = "fault-injection")]
        super::fault::refuse_to_open()?;
        let opened = OpenKey::open(self, name, kind, mode)?;
        let Some(key) = opened else { return Err(CommandError::NOT_NOW) };
        Ok(WriteKey(key))
    }
}
