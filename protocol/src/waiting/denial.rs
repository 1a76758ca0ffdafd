//! Why a request is not served now.

use ratelimit_core::check::Decision;
use ratelimit_core::key::{Check, Limiter};
use ratelimit_core::rule::{Identity, identities};

/// The denial of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Milliseconds until the request may pass, unless its key changes earlier.
    pub wait_ms: u64,
    /// Milliseconds until fewer rules may deny the request.
    pub again_ms: u64,
    /// The [`identities`] of the rules that deny the request; empty while its key is paused.
    pub by: Box<[Identity]>,
}

impl Denial {
    /// The denial of a check that has to wait this long.
    pub fn of(
        wait_ms: u64,
        check: &Check<'_>,
        decisions: &[Decision],
        key: Option<&Limiter>,
    ) -> Self {
        let pause = key.and_then(|key| key.pause_at(check.now_us));
        let ends = check.denials(decisions).map(|(_, decision)| decision.wait_ms);
        let ends = ends.chain(pause.map(|pause| pause.left_ms(check.now_us)));
        let again_ms = ends.filter_map(|ms| u64::try_from(ms).ok()).min().unwrap_or(wait_ms);
        let by = check.denials(decisions).map(|(rule, _)| rule).filter(|_| pause.is_none());
        Self { wait_ms, again_ms, by: identities(by) }
    }
}
