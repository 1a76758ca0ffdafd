//! The names in the text of a rule: of algorithms and of options. Each list is written once, so
//! reading, printing and errors cannot disagree.

/// An enum, with the name of each value in a text.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $vis:vis enum $type:ident {
        $($(#[$about_value:meta])* $value:ident = $name:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $type { $($(#[$about_value])* $value,)+ }

        impl $type {
            /// Every value, in the order the documentation lists them.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The name as written in the text.
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$value => $name),+ }
            }

            /// The value with this name.
            $vis fn of_name(name: &[u8]) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name().as_bytes() == name)
            }
        }
    };
}
pub(crate) use named;

named! {
    /// The algorithms, without their options.
    #[derive(Default)]
    pub enum Kind {
        #[default]
        /// Keeps the times of what was admitted in the last period.
        Log = "log",
        /// A sliding window counter.
        Window = "window",
        /// Windows that follow each other, by the calendar or from the first request.
        Fixed = "fixed",
        /// A token bucket.
        Bucket = "bucket",
        /// A queue that leaks evenly.
        Leaky = "leaky",
        /// Concurrent requests, each with a hold; no period.
        Slots = "slots",
    }
}

named! {
    /// The options of rules, in the order of the canonical text.
    pub enum RuleOption {
        /// Sub-intervals a window, 1 ..= [`MAX_RES`](super::MAX_RES).
        Res = "res",
        /// When windows open, `epoch` or `first`.
        Align = "align",
        /// Distance from UTC, -14:00 ..= +14:00.
        Tz = "tz",
        /// Past windows kept, 0 ..= [`MAX_KEEP`](super::MAX_KEEP).
        Keep = "keep",
        /// Capacity, 1 ..= [`MAX_UNITS`](super::MAX_UNITS).
        Burst = "burst",
        /// `interval`: all tokens come back at once.
        Refill = "refill",
        /// Requests that can wait, 0 ..= [`MAX_UNITS`](super::MAX_UNITS).
        Queue = "queue",
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

#[cfg(any(test, feature = "testing"))]
impl Kind {
    /// The algorithms whose checks need no hold.
    pub const RATES: [Self; 5] = [Self::Log, Self::Window, Self::Fixed, Self::Bucket, Self::Leaky];
}

impl RuleOption {
    /// The only algorithm that takes the option; `None`: several take it.
    pub const fn owner(self) -> Option<Kind> {
        match self {
            Self::Res => Some(Kind::Window),
            Self::Align | Self::Tz | Self::Keep => Some(Kind::Fixed),
            Self::Burst | Self::Refill => Some(Kind::Bucket),
            Self::Queue => Some(Kind::Leaky),
            Self::Name | Self::Count | Self::Cost | Self::Ban | Self::Shadow => None,
        }
    }

    /// Whether rules of this algorithm can have the option.
    pub fn suits(self, kind: Kind) -> bool {
        let counts_slots = self == Self::Count && kind == Kind::Slots;
        self.owner().is_none_or(|owner| owner == kind) && !counts_slots
    }

    /// The value that errors name as expected.
    pub(super) const fn value(self) -> &'static str {
        match self {
            Self::Res => "an integer 1..60",
            Self::Align => "epoch or first",
            Self::Tz => "+HH:MM or -HH:MM",
            Self::Keep => "an integer 0..366",
            Self::Burst => "an integer 1..1000000000",
            Self::Refill => "interval",
            Self::Queue => "an integer 0..1000000000",
            Self::Name => "1 to 32 of A-Z a-z 0-9 _ . -",
            Self::Count => "all or allowed",
            Self::Cost => "an integer 0..1000000000",
            Self::Ban => "1 to 8 periods such as 10m or 1m:10m:1h",
            Self::Shadow => "no value",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALGORITHMS: &str = include_str!("../../../docs/algorithms.md");
    const DESIGN: &str = include_str!("../../../docs/design.md");
    const OPERATIONS: &str = include_str!("../../../docs/operations.md");

    #[test]
    fn documents_name_every_algorithm() {
        let grammar = format!("algorithm = {} ", Kind::ALL.map(Kind::name).join(" | "));
        assert!(DESIGN.contains(&grammar), "{grammar}");
        for name in Kind::ALL.map(Kind::name) {
            assert!(ALGORITHMS.contains(&format!("**`{name}`**, ")), "the text of {name}");
            assert!(ALGORITHMS.contains(&format!("\n| `{name}` | ")), "the comparison of {name}");
            assert!(OPERATIONS.contains(&format!("| `ratelimit_{name}_rules` | ")), "{name}");
        }
    }

    #[test]
    fn documents_name_every_option() {
        for option in RuleOption::ALL {
            let (name, owner) = (option.name(), option.owner());
            let owner = owner.map_or("all".into(), |kind| format!("`{}`", kind.name()));
            assert!(DESIGN.contains(&format!("\n| `{name}` | {owner} | ")), "{name}");
            let takes_value = option != RuleOption::Shadow;
            let text = if takes_value { format!("{name}=") } else { format!("`{name}`") };
            assert!(ALGORITHMS.contains(&text), "{text}");
        }
    }
}
