//! Scans the keyspace for keys of the module's type: one step of the server's own `SCAN`, with its
//! cost and its guarantees.

use super::args::Texts;
use super::call::{Call, CommandError};
use super::call_reply::{Part, READING, call};
use super::key::{KeyValue, NativeType};

/// A step of a scan.
#[derive(Clone, Copy)]
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
    /// Those of [`call`].
    pub fn scan<T: KeyValue>(
        &self,
        kind: &NativeType<T>,
        step: &Step<'_>,
        mut each: impl FnMut(&[u8], &T),
    ) -> Result<Vec<u8>, CommandError> {
        let (cursor, count) = (step.cursor.to_string(), step.count.to_string());
        let (cursor, count, kind_name) = (cursor.as_bytes(), count.as_bytes(), kind.name());
        // The server skips matching for this pattern.
        let pattern = step.pattern.unwrap_or(b"*");
        let args = [cursor, b"COUNT", count, b"TYPE", kind_name, b"MATCH", pattern];
        // SAFETY: the context is alive as long as the call.
        let reply =
            unsafe { call(self.ctx, READING, c"SCAN", Texts::new(args.into_iter()).args()) }?;
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
}
