//! Names in the text of a rule. Each list is written once, so reading, printing and errors cannot
//! disagree.

/// An enum, with the name of each value in a text.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $vis:vis enum $type:ident {
        $($(#[$about_value:meta])* $value:ident = $name:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
