//! What changed a key, as far as it matters to the clients that wait for it.

use ratelimit_core::rule::{Identity, Rule};

/// Why clients in line may pass.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// A check consumed, so that no rule with the text of one of these admits more than before.
    Consumed {
        /// The rules of the check.
        rules: &'a [Rule],
        /// The id of the hold that it took.
        hold: Option<&'a [u8]>,
    },
    /// These states got something back, or will earlier.
    Returned(&'a [Identity]),
    /// Anything else.
    Changed,
}
