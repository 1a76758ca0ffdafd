//! Versions of the saved form, and why a payload is refused.

use std::fmt;

/// The states, and a block or an exemption.
pub const FIRST: u8 = 1;
/// A history as well.
pub const WITH_HISTORY: u8 = 2;
/// The needs of logs and the length of a ban as well.
pub const WITH_NEEDS: u8 = 3;
/// Holds as well.
pub const WITH_HOLDS: u8 = 4;
/// A count of bans as well.
pub const WITH_BANS: u8 = 5;
const LATEST: u8 = WITH_BANS;

/// Why a payload is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    Empty,
    Version(u8),
    Malformed(&'static str),
    Trailing(usize),
    OutOfRange(&'static str),
    /// A limiter, or a state in it, that holds nothing.
    Idle,
    /// There is no memory for this number of items.
    NoMemory(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the payload is empty, expected a version byte"),
            Self::Version(version) => {
                write!(f, "the payload has version {version}, expected 1..{LATEST}")
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
