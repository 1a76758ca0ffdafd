//! Scans the keyspace for keys of the module's type: one step of the server's own `SCAN`, with its
//! cost and its guarantees.

use std::ffi::c_char;

use redis_module::raw;

use super::args::Texts;
use super::call::{Call, CommandError};
use super::call_reply::{CallReply, Part};
use super::key::{NativeType, Value};

/// A step of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub cursor: u64,
    pub pattern: Option<&'a [u8]>,
    /// About how many keys a step visits.
    pub count: u64,
}

impl Call<'_> {
    /// Calls a function with the name and value of each key that this step of the scan finds.
    /// Returns the cursor of the next step, 0 at the end.
    ///
    /// # Errors
    /// [`CommandError::Internal`] if the server does not scan.
    pub fn scan<T: Value>(
        &self,
        kind: &NativeType<T>,
        step: &Step<'_>,
        mut each: impl FnMut(&[u8], &T),
    ) -> Result<Vec<u8>, CommandError> {
        let reply = self.scan_step(kind, step).ok_or(CommandError::Internal)?;
        let part = |index| reply.whole().element(index).ok_or(CommandError::Internal);
        let (next, names) = (part(0)?.bytes().to_vec(), part(1)?);
        let names = Texts::new(names.elements().map(Part::bytes));
        for name in names.args().iter() {
            // An error or `None`: the key has expired or been replaced.
            if let Ok(Some(key)) = self.open_shown(name, kind)
                && let Some(value) = key.value()
            {
                each(name.bytes(), value);
            }
        }
        Ok(next)
    }

    fn scan_step<T>(&self, kind: &NativeType<T>, step: &Step<'_>) -> Option<CallReply<'_>> {
        let (cursor, count) = (step.cursor.to_string(), step.count.to_string());
        // The server skips matching for this pattern.
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
}
