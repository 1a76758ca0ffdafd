//! Writes the head of an effect: its version, time, expiry, word and numbers, in one argument.
//!
//! ```text
//! v1:1700000000000000:1700000060000:admit:1
//! ```

use super::{Action, BanTerms, Effect, Recorded, WITHOUT_AUTHOR};
use ratelimit_engine::key::{BanCount, Expiry, MAX_END_US, MAX_FORGOTTEN_US, MAX_SPAN_US};
use ratelimit_engine::rule::{MAX_PERIOD_US, MAX_TIME_US, MAX_UNITS};
use std::ops::RangeInclusive;

/// A head's text, stored inline.
#[derive(Debug)]
pub struct Head {
    text: [u8; Self::ROOM],
    len: usize,
}

impl Head {
    /// The longest head is that of a ban. It has the version, the word, six numbers of 64 bits and
    /// one of 32, each with a colon: 144 characters.
    const ROOM: usize = 144;

    /// The head, which is the first argument of `RL.APPLY` after the key.
    pub fn of(effect: &Effect<'_>) -> Self {
        let mut head = Self { text: [0; Self::ROOM], len: 0 };
        head.field(match effect.action.version() {
            WITHOUT_AUTHOR => "v1",
            _ => "v2",
        });
        head.number(TIME, effect.at_us);
        head.expiry(effect.expiry);
        head.field(effect.action.word().name());
        match effect.action {
            Action::Check { recorded, cost, meta } => {
                head.number(UNITS, cost);
                if let Recorded::Held(hold) = recorded {
                    head.number(END, hold.end_us);
                    head.number(REFUND, u8::from(hold.refund));
                }
                if let Some(meta) = meta {
                    head.number(KEEP, meta.keep);
                }
            }
            Action::Renew { end_us: at_us, .. } | Action::Pause { until_us: at_us, .. } => {
                head.number(END, at_us);
            }
            Action::Refund { units } => head.number(UNITS, units),
            Action::Set { until_us, ban, .. } => {
                head.end(until_us);
                if let Some(BanTerms { length_us, count }) = ban {
                    head.number(LENGTH, length_us);
                    if let Some(BanCount { bans, forgotten_us, span_us }) = count {
                        head.number(BANS, bans);
                        head.number(FORGOTTEN, forgotten_us);
                        head.number(SPAN, span_us);
                    }
                }
            }
            Action::Plan { until_us, .. } => head.end(until_us),
            Action::Settle { .. }
            | Action::Lapse
            | Action::Reset
            | Action::Unblock
            | Action::Unexempt
            | Action::Resume
            | Action::Unplan => {}
        }
        head
    }

    /// At most 144 bytes, without a colon at the end.
    pub fn text(&self) -> &[u8] {
        // Without the last colon.
        self.text.get(..self.len.saturating_sub(1)).unwrap_or_default()
    }

    /// Writes when a block, an exemption or a plan ends; -1 if never.
    fn end(&mut self, until_us: Option<u64>) {
        match until_us {
            Some(until_us) => self.number(END, until_us),
            None => self.field("-1"),
        }
    }

    fn expiry(&mut self, expiry: Expiry) {
        match expiry {
            Expiry::Keep => self.number(EXPIRY, 0_u64),
            Expiry::At(unix_ms) => self.number(EXPIRY, unix_ms.min(EXPIRY.most)),
            Expiry::Never => self.field("-1"),
        }
    }

    fn number(&mut self, field: Field, number: impl Into<u64>) {
        let number = number.into();
        debug_assert!(field.range().contains(&number), "{} is {number}", field.name);
        self.field(itoa::Buffer::new().format(number));
    }

    fn field(&mut self, text: &str) {
        let end = self.len.saturating_add(text.len());
        if let Some([field @ .., colon]) = self.text.get_mut(self.len..=end) {
            field.copy_from_slice(text.as_bytes());
            *colon = b':';
            self.len = end.saturating_add(1);
        }
    }
}

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
