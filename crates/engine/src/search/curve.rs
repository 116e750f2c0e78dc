//! Loss of a device at loads above its limit (RFC 2544 section 26.3).

use super::{Outcome, Trial, TrialResult, Verdict, failed, flaw};
use units::{FrameRate, Share, Span};

/// Parameters of a loss curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveSettings {
    /// The first load: the maximum of the line.
    pub most: FrameRate,
    /// The lowest load.
    pub least: FrameRate,
    /// A load that the tester is known not to reach. It and all higher loads are skipped.
    pub beyond: Option<FrameRate>,
    /// Difference between loads, as a share of `most`; at most 10 %, as the RFC requires.
    pub step: Share,
    /// Duration of a trial.
    pub duration: Span,
    /// Tolerance of the rate and the duration of a trial.
    pub tolerance: Share,
    /// Maximum lateness of departures in a trial with loss, if the late frames could explain the loss.
    pub late: Span,
}

/// Trials at decreasing load, until two in a row have no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    settings: CurveSettings,
    runs: Vec<TrialResult>,
    /// Steps below the highest load, and the number of loads in a row without loss.
    steps: u32,
    clean: u32,
}

/// The curve ends after this many loads in a row without loss.
const CLEAN: u32 = 2;

impl Curve {
    /// Starts a curve.
    #[must_use]
    pub fn new(settings: CurveSettings) -> Self {
        let mut curve = Curve { settings, runs: Vec::new(), steps: 0, clean: 0 };
        if let Some(beyond) = settings.beyond {
            let one = u128::from(Share::ONE.ppb());
            let share = (u128::from(beyond.millis()) * one / u128::from(settings.most.millis().max(1))).min(one);
            curve.steps = (one - share) as u32 / settings.step.ppb().max(1);
            while curve.load().is_some_and(|load| load >= beyond) {
                curve.steps += 1;
            }
        }
        curve
    }

    /// All trials so far. Flawed trials are not results of the device.
    #[must_use]
    pub fn runs(&self) -> &[TrialResult] {
        &self.runs
    }

