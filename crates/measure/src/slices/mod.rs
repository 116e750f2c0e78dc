//! Slices of a pipeline: where sampled frames spend their time, from arrival to driver.

mod column;
mod end_to_end;
mod text;

use crate::ns;
use column::{Column, Part, Times};
use schemars::JsonSchema;
use serde::Serialize;
use units::{Span, Time};

pub use end_to_end::{EndToEnd, EndToEndMeter};
pub use text::waterfall;

/// A boundary between two slices of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When the frame was there.
    pub at: Time,
    /// When it should have been there, according to stages and schedule.
    pub intended: Time,
}

/// Slices of one pipeline or class.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PipelineSlices {
    /// One frame in this many is traced.
    pub every: u64,
    /// Outcome of the traced frames.
    pub packets: SlicedPackets,
    /// The slices in order of the path; they do not overlap, and sum to the total.
    pub slices: Vec<PipelineSlice>,
    /// From arrival to the end of the hand-over to the driver.
    pub total: SliceTimes,
    /// Cost of the measurement.
    pub overhead: SliceOverhead,
    /// The port does not report the time in its ring: traces begin at the poll that found the frame.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ring_untold: bool,
    /// Of the first frames, the one whose path is closest to the median.
    pub typical: Vec<SlicePart>,
}

/// Outcome of the traced frames; seen = matched + lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct SlicedPackets {
    /// Frames traced from their arrival.
    pub seen: u64,
    /// Frames that departed.
    pub matched: u64,
    /// Frames that did not: dropped by a stage, or held at the end.
    pub lost: u64,
}

/// One slice over all packets that had it, in ns, with the cost of the measurement subtracted.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SliceFigures {
    /// The name.
    pub name: String,
    /// Number of occurrences.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Coefficient of variation: standard deviation ÷ mean.
    pub cv: f64,
    /// Share of the total of all packets.
    pub total_ratio: f64,
    /// True for slices that do not overlap and sum to the total.
    pub top: bool,
    /// Occurrences per packet with a complete path.
    pub per_packet: f64,
}

impl SliceFigures {
    /// The name in a table, with a mark if the slice overlaps others.
    #[must_use]
    pub fn shown(&self) -> String {
        if self.top { self.name.clone() } else { format!("· {}", self.name) }
    }
}

/// One slice of a pipeline: `ring`, `rx`, the name of a stage, `queueing`, `pacer` or `tx`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PipelineSlice {
    /// The measured figures.
    #[serde(flatten)]
    pub figures: SliceFigures,
    /// Mean duration intended by the stage or schedule.
    pub intended_mean_ns: f64,
    /// Measured minus intended duration.
    pub error: SliceError,
    /// Mean as stamped.
    pub raw_mean_ns: f64,
}

/// Measured minus intended duration in ns. `mean_ns` is signed; the rest refers to the absolute error.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct SliceError {
    /// Signed mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Largest.
    pub max_ns: f64,
}

/// Duration of a slice, or of a path from first to last stamp, in ns, with the cost of the measurement subtracted.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct SliceTimes {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median, to 0.1 %.
    pub p50_ns: f64,
    /// 99th percentile, to 0.1 %.
    pub p99_ns: f64,
    /// Standard deviation ÷ mean.
    pub cv: f64,
    /// Mean as stamped.
    pub raw_mean_ns: f64,
}

impl SliceTimes {
    /// The figures of a slice with this duration within `whole`; `top` if it overlaps no other such slice.
    #[must_use]
    pub fn slice(&self, name: &str, top: bool, whole: &SliceTimes) -> SliceFigures {
        let SliceTimes { count, mean_ns, p50_ns, p99_ns, cv, .. } = *self;
        let per_packet = count as f64 / whole.count.max(1) as f64;
        // Without a positive total there are no shares.
        let share = if whole.mean_ns > 0.0 { mean_ns * per_packet / whole.mean_ns } else { 0.0 };
        SliceFigures { name: name.to_owned(), count, mean_ns, p50_ns, p99_ns, cv, total_ratio: share, top, per_packet }
    }
}

