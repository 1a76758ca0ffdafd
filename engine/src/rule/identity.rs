//! Which state a rule reads.

use super::{Kind, Name, Params, Rule};
use alloc::{boxed::Box, vec::Vec};

/// The key under which a rule finds its state. Two rules with the same identity read the same
/// state, or the same window of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The name.
    Name(Name),
    /// The algorithm, a number for the options that shape the state, and the period in microseconds.
    Shape((Kind, u32), u64),
}

/// The identities of all rules but shadows, sorted.
pub fn identities<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Box<[Identity]> {
    let mut identities: Vec<_> =
        rules.into_iter().filter(|rule| !rule.is_shadow()).map(Rule::identity).collect();
    identities.sort_unstable();
    identities.into()
}

impl Identity {
    /// A key's log, which all its log rules read. No rule has this identity: its period is 0.
    pub const LOG: Self = Self::Shape((Kind::Log, 0), 0);

    /// The identity of the rules that read a state of this name, or else of this shape and period.
    pub(crate) fn of_state(name: Option<&Name>, params: Params, period_us: u64) -> Self {
        match name {
            Some(name) => Self::Name(*name),
            None => Self::Shape(params.shape(), period_us),
        }
    }
}

impl Rule {
    /// The identity of the state that this rule reads; it is the same for all log rules of a key.
    pub fn state(&self) -> Identity {
        if self.kind() == Kind::Log { Identity::LOG } else { self.identity() }
    }

    /// The identity of this rule.
    pub fn identity(&self) -> Identity {
        Identity::of_state(self.name(), self.params(), self.period_us())
    }

    /// True if two rules read the same state, or the same window of the log. No check may have both
    /// rules.
    pub fn same_identity(&self, other: &Self) -> bool {
        match (self.name(), other.name()) {
            // The periods first: they tell most rules apart.
            (None, None) => {
                self.period_us() == other.period_us()
                    && self.params().shape() == other.params().shape()
            }
            (name, other_name) => name == other_name,
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn same_identity_compares_what_identity_returns() {
        let texts = [
            "5/m",
            "9/60s",
            "5/h",
            "log:5/m,name=a",
            "bucket:5/m",
            "bucket:9/m,burst=20",
            "bucket:5/m,refill=interval",
            "bucket:5/h,name=a",
            "window:5/m",
            "window:5/m,res=3",
            "fixed:5/d",
            "fixed:5/d,tz=+02:00",
            "fixed:5/d,align=first",
            "leaky:5/m",
            "slots:5",
            "slots:9",
            "slots:5,name=b",
        ];
        let rules = texts.map(|text| Rule::from_text(text.as_bytes()).unwrap());
        let mut same = 0;
        for a in &rules {
            for b in &rules {
                assert_eq!(a.same_identity(b), a.identity() == b.identity(), "{a:?} {b:?}");
                same += usize::from(a.same_identity(b));
            }
        }
        assert_eq!(
            same,
            rules.len() + 2 * 4,
            "four pairs differ in what is not part of the identity"
        );
    }
}
