//! Versions of the saved form, and why a payload is refused.

use std::fmt;

/// The version written, and the only one that exists.
pub const VERSION: u8 = 1;

/// Why a payload is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// It has no byte.
    Empty,
    /// Its first byte, this one, is no version that can be read.
    Version(u8),
    /// It ends early or does not have the form of its version; says why in words.
    Malformed(&'static str),
    /// This number of bytes follows the value.
    Trailing(usize),
    /// This part of the value is out of bounds.
    OutOfRange(&'static str),
    /// A limiter, or one of its states, that holds nothing.
    Idle,
    /// Memory is too short for this number of items.
    NoMemory(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the payload is empty, expected a version byte"),
            Self::Version(version) => {
                write!(f, "the payload has version {version}, expected {VERSION}")
            }
            Self::Malformed(why) => write!(f, "the payload cannot be read: {why}"),
            Self::Trailing(bytes) => write!(f, "{bytes} bytes are left over after the payload"),
            Self::OutOfRange(what) => write!(f, "{what} is out of range in the payload"),
            Self::Idle => f.write_str("the payload holds nothing, expected what was consumed"),
            Self::NoMemory(items) => write!(f, "no memory for the payload's {items} items"),
        }
    }
}

impl std::error::Error for DecodeError {}
