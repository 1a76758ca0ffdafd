//! Which state a rule reads.

use super::{MAX_NAME, Rule, Shape};

/// What a rule's state is known by. Two rules of one identity read one state, or one window of
/// the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity(KnownBy);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KnownBy {
    Name([u8; MAX_NAME]),
    Shape(Shape, u64),
}

/// What the states of rules are known by, sorted.
pub fn identities<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Box<[Identity]> {
    let mut identities: Vec<_> = rules.into_iter().map(Rule::identity).collect();
    identities.sort_unstable();
    identities.into()
}

impl Rule {
    /// The identity of the state that this rule reads.
    pub fn identity(&self) -> Identity {
        Identity(match self.name() {
            Some(name) => KnownBy::Name(*name.padded()),
            None => KnownBy::Shape(self.algorithm().shape(), self.period_us()),
        })
    }

    /// Whether two rules read one state, or one window of the log, without making identities. One
    /// check cannot have both.
    pub fn same_identity(&self, other: &Self) -> bool {
        match (self.name(), other.name()) {
            (Some(a), Some(b)) => a == b,
            (None, None) => {
                self.period_us() == other.period_us()
                    && self.algorithm().shape() == other.algorithm().shape()
            }
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}
