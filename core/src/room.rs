//! Room for the decisions of a check on the stack, so that a check allocates nothing.

use core::ops::{Deref, DerefMut};
use ratelimit_engine::check::{Decision, Decisions};

/// The number of rules of most checks. Room for more of them takes time to clear.
pub(crate) const FEW: usize = 4;

/// The decisions of up to `N` rules.
pub(crate) struct Room<const N: usize> {
    decisions: [Decision; N],
    len: usize,
}

impl<const N: usize> Room<N> {
    #[inline(always)]
    pub const fn new() -> Self {
        Self { decisions: [Decision::UNDECIDED; N], len: 0 }
    }
}

impl<const N: usize> Deref for Room<N> {
    type Target = [Decision];

    #[inline(always)]
    fn deref(&self) -> &[Decision] {
        self.decisions.get(..self.len).unwrap_or_default()
    }
}

impl<const N: usize> DerefMut for Room<N> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Decision] {
        self.decisions.get_mut(..self.len).unwrap_or_default()
    }
}

impl<const N: usize> Decisions for Room<N> {
    #[inline(always)]
    fn clear(&mut self) {
        self.len = 0;
    }

    #[inline(always)]
    fn push(&mut self, decision: Decision) {
        if let Some(place) = self.decisions.get_mut(self.len) {
            *place = decision;
            self.len = self.len.saturating_add(1);
        }
    }

    #[inline(always)]
    fn resize(&mut self, len: usize) {
        while self.len < len.min(N) {
            self.push(Decision::UNDECIDED);
        }
    }
}
