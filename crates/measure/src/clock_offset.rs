//! The offset of a peer's clock from ours, from exchanges of messages (the four timestamps of NTP, RFC 5905).

use schemars::JsonSchema;
use serde::Serialize;

/// One exchange: a request and its answer, each with its departure and arrival timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockExchange {
    /// When the answer arrived, by our clock, in ns.
    pub at_ns: i64,
    /// The peer's clock minus ours, if both directions took equally long.
    pub offset_ns: i64,
    /// Round trip time without the peer's turnaround. The true offset is within half of it.
    pub round_trip_ns: i64,
}

impl ClockExchange {
    /// Creates an exchange from its timestamps, in ns: request sent (ours), received (the peer's), answer sent (the
    /// peer's), received (ours). `None` if they contradict each other.
    #[must_use]
    pub fn of(sent: i64, received_at: i64, answered: i64, back: i64) -> Option<Self> {
        let round_trip = back.checked_sub(sent)?.checked_sub(answered.checked_sub(received_at)?)?;
        let offset =
            i128::midpoint(i128::from(received_at) - i128::from(sent), i128::from(answered) - i128::from(back));
        Some(ClockExchange { at_ns: back, offset_ns: i64::try_from(offset).ok()?, round_trip_ns: round_trip })
            .filter(|exchange| exchange.round_trip_ns >= 0)
    }

    /// Half the round trip: the error bound of the offset.
    fn half_ns(&self) -> f64 {
        self.round_trip_ns as f64 / 2.0
    }
}

/// The source of this host's stamps of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockStamps {
    /// The kernel, at departure and arrival.
    Kernel,
    /// The program, before it sent the request or after it read the answer.
    Program,
}

impl ClockStamps {
    /// The name, as in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ClockStamps::Kernel => "kernel",
            ClockStamps::Program => "program",
        }
    }
}

/// Exchanges with one peer. Only the fastest of each interval is kept, because queues only add delay.
#[derive(Clone, Debug)]
pub struct ClockMeter {
    /// Length of an interval in ns; doubles when there are too many.
    interval_ns: i64,
    fastest: Vec<ClockExchange>,
    count: u64,
    by_kernel: u64,
    first_at: i64,
}

/// Limit on the number of intervals.
const MOST: usize = 1_024;

impl Default for ClockMeter {
    fn default() -> Self {
        ClockMeter { interval_ns: 200_000_000, fastest: Vec::new(), count: 0, by_kernel: 0, first_at: 0 }
    }
}

/// A line fitted to the offsets.
struct Drift {
    /// ns per ns.
    slope: f64,
    error: f64,
}

impl ClockMeter {
    /// Adds an exchange.
    pub fn add(&mut self, exchange: ClockExchange, stamps: ClockStamps) {
        if self.count == 0 {
            self.first_at = exchange.at_ns;
        }
        self.count += 1;
        self.by_kernel += u64::from(stamps == ClockStamps::Kernel);
        let number = |at: i64, interval: i64| at.saturating_sub(self.first_at).div_euclid(interval);
        match self.fastest.last_mut() {
            Some(last) if number(last.at_ns, self.interval_ns) == number(exchange.at_ns, self.interval_ns) => {
                if exchange.round_trip_ns < last.round_trip_ns {
                    *last = exchange;
                }
            }
            _ => self.fastest.push(exchange),
        }
        if self.fastest.len() > MOST {
            self.interval_ns *= 2;
            for exchange in std::mem::take(&mut self.fastest) {
                let same = |last: &&mut ClockExchange| {
                    let number = |at: i64| at.saturating_sub(self.first_at).div_euclid(self.interval_ns);
                    number(last.at_ns) == number(exchange.at_ns)
                };
                match self.fastest.last_mut().filter(same) {
                    Some(last) if exchange.round_trip_ns < last.round_trip_ns => *last = exchange,
                    Some(_) => {}
                    None => self.fastest.push(exchange),
                }
            }
        }
    }

    /// The drift, from two intervals on: least squares, each offset weighted by its error.
    fn drift(&self) -> Option<Drift> {
        let points = || {
            self.fastest.iter().map(|one| {
                let error = one.half_ns().max(1.0);
                ((one.at_ns - self.first_at) as f64, one.offset_ns as f64, 1.0 / (error * error))
            })
        };
        let weight: f64 = points().map(|(.., w)| w).sum();
        let middle = points().map(|(x, _, w)| x * w).sum::<f64>() / weight;
        let mean = points().map(|(_, y, w)| y * w).sum::<f64>() / weight;
        let spread: f64 = points().map(|(x, _, w)| w * (x - middle) * (x - middle)).sum();
        let slope = points().map(|(x, y, w)| w * (x - middle) * (y - mean)).sum::<f64>() / spread;
        (self.fastest.len() > 1 && spread > 0.0).then(|| Drift { slope, error: 1.0 / spread.sqrt() })
    }

