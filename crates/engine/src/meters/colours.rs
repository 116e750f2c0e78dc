use super::gcra::{SIDE, Word};
use super::{Bucket, Key, Moment, Users, parse_depth, value};
use std::fmt;
use units::{BitRate, ParseError, Span, Time};

/// A three-colour marker of the RFCs. Its committed rate and burst are those of the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colours {
    /// The second bucket.
    pub marker: Marker,
    /// Whether the marker is colour-aware. If not, every arriving frame counts as green.
    pub aware: bool,
}

/// The second bucket of a three-colour marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// One rate; the second bucket receives the overflow of the first (RFC 2697).
    Rfc2697 {
        /// Size of the excess bucket in bytes.
        excess_burst: u64,
    },
    /// A second bucket with a peak rate, which also charges green frames (RFC 2698).
    Rfc2698 {
        /// The peak rate.
        peak: BitRate,
        /// Size of the peak bucket in bytes.
        peak_burst: u64,
    },
    /// A second bucket with its own rate, for frames that the first one refuses (RFC 4115).
    Rfc4115 {
        /// The excess rate.
        excess: BitRate,
        /// Size of the excess bucket in bytes.
        excess_burst: u64,
    },
}

/// Colour that a marker gives a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Within the committed rate and burst.
    Green,
    /// Above the committed rate, within the excess or peak.
    Yellow,
    /// Above both.
    Red,
}

/// The second buckets of all users. The first buckets are in the table of users.
#[derive(Debug)]
pub(crate) struct Seconds {
    colours: Colours,
    bucket: Option<Bucket>,
    /// Per slot, in ticks: for RFC 2697 the missing content of the excess bucket, else its theoretical arrival time.
    words: Vec<u64>,
    /// Per slot: the word of the first bucket after the last frame. A different word means that the slot has a new
    /// user, whose buckets start full.
    left: Vec<u64>,
}

impl Colours {
    /// Parses a marker from the front of `words` and consumes it.
    ///
    /// # Errors
    /// An unknown name, or a setting that is missing or invalid.
    pub(crate) fn take(words: &mut &[&str]) -> Result<Self, ParseError> {
        const EXAMPLE: &str = "rfc2697 ebs 10kB, rfc2698 pir 2Mbps pbs 10kB, or rfc4115 eir 1Mbps ebs 10kB";
        let name = value(words, "colours", EXAMPLE)?;
        let mut setting = |key: &str| -> Result<&str, ParseError> {
            match value(words, "colours", EXAMPLE) {
                Ok(word) if word == key => value(words, key, EXAMPLE),
                Ok(_) => Err(ParseError::new(format!("'{name}' has no {key}"), format!("write {EXAMPLE}"))),
                Err(error) => Err(error),
            }
        };
        let marker = match name {
            "rfc2697" => Marker::Rfc2697 { excess_burst: parse_depth(setting("ebs")?)? },
            "rfc2698" => Marker::Rfc2698 { peak: setting("pir")?.parse()?, peak_burst: parse_depth(setting("pbs")?)? },
            "rfc4115" => {
                Marker::Rfc4115 { excess: setting("eir")?.parse()?, excess_burst: parse_depth(setting("ebs")?)? }
            }
            other => return Err(ParseError::new(format!("'{other}' is not a marker"), format!("write {EXAMPLE}"))),
        };
        let aware = words.first() == Some(&"aware");
        *words = &words[usize::from(aware)..];
        Ok(Colours { marker, aware })
    }

    /// Checks the marker against the committed bucket and returns the second bucket, if it has its own rate.
    ///
    /// # Errors
    /// A peak below the committed rate, or an impossible bucket.
    pub(crate) fn check(&self, committed: &Bucket) -> Result<Option<Bucket>, ParseError> {
        match self.marker {
            Marker::Rfc2697 { excess_burst } => Bucket::new(committed.rate(), excess_burst).map(|_| None),
            Marker::Rfc2698 { peak, .. } if peak < committed.rate() => Err(ParseError::new(
                format!("a peak rate of {peak} is below the rate of {}", committed.rate()),
                "write a pir of at least the rate",
            )),
            Marker::Rfc2698 { peak: rate, peak_burst: burst }
            | Marker::Rfc4115 { excess: rate, excess_burst: burst } => Bucket::new(rate, burst).map(Some),
        }
    }

