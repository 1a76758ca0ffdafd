//! How the primary ends, and which server follows it.

use super::{World, state};
use crate::disk::Disk;
use crate::keyspace::Keyspace;

impl World {
    /// The primary dies and loads its file. The replica begins again.
    pub(super) fn crash(&mut self) {
        let (keys, at) = self.disk.recover(&mut self.rng);
        assert!(
            at >= self.disk.synced_at,
            "{at} effects are left of {} synced",
            self.disk.synced_at
        );
        assert!(!self.syncs_always || at == self.last(), "an acknowledged effect is lost");
        assert_eq!(state(&keys), self.states[at], "the file");
        self.restart(keys, at);
    }

    /// The replica takes over. What it has not received is lost.
    pub(super) fn promote(&mut self) {
        let (keys, at) = (self.replica.keys.clone(), self.replica.at);
        self.restart(keys, at);
    }

    /// Begins another history of effects after effect `at`.
    fn restart(&mut self, keys: Keyspace, at: usize) {
        self.states.truncate(at + 1);
        self.disk = Disk::rewritten(keys.snapshot(), at);
        self.replica.begin_again(&keys.snapshot(), at);
        (self.primary, self.told) = (keys.clone(), keys);
        self.line.disconnected();
    }
}
