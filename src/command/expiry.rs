//! After a change: the key expires when nothing in it matters any more, and is
//! gone when nothing is in it.

use crate::limit::{Expiry, Limiter};
use crate::server::WriteKey;

/// Deletes the key if it holds nothing, else moves its expiry if that must
/// move. What was done to the expiry.
pub fn settle(key: &mut WriteKey<'_, Limiter>, decided_us: u64, clock_us: u64) -> Expiry {
    let Some(limiter) = key.value() else { return Expiry::Keep };
    if limiter.is_empty() {
        key.delete();
        return Expiry::Keep;
    }
    let deadline = limiter.deadline();
    let expiry = deadline.expiry(decided_us, clock_us, key.expires_at_ms());
    set(key, expiry);
    expiry
}

/// Does to the key's expiry what was decided elsewhere.
pub fn set(key: &mut WriteKey<'_, Limiter>, expiry: Expiry) {
    match expiry {
        Expiry::Keep => {}
        Expiry::At(at_ms) => key.expire_at_ms(Some(at_ms)),
        Expiry::Never => key.expire_at_ms(None),
    }
}

/// As `RL.APPLY` says it.
pub fn in_effect(expiry: Expiry) -> i64 {
    match expiry {
        Expiry::Keep => 0,
        Expiry::At(at_ms) => i64::try_from(at_ms).unwrap_or(i64::MAX),
        Expiry::Never => -1,
    }
}
