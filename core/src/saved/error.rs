//! Versions of the saved form, and why a payload is refused.

/// The version written, and the only one that exists.
pub const VERSION: u8 = 1;

/// Why a payload is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It has no byte.
    #[error("the payload is empty, expected a version byte")]
    Empty,
    /// Its first byte, given here, is not a version that can be read.
    #[error("the payload has version {0}, expected {VERSION}")]
    Version(u8),
    /// It ends early or does not have the form of its version, for the reason in these words.
    #[error("the payload cannot be read: {0}")]
    Malformed(&'static str),
    /// This number of bytes follows the value.
    #[error("{0} bytes are left over after the payload")]
    Trailing(usize),
    /// This part of the value is out of bounds.
    #[error("{0} is out of range in the payload")]
    OutOfRange(&'static str),
    /// A limiter, or one of its states, that holds nothing.
    #[error("the payload holds nothing, expected what was consumed")]
    Idle,
    /// Memory is too short for this number of items.
    #[error("no memory for the payload's {0} items")]
    NoMemory(usize),
}
