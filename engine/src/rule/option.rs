//! The options of rules. This file lists the options that several algorithms take. The options that
//! only one algorithm takes are listed in the algorithm's folder.

use super::{Kind, digits, named};
use core::fmt;

named! {
    /// The options that several algorithms take, in the order of the canonical text.
    pub enum CommonOption {
        /// Identity, 1 ..= [`MAX_NAME`](super::MAX_NAME) bytes.
        Name = "name",
        /// Whether denied requests are charged too: `all` or `allowed`.
        Count = "count",
        /// What each check costs, 0 ..= [`MAX_UNITS`](super::MAX_UNITS).
        Cost = "cost",
        /// How long denials block the key, 1 to [`MAX_RUNGS`](super::MAX_RUNGS) periods.
        Ban = "ban",
        /// Reports and never denies; takes no value.
        Shadow = "shadow",
    }
}

impl CommonOption {
    /// What error messages say after 'expected'.
    const fn value(self) -> &'static str {
        match self {
            Self::Name => "1 to 32 of A-Z a-z 0-9 _ . -",
            Self::Count => "all or allowed",
            Self::Cost => "an integer 0..1000000000",
            Self::Ban => "1 to 8 periods such as 10m or 1m:10m:1h",
            Self::Shadow => "no value",
        }
    }
}

/// An option that only one algorithm takes. Its value is a number.
pub struct OwnOption {
    pub(crate) name: &'static str,
    /// What error messages say after 'expected'.
    pub(crate) value: &'static str,
    /// The number that a value means, before its bounds are tested.
    pub(crate) read: fn(&[u8]) -> Option<i128>,
}

impl OwnOption {
    /// An option whose value is a whole number of at least 0.
    pub(crate) const fn number(name: &'static str, value: &'static str) -> Self {
        Self { name, value, read: |text| digits(text).map(i128::from) }
    }
}

impl fmt::Debug for OwnOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for OwnOption {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for OwnOption {}

/// An option of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOption {
    /// An option that only this algorithm takes.
    Own(Kind, &'static OwnOption),
    /// An option that several algorithms take.
    Common(CommonOption),
}

impl RuleOption {
    /// Every option, in the order of the canonical text.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = |kind: Kind| kind.options().iter().map(move |option| Self::Own(kind, option));
        Kind::ALL.into_iter().flat_map(own).chain(CommonOption::ALL.map(Self::Common))
    }

    /// The option with this name.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        Self::all().find(|option| option.name().as_bytes() == name)
    }

    /// The name as written in the text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own(_, option) => option.name,
            Self::Common(option) => option.name(),
        }
    }

    /// The only algorithm that takes the option; `None`: several take it.
    pub const fn owner(self) -> Option<Kind> {
        match self {
            Self::Own(kind, _) => Some(kind),
            Self::Common(_) => None,
        }
    }

    /// Whether rules of this algorithm can have the option.
    pub fn suits(self, kind: Kind) -> bool {
        let counts_slots = self == Self::Common(CommonOption::Count) && kind == Kind::Slots;
        self.owner().is_none_or(|owner| owner == kind) && !counts_slots
    }

    /// What error messages say after 'expected'.
    pub(super) const fn value(self) -> &'static str {
        match self {
            Self::Own(_, option) => option.value,
            Self::Common(option) => option.value(),
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    const RULES: &str = include_str!("../../../docs/guide/rules.md");
    const DESIGN: &str = include_str!("../../../docs/internals/design.md");
    const OPERATIONS: &str = include_str!("../../../docs/operate/run.md");

    #[test]
    fn documents_name_every_algorithm() {
        let grammar = format!("algorithm = {} ", Kind::ALL.map(Kind::name).join(" | "));
        assert!(DESIGN.contains(&grammar), "{grammar}");
        for name in Kind::ALL.map(Kind::name) {
            assert!(RULES.contains(&format!("**`{name}`**, ")), "the text of {name}");
            assert!(RULES.contains(&format!("\n| `{name}` | ")), "the comparison of {name}");
            assert!(OPERATIONS.contains(&format!("| `ratelimit_{name}_rules` | ")), "{name}");
        }
    }

    #[test]
    fn documents_name_every_option() {
        for option in RuleOption::all() {
            let (name, owner) = (option.name(), option.owner());
            let owner = owner.map_or("all".into(), |kind| format!("`{}`", kind.name()));
            assert!(DESIGN.contains(&format!("\n| `{name}` | {owner} | ")), "{name}");
            let takes_value = option != RuleOption::Common(CommonOption::Shadow);
            let text = if takes_value { format!("{name}=") } else { format!("`{name}`") };
            assert!(RULES.contains(&text), "{text}");
        }
    }
}
