use schemars::JsonSchema;
use serde::Serialize;
use units::{FrameLen, Rate, Span, Time};

/// Steps or bursts of a waveform whose rates are reported separately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// Asked rate and duration of each step.
    pub steps: Vec<(Rate, Span)>,
    /// Consecutive stretches of the waveform: duration, and index of the step; `None` for silence.
    pub stretches: Vec<(Span, Option<usize>)>,
    /// Restarts after the last stretch; otherwise the last stretch has no end.
    pub repeats: bool,
}

/// Counts the frames of each step.
#[derive(Clone, Debug)]
pub(crate) struct StepMeter {
    plan: StepPlan,
    /// The current stretch: index, start, end and frames so far.
    stretch: usize,
    begin: Time,
    end: Time,
    under_way: Part,
    last: Time,
    steps: Vec<Sum>,
}

/// Frames in a part of the time.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    frames: u64,
    bytes: u64,
    last_length: u32,
}

#[derive(Clone, Copy, Debug)]
struct Sum {
    times: u64,
    frames: u64,
    bytes: u64,
    ns: f64,
    min: f64,
    max: f64,
}

impl StepMeter {
    pub(crate) fn new(plan: StepPlan) -> Option<StepMeter> {
        let none = Sum { times: 0, frames: 0, bytes: 0, ns: 0.0, min: f64::INFINITY, max: 0.0 };
        let steps = vec![none; plan.steps.len()];
        let lasts = plan.stretches.iter().any(|(span, _)| *span > Span::ZERO);
        (lasts && !plan.steps.is_empty()).then(|| StepMeter {
            plan,
            stretch: 0,
            begin: Time::ZERO,
            end: Time::ZERO,
            under_way: Part::default(),
            last: Time::ZERO,
            steps,
        })
    }

    /// Records that a frame of `length` with target `asked` started at `start`. It counts at its start, or at its
    /// target if it was early.
    #[inline]
    pub(crate) fn record(&mut self, asked: Time, start: Time, length: FrameLen) {
        let at = asked.max(start);
        if at >= self.end {
            self.go_on(at);
        }
        self.under_way.frames += 1;
        self.under_way.bytes += u64::from(length.bytes());
        self.under_way.last_length = length.bytes();
        self.last = at;
    }

    #[cold]
    fn go_on(&mut self, at: Time) {
        if self.end == Time::ZERO {
            // The first frame departs after the silence at the start of the waveform.
            let is_silent = |(_, step): &&(Span, Option<usize>)| step.is_none();
            self.stretch = self.plan.stretches.iter().take_while(is_silent).count() % self.plan.stretches.len();
            self.begin = at;
            self.end = self.end_of(self.stretch, at);
        }
        while at >= self.end {
            if let (span, Some(step)) = self.plan.stretches[self.stretch] {
                let Part { frames, bytes, .. } = self.under_way;
                self.steps[step].add(frames, bytes, span.as_ns_f64());
            }
            self.under_way = Part::default();
            self.stretch = (self.stretch + 1) % self.plan.stretches.len();
            self.begin = self.end;
            self.end = self.end_of(self.stretch, self.begin);
        }
    }

    fn end_of(&self, stretch: usize, begin: Time) -> Time {
        if !self.plan.repeats && stretch + 1 == self.plan.stretches.len() {
            return Time::MAX;
        }
        begin.checked_add(self.plan.stretches[stretch].0).unwrap_or(Time::MAX)
    }

    pub(crate) fn report(&self) -> Vec<StepReport> {
        let mut steps = self.steps.clone();
        // If a step has no complete stretch, uses the incomplete last one, up to the last start.
        if let Some((_, Some(step))) = self.plan.stretches.get(self.stretch)
            && steps[*step].times == 0
            && self.under_way.frames > 1
        {
            let Part { frames, bytes, last_length } = self.under_way;
            let took = self.last.since(self.begin).as_ns_f64();
            steps[*step].add(frames - 1, bytes - u64::from(last_length), took);
        }
        let of_step = |(n, ((rate, length), sum)): (usize, (&(Rate, Span), &Sum))| StepReport {
            step: n + 1,
            asked: rate.to_string(),
            asked_rate: *rate,
            length_ns: length.as_ns_f64(),
            times: sum.times,
            frames: sum.frames,
            bytes: sum.bytes,
            mean_bps: sum.bytes as f64 * 8e9 / sum.ns,
            mean_fps: sum.frames as f64 * 1e9 / sum.ns,
            min_bps: sum.min,
            max_bps: sum.max,
        };
        let seen = self.plan.steps.iter().zip(&steps).enumerate().filter(|(_, (_, sum))| sum.ns > 0.0);
        seen.map(of_step).collect()
    }
}

