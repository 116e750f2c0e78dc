//! Sources as one receiver sees them: when each one started, and how their crests are ordered in time.

use crate::crest_gaps::CrestGapMeter;
use crate::frame_counters::Tally;
use crate::histogram::Tallies;
use crate::ns;
use crate::plots::RatePlot;
use crate::timeline::Timeline;
use schemars::JsonSchema;
use serde::Serialize;
use units::{FrameLen, Span, Time};

/// Several sources at one receiver, by its stamps.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct ArrivalsReport {
    /// From the first frame of the earliest source to the first frame of the latest source: the skew of their
    /// starts on the wire. Absent with fewer than two sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_ns: Option<f64>,
    /// Sources of which no frame was received.
    pub silent: u64,
    /// A source's silence of this length ends its crest.
    pub silence_ns: f64,
    /// Crests of all sources.
    pub crests: u64,
    /// Crests that overlapped with a crest of another source.
    pub overlapping: u64,
    /// Crests that did not follow one of the source before theirs in the list. The first crest is in turn if it is of the
    /// first source.
    pub out_of_turn: u64,
    /// Time from the last frame of a crest to the first one of the next crest, if that is of another source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<ApartReport>,
    /// Each source.
    pub sources: Vec<SourceArrivals>,
}

/// Times between crests of different sources, in ns.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct ApartReport {
    /// Number of times.
    pub count: u64,
    /// Least.
    pub min_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// Largest.
    pub max_ns: f64,
}

/// A source at a receiver.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct SourceArrivals {
    /// The address or prefix.
    pub source: String,
    /// Frames received.
    #[serde(rename = "in")]
    pub arrived: Tally,
    /// Its first frame, after the first one of any source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_after_ns: Option<f64>,
    /// Its last frame, after the first one of any source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_after_ns: Option<f64>,
    /// Its crests.
    pub crests: u64,
    /// Those that did not follow a crest of the source before it in the list.
    pub out_of_turn: u64,
}

/// The rate of a source over time, for plots.
#[derive(Clone, Debug, Serialize)]
pub struct SourceCurve {
    /// The address or prefix.
    pub source: String,
    /// The rate as received.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub arrived: Option<RatePlot>,
    /// The rate as sent.
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    pub left: Option<RatePlot>,
}

struct Source {
    name: String,
    arrived: Tally,
    first: Option<Time>,
    last: Time,
    crests: u64,
    out_of_turn: u64,
    /// Its crest is known to overlap.
    overlaps: bool,
    curve: Timeline,
}

/// Follows several sources at a receiver. Memory does not grow with frames.
pub struct ArrivalMeter {
    sources: Vec<Source>,
    silence: Span,
    origin: Option<Time>,
    /// The source whose crest began last.
    turn: Option<usize>,
    overlapping: u64,
    apart: Tallies,
    apart_ends: Option<(u64, u64)>,
    gaps: CrestGapMeter,
}

