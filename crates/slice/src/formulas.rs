//! NetSlice's corrections: measured values minus the overhead of measuring.
//!
//! A start and a stop take time, and so do the begin and the end of a data block. Of a start/stop pair, a part τo falls
//! *between* the two stamps, and the whole pair takes τβ. A section that contains K other pairs is longer by K·τβ. An
//! end-to-end loop contains, for each data block, its begin τα, its end τγ and all its pairs.
//!
//! ```text
//! (1)  T_A = T'_A − τo                        (2)  N_A = N'_A − n(o,e)
//! (3)  T_X = T'_X − τo − K·τβ                 (4)  N_X = N'_X − n(o,e) − K·n(β,e)
//! (5)  T_loop = T'_loop − Σ over blocks (τα + τγ + K·τβ)
//! ```
//! Source: NetSlice, section 3. (2) and (4) are (1) and (3) for the count of an event e; the same functions serve both.
//! Times are in nanoseconds. A negative result means that the section is too short to be resolved.

/// Overhead of measuring: times in nanoseconds, or occurrences of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Overhead {
    /// Begin of a data block, τα or n(α,e).
    pub alpha: f64,
    /// A pair of start and stop, τβ or n(β,e).
    pub beta: f64,
    /// The part of a pair that lies between its stamps, τo or n(o,e).
    pub inside: f64,
    /// End of a data block, τγ or n(γ,e).
    pub gamma: f64,
}

impl Overhead {
    /// Corrects a section without inner pairs: formulas (1) and (2).
    #[must_use]
    pub fn section(&self, measured: f64) -> f64 {
        self.enclosing(measured, 0)
    }

    /// Corrects a section that contains `pairs` other start/stop pairs: formulas (3) and (4).
    #[must_use]
    pub(crate) fn enclosing(&self, measured: f64, pairs: u32) -> f64 {
        measured - self.inside - f64::from(pairs) * self.beta
    }

    /// Corrects a loop that contains whole data blocks, each given by its number of pairs: formula (5).
    #[must_use]
    pub fn round(&self, measured: f64, blocks: &[u32]) -> f64 {
        blocks.iter().fold(measured, |left, pairs| left - self.alpha - self.gamma - f64::from(*pairs) * self.beta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 2 of the paper, in ns.
    const PAPER: Overhead = Overhead { alpha: 87.0, beta: 303.0, inside: 150.0, gamma: 904.0 };

    #[test]
    fn the_papers_example() {
        assert!((PAPER.section(693.0) - 543.0).abs() < 1e-9);
        // X contains A and B.
        assert!((PAPER.enclosing(5_000.0, 2) - (5_000.0 - 150.0 - 606.0)).abs() < 1e-9);
        // Section 2.2's configuration III: one block of seven pairs adds 3 112 ns to a loop.
        assert!((PAPER.round(108_000.0, &[7]) - (108_000.0 - 87.0 - 904.0 - 2_121.0)).abs() < 1e-9);
        assert!((PAPER.round(108_000.0, &[7, 7]) - (108_000.0 - 2.0 * 3_112.0)).abs() < 1e-9);
        assert!((PAPER.round(5.0, &[]) - 5.0).abs() < 1e-12);
    }

    proptest::proptest! {
        /// The corrections recover the true times from what a program with probes would measure, by the definition of
        /// each cost.
        #[test]
        fn what_measuring_adds_is_what_is_taken_off(
            a in 0.0..1e6_f64, b in 0.0..1e6_f64, rest in 0.0..1e6_f64,
            alpha in 0.0..1e3_f64, outside in 0.0..1e3_f64, inside in 0.0..1e3_f64, gamma in 0.0..1e3_f64,
        ) {
            let cost = Overhead { alpha, beta: inside + outside, inside, gamma };
            let measured_a = a + inside;
            // X contains the whole pairs of A and B, and the inner part of its own pair.
            let measured_x = a + b + 2.0 * cost.beta + inside;
            let measured_loop = alpha + a + b + rest + 3.0 * cost.beta + gamma;
            proptest::prop_assert!((cost.section(measured_a) - a).abs() < 1e-6);
            proptest::prop_assert!((cost.enclosing(measured_x, 2) - (a + b)).abs() < 1e-6);
            proptest::prop_assert!((cost.round(measured_loop, &[3]) - (a + b + rest)).abs() < 1e-6);
        }
    }
}
