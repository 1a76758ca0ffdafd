//! The least debt of a token bucket since each of its holds was taken.
//!
//! A settled hold gives back what it was overcharged, but at most the bucket's least debt since the
//! check. The least debt is the minimum of what was owed just before each later consumption and of
//! what is owed now. When the bucket owed this least amount in total, no more than that was left of
//! the charge.
//!
//! ```text
//! hold taken   50 owed . . . 30 owed, another takes 30, 60 owed . . . now 40 owed
//! its least    50            30                                        30
//! ```
//!
//! From older to younger holds the least debt never falls, because an older hold has seen every debt
//! that a younger hold has seen. So the *steps* between neighbours are never negative, and each event
//! changes few of them:
//!
//! ```text
//! a consumption before which d is owed     least = min(least, d): cuts steps at the young end
//! a hold is taken, after which D is owed   a new step at the young end
//! a hold whose least is l gives g back     older: least = min(least, l - g); younger: least -= g
//! ```
//!
//! The steps are stored in a Fenwick tree (P. Fenwick, "A new data structure for cumulative
//! frequency tables", 1994), whose prefix sums are the least debts. Cutting a step to 0 is paid for
//! by creating it, so each event takes O(log n), amortized.
//!
//! Debts are exact: whole numbers of the fractions in which the bucket stores its debt. An ended
//! hold's step stays until the list is compacted, because it counts for all younger holds.

use crate::heap::HeapVisitor;
use alloc::vec::Vec;

/// The index of a hold's least debt; 0 is the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u32);

/// The least debts of a bucket's holds, oldest first.
#[derive(Clone, Debug, Default)]
pub struct LeastDebts {
    /// Node `n`, from 1, stores the sum of the steps `n - lowest_bit(n) + 1 ..= n`.
    nodes: Vec<Sum>,
    /// The sum of all steps: the least debt of the youngest hold.
    total: Sum,
}

/// A sum of steps in 12 bytes: a debt has at most 32 bits of units and 48 bits of fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum([u32; 3]);

impl Sum {
    fn new(sum: u128) -> Self {
        let word = |shift: u32| u32::try_from((sum >> shift) & u128::from(u32::MAX)).unwrap_or(0);
        Self([word(0), word(32), word(64)])
    }

    fn get(self) -> u128 {
        let [low, middle, high] = self.0.map(u128::from);
        low | middle << 32 | high << 64
    }
}

/// The lowest set bit.
const fn lowest_bit(n: usize) -> usize {
    n & n.wrapping_neg()
}

