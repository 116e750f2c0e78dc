use super::profile::{Profile, amount};
use super::{Counts, Wave};
use crate::Line;
use crate::schedules::{Due, Impossible, Lengths, Schedule, counted};
use units::{Layer, ParseError, Span, Time};

/// A rate that follows a waveform: each frame departs when the waveform's integral has carried all frames before it.
/// The waveform starts at the first departure.
///
/// The waveform continues while no frame is ready, and forfeits the unused share.
pub struct WaveSchedule {
    pub(super) profile: Profile,
    counts: Counts,
    start: Option<Time>,
    forfeited: u128,
    /// The waveform as if nothing had been forfeited, its time when last computed, and the largest lag of frames behind
    /// it.
    whole: Profile,
    unhindered: Time,
    short: Span,
    steps: Option<measure::StepPlan>,
}

impl WaveSchedule {
    /// The schedule of a waveform; `line` is that of the output, if it has one.
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
        // The waveform may begin with silence; the first frame departs after it.
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
        // The waveform only moves forward: if a frame would not set a new maximum even with the earlier position, it
        // does not set one now.
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
