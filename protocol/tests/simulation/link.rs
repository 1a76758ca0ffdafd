//! A replica and its link. Effects arrive late. A lost link resumes where it ended if the
//! primary's backlog reaches back that far; otherwise it begins again with a snapshot.

use std::collections::VecDeque;

use super::keyspace::{Keyspace, Propagated, Snapshot};

/// How many effects the primary keeps for a replica whose link is lost.
const BACKLOG: usize = 12;

#[derive(Debug, Default)]
pub struct Replica {
    pub keys: Keyspace,
    /// The number of the last effect that it has.
    pub at: usize,
    /// What it has not received yet, from the effect after `at` on.
    backlog: VecDeque<Propagated>,
    is_linked: bool,
}

impl Replica {
    pub fn send(&mut self, effect: &Propagated) {
        self.backlog.push_back(effect.clone());
    }

    /// Receives some effects, if the link is up.
    pub fn receive(&mut self, most: usize) {
        if !self.is_linked {
            return;
        }
        for effect in self.backlog.drain(..most.min(self.backlog.len())) {
            self.keys.apply(&effect);
            self.at += 1;
        }
    }

    pub fn cut(&mut self) {
        self.is_linked = false;
    }

    /// Links the replica to a primary again. The primary has this state after effect `at`.
    pub fn link(&mut self, snapshot: impl FnOnce() -> Snapshot, at: usize) {
        if self.backlog.len() > BACKLOG {
            self.begin_again(&snapshot(), at);
        }
        self.is_linked = true;
    }

    /// Loads the state that a primary has after effect `at`.
    pub fn begin_again(&mut self, snapshot: &Snapshot, at: usize) {
        *self = Self { keys: Keyspace::of(snapshot), at, is_linked: true, ..Self::default() };
    }
}