/// Cost of measuring in ns; 0 in virtual time.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct SliceOverhead {
    /// One reading of the clock: the time between two consecutive stamps, τo.
    pub tau_o_ns: f64,
    /// Mean amount subtracted from a frame's total.
    pub per_packet_ns: f64,
}

/// A slice of one frame, in ns.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SlicePart {
    /// The name.
    pub name: String,
    /// Start relative to the arrival.
    pub start_ns: f64,
    /// Duration.
    pub length_ns: f64,
    /// Intended duration.
    pub intended_ns: f64,
}

/// Description of a slice of a pipeline.
#[must_use]
pub fn meaning(name: &str) -> &'static str {
    match name {
        RING => "in the port's ring, until the look at the port that found the frame",
        "rx" => "from the look at the port that found the frame to the first stage",
        "queueing" => "ready, waiting for frames that depart before it",
        "pacer" => "first in its queue, until its departure",
        "tx" => "the hand-over to the driver",
        _ => "held by the stage",
    }
}

/// The slice before the poll, if the port reports arrivals.
pub const RING: &str = "ring";

/// Number of first frames from which the typical one is taken.
const FIRST: usize = 1_000;

/// Limit on traces counted together. Counting touches some 50 cache lines, which are cold if traces are rare; more at a
/// time would delay later frames by more than about 1 µs.
pub const TOGETHER: usize = 32;

/// Collects traces of frames.
#[derive(Clone)]
pub struct SliceMeter {
    names: Vec<String>,
    every: u64,
    /// Cost of a reading of the clock.
    reading: Span,
    /// Whether the port reports the time in its ring; `None` if frames do not come from a port.
    ring: Option<bool>,
    seen: u64,
    slices: Vec<Column>,
    total: Times,
    /// Marks of the first traces, one after the other.
    first: Vec<Mark>,
}

impl SliceMeter {
    /// Creates a meter of slices with these names; a trace has one more mark. One frame in `every` is traced.
    #[must_use]
    pub fn new(names: Vec<String>, every: u64) -> SliceMeter {
        let slices = names.iter().map(|_| Column::default()).collect();
        let marks = names.len() + 1;
        SliceMeter {
            every,
            reading: Span::ZERO,
            ring: None,
            seen: 0,
            slices,
            total: Times::default(),
            first: Vec::with_capacity(FIRST * marks),
            names,
        }
    }

    /// States that frames come from a port. If it reports the time in its ring, that becomes the first slice.
    pub fn come_from_port(&mut self, tells: bool) {
        let ring = tells.then(|| RING.to_owned());
        let names = ring.into_iter().chain(std::mem::take(&mut self.names)).collect();
        let reading = self.reading;
        *self = SliceMeter { ring: Some(tells), ..SliceMeter::new(names, self.every) };
        if reading > Span::ZERO {
            self.in_real_time(reading);
        }
    }

    /// Uses real time: each mark from the one before the first stage on costs `reading`. Allocates all memory, so that
    /// no frame waits for it.
    pub fn in_real_time(&mut self, reading: Span) {
        self.reading = reading;
        self.slices.iter_mut().for_each(Column::at_hand);
        self.total.at_hand();
    }

