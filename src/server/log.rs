//! The server's log.

use std::ffi::{CStr, CString};
use std::panic;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

/// Logs at level `warning`. Can be called from anywhere.
pub fn warning(message: &str) {
    write(c"warning", message);
}

/// Logs at level `notice`, which servers show by default.
pub fn notice(message: &str) {
    write(c"notice", message);
}

/// Logs at level `verbose`, which servers hide by default.
pub fn verbose(message: &str) {
    write(c"verbose", message);
}

fn write(level: &CStr, message: &str) {
    let message = c_string(message);
    // SAFETY: a null context is allowed and means "no module's name"; the
    // format is a constant and takes the one string given.
    unsafe {
        if let Some(log) = raw::RedisModule_Log {
            let format = c"ratelimit: %s".as_ptr();
            log(ptr::null_mut(), level.as_ptr(), format, message.as_ptr());
        }
    }
}

/// The text as a C string, with control characters replaced by spaces: NUL ends a C
/// string, and line ends have a meaning in the protocol.
pub(super) fn c_string(text: &str) -> CString {
    let clean: Vec<u8> =
        text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }).collect();
    CString::new(clean).unwrap_or_default()
}

/// The number of panics in this process.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics, and logs them with their source location to the server's log rather than standard
/// error, which a daemon has closed.
pub fn log_panics() {
    panic::set_hook(Box::new(|info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        warning(&format!("internal error, please report it: {info}"));
    }));
}

/// The number of panics in this process since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}