    /// The longest time until the second bucket is full, once the first one is full and no frame uses tokens of either.
    pub(crate) fn fills_in(&self, committed: &Bucket) -> Span {
        let full = match (self.marker, self.check(committed)) {
            (Marker::Rfc2697 { excess_burst }, _) => committed.when(committed.cost(excess_burst * 8)),
            (_, Ok(Some(second))) => second.when(second.depth()),
            _ => Time::ZERO,
        };
        full.since(Time::ZERO)
    }
}

impl fmt::Display for Colours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.marker {
            Marker::Rfc2697 { excess_burst } => write!(f, "rfc2697 ebs {excess_burst}B"),
            Marker::Rfc2698 { peak, peak_burst } => write!(f, "rfc2698 pir {peak} pbs {peak_burst}B"),
            Marker::Rfc4115 { excess, excess_burst } => write!(f, "rfc4115 eir {excess} ebs {excess_burst}B"),
        }?;
        if self.aware { f.write_str(" aware") } else { Ok(()) }
    }
}

impl Seconds {
    /// Full second buckets for a table of `capacity` users; `bucket` comes from [`Colours::check`].
    pub(crate) fn new(colours: Colours, bucket: Option<Bucket>, capacity: usize) -> Self {
        Seconds { colours, bucket, words: vec![0; capacity], left: vec![0; capacity] }
    }

    /// Whether the marker is colour-aware.
    pub(crate) fn aware(&self) -> bool {
        self.colours.aware
    }

