//! The laws that hold after each step.

use ratelimit_engine::rule::identities;

use super::requests::Look;
use super::{KEYS, World, state};
use crate::line::Waiter;

impl World {
    pub(super) fn test(&mut self) {
        if self.rng.bool() {
            self.replica.receive(self.rng.usize(..3));
        }
        assert_eq!(state(&self.primary), self.states[self.last()], "what was propagated");
        assert_eq!(state(&self.replica.keys), self.states[self.replica.at], "the replica");
        for key in 0..KEYS {
            for head in self.line.heads(key) {
                let look = self.look(head.number, head.ask);
                let idles =
                    matches!(look, Look::Passes(_) | Look::Repeats) && !self.may_be_kept_back(head);
                assert!(!idles, "{head:?} is not served");
            }
        }
    }

    /// Whether the head of another flow may keep this client back: a rule that denies the
    /// head is also a rule of the client. One common rule is enough, because the head's other rules may
    /// have begun to deny it after it was tried.
    fn may_be_kept_back(&self, waiter: &Waiter) -> bool {
        let rules = identities(&self.rules[waiter.ask.rules].0);
        let heads = self.line.heads(waiter.ask.key);
        let mut others = heads.iter().filter(|head| head.flow != waiter.flow);
        others.any(|head| match self.look(head.number, head.ask) {
            Look::Later(denial) => {
                head.flow.priority >= waiter.flow.priority
                    && (denial.by.is_empty() || denial.by.iter().any(|rule| rules.contains(rule)))
            }
            Look::Passes(_) | Look::Repeats | Look::Decided => false,
        })
    }

    /// Whether the head of another flow, of at least this priority, is denied only by rules that this
    /// client has, too.
    fn is_kept_back(&self, waiter: &Waiter, priority: u8) -> bool {
        let rules = identities(&self.rules[waiter.ask.rules].0);
        let heads = self.line.heads(waiter.ask.key);
        let mut others = heads.iter().filter(|head| head.flow != waiter.flow);
        others.any(|head| match self.look(head.number, head.ask) {
            Look::Later(denial) => {
                head.flow.priority >= priority && denial.by.iter().all(|rule| rules.contains(rule))
            }
            Look::Passes(_) | Look::Repeats | Look::Decided => false,
        })
    }

    /// Tests that a client may be admitted: no client of its flow waits before it, and no head of a
    /// higher priority keeps it back.
    pub(super) fn assert_turn(&self, waiter: &Waiter) {
        let heads = self.line.heads(waiter.ask.key);
        let own = heads.iter().find(|head| head.flow == waiter.flow);
        assert!(own.is_none_or(|own| own.number >= waiter.number), "{waiter:?} overtakes {own:?}");
        let is_kept_back = self.is_kept_back(waiter, waiter.flow.priority + 1);
        assert!(!is_kept_back, "{waiter:?} passes one of a higher priority");
    }
}
