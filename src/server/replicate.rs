//! Replication and the append-only file: what a command did, told to replicas
//! and saved.
//!
//! An effect is told as `RL.APPLY`, whose words `parse/effect.rs` lists and
//! reads.

use std::ffi::{CStr, c_char};
use std::fmt::{self, Write};

use redis_module::raw;

use super::args::{Arg, Args};
use super::call::Call;
use super::listeners;

/// What a command did to its key.
#[derive(Clone, Copy)]
pub struct Effect<'a> {
    pub at_us: u64,
    /// Unix milliseconds; -1 never, 0 as it was.
    pub expire_at_ms: i64,
    /// What was done, in one of the words of `RL.APPLY`.
    pub word: &'static CStr,
    pub details: Details<'a>,
}

/// What follows the word.
#[derive(Clone, Copy)]
pub enum Details<'a> {
    /// Units, and the rules as the caller wrote them.
    Units {
        units: u64,
        rules: Args<'a>,
    },
    /// Units, and the one rule, which the caller did not write.
    OneRule {
        units: u64,
        rule: &'a dyn fmt::Display,
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

/// A text as the API takes it.
fn text(text: &[u8]) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}

impl Call<'_> {
    /// Replicates and persists what was done, as `RL.APPLY key ...`.
    #[inline]
    pub fn replicate_effect(&self, key: Arg<'_>, effect: &Effect<'_>) {
        if listeners::any() {
            self.tell(key, effect);
        } else if !self.counts_as_change() {
            // The server drops it, but counts a change: after so and so many in
            // so many seconds it saves.
            self.replicate_verbatim();
        }
    }

    fn tell(&self, key: Arg<'_>, effect: &Effect<'_>) {
        const APPLY: *const c_char = c"RL.APPLY".as_ptr();
        let &Effect { at_us, expire_at_ms, word, details } = effect;
        let (ctx, key, word) = (self.ctx(), key.raw(), word.as_ptr());
        // Numbers go as text, which the server keeps in one block, an integer
        // in two.
        let mut digits: [itoa::Buffer; 4] = Default::default();
        let [at_digits, expiry_digits, amount_digits, keep_digits] = &mut digits;
        let (at, at_len) = text(at_digits.format(at_us).as_bytes());
        let (expiry, expiry_len) = text(expiry_digits.format(expire_at_ms).as_bytes());
        let mut amount = |amount: i64| text(amount_digits.format(amount).as_bytes());
        let count = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        // SAFETY: each format describes the arguments after it: `s` a string,
        // `c` a C string, `b` a buffer with its length, `v` a vector of strings
        // with its length. All are alive.
        unsafe {
            let Some(tell) = raw::RedisModule_Replicate else { return };
            match details {
                Details::Units { units, rules } => {
                    let (amount, len) = amount(count(units));
                    if let &[rule] = rules.raw() {
                        let format = c"sbbcbs".as_ptr();
                        tell(
                            ctx, APPLY, format, key, at, at_len, expiry, expiry_len, word, amount,
                            len, rule,
                        )
                    } else {
                        let (format, rules) = (c"sbbcbv".as_ptr(), rules.raw());
                        let (start, rules) = (rules.as_ptr(), rules.len());
                        tell(
                            ctx, APPLY, format, key, at, at_len, expiry, expiry_len, word, amount,
                            len, start, rules,
                        )
                    }
                }
                Details::OneRule { units, rule } => {
                    let (amount, len) = amount(count(units));
                    let rule = spelled_out(rule);
                    let (format, (rule, rule_len)) = (c"sbbcbb".as_ptr(), text(rule.as_bytes()));
                    tell(
                        ctx, APPLY, format, key, at, at_len, expiry, expiry_len, word, amount, len,
                        rule, rule_len,
                    )
                }
                Details::Marked { units, keep, meta, rules } => {
                    let (amount, len) = amount(count(units));
                    let (format, rules) = (c"sbbcbcbbv".as_ptr(), rules.raw());
                    let (start, rules) = (rules.as_ptr(), rules.len());
                    let (keep, keep_len) = text(keep_digits.format(keep).as_bytes());
                    let (option, (meta, meta_len)) = (c"META".as_ptr(), text(meta));
                    tell(
                        ctx, APPLY, format, key, at, at_len, expiry, expiry_len, word, amount, len,
                        option, keep, keep_len, meta, meta_len, start, rules,
                    )
                }
                Details::Overrule { until_us, reason } => {
                    let (amount, len) = amount(until_us);
                    let (format, (reason, reason_len)) = (c"sbbcbb".as_ptr(), text(reason));
                    tell(
                        ctx, APPLY, format, key, at, at_len, expiry, expiry_len, word, amount, len,
                        reason, reason_len,
                    )
                }
                Details::Nothing => {
                    let format = c"sbbc".as_ptr();
                    tell(ctx, APPLY, format, key, at, at_len, expiry, expiry_len, word)
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

/// In its own words, with room for those of most rules.
fn spelled_out(rule: &dyn fmt::Display) -> String {
    let mut text = String::with_capacity(64);
    // Writing to a string cannot fail.
    let _ = write!(text, "{rule}");
    text
}