    /// Colours and charges a frame that arrived with the colour `arrived`. `None` if the user has left the table. The
    /// colour never improves.
    pub(crate) fn colour(
        &mut self,
        users: &Users,
        (slot, key): (u32, Key),
        at: &Moment,
        bits: u64,
        arrived: Colour,
    ) -> Option<Colour> {
        let word = users.word(slot);
        let number = slot as usize;
        loop {
            let seen = word.read();
            let bucket = users.bucket_of(slot, key, seen)?;
            if self.left[number] != seen {
                self.words[number] = 0;
            }
            let (side, tat) = (seen & SIDE, seen & !SIDE);
            let clock = bucket.clock(at);
            let cost = bucket.cost(bits);
            let committed =
                arrived == Colour::Green && cost <= bucket.depth() && tat.max(clock) + cost <= clock + bucket.depth();
            let charged = side | tat.max(clock).saturating_add(cost);
            // Keeps the side, with a later time. The table then evicts no user whose second bucket is not full.
            let full = side | tat.max(clock);
            let (colour, first, second) = match self.colours.marker {
                Marker::Rfc2697 { excess_burst } => {
                    // While the first bucket was full, its overflow went to the second.
                    let lacks = self.words[number].saturating_sub(clock.saturating_sub(tat));
                    if committed {
                        (Colour::Green, charged, lacks)
                    } else if arrived != Colour::Red && lacks.saturating_add(cost) <= bucket.cost(excess_burst * 8) {
                        (Colour::Yellow, full, lacks + cost)
                    } else {
                        (Colour::Red, full, lacks)
                    }
                }
                Marker::Rfc2698 { .. } | Marker::Rfc4115 { .. } => {
                    let other = self.bucket.as_ref().expect("both have a second rate");
                    let tat = self.words[number];
                    let clock = other.clock(at);
                    let cost = other.cost(bits);
                    let conforms = arrived != Colour::Red
                        && cost <= other.depth()
                        && tat.max(clock) + cost <= clock + other.depth();
                    let after = tat.max(clock).saturating_add(cost);
                    let peak = matches!(self.colours.marker, Marker::Rfc2698 { .. });
                    match (committed, conforms) {
                        (true, true) if peak => (Colour::Green, charged, after),
                        (true, _) if !peak => (Colour::Green, charged, tat),
                        (false, true) => (Colour::Yellow, full, after),
                        _ => (Colour::Red, seen, tat),
                    }
                }
            };
            // The only concurrent change is the eviction of this user.
            if first == seen || word.replace(seen, first).is_ok() {
                self.left[number] = first;
                self.words[number] = second;
                return Some(colour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colours of frames, given as (ms, bytes), under a committed rate of 1 Mbit/s (125 B/ms) and burst of 1 000 B.
    fn colours(text: &str, frames: &[(u64, u64)]) -> String {
        let green: Vec<(u64, u64, Colour)> = frames.iter().map(|(ms, bytes)| (*ms, *bytes, Colour::Green)).collect();
        coloured(text, &green)
    }

    /// As `colours`, for frames that arrive with a colour.
    fn coloured(text: &str, frames: &[(u64, u64, Colour)]) -> String {
        let words: Vec<&str> = text.split_whitespace().collect();
        let colours = Colours::take(&mut words.as_slice()).expect(text);
        assert_eq!(colours.to_string().replace("000B", "kB"), text.replace("000B", "kB"));
        let committed = Bucket::new(BitRate::from_bps(1_000_000), 1_000).expect("a bucket");
        let users = Users::new(1, Span::from_ms(1_000_000), Some(committed), 1);
        let mut seconds = Seconds::new(colours, colours.check(&committed).expect(text), 1);
        let key = Key::new(0, 1);
        let start = Moment::of(Time::ZERO);
        let slot = users.find_or_add(key, &start).expect("room");
        let colour = |(ms, bytes, arrived): &(u64, u64, Colour)| {
            let at = Moment::of(Time::ZERO + Span::from_ms(*ms));
            match seconds.colour(&users, (slot, key), &at, bytes * 8, *arrived).expect("there") {
                Colour::Green => 'g',
                Colour::Yellow => 'y',
                Colour::Red => 'r',
            }
        };
        frames.iter().map(colour).collect()
    }

    #[test]
    fn rfc2697_excess_fills_only_while_committed_is_full() {
        let text = "rfc2697 ebs 2000B";
        assert_eq!(colours(text, &[(0, 1_000), (0, 1_000), (0, 1_000), (0, 1), (8, 1_000), (8, 1)]), "gyyrgr");
        // After 16 ms the first bucket has 1 000 B again and the second has 1 000 B, and not one byte more.
        let frames = [(0, 1_000), (0, 2_000), (16, 1_000), (16, 1_001), (16, 1_000), (16, 1)];
        assert_eq!(colours(text, &frames), "gygryr");
    }

    #[test]
    fn rfc2698_green_frames_also_use_the_peak() {
        let text = "rfc2698 pir 2Mbps pbs 2000B";
        assert_eq!(colours(text, &[(0, 1_000), (0, 1_000), (0, 1)]), "gyr");
        // 4 ms: 500 B committed, 1 000 B peak.
        assert_eq!(colours(text, &[(0, 1_000), (0, 1_000), (4, 501), (4, 500), (4, 1)]), "gyyrg");
        assert_eq!(colours(text, &[(0, 1_000), (0, 1_000), (4, 500), (4, 500), (4, 1)]), "gygyr");
    }

    #[test]
    fn a_record_that_claims_4_gib_is_red() {
        for text in ["rfc2697 ebs 2000B", "rfc2698 pir 2Mbps pbs 2000B", "rfc4115 eir 1bps ebs 1000B"] {
            assert_eq!(colours(text, &[(0, 1 << 32), (0, 1_000), (0, u64::MAX / 8)]), "rgr", "{text}");
        }
    }

    #[test]
    fn rfc4115_green_frames_leave_the_excess() {
        let text = "rfc4115 eir 2Mbps ebs 2000B";
        assert_eq!(
            colours(text, &[(0, 1_000), (0, 1_000), (0, 1_000), (0, 1), (4, 500), (4, 1_000), (4, 1)]),
            "gyyrgyr"
        );
    }

    #[test]
    fn aware_marking_never_improves_a_colour() {
        use Colour::{Green, Red, Yellow};
        // Yellow frames take nothing from the committed bucket; red frames take nothing at all.
        let frames =
            [(0, 500, Red), (0, 1_500, Yellow), (0, 501, Yellow), (0, 1_000, Green), (0, 500, Green), (0, 1, Green)];
        assert_eq!(coloured("rfc2697 ebs 2000B aware", &frames), "ryrgyr");
        assert_eq!(coloured("rfc4115 eir 2Mbps ebs 2000B aware", &frames), "ryrgyr");
        // In RFC 2698, green frames also take from the peak bucket.
        let frames =
            [(0, 500, Red), (0, 600, Yellow), (0, 1_000, Green), (0, 401, Green), (0, 400, Yellow), (0, 1, Green)];
        assert_eq!(coloured("rfc2698 pir 2Mbps pbs 2000B aware", &frames), "rygryr");
    }

    #[test]
    fn rejects_invalid_markers() {
        for text in ["", "rfc2697", "rfc2697 ebs", "rfc2697 ebs 10", "rfc2698 pbs 10kB", "rfc9999 ebs 1B"] {
            let words: Vec<&str> = text.split_whitespace().collect();
            let error = Colours::take(&mut words.as_slice()).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
        let committed = Bucket::new(BitRate::from_bps(2_000_000), 1_000).expect("a bucket");
        let marker = Marker::Rfc2698 { peak: BitRate::from_bps(1_000_000), peak_burst: 1_000 };
        let low = Colours { marker, aware: false };
        assert!(low.check(&committed).is_err());
    }
}