    /// Whether time is real, so that frames do not wait for tracing.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        self.reading > Span::ZERO
    }

    /// An empty meter of the same slices.
    #[must_use]
    pub fn another(&self) -> SliceMeter {
        let mut other = SliceMeter { ring: self.ring, ..SliceMeter::new(self.names.clone(), self.every) };
        if self.is_real_time() {
            other.in_real_time(self.reading);
        }
        other
    }

    /// Names of the slices.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Records the start of a trace.
    #[inline]
    pub fn seen(&mut self) {
        self.seen += 1;
    }

    /// The part of a reading in slice `n`: a reading belongs to the slice that it starts. `rx` and the slices before it
    /// start without a reading for the frame.
    fn reading_in(&self, n: usize) -> i64 {
        let rx = usize::from(self.ring == Some(true));
        if n <= rx { 0 } else { self.reading.as_ps().cast_signed() }
    }

    /// Records departed frames by their marks. Counting slice by slice is faster for several frames than one by one.
    ///
    /// # Panics
    /// If the marks of a frame are not one more than the names, or if there are more than [`TOGETHER`] frames.
    #[inline(never)]
    pub fn record(&mut self, traces: &[&[Mark]]) {
        let last = self.names.len();
        assert!(traces.iter().all(|trace| trace.len() == last + 1), "a mark between any two slices");
        let none = Part { raw: 0, net: 0, intended: 0 };
        let (mut parts, mut wholes) = ([none; TOGETHER], [none; TOGETHER]);
        let (parts, wholes) = (&mut parts[..traces.len()], &mut wholes[..traces.len()]);
        for n in 0..last {
            let reading = self.reading_in(n);
            for ((trace, part), whole) in traces.iter().zip(&mut *parts).zip(&mut *wholes) {
                *part = Part::between(trace[n], trace[n + 1], reading);
                whole.net = whole.net.saturating_add(part.net);
            }
            self.slices[n].count(parts);
        }
        for (trace, whole) in traces.iter().zip(&mut *wholes) {
            *whole = Part { net: whole.net, ..Part::between(trace[0], trace[last], 0) };
        }
        self.total.count(wholes);
        let wanted = FIRST - self.first.len() / (last + 1);
        self.first.extend(traces.iter().take(wanted).copied().flatten());
    }

    /// Slice `n` of one frame.
    fn part(&self, marks: &[Mark], n: usize) -> Part {
        Part::between(marks[n], marks[n + 1], self.reading_in(n))
    }

    /// The slices of one frame.
    #[must_use]
    pub fn parts(&self, marks: &[Mark]) -> Vec<SlicePart> {
        let mut start = 0;
        let part = |n: usize| {
            let part = self.part(marks, n);
            let begins = start;
            start += part.net;
            SlicePart {
                name: self.names[n].clone(),
                start_ns: ns(begins as f64),
                length_ns: ns(part.net as f64),
                intended_ns: ns(part.intended as f64),
            }
        };
        (0..self.names.len()).map(part).collect()
    }

    /// The figures.
    #[must_use]
    pub fn report(&self) -> PipelineSlices {
        let total = self.total.figures();
        let slice = |(name, column): (&String, &Column)| {
            let all = column.times();
            PipelineSlice {
                figures: all.slice(name, true, &total),
                intended_mean_ns: column.intended_mean(),
                error: column.error(),
                raw_mean_ns: all.raw_mean_ns,
            }
        };
        let off = |marks: &&[Mark]| {
            let whole: i64 = (0..self.names.len()).map(|n| self.part(marks, n).net).sum();
            (ns(whole as f64) - total.p50_ns).abs()
        };
        let traces = self.first.chunks(self.names.len() + 1).map(|marks| (off(&marks), marks));
        let typical = traces.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, marks)| marks);
        PipelineSlices {
            every: self.every,
            packets: SlicedPackets {
                seen: self.seen,
                matched: total.count,
                lost: self.seen - total.count.min(self.seen),
            },
            slices: self.names.iter().zip(&self.slices).map(slice).collect(),
            total,
            overhead: SliceOverhead {
                tau_o_ns: self.reading.as_ns_f64(),
                per_packet_ns: total.raw_mean_ns - total.mean_ns,
            },
            ring_untold: self.ring == Some(false),
            typical: typical.map_or_else(Vec::new, |marks| self.parts(marks)),
        }
    }
}

