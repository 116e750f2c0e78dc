use crate::books::Books;
use crate::conformance::ConformanceMeter;
use crate::fit::{FitMeter, Reference};
use crate::gaps::GapMeter;
use crate::lateness::LatenessMeter;
use crate::plots::Plots;
use crate::rates::RateMeter;
use crate::report::{PipelineReport, Shortfall};
use crate::timeline::Timeline;
use std::sync::Arc;
use units::{FrameLen, Span, Time};

/// Everything that is measured of departures: gaps, rate, and how far they were from the ask.
pub struct DepartureMeter {
    gaps: GapMeter,
    conformance: ConformanceMeter,
    rate: RateMeter,
    lateness: LatenessMeter,
    fit: Option<FitMeter>,
    timeline: Timeline,
    /// Ask and start of the first departure.
    first: Option<(Time, Time)>,
    /// Ask and start of the last one.
    last: (Time, Time),
}

impl DepartureMeter {
    /// A meter; `asked_gap` is the fixed gap that was asked, `byte_time` that of the line if there is
    /// one, `window` the length of the windows of the rate.
    #[must_use]
    pub fn new(asked_gap: Option<Span>, byte_time: Option<Span>, window: Span) -> Self {
        DepartureMeter {
            gaps: GapMeter::new(asked_gap, byte_time),
            conformance: ConformanceMeter::new(byte_time),
            rate: RateMeter::new(window),
            lateness: LatenessMeter::default(),
            fit: None,
            timeline: Timeline::default(),
            first: None,
            last: (Time::ZERO, Time::ZERO),
        }
    }

    /// Judges gaps by this law too, if there is one; `byte_time` is that of the line.
    #[must_use]
    pub fn judged_by(mut self, law: Option<Arc<dyn Reference>>, byte_time: Option<Span>) -> Self {
        self.fit = law.map(|law| FitMeter::new(law, byte_time));
        self
    }

    /// A frame of `length` that should have departed at `asked` started at `start`.
    pub fn record(&mut self, asked: Time, start: Time, length: FrameLen) {
        self.gaps.record(start);
        self.conformance.record(asked, start, length);
        self.rate.record(start, length);
        self.lateness.record(asked, start);
        if let Some(fit) = &mut self.fit {
            fit.record(start, length);
        }
        self.timeline.ask(asked, length);
        self.timeline.got(start, length);
        self.last = (asked, start);
        self.first.get_or_insert(self.last);
    }

    /// Median, to an eighth, and largest lateness so far, in ns.
    #[must_use]
    pub fn lateness_so_far(&self) -> (u64, u64) {
        self.lateness.so_far()
    }

    /// A report of these figures and of the books of the pipeline that holds `held` frames.
    #[must_use]
    pub fn report(&self, books: &Books, held: u64) -> PipelineReport {
        PipelineReport {
            came: books.came,
            left: books.left,
            copies: books.copies,
            drops: books.drops(),
            held,
            gap: self.gaps.report(),
            fit: self.fit.as_ref().and_then(FitMeter::report),
            conformance: self.conformance.report(),
            rate: self.rate.report(),
            lateness: self.lateness.report(),
            plots: Some(Box::new(Plots::of(&self.gaps, Some(&self.conformance), &self.timeline))),
            ..PipelineReport::default()
        }
    }

    /// How far the run fell behind its ask: `None` unless the last departure was later than by
    /// `excused`, and by more than a millionth of the run.
    #[must_use]
    pub fn shortfall(&self, excused: Span) -> Option<Shortfall> {
        let (first_ask, first_start) = self.first?;
        let (last_ask, last_start) = self.last;
        let behind = last_start.since(last_ask);
        let asked = last_ask.since(first_ask);
        let took = last_start.since(first_start);
        let fell = behind > excused && u128::from(behind.as_ps()) * 1_000_000 > u128::from(took.as_ps());
        fell.then(|| Shortfall {
            behind_ns: behind.as_ns_f64(),
            obtained_share: asked.as_ps() as f64 / took.as_ps() as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fell_behind(slip: u64) -> Option<f64> {
        let mut meter = DepartureMeter::new(None, None, Span::from_ms(1));
        for i in 0..=1_000 {
            let asked = Time::from_ps(i * 1_000_000);
            meter.record(asked, asked + Span::from_ps(i * slip), FrameLen::MIN);
        }
        meter.shortfall(Span::from_us(1)).map(|shortfall| shortfall.obtained_share)
    }

    #[test]
    fn both_sides_of_what_is_excused() {
        assert!(fell_behind(0).is_none());
        assert!(fell_behind(1_000).is_none(), "1 µs behind at the end is excused");
        let share = fell_behind(250_000).expect("250 µs behind");
        assert!((share - 0.8).abs() < 1e-9);
    }
}
