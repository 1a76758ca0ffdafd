//! What was made direct_mapped, kept for when it is asked for again.

pub const SLOTS: usize = 32;

/// The slot of what these numbers tell apart.
#[inline]
pub fn slot_of(numbers: impl IntoIterator<Item = u64>) -> usize {
    /// 2^64 by the golden ratio, as in Fibonacci hashing (Knuth, TAOCP 6.4).
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, number: u64| (hash.rotate_left(5) ^ number).wrapping_mul(ODD);
    let hash = numbers.into_iter().fold(0, mix) >> 32;
    usize::try_from(hash).unwrap_or(0) % SLOTS
}

/// A table of a few slots. What comes to a slot takes it from what was there,
/// so whoever looks must see whether it is what was meant.
#[derive(Debug)]
pub struct DirectMapped<T> {
    /// None at all until the first is taken.
    slots: Box<[Option<T>]>,
}

impl<T> Default for DirectMapped<T> {
    fn default() -> Self {
        Self { slots: Box::default() }
    }
}

impl<T> DirectMapped<T> {
    /// What is in a slot.
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&T> {
        self.slots.get(slot)?.as_ref()
    }

    /// Takes a slot, and what was there leaves.
    pub fn put(&mut self, slot: usize, item: T) {
        if self.slots.is_empty() {
            self.slots = std::iter::repeat_with(|| None).take(SLOTS).collect();
        }
        if let Some(taken) = self.slots.get_mut(slot) {
            *taken = Some(item);
        }
    }

    /// All there are.
    #[cfg(test)]
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }
}