impl ArrivalMeter {
    /// Creates a meter of sources with these names, in the order that their crests should have, with this gap in each
    /// round.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = String>, silence: Span, gap: Option<Span>) -> Self {
        let source = |name| Source {
            name,
            arrived: Tally::default(),
            first: None,
            last: Time::ZERO,
            crests: 0,
            out_of_turn: 0,
            overlaps: false,
            curve: Timeline::default(),
        };
        ArrivalMeter {
            sources: names.into_iter().map(source).collect(),
            silence,
            origin: None,
            turn: None,
            overlapping: 0,
            apart: Tallies::default(),
            apart_ends: None,
            gaps: CrestGapMeter::new(gap),
        }
    }

    /// Records a frame of source number `of` that arrived at `at`. Timestamps do not decrease.
    pub fn record(&mut self, of: usize, at: Time, length: FrameLen) {
        let origin = *self.origin.get_or_insert(at);
        let begins = {
            let source = &self.sources[of];
            source.first.is_none() || at.signed_ps_since(source.last) >= self.silence.as_ps().cast_signed()
        };
        if begins {
            self.begin(of, at);
        } else if self.turn != Some(of) {
            // Another crest has begun in between, so the two overlap.
            self.overlap(of);
            if let Some(turn) = self.turn {
                self.overlap(turn);
            }
        }
        let source = &mut self.sources[of];
        source.first.get_or_insert(at);
        source.last = source.last.max(at);
        source.arrived.add(length);
        source.curve.begin(origin);
        source.curve.got(at, length);
    }

    fn begin(&mut self, of: usize, at: Time) {
        let count = self.sources.len();
        let in_turn = match self.turn {
            Some(before) => (before + 1) % count == of,
            None => of == 0,
        };
        let others = self.sources.iter().enumerate().filter(|(i, source)| *i != of && source.first.is_some());
        let ended = others.map(|(_, source)| source.last).max();
        if let (Some(ended), true) = (ended, self.turn.is_some_and(|turn| turn != of)) {
            let apart = at.signed_ps_since(ended).max(0).unsigned_abs();
            self.apart.count(apart);
            let (least, most) = self.apart_ends.unwrap_or((apart, apart));
            self.apart_ends = Some((least.min(apart), most.max(apart)));
            // The pause before the first source of the list separates rounds, so it is not a gap within one.
            if in_turn && of > 0 {
                self.gaps.record(self.origin.unwrap_or(at), ended, at);
            }
        }
        let source = &mut self.sources[of];
        source.crests += 1;
        source.out_of_turn += u64::from(!in_turn);
        source.overlaps = false;
        self.turn = Some(of);
    }

    fn overlap(&mut self, of: usize) {
        let source = &mut self.sources[of];
        self.overlapping += u64::from(!source.overlaps);
        source.overlaps = true;
    }

    /// The figures so far.
    #[must_use]
    pub fn report(&self) -> ArrivalsReport {
        let origin = self.origin.unwrap_or(Time::ZERO);
        let after = |at: Time| at.since(origin).as_ns_f64();
        let firsts = || self.sources.iter().filter_map(|source| source.first);
        let several = firsts().count() > 1;
        let spread = firsts().max().map(after).filter(|_| several);
        let apart = self.apart_ends.map(|(least, most)| ApartReport {
            count: self.apart.len(),
            min_ns: ns(least as f64),
            p50_ns: ns((crate::histogram::at_quantile(&self.apart.all(), 0.5) as f64).clamp(least as f64, most as f64)),
            max_ns: ns(most as f64),
        });
        ArrivalsReport {
            spread_ns: spread,
            silent: self.sources.iter().filter(|source| source.first.is_none()).count() as u64,
            silence_ns: self.silence.as_ns_f64(),
            crests: self.sources.iter().map(|source| source.crests).sum(),
            overlapping: self.overlapping,
            out_of_turn: self.sources.iter().map(|source| source.out_of_turn).sum(),
            apart,
            sources: self
                .sources
                .iter()
                .map(|source| SourceArrivals {
                    source: source.name.clone(),
                    arrived: source.arrived,
                    first_after_ns: source.first.map(after),
                    last_after_ns: source.first.map(|_| after(source.last)),
                    crests: source.crests,
                    out_of_turn: source.out_of_turn,
                })
                .collect(),
        }
    }

    /// The gaps between crests in turn within rounds: from the start of the last frame of a crest to the first frame of
    /// the next one.
    #[must_use]
    pub fn gaps(&self) -> &CrestGapMeter {
        &self.gaps
    }

    /// The curves of the sources.
    #[must_use]
    pub fn curves(&self) -> Vec<SourceCurve> {
        let curve =
            |source: &Source| SourceCurve { source: source.name.clone(), arrived: source.curve.crests(), left: None };
        self.sources.iter().map(curve).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A meter that saw frames (source, µs).
    fn seen(frames: &[(usize, u64)]) -> ArrivalMeter {
        let names = ["a", "b", "c"].map(str::to_owned);
        let mut meter = ArrivalMeter::new(names, Span::from_ms(1), Some(Span::from_ms(5)));
        for (source, us) in frames {
            meter.record(*source, Time::from_ps(us * 1_000_000), FrameLen::MIN);
        }
        meter
    }

    #[test]
    fn crests_in_order_are_in_turn_and_apart() {
        let meter = seen(&[
            (0, 7),
            (0, 100),
            (0, 900),
            (1, 5_900),
            (1, 6_000),
            (2, 11_000),
            (0, 16_000),
            (0, 16_100),
            (1, 21_100),
            (2, 26_100),
        ]);
        let seen = meter.report();
        let gaps = meter.gaps().report().expect("gaps");
        assert_eq!((gaps.asked_ns, gaps.count), (Some(5e6), 4), "not the one between rounds");
        assert_eq!((gaps.min_ns, gaps.max_ns), (5e6, 5e6));
        assert_eq!((seen.crests, seen.overlapping, seen.out_of_turn, seen.silent), (6, 0, 0, 0));
        let apart = seen.apart.expect("several sources");
        assert_eq!((apart.count, apart.min_ns, apart.max_ns), (5, 5e6, 5e6));
        assert!((apart.p50_ns - 5e6).abs() < 5e3, "{}", apart.p50_ns);
        assert_eq!(seen.spread_ns, Some(10_993e3), "from the first of a to the first of c");
        assert_eq!(seen.sources[1].first_after_ns, Some(5_893e3));
        assert_eq!(seen.sources[2].last_after_ns, Some(26_093e3));
    }

    #[test]
    fn overlap_counts_each_crest_once_and_a_late_source_is_out_of_turn_once() {
        let mixed = seen(&[(0, 0), (1, 10), (0, 20), (1, 30), (0, 40), (2, 4_000)]).report();
        assert_eq!((mixed.crests, mixed.overlapping), (3, 2));
        // The third source misses the first round.
        let late =
            seen(&[(0, 0), (1, 5_000), (0, 10_000), (1, 15_000), (2, 20_000), (0, 25_000), (1, 30_000), (2, 35_000)]);
        assert_eq!(late.gaps().report().expect("gaps").count, 5);
        let late = late.report();
        assert_eq!((late.out_of_turn, late.sources[0].out_of_turn, late.overlapping), (1, 1, 0));
    }

    #[test]
    fn one_crest_after_another_of_the_same_source_is_out_of_turn() {
        let seen = seen(&[(1, 0), (1, 3_000)]).report();
        assert_eq!((seen.crests, seen.out_of_turn, seen.silent), (2, 2, 2));
        assert!(seen.spread_ns.is_none() && seen.apart.is_none());
    }
}
