//! Replication and the append-only file. An effect is propagated as one command, whose arguments
//! the caller gives.

use std::ffi::CStr;

use redis_module::raw;

use super::api::api;
use super::args::{Arg, Args};
use super::call::Call;
use super::propagation;

impl Call<'_> {
    /// True if a replica or the append-only file needs the effects of this call, which has changed
    /// something.
    #[inline]
    pub fn propagates(&self) -> bool {
        let is_needed = propagation::is_needed();
        if !is_needed && !self.counted.replace(true) {
            // No receiver gets this. But the server counts a change, which save points (`save 60
            // 1000`) need.
            self.replicate_verbatim();
        }
        is_needed
    }

    /// Replicates and persists `command key head [text] [text] [arg ...]`.
    pub fn replicate(
        &self,
        command: &CStr,
        key: Arg<'_>,
        head: &[u8],
        texts: [Option<&[u8]>; 2],
        args: Args<'_>,
    ) {
        let (ctx, command, key) = (self.ctx, command.as_ptr(), key.raw);
        let (head, head_len) = (head.as_ptr(), head.len());
        let (start, len) = (args.raw().as_ptr(), args.len());
        // SAFETY: each format describes the arguments after it: `s` a string,
        // `b` a buffer with its length, `v` a vector of strings with its length.
        // All are alive.
        let replicate = || unsafe {
            let replicate = api(raw::RedisModule_Replicate);
            match (texts, args.raw()) {
                ([None, _], &[arg]) => {
                    replicate(ctx, command, c"sbs".as_ptr(), key, head, head_len, arg.raw)
                }
                ([None, _], _) => {
                    replicate(ctx, command, c"sbv".as_ptr(), key, head, head_len, start, len)
                }
                ([Some(one), None], _) => {
                    let (format, one, one_len) = (c"sbbv".as_ptr(), one.as_ptr(), one.len());
                    replicate(ctx, command, format, key, head, head_len, one, one_len, start, len)
                }
                ([Some(one), Some(two)], _) => {
                    let (format, one, one_len) = (c"sbbbv".as_ptr(), one.as_ptr(), one.len());
                    let (two, two_len) = (two.as_ptr(), two.len());
                    replicate(
                        ctx, command, format, key, head, head_len, one, one_len, two, two_len,
                        start, len,
                    )
                }
            };
        };
        #[cfg(feature = "fault-injection")]
        let replicate = super::fault::around(replicate);
        replicate();
    }

    /// Replicates and persists the first arguments of the call.
    pub fn replicate_first(&self, command: &CStr, arguments: usize) {
        let args = self.args().from(1).first(arguments);
        // SAFETY: the format describes the arguments after it; all are alive.
        unsafe {
            let (replicate, format) = (api(raw::RedisModule_Replicate), c"v".as_ptr());
            replicate(self.ctx, command.as_ptr(), format, args.raw().as_ptr(), args.len());
        }
    }

    /// Replicates and persists the call unchanged.
    pub fn replicate_verbatim(&self) {
        // SAFETY: the context is alive.
        unsafe { api(raw::RedisModule_ReplicateVerbatim)(self.ctx) };
    }
}
