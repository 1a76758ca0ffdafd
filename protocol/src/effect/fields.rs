//! The numbers of a head, each with its range. The writer and the reader use the same ranges, so
//! the reader accepts every number that the writer lets through.

use ratelimit_core::key::{MAX_END_US, MAX_FORGOTTEN_US, MAX_SPAN_US};
use ratelimit_core::rule::{MAX_PERIOD_US, MAX_TIME_US, MAX_UNITS};
use std::ops::RangeInclusive;

/// A number of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Its name in errors.
    pub name: &'static str,
    pub least: u64,
    pub most: u64,
}

impl Field {
    const fn new(name: &'static str, least: u64, most: u64) -> Self {
        Self { name, least, most }
    }

    pub const fn range(self) -> RangeInclusive<u64> {
        self.least..=self.most
    }
}

pub(super) const TIME: Field = Field::new("time", 0, MAX_TIME_US);
/// A key's absolute expiry in Unix milliseconds, up to the largest that Redis accepts.
pub(super) const EXPIRY: Field = Field::new("expiry", 0, i64::MAX.unsigned_abs());
/// The cost of a check, or the units that a refund gives back.
pub(super) const UNITS: Field = Field::new("units", 0, MAX_UNITS as u64);
/// How many checks a history keeps.
pub(super) const KEEP: Field = Field::new("keep", 1, u32::MAX as u64);
/// When a hold, a pause, a block, a ban, an exemption or a plan ends.
pub(super) const END: Field = Field::new("the end", 0, MAX_END_US);
/// 1 if a hold gives its charges back when it lapses.
pub(super) const REFUND: Field = Field::new("refund", 0, 1);
/// How long a ban lasts.
pub(super) const LENGTH: Field = Field::new("the length", 0, MAX_PERIOD_US);
/// How many bans a key has had.
pub(super) const BANS: Field = Field::new("bans", 1, u32::MAX as u64);
/// When a key's count of bans is forgotten.
pub(super) const FORGOTTEN: Field = Field::new("the time of forgetting", 0, MAX_FORGOTTEN_US);
/// The time from a key's last ban until its count of bans is forgotten.
pub(super) const SPAN: Field = Field::new("the span", 0, MAX_SPAN_US);
