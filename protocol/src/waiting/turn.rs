//! In which order the flows of a line are served: start-time fair queueing.
//!
//! Each flow has a start: its admitted units, divided by its weight. Among the flows of one priority,
//! the flow with the least start is served next, and its start grows by `cost / weight`. So while two
//! flows have clients in line, their values of `units / weight` differ by at most the sum of their
//! values of `largest cost / weight`.
//!
//! Source: Goyal, Vin, Cheng, *Start-Time Fair Queueing*, SIGCOMM 1996.

use super::request::Ticket;
use std::cmp::Reverse;

/// Units divided by weight, as a multiple of 2^-64, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start(u128);

impl Start {
    /// The start after a request of this cost. A request of cost 0 counts as one unit; otherwise its
    /// flow would always be next.
    pub fn after(self, cost: u32, weight: u16) -> Self {
        let units = u128::from(cost.max(1)) << 64;
        Self(self.0.saturating_add(units.div_ceil(u128::from(weight.max(1)))))
    }

    /// The value to compare, a multiple of 2^-20. Each request may round a start up by 2^-64, so starts
    /// that should be equal can differ slightly, and must compare as equal.
    const fn rounded(self) -> u128 {
        self.0 >> 44
    }
}

/// The place of a head in the order of service: by priority, highest first, then by start, then by
/// arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    pub priority: Reverse<u8>,
    start: u128,
    pub ticket: Ticket,
}

impl Turn {
    /// Before all turns.
    pub const FIRST: Self = Self { priority: Reverse(u8::MAX), start: 0, ticket: Ticket(0) };
    /// After all turns.
    pub const END: Self = Self { priority: Reverse(0), start: u128::MAX, ticket: Ticket(u64::MAX) };

    pub const fn new(priority: u8, start: Start, ticket: Ticket) -> Self {
        Self { priority: Reverse(priority), start: start.rounded(), ticket }
    }

    /// The turn right after this one.
    pub const fn next(self) -> Self {
        Self { ticket: Ticket(self.ticket.0.saturating_add(1)), ..self }
    }
}
