//! The longest burst that a device forwards without loss (RFC 2544 section 26.4, RFC 9004).

use super::{ATTEMPTS, Flaw, Outcome, Trial, Verdict};
use units::{FrameRate, PS_PER_S, Share, Span};

/// Parameters of a burst search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstSettings {
    /// Rate within a burst: the maximum of the line.
    pub rate: FrameRate,
    /// Maximum burst length, in frames.
    pub longest: u64,
    /// Precision of the length, as a share of it, but at least one frame.
    pub width: Share,
    /// Number of searches. There are several because the fill of the device's buffer may vary.
    pub repeats: u32,
    /// Tolerance of the duration of a burst.
    pub tolerance: Share,
}

/// Result of one burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstRun {
    /// Number of frames.
    pub frames: u64,
    /// The outcome.
    pub outcome: Outcome,
    /// Why the result does not count, or `None` if it does.
    pub flaw: Option<Flaw>,
}

/// A search for the longest burst.
#[derive(Clone, Debug, PartialEq)]
pub struct Bursts {
    settings: BurstSettings,
    runs: Vec<BurstRun>,
    /// Per repetition: the longest burst without loss.
    found: Vec<u64>,
    /// In the current repetition: the longest burst without loss, and the shortest with loss.
    low: u64,
    high: Option<u64>,
    /// True if the tester failed to send a burst.
    beyond: bool,
}

impl Bursts {
    /// Starts a search.
    #[must_use]
    pub fn new(settings: BurstSettings) -> Self {
        Bursts { settings, runs: Vec::new(), found: Vec::new(), low: 0, high: None, beyond: false }
    }

    /// The rate within a burst.
    #[must_use]
    pub fn rate(&self) -> FrameRate {
        self.settings.rate
    }

    /// All bursts so far.
    #[must_use]
    pub fn runs(&self) -> &[BurstRun] {
        &self.runs
    }

    /// The longest burst without loss, per completed repetition.
    #[must_use]
    pub fn found(&self) -> &[u64] {
        &self.found
    }

    /// What limits the result.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.beyond {
            Verdict::TesterLimited
        } else if self.next_length().is_some() {
            Verdict::Unfinished
        } else if self.found.iter().all(|frames| *frames == 0) {
            Verdict::BelowLeast
        } else if self.found.iter().all(|frames| *frames >= self.settings.longest) {
            Verdict::NotLimited
        } else {
            Verdict::DutLimited
        }
    }

    /// The next burst, as a trial; `None` when all repetitions are complete.
    #[must_use]
    pub fn next_trial(&self) -> Option<Trial> {
        let frames = self.next_length()?;
        let (load, frames) = (self.settings.rate, u128::from(frames));
        // Rounds up, so that all frames are due within the duration.
        let duration = (frames * 1_000 * u128::from(PS_PER_S)).div_ceil(u128::from(load.millis().max(1)));
        Some(Trial { load, duration: Span::from_ps(u64::try_from(duration).unwrap_or(u64::MAX)) })
    }

    fn next_length(&self) -> Option<u64> {
        if self.beyond || self.found.len() >= self.settings.repeats as usize {
            return None;
        }
        let (low, longest) = (self.low, self.settings.longest.max(1));
        Some(match self.high {
            Some(high) if low == 0 => high / 2,
            Some(high) => low + (high - low) / 2,
            // Starts from the result of the last repetition and grows until frames are lost.
            None if low == 0 => self.found.last().copied().unwrap_or(0).clamp(1, longest),
            None => (low + (low / 8).max(1).max(if self.found.is_empty() { low } else { 0 })).min(longest),
        })
    }

    /// Records the outcome of the burst from [`next_trial`](Bursts::next_trial).
    pub fn tell(&mut self, outcome: Outcome) {
        let Some((frames, trial)) = self.next_length().zip(self.next_trial()) else { return };
        let asked = trial.duration.as_secs_f64() * (1.0 + self.settings.tolerance.as_f64());
        let flaw = if outcome.missed > 0 && outcome.lost > 0 {
            Some(Flaw::Receiver)
        } else if outcome.sent < frames * u64::from(outcome.directions.max(1)) || outcome.took.as_secs_f64() > asked {
            Some(Flaw::Shortfall)
        } else {
            None
        };
        self.runs.push(BurstRun { frames, outcome, flaw });
        if flaw.is_some() {
            let same = self.runs.iter().rev().take(ATTEMPTS).filter(|run| run.frames == frames && run.flaw.is_some());
            self.beyond = same.count() == ATTEMPTS;
            return;
        }
        if outcome.lost == 0 {
            self.low = frames;
        } else {
            self.high = Some(frames);
        }
        let close = |high: u64| high - self.low <= ((high as f64 * self.settings.width.as_f64()) as u64).max(1);
        if self.low >= self.settings.longest || self.high.is_some_and(|high| high <= 1 || close(high)) {
            self.found.push(self.low);
            (self.low, self.high) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: FrameRate = FrameRate::from_millis(1_000_000_000);

    /// A device that forwards `limit(n)` frames of the n-th burst, and a tester that sends up to `tester` frames/s.
    fn search(longest: u64, tester: f64, limit: impl Fn(usize) -> u64) -> Bursts {
        let (width, tolerance) = (Share::from_ppb(5_000_000), Share::from_ppb(10_000_000));
        let mut bursts = Bursts::new(BurstSettings { rate: RATE, longest, width, repeats: 3, tolerance });
        let mut number = 0;
        while let Some(trial) = bursts.next_trial() {
            // One frame per microsecond.
            let frames = trial.duration.as_ps() / 1_000_000;
            let took = Span::from_ps((trial.duration.as_ps() as f64 * (1e6 / tester).max(1.0)) as u64);
            let lost = frames.saturating_sub(limit(number));
            bursts.tell(Outcome {
                sent: frames,
                lost,
                took,
                missed: 0,
                late: Span::ZERO,
                late_frames: 0,
                directions: 1,
            });
            number += 1;
            assert!(number < 500, "it does not end");
        }
        bursts
    }

    #[test]
    fn finds_the_longest_burst_within_the_width() {
        for limit in [1, 2, 3, 99, 100, 5_000, 123_456, 1_999_999] {
            let bursts = search(2_000_000, 1e9, |_| limit);
            assert_eq!(bursts.verdict(), Verdict::DutLimited, "{limit}");
            let least = limit - (limit as f64 * 0.005) as u64;
            assert!(
                bursts.found().len() == 3 && bursts.found().iter().all(|found| (least..=limit).contains(found)),
                "{limit}: {:?}",
                bursts.found()
            );
        }
    }

    #[test]
    fn distinguishes_limits_of_tester_and_range() {
        assert_eq!(search(5_000, 1e9, |_| 1 << 30).verdict(), Verdict::NotLimited);
        assert_eq!(search(5_000, 1e9, |_| 0).verdict(), Verdict::BelowLeast);
        let slow = search(5_000, 9e5, |_| 100);
        assert_eq!((slow.verdict(), slow.found().len()), (Verdict::TesterLimited, 0));
        // The fill of the buffer varies.
        let found = search(100_000, 1e9, |number| 1_000 + 50 * (number as u64 % 3)).found().to_vec();
        assert!(found.iter().all(|found| (995..=1_100).contains(found)), "{found:?}");
    }
}
