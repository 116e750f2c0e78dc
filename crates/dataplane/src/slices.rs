use dpdk::TscClock;
use engine::slices::Reading;
use std::sync::Arc;
use units::Span;

/// Readings whose median cost counts.
const READINGS: usize = 1_001;

/// A reading of a clock, for slices, and what it takes. All clocks that are copies of one agree.
pub(crate) fn reading(clock: TscClock) -> (Reading, Span) {
    let reading: Reading = Arc::new(move || clock.now());
    // Ten at a time: one is about as long as the clock's step.
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
