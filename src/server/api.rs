//! Functions of the module API that the binding does not know, by name.

use std::ffi::{CStr, c_int};
use std::mem::{size_of, transmute_copy};
use std::ptr;

use redis_module::raw;

/// The function of this name, if the server has it.
///
/// # Safety
/// `F` is a function pointer of the type the server gives to that name.
#[must_use]
pub unsafe fn find<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut ()>(), "a function pointer") };
    let mut function: *mut () = ptr::null_mut();
    // SAFETY: `GetApi` writes a function pointer to the address given, or
    // leaves it alone; the caller promises its type.
    unsafe {
        let found = raw::RedisModule_GetApi?(name.as_ptr(), (&raw mut function).cast());
        (found == c_int::from(false) && !function.is_null()).then(|| transmute_copy(&function))
    }
}

/// Whether this is Valkey, which has its own numbers for what came after the
/// two went apart.
#[must_use]
pub fn is_valkey() -> bool {
    // SAFETY: the function is not called.
    unsafe { find::<unsafe extern "C" fn()>(c"ValkeyModule_SetModuleOptions").is_some() }
}
