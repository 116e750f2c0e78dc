use dpdk::TscClock;
use engine::slices::Reading;
use std::sync::Arc;
use units::Span;

/// Number of readings for the median cost.
const READINGS: usize = 1_001;

/// A clock for slices, and the cost of a reading. All copies of the clock agree.
pub(crate) fn reading(clock: TscClock) -> (Reading, Span) {
    let reading: Reading = Arc::new(move || clock.now());
    // Measure ten readings at a time, because one takes about as long as one step of the clock.
    let mut costs = Vec::with_capacity(READINGS);
    for _ in 0..READINGS {
        let before = reading();
        for _ in 0..9 {
            std::hint::black_box(reading());
        }
        costs.push(reading().since(before).as_ps() / 10);
    }
    costs.sort_unstable();
    (reading, Span::from_ps(costs[READINGS / 2]))
}
