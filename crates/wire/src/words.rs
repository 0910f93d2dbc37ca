//! Closed sets of alternatives that stand in bodies, and in JSON, as their words.

/// Enums of words. The first alternative of each stands for a field that is left out.
macro_rules! spelled {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident: $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name { $($(#[$word_doc])* #[serde(rename = $text)] $word,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$word),*];

            /// Its word.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$word => $text,)* }
            }

            /// The alternative of that word.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }

            /// The words of all.
            pub(crate) fn names() -> Vec<&'static str> {
                Self::ALL.iter().map(|one| one.name()).collect()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    )*};
}

pub(crate) use spelled;
