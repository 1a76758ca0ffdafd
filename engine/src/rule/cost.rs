//! What a check costs a rule.
//!
//! ```text
//! COST name=n    for the rule of this name
//! cost=n         in the rule's text
//! COST n         for all others, 1 if it is not given
//! ```
//!
//! The first of these that is given is the cost.

/// The cost of a rule in any check, 0 ..= [`MAX_UNITS`](super::MAX_UNITS), from the rule's text and
/// from the request. The fields are plain numbers, because with `Option`s a check of four rules needs
/// 2 % more instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cost {
    /// The cost in this check; [`NONE`](Self::NONE): the check's default.
    own: u32,
    /// The cost in the rule's text, if there is one.
    written: u32,
}

impl Cost {
    /// No cost: larger than any valid one.
    const NONE: u32 = u32::MAX;

    /// The cost of a rule with this `cost=`.
    pub(super) fn new(written: Option<u32>) -> Self {
        let written = written.unwrap_or(Self::NONE);
        Self { own: written, written }
    }

    pub(super) const fn named(self, cost: u32) -> Self {
        Self { own: cost, ..self }
    }

    /// The cost in a check with this default cost.
    #[inline(always)]
    pub const fn or(self, default: u32) -> u32 {
        if self.own == Self::NONE { default } else { self.own }
    }

    /// The cost that overrides the check's default.
    pub const fn own(self) -> Option<u32> {
        if self.own == Self::NONE { None } else { Some(self.own) }
    }

    /// The cost in the rule's text.
    pub const fn written(self) -> Option<u32> {
        if self.written == Self::NONE { None } else { Some(self.written) }
    }

    /// True if the request overrides the rule's `cost=`.
    pub const fn is_named(self) -> bool {
        self.own != self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_cost_overrides_the_text_and_the_text_overrides_the_default() {
        for (cost, of_check, own, written) in [
            (Cost::new(None), 9, None, None),
            (Cost::new(Some(2)), 2, Some(2), Some(2)),
            (Cost::new(None).named(3), 3, Some(3), None),
            (Cost::new(Some(2)).named(0), 0, Some(0), Some(2)),
            (Cost::new(Some(2)).named(0).named(4), 4, Some(4), Some(2)),
        ] {
            assert_eq!((cost.or(9), cost.own(), cost.written()), (of_check, own, written));
        }
    }
}
