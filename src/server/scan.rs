//! Scanning the keyspace for keys of the module's type: one step of the server's own
//! `SCAN`, with its cost and its guarantees.

use std::ffi::c_char;
use std::ptr::NonNull;

use redis_module::raw;

use super::args::Arg;
use super::call::{Call, CommandError};
use super::call_reply::{CallReply, Part};
use super::key::{NativeType, Value};

/// A step of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub cursor: u64,
    pub pattern: Option<&'a [u8]>,
    /// About how many keys a step looks at.
    pub count: u64,
}

/// A server string that the module owns, freed by Drop.
struct Owned<'c> {
    call: &'c Call<'c>,
    string: NonNull<raw::RedisModuleString>,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the string is ours, and freed only here.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeString {
                free(self.call.ctx(), self.string.as_ptr());
            }
        }
    }
}

impl<'c> Call<'c> {
    /// Calls a function with the name and the value of each key that a step of the scan
    /// finds. Returns the cursor of the next step, 0 at the end.
    ///
    /// # Errors
    /// [`CommandError::Internal`] if the server does not scan.
    pub fn scan<T: Value>(
        &'c self,
        kind: &NativeType<T>,
        step: &Step<'_>,
        mut each: impl FnMut(&[u8], &T),
    ) -> Result<Vec<u8>, CommandError> {
        let reply = self.scan_step(kind, step).ok_or(CommandError::Internal)?;
        let part = |index| reply.whole().element(index).ok_or(CommandError::Internal);
        let (next, names) = (part(0)?.bytes().to_vec(), part(1)?);
        for name in names.elements().filter_map(|name| self.string_of(name)) {
            // SAFETY: the string lives as long as `name`, longer than the key
            // that is opened by it here.
            let arg = unsafe { Arg::new(name.string.as_ptr()) };
            // An error or `None`: the key has expired or been replaced.
            if let Ok(Some(key)) = self.open_shown(arg, kind)
                && let Some(value) = key.value()
            {
                each(arg.bytes(), value);
            }
        }
        Ok(next)
    }

    fn scan_step<T>(&self, kind: &NativeType<T>, step: &Step<'_>) -> Option<CallReply<'_>> {
        let (cursor, count) = (step.cursor.to_string(), step.count.to_string());
        // The server skips the matching for this pattern.
        let pattern = step.pattern.unwrap_or(b"*");
        let start = |text: &[u8]| text.as_ptr().cast::<c_char>();
        // SAFETY: the format describes the arguments: `b` a buffer with its
        // length, `c` a C string.
        unsafe {
            CallReply::own(raw::RedisModule_Call?(
                self.ctx(),
                c"SCAN".as_ptr(),
                c"bcbcccb".as_ptr(),
                start(cursor.as_bytes()),
                cursor.len(),
                c"COUNT".as_ptr(),
                start(count.as_bytes()),
                count.len(),
                c"TYPE".as_ptr(),
                kind.name().as_ptr(),
                c"MATCH".as_ptr(),
                start(pattern),
                pattern.len(),
            ))
        }
    }

    fn string_of(&'c self, name: Part<'_>) -> Option<Owned<'c>> {
        // SAFETY: the reply is alive; the string made of it is ours.
        let string =
            unsafe { raw::RedisModule_CreateStringFromCallReply.map(|make| make(name.raw()))? };
        Some(Owned { call: self, string: NonNull::new(string)? })
    }
}
