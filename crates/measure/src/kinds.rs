//! Counts by kind. Each kind has a stable name in reports and a description.

/// Declares an enum of kinds with names and descriptions, and a type of counts per kind that serialises as a map of the
/// kinds that occurred.
macro_rules! kinds {
    (
        $(#[$kind_doc:meta])* $Kind:ident, counted by $(#[$counts_doc:meta])* $Counts:ident:
        $($variant:ident $name:literal $meaning:literal;)*
    ) => {
        $(#[$kind_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Kind { $(#[doc = $meaning] $variant),* }

        impl $Kind {
            /// All kinds.
            pub const ALL: &'static [$Kind] = &[$($Kind::$variant),*];

            /// The name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($Kind::$variant => $name),* }
            }

            /// The description.
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

            /// The count of this kind.
            #[must_use]
            pub fn of(&self, kind: $Kind) -> u64 {
                self.0[kind as usize]
            }

            /// The kinds that occurred, with their counts.
            pub fn iter(&self) -> impl Iterator<Item = ($Kind, u64)> + '_ {
                $Kind::ALL.iter().map(|kind| (*kind, self.of(*kind))).filter(|(_, n)| *n > 0)
            }

            /// Adds the counts of another part of the same pipeline.
            pub fn add_all(&mut self, other: &$Counts) {
                for (count, more) in self.0.iter_mut().zip(other.0) {
                    *count += more;
                }
            }

            /// The difference to an `earlier` count.
            #[must_use]
            pub fn since(&self, earlier: &$Counts) -> $Counts {
                let mut since = self.clone();
                for (count, before) in since.0.iter_mut().zip(earlier.0) {
                    *count -= before;
                }
                since
            }

            /// The sum of all counts.
            #[must_use]
            pub fn total(&self) -> u64 {
                self.0.iter().sum()
            }

            /// True if nothing occurred.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.total() == 0
            }
        }

        impl schemars::JsonSchema for $Counts {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Counts).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let kind = |kind: &$Kind| {
                    let count = serde_json::json!({ "type": "integer", "minimum": 1, "description": kind.meaning() });
                    (kind.name().to_owned(), count)
                };
                let properties: serde_json::Map<_, _> = $Kind::ALL.iter().map(kind).collect();
                schemars::json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
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
