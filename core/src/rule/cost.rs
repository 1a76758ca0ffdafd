//! What a check costs a rule.
//!
//! ```text
//! COST name=n    for the rule of this name
//! cost=n         in the rule's text
//! COST n         for all others, 1 if it is not given
//! ```
//!
//! The first of these that is given is the cost.

/// The cost of a rule in any check, 0 ..= [`MAX_UNITS`](super::MAX_UNITS), from its text
/// and from the request that it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cost {
    /// The cost in this check; `None`: the check's default.
    own: Option<u32>,
    /// The cost in the rule's text.
    written: Option<u32>,
}

impl Cost {
    /// The cost of a rule with this `cost=`.
    pub(super) const fn new(written: Option<u32>) -> Self {
        Self { own: written, written }
    }

    pub(super) const fn named(self, cost: u32) -> Self {
        Self { own: Some(cost), ..self }
    }

    /// The cost in a check with this default cost.
    #[inline(always)]
    pub const fn or(self, default: u32) -> u32 {
        if let Some(own) = self.own { own } else { default }
    }

    /// The cost that overrides the check's default.
    pub const fn own(self) -> Option<u32> {
        self.own
    }

    /// The cost in the rule's text.
    pub const fn written(self) -> Option<u32> {
        self.written
    }

    /// Whether the request overrides the rule's `cost=`.
    pub fn is_named(self) -> bool {
        self.own != self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_precedes_the_text_and_the_text_precedes_the_default() {
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
