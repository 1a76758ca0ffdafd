//! An append-only file: a snapshot, then effects, each with its length. After a crash, any number of
//! the bytes after the last sync are left.

use fastrand::Rng;

use super::keyspace::{Keyspace, Propagated, Snapshot};

#[derive(Debug, Default)]
pub struct Disk {
    base: Snapshot,
    /// The number of the effect after which the base was saved.
    base_at: usize,
    bytes: Vec<u8>,
    synced: usize,
    /// The number of the last effect that was synced.
    pub synced_at: usize,
}

impl Disk {
    /// A rewritten file: the state `base` after effect `at`.
    pub fn rewritten(base: Snapshot, at: usize) -> Self {
        Self { base, base_at: at, synced_at: at, ..Self::default() }
    }

    pub fn append(&mut self, effect: &Propagated) {
        let mut put = |bytes: &[u8]| {
            self.bytes.extend((bytes.len() as u32).to_le_bytes());
            self.bytes.extend(bytes);
        };
        put(&[effect.len() as u8]);
        effect.iter().for_each(|argument| put(argument));
    }

    pub fn sync(&mut self, at: usize) {
        (self.synced, self.synced_at) = (self.bytes.len(), at);
    }

    /// Cuts the file off at any byte after the last sync, and loads it. Returns the keys and the
    /// number of the last effect that they have.
    pub fn recover(&self, rng: &mut Rng) -> (Keyspace, usize) {
        let mut left = &self.bytes[..rng.usize(self.synced..=self.bytes.len())];
        let (mut keys, mut at) = (Keyspace::of(&self.base), self.base_at);
        while let Some(effect) = take_effect(&mut left) {
            keys.apply(&effect);
            at += 1;
        }
        (keys, at)
    }
}

/// The next effect; `None` if it is cut off.
fn take_effect(left: &mut &[u8]) -> Option<Propagated> {
    let mut rest = *left;
    let mut take = || {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (bytes, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        rest = after;
        Some(bytes.to_vec())
    };
    let arguments = *take()?.first()?;
    let effect = (0..arguments).map(|_| take()).collect::<Option<_>>()?;
    *left = rest;
    Some(effect)
}