impl Sum {
    fn add(&mut self, frames: u64, bytes: u64, ns: f64) {
        if ns <= 0.0 {
            return;
        }
        let bps = bytes as f64 * 8e9 / ns;
        *self = Sum {
            times: self.times + 1,
            frames: self.frames + frames,
            bytes: self.bytes + bytes,
            ns: self.ns + ns,
            min: self.min.min(bps),
            max: self.max.max(bps),
        };
    }
}

/// Frames in one step of a waveform, or in its bursts of one kind.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct StepReport {
    /// Number of the step, from 1.
    pub step: usize,
    /// Asked rate, as typed.
    pub asked: String,
    /// Asked rate, for comparisons.
    #[serde(skip)]
    pub asked_rate: Rate,
    /// Duration of each occurrence.
    pub length_ns: f64,
    /// Number of complete occurrences.
    pub times: u64,
    /// Frames that started in it.
    pub frames: u64,
    /// Bytes of these frames, with FCS.
    pub bytes: u64,
    /// Bits of frames with FCS ÷ total duration.
    pub mean_bps: f64,
    /// Frames ÷ total duration.
    pub mean_fps: f64,
    /// Rate of the slowest occurrence.
    pub min_bps: f64,
    /// Rate of the fastest occurrence.
    pub max_bps: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(stretches: &[(u64, Option<usize>)], repeats: bool) -> StepMeter {
        let rate = || "8Mbps".parse().expect("a rate");
        let count = stretches.iter().filter_map(|(_, step)| *step).max().map_or(0, |most| most + 1);
        let stretches = stretches.iter().map(|(ms, step)| (Span::from_ms(*ms), *step)).collect();
        let plan = StepPlan { steps: vec![(rate(), Span::from_ms(2)); count], stretches, repeats };
        StepMeter::new(plan).expect("steps")
    }

    fn feed(meter: &mut StepMeter, times_us: impl IntoIterator<Item = u64>) {
        for us in times_us {
            let at = Time::from_ps(3_000_000 + us * 1_000_000);
            meter.record(at, at, FrameLen::new(1_000));
        }
    }

    #[test]
    fn bursts_are_counted_over_their_length() {
        let mut bursts = meter(&[(2, Some(0)), (8, None)], true);
        // Two complete bursts, the second of which lacks half of its frames, and the start of a third.
        feed(&mut bursts, [0, 500, 1_000, 1_500, 10_000, 10_500, 20_000]);
        let report = bursts.report();
        assert_eq!((report.len(), report[0].times, report[0].frames), (1, 2, 6));
        assert!((report[0].mean_bps - 12e6).abs() < 1.0 && (report[0].mean_fps - 1_500.0).abs() < 1e-6);
        assert!((report[0].min_bps - 8e6).abs() < 1.0 && (report[0].max_bps - 16e6).abs() < 1.0);
    }

    #[test]
    fn the_last_step_has_no_end() {
        let mut steps = meter(&[(1, None), (2, Some(0)), (1, Some(1))], false);
        feed(&mut steps, [0, 1_000, 2_000, 4_000, 6_000]);
        let report = steps.report();
        assert_eq!((report[0].frames, report[1].frames), (2, 2));
        assert!((report[1].mean_fps - 500.0).abs() < 1e-6, "{report:?}");
    }

    #[test]
    fn early_frames_count_at_their_targets() {
        let mut bursts = meter(&[(2, Some(0)), (8, None)], true);
        let at = |us: u64| Time::from_ps(us * 1_000_000);
        bursts.record(at(0), at(0), FrameLen::new(1_000));
        bursts.record(at(10_000), at(9_999), FrameLen::new(1_000));
        bursts.record(at(20_000), at(20_000), FrameLen::new(1_000));
        assert_eq!(bursts.report()[0].frames, 2);
    }
}
