/// A named SPEC for one direction.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The name.
    pub name: &'static str,
    /// The SPEC.
    pub spec: &'static str,
    /// The source of the figures.
    pub source: &'static str,
}

/// The profiles. Each covers one direction, with half the round-trip time of its source. The sources specify no queue.
/// With netem's 1000 frames, `3g-up` delayed a full link by 15.8 s, so each rate has a queue of 200 ms, or of the
/// round-trip time if that is longer.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "geo-satellite",
        spec: "delay 279ms",
        source: "RFC 2488, section 2: up to 279 ms one way over a geostationary satellite",
    },
    Profile {
        name: "3g-down",
        spec: "delay 150ms rate 1.6mbit limit 300ms",
        source: "WebPageTest, connectivity '3G': 1.6 Mbit/s down, 768 kbit/s up, 300 ms round trip",
    },
    Profile {
        name: "3g-up",
        spec: "delay 150ms rate 768kbit limit 300ms",
        source: "WebPageTest, connectivity '3G': 1.6 Mbit/s down, 768 kbit/s up, 300 ms round trip",
    },
    Profile {
        name: "4g",
        spec: "delay 85ms rate 9mbit limit 200ms",
        source: "WebPageTest, connectivity '4G': 9 Mbit/s both ways, 170 ms round trip",
    },
    Profile {
        name: "lte",
        spec: "delay 35ms rate 12mbit limit 200ms",
        source: "WebPageTest, connectivity 'LTE': 12 Mbit/s both ways, 70 ms round trip",
    },
    Profile {
        name: "dsl-down",
        spec: "delay 25ms rate 1.5mbit limit 200ms",
        source: "WebPageTest, connectivity 'DSL': 1.5 Mbit/s down, 384 kbit/s up, 50 ms round trip",
    },
    Profile {
        name: "dsl-up",
        spec: "delay 25ms rate 384kbit limit 200ms",
        source: "WebPageTest, connectivity 'DSL': 1.5 Mbit/s down, 384 kbit/s up, 50 ms round trip",
    },
    Profile {
        name: "cable-down",
        spec: "delay 14ms rate 5mbit limit 200ms",
        source: "WebPageTest, connectivity 'Cable': 5 Mbit/s down, 1 Mbit/s up, 28 ms round trip",
    },
    Profile {
        name: "cable-up",
        spec: "delay 14ms rate 1mbit limit 200ms",
        source: "WebPageTest, connectivity 'Cable': 5 Mbit/s down, 1 Mbit/s up, 28 ms round trip",
    },
];

impl Profile {
    /// The profile with this name.
    pub(super) fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }
}
