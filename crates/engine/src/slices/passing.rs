use super::ClassTraces;
use measure::{Mark, PipelineSlices, TOGETHER};
use units::Time;

/// Traces frames of a [counted](crate::Path::Counted) pipeline, whose driver creates and hands over frames in bursts.
/// Frames carry no trace number, because the driver knows the times of each burst.
pub struct Passing {
    slices: ClassTraces,
    /// Frames sent so far.
    gone: u64,
}

/// Times of one burst, read from the driver's clock.
#[derive(Clone, Copy, Debug)]
pub struct Passage {
    /// When creation of the frames began.
    pub began: Time,
    /// When the frames were ready.
    pub ready: Time,
    /// When the hand-over began.
    pub handed: Time,
    /// When the hand-over ended.
    pub gone: Time,
}

impl Passing {
    pub(crate) fn new(slices: ClassTraces) -> Passing {
        Passing { slices, gone: 0 }
    }

    /// Whether one of the next `frames` frames is traced.
    #[inline]
    #[must_use]
    pub fn is_among(&self, frames: usize) -> bool {
        self.slices.next.is_some_and(|next| next <= self.gone + frames as u64)
    }

    /// Records that `frames` frames were sent. Without `passage`, none of them is traced.
    #[inline]
    pub fn passed(&mut self, frames: usize, passage: Option<Passage>) {
        if let Some(passage) = passage {
            self.record(frames, passage);
        }
        self.gone += frames as u64;
    }

    #[cold]
    #[inline(never)]
    fn record(&mut self, frames: usize, Passage { began, ready, handed, gone }: Passage) {
        let mut followed = 0;
        while self.is_among(frames)
            && let (Some(number), Some(active)) = (self.slices.next, &mut self.slices.active)
        {
            self.slices.next = Some(active.drawing.after(number));
            active.meter.seen();
            followed += 1;
        }
        // Without a target, frames should leave as soon as they are created. They do not queue here; they wait for the
        // port.
        let at = [began, ready, ready, handed, gone];
        let trace = at.map(|at| Mark { at, intended: began });
        let alike = [&trace[..]; TOGETHER];
        while let Some(active) = self.slices.active.as_mut().filter(|_| followed > 0) {
            let some = followed.min(TOGETHER);
            active.meter.record(&alike[..some]);
            followed -= some;
        }
    }

    /// The figures, if frames are traced.
    #[must_use]
    pub fn report(&self) -> Option<PipelineSlices> {
        self.slices.report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::{Reading, Sampling};
    use std::sync::Arc;
    use units::Span;

    #[test]
    fn traced_frames_have_the_times_of_their_burst() {
        let us = |us| Time::ZERO + Span::from_us(us);
        let mut slices = ClassTraces::new(&[], Sampling { every: 10, seed: 1, backlog: false, listener: None });
        let clock: Reading = Arc::new(move || us(0));
        slices.read_by(&clock, Span::from_ps(1));
        let mut passing = Passing::new(slices);
        let mut traced = 0;
        for burst in 0..1_000 {
            // Of 32 frames, 20 are accepted at first, and the others 10 µs later.
            for (frames, later) in [(20, 0), (12, 10)] {
                let began = 100 * burst;
                let handed = us(began + 5 + later);
                let passage =
                    Passage { began: us(began), ready: us(began + 3), handed, gone: handed + Span::from_us(1) };
                let among = passing.is_among(frames);
                traced += u64::from(among);
                passing.passed(frames, among.then_some(passage));
            }
        }
        assert!(
            (200..1_000).contains(&traced),
            "{traced} of 2 000 hand-overs: 3 200 of 32 000 frames, in runs of up to 32"
        );
        let got = passing.report().expect("they are on");
        assert!(got.packets.seen.abs_diff(3_200) <= 32 && got.packets.lost == 0, "{:?}", got.packets);
        let mean = |name: &str| got.slices.iter().find(|slice| slice.figures.name == name).expect(name).raw_mean_ns;
        assert_eq!(["rx", "queueing", "tx"].map(|name| mean(name) as u64), [3_000, 0, 1_000]);
        // 20 of 32 wait 2 µs and 12 wait 12 µs: 5.75 µs on average.
        assert!((mean("pacer") - 5_750.0).abs() < 500.0, "{} ns", mean("pacer"));
    }
}
