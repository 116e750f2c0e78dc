use crate::Error;
use crate::config::Config;
use crate::worker::pin;
use dpdk::TscClock;
use units::Span;

/// Lateness of a loop on this machine that only waits for instants. No departure that waits for the clock can be
/// better; anything beyond is the cost of other work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Time between instants.
    pub gap: Span,
    /// Number of instants.
    pub instants: usize,
    /// Median lateness.
    pub p50: Span,
    /// 99th percentile of lateness.
    pub p99: Span,
    /// Largest lateness.
    pub max: Span,
    /// Share of instants met within 1 µs.
    pub within_1us: f64,
}

impl Floor {
    /// As [`Floor::measure`], on the CPU that carries out the departures of `config`. Call on a separate thread.
    ///
    /// # Errors
    /// The thread cannot be pinned to that CPU.
    pub fn measure_for(config: &Config, clock: &TscClock, gap: Span, duration: Span) -> Result<Floor, Error> {
        // With several CPUs the last one carries out departures.
        pin(config.cpus_of_parts().0.last())?;
        Ok(Floor::measure(clock, gap, duration))
    }

    /// Waits for absolute instants, `gap` apart, for about `duration`, on the calling thread. After a hiccup, the
    /// instants that have passed are late, like departures.
    #[must_use]
    pub fn measure(clock: &TscClock, gap: Span, duration: Span) -> Floor {
        let instants = (duration.as_ps() / gap.as_ps().max(1)).max(1) as usize;
        // Touches all pages before the loop.
        let mut late = vec![Span::from_ps(1); instants];
        let mut due = clock.now() + gap;
        for late in &mut late {
            *late = clock.spin_until(due).since(due);
            due += gap;
        }
        Floor::of(gap, late)
    }

    fn of(gap: Span, mut late: Vec<Span>) -> Floor {
        late.sort_unstable();
        // The smallest value that n percent do not exceed.
        let percentile = |n: usize| late[(late.len() * n).div_ceil(100) - 1];
        let near = late.iter().filter(|late| **late <= Span::from_us(1)).count();
        Floor {
            gap,
            instants: late.len(),
            p50: percentile(50),
            p99: percentile(99),
            max: percentile(100),
            within_1us: near as f64 / late.len() as f64,
        }
    }

    /// True if departures `gap` apart on average are closer than this machine can resolve: a loop that only waits would
    /// miss half of them by half a gap, or one in a hundred by a whole gap.
    #[must_use]
    pub fn is_above(&self, gap: Span) -> bool {
        gap < self.p50 * 2 || gap < self.p99
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_percentiles_over_the_instants() {
        let late = (1..=200).rev().map(|i| Span::from_ns(i * 10)).collect();
        let floor = Floor::of(Span::from_us(10), late);
        assert_eq!((floor.p50, floor.p99, floor.max), (Span::from_us(1), Span::from_ns(1_980), Span::from_us(2)));
        assert!((floor.within_1us - 0.5).abs() < 1e-12 && floor.instants == 200);
        let one = Floor::of(Span::from_us(10), vec![Span::from_ns(30)]);
        assert_eq!((one.p50, one.p99, one.max), (Span::from_ns(30), Span::from_ns(30), Span::from_ns(30)));
    }

    #[test]
    fn distinguishes_gaps_above_and_below_the_resolution() {
        let floor = |p50, p99| Floor {
            gap: Span::from_us(10),
            instants: 5_000,
            p50: Span::from_ns(p50),
            p99: Span::from_ns(p99),
            max: Span::from_us(50),
            within_1us: 1.0,
        };
        assert!(!floor(50, 100).is_above(Span::from_ns(100)) && floor(50, 100).is_above(Span::from_ns(99)));
        assert!(!floor(50, 900).is_above(Span::from_ns(900)) && floor(50, 900).is_above(Span::from_ns(899)));
    }
}
