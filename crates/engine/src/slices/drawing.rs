use crate::random::Random;

/// The longest run. Neighbours tell little more of a queue than one of them; on the other hand, what it takes to follow a
/// frame is far from the CPU for the first of a run only, and while none is under way no frame is asked whether it is.
const LONGEST: u64 = 32;
/// Few frames are drawn one by one; from then on a run is this part of those that were followed before it.
const FEW: u64 = 512;
const PART: u64 = 64;

/// Draws which frames are followed: runs of neighbours, each beginning anywhere among `every` times as many frames (a
/// stratified sample by count of RFC 5475 §5). A run may reach into the next stratum, whose own begins behind it.
#[derive(Clone)]
pub(super) struct Drawing {
    every: u64,
    random: Random,
    followed: u64,
    /// How long the present run is, where it begins in its stratum, and how many of it are still to come.
    run: u64,
    begins: u64,
    more: u64,
}

impl Drawing {
    pub(super) fn new(every: u64, seed: u64) -> Drawing {
        Drawing { every, random: Random::stream(seed, "slices"), followed: 0, run: 1, begins: 0, more: 1 }
    }

    /// Frame `number` is followed; gives which one is next.
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
        // Of all frames none is left out.
        let drawn = if self.every == 1 { 0 } else { self.random.below(self.stratum()) };
        self.begins = drawn.max(over);
        number.saturating_add(1).saturating_add(rest).saturating_add(self.begins - over)
    }

    /// Of so many frames the present run is.
    fn stratum(&self) -> u64 {
        self.every.saturating_mul(self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the frames that are followed among the first `count`.
    fn followed(every: u64, seed: u64, count: u64) -> Vec<u64> {
        let mut drawing = Drawing::new(every, seed);
        std::iter::successors(Some(1), |number| Some(drawing.after(*number))).take_while(|n| *n <= count).collect()
    }

    #[test]
    fn one_in_so_many_is_followed_and_few_one_by_one() {
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
    fn runs_of_many_are_long_and_anywhere() {
        let got = followed(64, 7, 20_000_000);
        let late = &got[got.len() / 2..];
        let neighbours = late.windows(2).filter(|two| two[1] == two[0] + 1).count();
        let share = neighbours as f64 / late.len() as f64;
        assert!((share - (LONGEST - 1) as f64 / LONGEST as f64).abs() < 0.002, "{share}");
        // Of each 2 048 frames 32; those at the edges as often as others, but for chance: some 150 of 4 900 runs meet each piece.
        let mut pieces = [0.0_f64; 64];
        got.iter().for_each(|number| pieces[(number % 2_048 / 32) as usize] += 64.0 / got.len() as f64);
        assert!(pieces.iter().all(|share| (share - 1.0).abs() < 0.3), "{pieces:?}");
    }

    #[test]
    fn who_was_away_goes_on_from_where_the_frames_are() {
        let mut drawing = Drawing::new(64, 7);
        let mut number = 1;
        for _ in 0..10_000 {
            let next = drawing.after(number);
            assert!((1..2 * 64 * LONGEST).contains(&(next - number)), "from {number} to {next}");
            number = next + 15_000;
        }
    }

    #[test]
    fn the_seed_says_which() {
        assert_eq!(followed(64, 1, 1_000_000), followed(64, 1, 1_000_000));
        assert_ne!(followed(64, 1, 1_000_000), followed(64, 2, 1_000_000));
    }

    #[test]
    fn the_rarest_are_never_reached() {
        assert_eq!(followed(u64::MAX, 1, 1 << 60).len(), 1);
    }
}