    /// What limits the result: the tester, if it did not offer the highest load.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let offered = |run: &&TrialResult| run.flaw.is_none();
        if self.next_trial().is_some() {
            Verdict::Unfinished
        } else if !self.runs.iter().filter(offered).any(|run| run.trial.load == self.settings.most) {
            Verdict::TesterLimited
        } else if self.runs.iter().filter(offered).all(|run| run.outcome.lost == 0) {
            Verdict::NotLimited
        } else {
            Verdict::DutLimited
        }
    }

    /// A load as a share of the highest.
    #[must_use]
    pub fn share(&self, load: FrameRate) -> f64 {
        load.millis() as f64 / self.settings.most.millis() as f64
    }

    /// The next trial; `None` after two loads in a row without loss, or when the next load is below the lowest.
    #[must_use]
    pub fn next_trial(&self) -> Option<Trial> {
        let CurveSettings { least, duration, .. } = self.settings;
        let load = self.load().filter(|load| *load >= least && self.clean < CLEAN)?;
        Some(Trial { load, duration })
    }

    /// The load `steps` steps below the highest; `None` at zero.
    fn load(&self) -> Option<FrameRate> {
        let CurveSettings { most, step, .. } = self.settings;
        let off = step.ppb().checked_mul(self.steps).filter(|off| *off < Share::ONE.ppb())?;
        let load = u128::from(most.millis()) * u128::from(Share::ONE.ppb() - off) / u128::from(Share::ONE.ppb());
        Some(FrameRate::from_millis(load as u64))
    }

    /// Records the outcome of the current trial. Flawed trials are repeated a few times.
    pub fn tell(&mut self, outcome: Outcome) {
        let Some(trial) = self.next_trial() else { return };
        let CurveSettings { tolerance, late, .. } = self.settings;
        let flaw = flaw(&trial, &outcome, tolerance, late, |by_itself| outcome.lost > 0 && by_itself.lost == 0);
        self.runs.push(TrialResult { trial, outcome, flaw });
        match flaw {
            None => self.clean = if outcome.lost == 0 { self.clean + 1 } else { 0 },
            Some(_) if failed(&self.runs, trial.load) => self.clean = 0,
            Some(_) => return,
        }
        self.steps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1_000_000;

    /// The curve of a device that forwards `rate` frames/s, with a tester that sends up to `tester` frames/s.
    fn curve(step: u32, least: u64, rate: u64, tester: u64) -> (Verdict, Vec<(u64, u64, bool)>) {
        let mut curve = Curve::new(CurveSettings {
            beyond: None,
            most: FrameRate::from_millis(MOST * 1_000),
            least: FrameRate::from_millis(least * 1_000),
            step: Share::from_ppb(step * 10_000_000),
            duration: Span::from_ms(1_000),
            tolerance: Share::from_ppb(1_000_000),
            late: Span::from_ms(5),
        });
        while let Some(trial) = curve.next_trial() {
            assert_eq!(curve.verdict(), Verdict::Unfinished);
            let sent = (trial.load.millis() / 1_000).min(tester);
            let lost = sent.saturating_sub(rate);
            let took = trial.duration;
            curve.tell(Outcome { sent, lost, took, missed: 0, late: Span::ZERO, late_frames: 0, directions: 1 });
        }
        let run = |run: &TrialResult| (run.trial.load.millis() / 1_000, run.outcome.lost, run.flaw.is_none());
        (curve.verdict(), curve.runs().iter().map(run).collect())
    }

    #[test]
    fn decreases_load_until_two_trials_lose_nothing() {
        let expected: Vec<_> = (0..6).map(|n| (MOST - n * 100_000, 400_000 - n.min(4) * 100_000, true)).collect();
        assert_eq!(curve(10, 100, 600_000, MOST), (Verdict::DutLimited, expected));
        let (verdict, runs) = curve(25, 100, MOST, MOST);
        assert_eq!((verdict, runs.len()), (Verdict::NotLimited, 2), "nothing is lost at all");
    }

    #[test]
    fn ends_at_the_lowest_load_if_every_load_loses() {
        assert_eq!(curve(10, 100, 0, MOST).1.len(), 10, "from 100 % to 10 %");
        assert_eq!(curve(10, 500_000, 0, MOST).1.len(), 6, "from 100 % to 50 %");
        assert_eq!(curve(40, 100, 0, MOST).1.iter().map(|run| run.0).collect::<Vec<_>>(), [MOST, 600_000, 200_000]);
    }

    #[test]
    fn skips_loads_beyond_the_known_tester_limit() {
        let first = |beyond: u64| {
            let settings = CurveSettings {
                most: FrameRate::from_millis(MOST),
                least: FrameRate::from_millis(1),
                beyond: Some(FrameRate::from_millis(beyond)),
                step: Share::from_ppb(100_000_000),
                duration: Span::from_ms(1),
                tolerance: Share::default(),
                late: Span::ZERO,
            };
            Curve::new(settings).next_trial().map(|trial| trial.load.millis())
        };
        assert_eq!(
            [MOST + 1, MOST, 650_000, 600_000, 50_000].map(first),
            [Some(MOST), Some(900_000), Some(600_000), Some(500_000), None]
        );
    }

    #[test]
    fn repeats_and_excludes_trials_that_the_tester_fails() {
        // 100 % is far above its limit: two attempts. 90 % to 70 % are closer: five attempts each.
        let (verdict, runs) = curve(10, 100, 650_000, 660_000);
        assert_eq!(verdict, Verdict::TesterLimited);
        let flawed = |load: u64| runs.iter().filter(|run| run.0 == load && !run.2).count();
        assert_eq!([flawed(MOST), flawed(900_000), flawed(700_000), flawed(600_000)], [2, 5, 5, 0]);
        assert_eq!(&runs[runs.len() - 2..], [(600_000, 0, true), (500_000, 0, true)]);
    }
}
