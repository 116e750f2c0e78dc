use crate::random::Random;

/// Maximum length of a run. Adjacent frames add little information about a queue, but they are cheaper: only the first
/// trace of a run misses the CPU caches, and while no trace is in progress no frame is checked.
const LONGEST: u64 = 32;
/// The first `FEW` traces are drawn one by one. Later runs have 1/`PART` of the number of traces so far.
const FEW: u64 = 512;
const PART: u64 = 64;

/// Draws the frames to trace, in runs of adjacent frames. Each run starts at random within a stratum of `every` times
/// its length (stratified count-based sampling, RFC 5475 §5). A run may extend into the next stratum; the run of that
/// stratum then starts after it.
#[derive(Clone)]
pub(super) struct SampleDraw {
    every: u64,
    random: Random,
    followed: u64,
    /// Length of the current run, its start within the stratum, and its remaining frames.
    run: u64,
    begins: u64,
    more: u64,
}

impl SampleDraw {
    pub(super) fn new(every: u64, seed: u64) -> SampleDraw {
        SampleDraw { every, random: Random::stream(seed, "slices"), followed: 0, run: 1, begins: 0, more: 1 }
    }

    /// Records that frame `number` is traced. Returns the number of the next one.
    pub(super) fn after(&mut self, number: u64) -> u64 {
        self.followed += 1;
        self.more -= 1;
        if self.more > 0 {
            return number.saturating_add(1);
        }
        let (ends, stratum) = (self.begins.saturating_add(self.run), self.stratum());
        let (rest, over) = (stratum.saturating_sub(ends), ends.saturating_sub(stratum));
        self.run = if self.followed < FEW { 1 } else { (self.followed / PART).min(LONGEST) };
        self.more = self.run;
        // With `every` 1 no frame may be skipped.
        let drawn = if self.every == 1 { 0 } else { self.random.below(self.stratum()) };
        self.begins = drawn.max(over);
        number.saturating_add(1).saturating_add(rest).saturating_add(self.begins - over)
    }

    /// Number of frames in the stratum of the current run.
    fn stratum(&self) -> u64 {
        self.every.saturating_mul(self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the traced frames among the first `count`.
    fn followed(every: u64, seed: u64, count: u64) -> Vec<u64> {
        let mut drawing = SampleDraw::new(every, seed);
        std::iter::successors(Some(1), |number| Some(drawing.after(*number))).take_while(|n| *n <= count).collect()
    }

    #[test]
    fn traces_one_frame_in_every_and_few_one_by_one() {
        for every in [1, 2, 64, 1_000] {
            for count in [1, 1_000, 50_000, 3_000_000] {
                let got = followed(every, 7, count);
                assert!(got.windows(2).all(|two| two[0] < two[1]));
                let off = got.len() as f64 - count as f64 / every as f64;
                assert!(off.abs() <= LONGEST as f64 && (every > 1 || off == 0.0), "1/{every} of {count}: {off} off");
            }
        }
        let few = followed(64, 7, 64 * FEW);
        let strata: Vec<u64> = few.iter().map(|number| (number - 1) / 64).collect();
        assert_eq!(strata, (0..FEW).collect::<Vec<_>>(), "one of each 64");
    }

    #[test]
    fn long_runs_start_anywhere() {
        let got = followed(64, 7, 20_000_000);
        let late = &got[got.len() / 2..];
        let neighbours = late.windows(2).filter(|two| two[1] == two[0] + 1).count();
        let share = neighbours as f64 / late.len() as f64;
        assert!((share - (LONGEST - 1) as f64 / LONGEST as f64).abs() < 0.002, "{share}");
        // 32 of each 2 048 frames. Positions at the edges are as frequent as others within chance: about 150 of 4 900
        // runs cover each piece.
        let mut pieces = [0.0_f64; 64];
        got.iter().for_each(|number| pieces[(number % 2_048 / 32) as usize] += 64.0 / got.len() as f64);
        assert!(pieces.iter().all(|share| (share - 1.0).abs() < 0.3), "{pieces:?}");
    }

    #[test]
    fn continues_at_the_current_frame_after_a_pause() {
        let mut drawing = SampleDraw::new(64, 7);
        let mut number = 1;
        for _ in 0..10_000 {
            let next = drawing.after(number);
            assert!((1..2 * 64 * LONGEST).contains(&(next - number)), "from {number} to {next}");
            number = next + 15_000;
        }
    }

    #[test]
    fn seed_determines_the_frames() {
        assert_eq!(followed(64, 1, 1_000_000), followed(64, 1, 1_000_000));
        assert_ne!(followed(64, 1, 1_000_000), followed(64, 2, 1_000_000));
    }

    #[test]
    fn largest_every_never_traces_again() {
        assert_eq!(followed(u64::MAX, 1, 1 << 60).len(), 1);
    }
}
