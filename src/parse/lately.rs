//! What was made lately, kept for when it is asked for again.

pub const PLACES: usize = 32;

/// The place of what these numbers tell apart.
#[inline]
pub fn place_of(numbers: impl IntoIterator<Item = u64>) -> usize {
    /// 2^64 by the golden ratio, as in Fibonacci hashing (Knuth, TAOCP 6.4).
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, number: u64| (hash.rotate_left(5) ^ number).wrapping_mul(ODD);
    let hash = numbers.into_iter().fold(0, mix) >> 32;
    usize::try_from(hash).unwrap_or(0) % PLACES
}

/// A table of a few places. What comes to a place takes it from what was there,
/// so whoever looks must see whether it is what was meant.
#[derive(Debug)]
pub struct Lately<T> {
    /// None at all until the first is taken.
    places: Box<[Option<T>]>,
}

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self { places: Box::default() }
    }
}

impl<T> Lately<T> {
    /// What is in a place.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.places.get(place)?.as_ref()
    }

    /// Takes a place, and what was there leaves.
    pub fn put(&mut self, place: usize, item: T) {
        if self.places.is_empty() {
            self.places = std::iter::repeat_with(|| None).take(PLACES).collect();
        }
        if let Some(taken) = self.places.get_mut(place) {
            *taken = Some(item);
        }
    }

    /// All there are.
    #[cfg(test)]
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}
