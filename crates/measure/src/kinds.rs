//! What is counted by kind: each kind has a stable name in reports and a meaning for people.

/// Declares an enum of kinds once, with their names and meanings, and the counts of each, which serialise as a map
/// of the kinds that occurred.
macro_rules! kinds {
    (
        $(#[$kind_doc:meta])* $Kind:ident, counted by $(#[$counts_doc:meta])* $Counts:ident:
        $($variant:ident $name:literal $meaning:literal;)*
    ) => {
        $(#[$kind_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Kind { $(#[doc = $meaning] $variant),* }

        impl $Kind {
            /// Every one there is.
            pub const ALL: &'static [$Kind] = &[$($Kind::$variant),*];

            /// The name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($Kind::$variant => $name),* }
            }

            /// What it means, for people.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $($Kind::$variant => $meaning),* }
            }
        }

        $(#[$counts_doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $Counts([u64; $Kind::ALL.len()]);

        impl $Counts {
            pub(crate) fn count(&mut self, kind: $Kind, n: u64) {
                self.0[kind as usize] += n;
            }

            /// How often there was one of this kind.
            #[must_use]
            pub fn of(&self, kind: $Kind) -> u64 {
                self.0[kind as usize]
            }

            /// The kinds that occurred and how often.
            pub fn iter(&self) -> impl Iterator<Item = ($Kind, u64)> + '_ {
                $Kind::ALL.iter().map(|kind| (*kind, self.of(*kind))).filter(|(_, n)| *n > 0)
            }

            /// Adds those of another part of the same pipeline.
            pub fn add_all(&mut self, other: &$Counts) {
                for (count, more) in self.0.iter_mut().zip(other.0) {
                    *count += more;
                }
            }

            /// All together.
            #[must_use]
            pub fn total(&self) -> u64 {
                self.0.iter().sum()
            }

            /// Nothing occurred.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.total() == 0
            }
        }

        impl serde::Serialize for $Counts {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.iter().map(|(kind, n)| (kind.name(), n)))
            }
        }
    };
}
pub(crate) use kinds;
