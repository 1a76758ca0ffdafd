//! How much of a state is consumed, as far as holds need to know it.

/// What a state had consumed before a check: what is owed, in fractions of a unit, or the
/// tokens taken. Other meters never take less than they are asked to, and need it not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level(pub u128);