impl PipelineSlices {
    /// Combines figures of departures in `self` with figures of arrivals from another thread.
    #[must_use]
    pub fn arrived_by(mut self, arriving: Option<&PipelineSlices>) -> PipelineSlices {
        if let Some(arriving) = arriving {
            self.packets.seen = arriving.packets.seen;
            self.packets.lost = self.packets.seen - self.packets.matched.min(self.packets.seen);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(pairs: &[(u64, u64)]) -> Vec<Mark> {
        pairs.iter().map(|&(at, intended)| Mark { at: Time::from_ps(at), intended: Time::from_ps(intended) }).collect()
    }

    #[test]
    fn slices_sum_to_the_total_and_errors_to_the_lateness_of_the_frame() {
        let names = ["rx", "delay", "tx"].map(str::to_owned).to_vec();
        let mut meter = SliceMeter::new(names, 4);
        for n in 0..100 {
            meter.seen();
            let at = n * 1_000_000_000;
            meter.record(&[&marks(&[
                (at, at),
                (at + 2_000, at),
                (at + 203_000_000, at + 200_000_000),
                (at + 203_005_000, at + 200_000_000),
            ])]);
        }
        meter.seen();
        let report = meter.report();
        assert_eq!(report.packets, SlicedPackets { seen: 101, matched: 100, lost: 1 });
        let means: Vec<f64> = report.slices.iter().map(|slice| slice.figures.mean_ns).collect();
        assert_eq!(means, [2.0, 202_998.0, 5.0]);
        assert!((report.slices.iter().map(|slice| slice.figures.total_ratio).sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((report.total.mean_ns - 203_005.0).abs() < 1e-9);
        let delay = &report.slices[1];
        assert!((delay.intended_mean_ns - 200_000.0).abs() < 1e-9);
        assert!((delay.error.mean_ns - 2_998.0).abs() < 1e-9 && (delay.error.max_ns - 2_998.0).abs() < 1e-9);
        let errors: f64 = report.slices.iter().map(|slice| slice.error.mean_ns).sum();
        assert!((errors - 3_005.0).abs() < 1e-9, "how late the frame left");
        assert_eq!(report.typical.len(), 3);
        assert!((report.typical[2].start_ns - 203_000.0).abs() < 1e-9);
        assert!(report.table(true).contains("1 frame in 4: 101 seen, 100 departed, 1 lost"));
        assert!(waterfall(&report.typical).lines().nth(1).is_some_and(|line| line.matches('█').count() == 48));
    }

    #[test]
    fn reports_the_ring_or_that_it_is_unknown() {
        let mut meter = SliceMeter::new(["rx", "delay", "tx"].map(str::to_owned).to_vec(), 1);
        assert!(!serde_json::to_string(&meter.report()).expect("JSON").contains("ring"), "there is no port");
        meter.in_real_time(Span::from_ns(20));
        let mut other = meter.clone();
        meter.come_from_port(true);
        let mut meter = meter.another();
        meter.seen();
        meter.record(&[&marks(&[(0, 0), (5_000_000, 0), (5_100_000, 0), (5_400_000, 0), (5_410_000, 0)])]);
        let report = meter.report();
        let figures: Vec<_> =
            report.slices.iter().map(|slice| (&slice.figures.name[..], slice.figures.mean_ns)).collect();
        assert_eq!(
            figures,
            [("ring", 5_000.0), ("rx", 100.0), ("delay", 280.0), ("tx", 0.0)],
            "neither reads the clock"
        );
        assert!((report.total.mean_ns - 5_380.0).abs() < 1e-9 && !report.table(false).contains("does not report"));
        other.come_from_port(false);
        let report = other.another().report();
        assert!(report.ring_untold && report.slices.len() == 3);
        assert!(report.table(false).contains("the wait in the port's ring is not in it"));
    }

    #[test]
    fn subtracts_clock_readings_from_the_right_slices() {
        let names = ["rx", "delay", "tx"].map(str::to_owned).to_vec();
        let mut meter = SliceMeter::new(names, 1);
        meter.in_real_time(Span::from_ns(20));
        meter.seen();
        meter.record(&[&marks(&[(0, 0), (100_000, 0), (400_000, 0), (410_000, 0)])]);
        let report = meter.report();
        let means: Vec<f64> = report.slices.iter().map(|slice| slice.figures.mean_ns).collect();
        assert_eq!(means, [100.0, 280.0, 0.0], "what is shorter than a reading is none");
        assert!((report.overhead.per_packet_ns - 30.0).abs() < 1e-9);
    }
}
