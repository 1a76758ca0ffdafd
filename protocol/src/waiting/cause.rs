//! What changed a key, as far as it matters to the clients that wait for it.

use ratelimit_core::rule::{Identity, Rule};

/// Why clients in line may pass.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// A check consumed. A rule with the same text as a rule of that check admits no more than before.
    Consumed {
        /// The rules of the check.
        rules: &'a [Rule],
        /// The id of the hold that the check took.
        hold: Option<&'a [u8]>,
    },
    /// These states got something back, or will get it back earlier.
    Returned(&'a [Identity]),
    /// Anything else.
    Changed,
}
