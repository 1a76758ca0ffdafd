//! In which order the flows of a line are served: start-time fair queueing.
//!
//! Each flow has a start, the units that it was admitted divided by its weight. Of one priority
//! the flow with the least start is served next, and its start grows by `cost / weight`. So while
//! two flows have clients in line, their admitted units over weight differ by at most one largest
//! request of each over its weight.
//!
//! Source: Goyal, Vin, Cheng, *Start-Time Fair Queueing*, SIGCOMM 1996.

use super::request::Ticket;
use std::cmp::Reverse;

/// Units over weight, in fractions of 2^-64, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start(u128);

impl Start {
    /// The start after a request of this cost. A request without a cost counts as one unit, or
    /// its flow would always be next.
    pub fn after(self, cost: u32, weight: u16) -> Self {
        let units = u128::from(cost.max(1)) << 64;
        Self(self.0.saturating_add(units.div_ceil(u128::from(weight.max(1)))))
    }

    /// What is compared: 2^-20 of a unit. Equal fractions may have been rounded differently, by
    /// 2^-64 for each request, and must compare as equal.
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
