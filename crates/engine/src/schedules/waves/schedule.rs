use super::profile::{Profile, amount};
use super::{Counts, Wave};
use crate::Line;
use crate::schedules::every_nth::EveryNth;
use crate::schedules::{Due, Impossible, Lengths, Schedule, counted};
use units::{Layer, ParseError, Span, Time};

/// A rate that follows a waveform. Each frame departs when the waveform's integral covers all frames before it. The
/// waveform starts at the first departure.
///
/// The waveform continues while no frame is ready; the unused amount is lost.
#[derive(Clone)]
pub struct WaveSchedule {
    pub(super) profile: Profile,
    counts: Counts,
    start: Option<Time>,
    forfeited: u128,
    /// The waveform without lost amounts, its time when last computed, and the maximum lag of frames behind it.
    whole: Profile,
    unhindered: Time,
    short: Span,
    steps: Option<measure::StepPlan>,
}

impl WaveSchedule {
    /// The schedule of a waveform. `line` is the line of the output, if it has one.
    ///
    /// # Errors
    /// A waveform whose file was not read.
    pub fn new(wave: &Wave, line: Option<Line>) -> Result<Self, Impossible> {
        let unread = || Impossible::Law(ParseError::new(format!("the file of '{wave}' was not read"), "read it first"));
        let (profile, counts) = wave.profile(line).ok_or_else(unread)?;
        let whole = profile.clone();
        Ok(WaveSchedule {
            profile,
            counts,
            start: None,
            forfeited: 0,
            whole,
            unhindered: Time::ZERO,
            short: Span::ZERO,
            steps: wave.steps(),
        })
    }
}

impl Schedule for WaveSchedule {
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due {
        // An instant that never comes.
        let never = Time::MAX;
        let after = |profile: &mut Profile, start: Time| {
            profile.time().and_then(|ps| start.checked_add(Span::from_ps(ps))).unwrap_or(never)
        };
        let first = self.start.is_none();
        // The waveform may start with silence; the first frame departs after it.
        let start = *self.start.get_or_insert(ready);
        let due = after(&mut self.profile, start);
        let starved = !first && ready > due;
        let mut at = due;
        if starved {
            self.forfeited += self.profile.skip_to(ready.since(start).as_ps());
            at = after(&mut self.profile, start);
        }
        let units = match self.counts {
            Counts::Bits(layer) => u128::from(counted(layer, lengths)) * 8,
            Counts::Line => u128::from(counted(Layer::Wire, lengths)) * 8,
            Counts::Frames => 1,
        };
        let amount = amount(units * 1_000);
        self.profile.advance(amount);
        // Computes the time only if it could set a new maximum. The waveform only moves forward, so the earlier time is
        // a lower bound.
        if ready.since(self.unhindered) > self.short {
            self.unhindered = after(&mut self.whole, start);
            self.short = self.short.max(ready.since(self.unhindered));
        }
        self.whole.advance(amount);
        Due { at: at.max(ready), starved }
    }

    /// The waveform starts at the change.
    fn follow(&mut self, at: Time, _: Time, _: &Lengths) {
        self.start = Some(at);
    }

    fn steps(&self) -> Option<measure::StepPlan> {
        self.steps.clone()
    }

    fn forgive(&mut self, late: Span) {
        self.start = self.start.map(|start| start + late);
    }

    fn short(&self) -> Option<Span> {
        Some(self.short)
    }

    fn counts_lengths(&self) -> bool {
        self.counts != Counts::Frames
    }

    fn share(&self, queue: u64, queues: u64) -> Option<Box<dyn Schedule>> {
        Some(Box::new(EveryNth::new(self.clone(), queue, queues)))
    }

    fn counts_packets(&self) -> bool {
        self.counts == Counts::Bits(Layer::Ip)
    }

    fn ended(&self) -> bool {
        self.profile.is_over()
    }

    fn forfeited(&self) -> Option<f64> {
        Some(self.forfeited as f64 / self.profile.amount().max(1) as f64)
    }
}
