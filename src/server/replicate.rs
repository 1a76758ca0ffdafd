//! Replication and the append-only file: what a command did, told to replicas
//! and saved.
//!
//! An effect is told as `RL.APPLY`, whose words `parse/effect.rs` lists and
//! reads.

use std::ffi::c_char;

use redis_module::raw;

use super::args::{Arg, Args};
use super::call::Call;
use super::head::Head;
use super::propagation;

/// What a command did to its key.
#[derive(Clone, Copy)]
pub struct Effect<'a> {
    pub at_us: u64,
    /// Unix milliseconds; -1 never, 0 as it was.
    pub expire_at_ms: i64,
    /// What was done, in one of the words of `RL.APPLY`.
    pub word: &'static str,
    pub details: Details<'a>,
}

/// How much of it, and what else it was about.
#[derive(Clone, Copy)]
pub enum Details<'a> {
    /// Units, and the rules in words.
    Units {
        units: u64,
        rules: Args<'a>,
    },
    /// The same, with what the history keeps.
    HistoryOnly {
        units: u64,
        keep: u32,
        meta: &'a [u8],
        rules: Args<'a>,
    },
    /// Unix microseconds or -1, how long a ban lasts, and why.
    Access {
        until_us: i64,
        ban_us: Option<u64>,
        reason: &'a [u8],
    },
    Nothing,
}

/// A text as the API takes it.
fn text(text: &[u8]) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}

impl Call<'_> {
    /// Replicates and persists what was done, as `RL.APPLY key ...`. It is put
    /// into words only if somebody listens.
    #[inline]
    pub fn replicate_effect<'e>(&self, key: Arg<'_>, effect: impl FnOnce() -> Effect<'e>) {
        if propagation::is_needed() {
            self.replicate_as_apply(key, &effect());
        } else if !self.replace_counted(true) {
            // The server drops it, but counts a change: after so and so many in
            // so many seconds it saves.
            self.replicate_verbatim();
        }
    }

    fn replicate_as_apply(&self, key: Arg<'_>, effect: &Effect<'_>) {
        const APPLY: *const c_char = c"RL.APPLY".as_ptr();
        let (ctx, key) = (self.ctx(), key.raw());
        let head = Head::of(effect);
        let (head, head_len) = text(head.text());
        // SAFETY: each format describes the arguments after it: `s` a string,
        // `b` a buffer with its length, `v` a vector of strings with its length.
        // All are alive.
        unsafe {
            let Some(replicate) = raw::RedisModule_Replicate else { return };
            match effect.details {
                Details::Units { rules, .. } => {
                    if let &[rule] = rules.raw() {
                        replicate(ctx, APPLY, c"sbs".as_ptr(), key, head, head_len, rule)
                    } else {
                        let (start, rules) = (rules.raw().as_ptr(), rules.len());
                        replicate(ctx, APPLY, c"sbv".as_ptr(), key, head, head_len, start, rules)
                    }
                }
                Details::HistoryOnly { meta, rules, .. } => {
                    let (format, (meta, meta_len)) = (c"sbbv".as_ptr(), text(meta));
                    let (start, rules) = (rules.raw().as_ptr(), rules.len());
                    replicate(ctx, APPLY, format, key, head, head_len, meta, meta_len, start, rules)
                }
                Details::Access { reason, .. } => {
                    let (reason, reason_len) = text(reason);
                    replicate(ctx, APPLY, c"sbb".as_ptr(), key, head, head_len, reason, reason_len)
                }
                Details::Nothing => replicate(ctx, APPLY, c"sb".as_ptr(), key, head, head_len),
            };
        }
    }

    /// Replicates and persists the call as it came.
    pub fn replicate_verbatim(&self) {
        // SAFETY: the context is alive.
        unsafe {
            if let Some(replicate) = raw::RedisModule_ReplicateVerbatim {
                replicate(self.ctx());
            }
        }
    }
}
