//! What denies the heads of a line, until when, and which later heads a denial keeps back: those that
//! have all of the denying rules.

use super::flows::Turn;
use super::request::{Entry, Rules};
use ratelimit_engine::rule::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::RangeInclusive;

/// How many denials are counted at most to find the rarest of the rules that deny a head.
const MANY: usize = 16;

/// The last denial of a head.
#[derive(Debug)]
pub struct LastDenial {
    /// The rules that deny the head, sorted. A pause denies without a rule.
    by: Box<[Entry]>,
    /// The rule under which later heads find the denial: the rarest.
    key: Option<Identity>,
    /// When the head may pass if nothing happens.
    pub pass_us: u64,
    /// When fewer rules may deny the head.
    pub again_us: u64,
}

/// The denials of the heads that were tried.
#[derive(Debug, Default)]
pub struct Denials {
    denied: BTreeMap<Turn, LastDenial>,
    by_key: BTreeSet<(Option<Identity>, Turn)>,
    /// By the state and the text of a denying rule.
    by_state: BTreeSet<(Identity, u64, Turn)>,
    /// The ends of the waits that are not over.
    ends: BTreeSet<(u64, Turn)>,
}

impl Denials {
    /// The last denial of a head.
    pub fn of(&self, turn: Turn) -> Option<&LastDenial> {
        self.denied.get(&turn)
    }

    /// The turns of all denied heads.
    pub fn turns(&self) -> impl Iterator<Item = Turn> {
        self.denied.keys().copied()
    }

    /// Notes that these rules deny a head. It may pass at `pass_us`; fewer rules may deny it at
    /// `again_us`.
    pub fn add(&mut self, turn: Turn, by: Box<[Entry]>, pass_us: u64, again_us: u64) {
        self.forget(turn);
        let denials = |key: &Identity| self.by_key.range(all_turns(Some(*key))).take(MANY).count();
        let key = by.iter().map(|rule| rule.identity).min_by_key(denials);
        self.by_key.insert((key, turn));
        self.by_state.extend(by.iter().map(|rule| (rule.state, rule.text, turn)));
        self.ends.insert((again_us, turn));
        self.denied.insert(turn, LastDenial { by, key, pass_us, again_us });
    }

    pub fn forget(&mut self, turn: Turn) {
        let Some(LastDenial { by, key, again_us, .. }) = self.denied.remove(&turn) else { return };
        self.by_key.remove(&(key, turn));
        self.ends.remove(&(again_us, turn));
        for rule in by {
            self.by_state.remove(&(rule.state, rule.text, turn));
        }
    }

    /// When the first wait ends.
    pub fn first_end_us(&self) -> Option<u64> {
        self.ends.first().map(|&(end_us, _)| end_us)
    }

    /// The turn of a head whose wait has ended.
    pub fn pop_ended(&mut self, now_us: u64) -> Option<Turn> {
        self.ends.first().filter(|&&(end_us, _)| end_us <= now_us)?;
        self.ends.pop_first().map(|(_, turn)| turn)
    }

    /// Adds the turns of the heads that rules of this state deny, except rules of these states and texts.
    pub fn add_denied_by(
        &self,
        state: Identity,
        except: &[(Identity, u64)],
        to: &mut BTreeSet<Turn>,
    ) {
        let from = |text| (state, text, Turn::FIRST)..=(state, u64::MAX, Turn::END);
        let mut next = Some(0);
        while let Some(&(_, text, _)) = next.and_then(|next| self.by_state.range(from(next)).next())
        {
            let of_text = self.by_state.range(from(text)).take_while(|&&(_, of, _)| of == text);
            if !except.contains(&(state, text)) {
                to.extend(of_text.map(|&(.., turn)| turn));
            }
            next = text.checked_add(1);
        }
    }

    /// Whether an earlier head is denied only by rules that are among these.
    pub fn keep_back(&self, rules: &Rules, turn: Turn) -> bool {
        let keys = iter::once(None).chain(rules.iter().map(|rule| Some(rule.identity)));
        let earlier = keys.flat_map(|key| self.by_key.range((key, Turn::FIRST)..(key, turn)));
        let mut denials = earlier.filter_map(|(_, turn)| self.denied.get(turn));
        denials.any(|denial| rules.contain_all(&denial.by))
    }
}

/// The range of one key in a set of keys and turns.
pub fn all_turns<K: Copy>(key: K) -> RangeInclusive<(K, Turn)> {
    (key, Turn::FIRST)..=(key, Turn::END)
}
