//! What a client asks of a line.

use crate::rule::Identity;

/// Identifies a waiter. Later arrivals have greater tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// Clients of a line that are served in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// A flow of a higher priority goes first.
    pub priority: u8,
    /// Empty for clients that name none.
    pub name: Box<[u8]>,
}

/// What a client asks of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The flow that it joins.
    pub flow: Flow,
    /// The weight that the flow has from now on; at least 1.
    pub weight: u16,
    /// The [`identities`](crate::rule::identities) of its rules.
    pub rules: Box<[Identity]>,
}

impl Request {
    /// The bytes that its rules take in line, where up to four copies of them are, in trees.
    pub const fn bytes(&self) -> usize {
        size_of_val(&*self.rules).saturating_mul(6)
    }
}