    /// The figures so far; `None` before the first exchange. `asked` exchanges were begun, with `peer`; stamps have the
    /// resolution `resolution_ns`.
    #[must_use]
    pub fn report(&self, peer: &str, asked: u64, resolution_ns: f64) -> Option<ClockReport> {
        let best = self.fastest.iter().min_by_key(|one| one.round_trip_ns)?;
        let last = self.fastest.last()?;
        let drift = self.drift();
        // A drift that is not significant is not applied.
        let slope = drift.as_ref().filter(|drift| drift.slope.abs() > drift.error).map_or(0.0, |drift| drift.slope);
        let offset_ns = best.offset_ns as f64 + slope * (last.at_ns - best.at_ns) as f64;
        let beyond = |one: &ClockExchange| one.offset_ns.unsigned_abs() as f64 + one.half_ns();
        let mut halves: Vec<f64> = self.fastest.iter().map(ClockExchange::half_ns).collect();
        halves.sort_by(f64::total_cmp);
        Some(ClockReport {
            peer: peer.to_owned(),
            asked,
            answered: self.count,
            stamps: if 2 * self.by_kernel > self.count { ClockStamps::Kernel } else { ClockStamps::Program },
            offset_ns,
            error_ns: best.half_ns() + resolution_ns,
            worst_ns: self.fastest.iter().map(beyond).fold(0.0, f64::max) + resolution_ns,
            drift_ppm: drift.as_ref().map(|drift| drift.slope * 1e6),
            drift_error_ppm: drift.as_ref().map(|drift| drift.error * 1e6),
            round_trip_min_ns: best.round_trip_ns as f64,
            round_trip_p50_ns: halves[halves.len() / 2] * 2.0,
        })
    }
}

/// The clock of a peer, compared with that of this host.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ClockReport {
    /// The peer, as the user named it.
    pub peer: String,
    /// Exchanges begun.
    pub asked: u64,
    /// Exchanges that were answered.
    pub answered: u64,
    /// The source of this host's stamps in most of them.
    pub stamps: ClockStamps,
    /// The peer's clock minus ours at the last exchange: the offset of the fastest exchange plus the drift since.
    pub offset_ns: f64,
    /// Error bound of the offset: half the smallest round trip, plus the resolution of the timestamps.
    pub error_ns: f64,
    /// Largest absolute offset plus its error bound, over the fastest exchange of each interval.
    pub worst_ns: f64,
    /// Rate at which the peer's clock gains on ours, in parts per million. Absent for runs below half a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_ppm: Option<f64>,
    /// Standard error of the drift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_error_ppm: Option<f64>,
    /// Smallest round trip.
    pub round_trip_min_ns: f64,
    /// Median over intervals of their smallest round trips.
    pub round_trip_p50_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exchange with a peer whose clock is ahead by `offset`, with these one-way delays.
    fn exchange(at: i64, offset: i64, there: i64, back: i64) -> ClockExchange {
        let received_at = at + there + offset;
        let answered = received_at + 700;
        ClockExchange::of(at, received_at, answered, answered - offset + back).expect("it is possible")
    }

    #[test]
    fn most_exchanges_decide_the_source_of_stamps() {
        use ClockStamps::{Kernel, Program};
        for (sources, most) in
            [(&[Kernel][..], Kernel), (&[Kernel, Program], Program), (&[Program, Kernel, Kernel], Kernel)]
        {
            let mut meter = ClockMeter::default();
            for (source, at) in sources.iter().zip(1..) {
                meter.add(exchange(at * 1_000_000, 7, 1_000, 1_000), *source);
            }
            assert_eq!(meter.report("a", 3, 1.0).map(|report| report.stamps), Some(most), "{sources:?}");
        }
    }

    #[test]
    fn the_offset_is_within_half_the_round_trip() {
        for (there, back) in [(5_000, 5_000), (9_000, 1_000), (0, 40_000)] {
            let one = exchange(1_000_000, -123_456, there, back);
            assert_eq!(one.round_trip_ns, there + back);
            assert!((one.offset_ns + 123_456).abs() <= (there + back) / 2, "{one:?}");
        }
        assert_eq!(ClockExchange::of(100, 0, 500, 200), None, "it came back before it was answered");
    }

    #[test]
    fn queues_do_not_spoil_the_offset() {
        let mut meter = ClockMeter::default();
        for i in 0..400_i64 {
            // Every seventh exchange is fast; the others are queued in one direction only.
            let wait = if i % 7 == 0 { 0 } else { 30_000 + 1_000 * (i % 90) };
            meter.add(exchange(i * 10_000_000, 2_000_000, 4_000 + wait, 4_200), ClockStamps::Kernel);
        }
        let report = meter.report("b", 410, 1.0).expect("exchanges");
        assert!((report.offset_ns - 2_000_000.0).abs() < 200.0, "{report:?}");
        assert!((report.error_ns - 4_101.0).abs() < 1.0 && report.round_trip_min_ns < 8_201.0, "{report:?}");
        assert_eq!((report.asked, report.answered), (410, 400));
        assert!(report.drift_ppm.is_some_and(|drift| drift.abs() < 1.0), "{report:?}");
    }

    #[test]
    fn finds_the_drift_and_brings_the_offset_up_to_date() {
        let mut meter = ClockMeter::default();
        for i in 0..3_000_i64 {
            let at = i * 10_000_000;
            // The best exchange is at the start.
            let wait = if i == 3 { 0 } else { 2_000 };
            meter.add(exchange(at, 5_000 + at / 20_000, 3_000 + wait, 3_000 + wait), ClockStamps::Kernel);
        }
        let report = meter.report("b", 3_000, 1.0).expect("exchanges");
        let drift = report.drift_ppm.expect("30 s");
        assert!((drift - 50.0).abs() < 0.5, "{report:?}");
        assert!((report.offset_ns - (5_000.0 + 29_990_000_000.0 / 20_000.0)).abs() < 20_000.0, "{report:?}");
        assert!(report.worst_ns >= report.offset_ns.abs(), "{report:?}");
    }

    #[test]
    fn memory_is_bounded_for_days() {
        let mut meter = ClockMeter::default();
        for i in 0..200_000_i64 {
            meter.add(exchange(i * 100_000_000, 77, 1_000 + i % 50, 1_000), ClockStamps::Kernel);
        }
        assert!(meter.fastest.len() <= MOST);
        assert!(meter.report("b", 0, 0.0).is_some_and(|report| (report.offset_ns - 77.0).abs() < 30.0));
    }
}
