//! The head of an effect: the argument that says when it was, what was done, and
//! how much. `parse/effect.rs` reads it.
//!
//! ```text
//! v2:1700000000000000:1700000060000:admit:1
//! ```
//!
//! The server makes a string of each argument it is given, and frees it, so one
//! argument for all of these costs less than one for each.

use super::replicate::{Details, Effect};

/// Its text, in place.
pub struct Head {
    text: [u8; Self::ROOM],
    len: usize,
}

impl Head {
    /// The version of effects, as `parse/effect.rs` describes it.
    const VERSION: &str = "v2";
    /// The version, a word, and four numbers of at most 20 characters, each with
    /// a colon.
    const ROOM: usize = 99;

    pub fn of(effect: &Effect<'_>) -> Self {
        let mut head = Self { text: [0; Self::ROOM], len: 0 };
        head.field(Self::VERSION);
        head.number(effect.at_us);
        head.number(effect.expire_at_ms);
        head.field(effect.word);
        match effect.details {
            Details::Units { units, .. } => head.number(units),
            Details::HistoryOnly { units, keep, .. } => {
                head.number(units);
                head.number(keep);
            }
            Details::Access { until_us, ban_us, .. } => {
                head.number(until_us);
                if let Some(length_us) = ban_us {
                    head.number(length_us);
                }
            }
            Details::Nothing => {}
        }
        head
    }

    pub fn text(&self) -> &[u8] {
        // Without the last colon.
        self.text.get(..self.len.saturating_sub(1)).unwrap_or_default()
    }

    fn number(&mut self, number: impl itoa::Integer) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Args;

    fn head(at_us: u64, expire_at_ms: i64, word: &'static str, details: Details<'_>) -> String {
        let head = Head::of(&Effect { at_us, expire_at_ms, word, details });
        String::from_utf8(head.text().to_vec()).unwrap()
    }

    #[test]
    fn each_field_has_its_place() {
        let rules = Args::default();
        let remembered = Details::HistoryOnly { units: 3, keep: 128, meta: b"who", rules };
        let access = |until_us, ban_us| Details::Access { until_us, ban_us, reason: b"why" };
        for (head, text) in [
            (head(1, 2, "admit", Details::Units { units: 3, rules }), "v2:1:2:admit:3"),
            (head(1, 0, "refund", Details::Units { units: 0, rules }), "v2:1:0:refund:0"),
            (head(1, 2, "deny", remembered), "v2:1:2:deny:3:128"),
            (head(1, -1, "block", access(-1, None)), "v2:1:-1:block:-1"),
            (head(1, 2, "ban", access(3, Some(2))), "v2:1:2:ban:3:2"),
            (head(0, 2, "reset", Details::Nothing), "v2:0:2:reset"),
        ] {
            assert_eq!(head, text);
        }
    }

    #[test]
    fn the_longest_is_whole() {
        let rules = Args::default();
        let remembered = Details::HistoryOnly { units: u64::MAX, keep: u32::MAX, meta: b"", rules };
        let longest = format!("v2:{}:{}:unexempt:{0}:{}", u64::MAX, i64::MIN, u32::MAX);
        assert_eq!(head(u64::MAX, i64::MIN, "unexempt", remembered), longest);
    }
}
