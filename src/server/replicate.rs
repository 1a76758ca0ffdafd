//! Replication and the append-only file: what a command did, told to replicas
//! and saved.
//!
//! An effect is told as `RL.APPLY`, whose words `parse/effect.rs` lists and
//! reads.

use std::ffi::{CStr, c_char, c_longlong};

use redis_module::raw;

use super::args::{Arg, Args};
use super::call::Call;

/// What a command did to its key.
#[derive(Clone, Copy, Debug)]
pub struct Effect<'a> {
    pub at_us: u64,
    /// Unix milliseconds; -1 never, 0 as it was.
    pub expire_at_ms: i64,
    /// What was done, in one of the words of `RL.APPLY`.
    pub word: &'static CStr,
    pub details: Details<'a>,
}

/// What follows the word.
#[derive(Clone, Copy, Debug)]
pub enum Details<'a> {
    /// Units, and the rules as the caller wrote them.
    Units {
        units: u64,
        rules: Args<'a>,
    },
    /// Units, and the one rule in its own words.
    OneRule {
        units: u64,
        rule: &'a [u8],
    },
    /// Units and rules as written, with what the trail keeps.
    Marked {
        units: u64,
        keep: u32,
        meta: &'a [u8],
        rules: Args<'a>,
    },
    /// Unix microseconds or -1, and why.
    Overrule {
        until_us: i64,
        reason: &'a [u8],
    },
    Nothing,
}

/// An integer as the API takes it.
fn long(value: u64) -> c_longlong {
    c_longlong::try_from(value).unwrap_or(c_longlong::MAX)
}

impl Call<'_> {
    /// Replicates and persists what was done, as `RL.APPLY key ...`.
    pub fn replicate_effect(&self, key: Arg<'_>, effect: &Effect<'_>) {
        const APPLY: *const c_char = c"RL.APPLY".as_ptr();
        let &Effect { at_us, expire_at_ms, word, details } = effect;
        let (ctx, key, at_us, word) = (self.ctx(), key.raw(), long(at_us), word.as_ptr());
        let expiry = c_longlong::from(expire_at_ms);
        let text = |bytes: &[u8]| bytes.as_ptr().cast::<c_char>();
        // SAFETY: each format describes the arguments after it: `s` a string,
        // `l` an integer, `c` a C string, `b` a buffer with its length, `v` a
        // vector of strings with its length. All are alive.
        unsafe {
            let Some(replicate) = raw::RedisModule_Replicate else { return };
            match details {
                Details::Units { units, rules } => {
                    let (format, rules) = (c"sllclv".as_ptr(), rules.raw());
                    let (start, len) = (rules.as_ptr(), rules.len());
                    replicate(ctx, APPLY, format, key, at_us, expiry, word, long(units), start, len)
                }
                Details::OneRule { units, rule } => {
                    let (format, units) = (c"sllclb".as_ptr(), long(units));
                    let (start, len) = (text(rule), rule.len());
                    replicate(ctx, APPLY, format, key, at_us, expiry, word, units, start, len)
                }
                Details::Marked { units, keep, meta, rules } => {
                    let (format, rules) = (c"sllclclbv".as_ptr(), rules.raw());
                    let (start, len) = (rules.as_ptr(), rules.len());
                    let (units, keep) = (long(units), c_longlong::from(keep));
                    let option = c"META".as_ptr();
                    replicate(
                        ctx,
                        APPLY,
                        format,
                        key,
                        at_us,
                        expiry,
                        word,
                        units,
                        option,
                        keep,
                        text(meta),
                        meta.len(),
                        start,
                        len,
                    )
                }
                Details::Overrule { until_us, reason } => {
                    let (format, until_us) = (c"sllclb".as_ptr(), c_longlong::from(until_us));
                    let (start, len) = (text(reason), reason.len());
                    replicate(ctx, APPLY, format, key, at_us, expiry, word, until_us, start, len)
                }
                Details::Nothing => {
                    replicate(ctx, APPLY, c"sllc".as_ptr(), key, at_us, expiry, word)
                }
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