impl LeastDebts {
    pub fn with_room(holds: usize) -> Self {
        Self { nodes: Vec::with_capacity(holds), total: Sum::default() }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The least debt of the youngest hold; 0 without holds.
    pub fn youngest(&self) -> u128 {
        self.total.get()
    }

    /// The least debt of a hold.
    pub fn get(&self, position: Position) -> u128 {
        self.prefix((position.0 as usize).saturating_add(1))
    }

    /// Adds a hold. With its charge, the bucket owes `owed`.
    pub fn push(&mut self, owed: u128) -> Option<Position> {
        self.cut_to(owed);
        let index = u32::try_from(self.nodes.len()).ok().filter(|&index| index < u32::MAX)?;
        let n = self.nodes.len().saturating_add(1);
        let step = owed.saturating_sub(self.youngest());
        let (mut sum, mut below) = (step, 1);
        while below < lowest_bit(n) {
            sum = sum.saturating_add(self.node(n.saturating_sub(below)));
            below <<= 1;
        }
        // Grows by an eighth only, since a key may have thousands of holds.
        if self.nodes.len() == self.nodes.capacity() {
            self.nodes.reserve_exact((n / 8).max(4));
        }
        self.nodes.push(Sum::new(sum));
        self.total = Sum::new(owed);
        Some(Position(index))
    }

    /// Records a consumption. Just before it, the bucket owed `owed`.
    pub fn cut_to(&mut self, owed: u128) {
        self.total = Sum::new(self.cut_prefix(self.youngest(), owed));
    }

    /// Ends a hold that was charged `surplus` too much, while the bucket owes `owed`. Returns how
    /// much it gives back.
    pub fn give_back(&mut self, position: Position, owed: u128, surplus: u128) -> u128 {
        let n = (position.0 as usize).saturating_add(1);
        let own = self.prefix(n);
        let least = own.min(owed);
        let given = surplus.min(least);
        if given == 0 {
            return 0;
        }
        let older = least.saturating_sub(given);
        self.cut_prefix(own, older);
        let fallen = own.saturating_sub(older);
        // The cut also lowered the least debts of younger holds, by more than was given.
        let restored = fallen.saturating_sub(given);
        let last = n >= self.nodes.len();
        if !last {
            self.each_node_over(n.saturating_add(1), |sum| sum.saturating_add(restored));
        }
        let by = if last { fallen } else { given };
        self.total = Sum::new(self.youngest().saturating_sub(by));
        given
    }

    /// Cuts the youngest steps of a prefix until its sum, now `sum`, is at most `most`. Returns the
    /// new sum.
    fn cut_prefix(&mut self, mut sum: u128, most: u128) -> u128 {
        while sum > most {
            let (n, before) = self.reaches(sum);
            let step = sum.saturating_sub(before);
            let cut = step.min(sum.saturating_sub(most));
            if cut == 0 {
                break;
            }
            self.each_node_over(n, |sum| sum.saturating_sub(cut));
            sum = sum.saturating_sub(cut);
        }
        sum
    }

    fn node(&self, n: usize) -> u128 {
        n.checked_sub(1).and_then(|index| self.nodes.get(index)).map_or(0, |sum| sum.get())
    }

    /// The sum of the first `n` steps.
    fn prefix(&self, mut n: usize) -> u128 {
        let mut sum: u128 = 0;
        while n > 0 {
            sum = sum.saturating_add(self.node(n));
            n = n.saturating_sub(lowest_bit(n));
        }
        sum
    }

    /// The first step, from 1, at which the prefix sum reaches `sum`, and the prefix sum before
    /// that step.
    fn reaches(&self, sum: u128) -> (usize, u128) {
        let mut jump = self.nodes.len().checked_next_power_of_two().unwrap_or(0);
        let (mut n, mut before) = (0_usize, 0_u128);
        while jump > 0 {
            let next = n.saturating_add(jump);
            let reached = before.saturating_add(self.node(next));
            if next <= self.nodes.len() && reached < sum {
                (n, before) = (next, reached);
            }
            jump >>= 1;
        }
        (n.saturating_add(1), before)
    }

    /// Changes each node whose sum includes the `n`th step.
    fn each_node_over(&mut self, mut n: usize, change: impl Fn(u128) -> u128) {
        while let Some(node) = n.checked_sub(1).and_then(|index| self.nodes.get_mut(index)) {
            *node = Sum::new(change(node.get()));
            n = n.saturating_add(lowest_bit(n));
        }
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        to.vec(&mut self.nodes);
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// The debt drains, then something is consumed, perhaps by a hold.
        Consume { drained: u64, taken: u64, holds: bool },
        /// The debt drains, then a hold ends.
        End { drained: u64, which: prop::sample::Index, surplus: u64 },
    }

    fn event() -> impl Strategy<Value = Event> {
        let amount = || prop_oneof![3 => 0..40u64, 1 => any::<u64>()];
        prop_oneof![
            3 => (amount(), amount(), any::<bool>())
                .prop_map(|(drained, taken, holds)| Event::Consume { drained, taken, holds }),
            2 => (amount(), any::<prop::sample::Index>(), amount())
                .prop_map(|(drained, which, surplus)| Event::End { drained, which, surplus }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        /// Computes each hold's least debt separately, by its definition.
        #[test]
        fn least_debts_equal_their_definition(events in prop::collection::vec(event(), 1..120)) {
            let (mut leasts, mut owed) = (LeastDebts::default(), 0_u128);
            let mut holds: Vec<(Position, u128)> = Vec::new();
            for event in events {
                match event {
                    Event::Consume { drained, taken, holds: true } => {
                        owed = owed.saturating_sub(drained.into());
                        for (_, least) in &mut holds {
                            *least = owed.min(*least);
                        }
                        leasts.cut_to(owed);
                        owed += u128::from(taken);
                        let position = leasts.push(owed).unwrap();
                        holds.push((position, owed));
                    }
                    Event::Consume { drained, taken, holds: false } => {
                        owed = owed.saturating_sub(drained.into());
                        for (_, least) in &mut holds {
                            *least = owed.min(*least);
                        }
                        leasts.cut_to(owed);
                        owed += u128::from(taken);
                    }
                    Event::End { drained, which, surplus } if !holds.is_empty() => {
                        owed = owed.saturating_sub(drained.into());
                        let index = which.index(holds.len());
                        let (position, least) = holds.remove(index);
                        let least = least.min(owed);
                        let given = least.min(surplus.into());
                        prop_assert_eq!(leasts.give_back(position, owed, surplus.into()), given);
                        if given > 0 {
                            for (older, own) in &mut holds {
                                *own = if *older < position { (*own).min(least - given) } else { *own - given };
                            }
                        }
                        owed -= given;
                    }
                    Event::End { .. } => {}
                }
                for &(position, least) in &holds {
                    prop_assert_eq!(leasts.get(position), least, "{:?} of {:?}", position, holds);
                }
            }
        }
    }

    #[test]
    fn the_list_grows_by_an_eighth() {
        let mut leasts = LeastDebts::default();
        for n in 1..2_000 {
            leasts.push(0);
            assert!(leasts.nodes.capacity() < n + (n / 8).max(4), "{n}");
        }
    }
}
