//! Slices of pipelines on the page of a run.

use super::*;
use measure::slices::{PipelineSlices, SliceOverhead, SliceTimes, SlicedPackets};

fn followed(name: &str, packets: SlicedPackets) -> PipelineReport {
    let slices = PipelineSlices {
        every: 64,
        packets,
        slices: Vec::new(),
        total: SliceTimes::default(),
        overhead: SliceOverhead::default(),
        ring_untold: false,
        typical: Vec::new(),
    };
    PipelineReport { name: name.into(), slices: Some(slices), ..pipeline(40, Span::from_us(10), |_| 0) }
}

#[test]
fn each_pipeline_has_slices_of_its_own() {
    let departed = SlicedPackets { seen: 3, matched: 3, lost: 0 };
    let text = page(vec![followed("forward", departed), followed("backward", departed)]);
    for heading in ["Where the time goes: forward", "One packet: forward", "Where the time goes: backward"] {
        assert_eq!(checked(&text).matches(&format!("<h2>{heading}</h2>")).count(), 1, "{heading}");
    }
    assert!(text.contains("Mean of 1 frame in 64: "), "not of all packets");
}

#[test]
fn page_says_that_no_traced_frame_departed() {
    let text = page(vec![followed("forward", SlicedPackets { seen: 3, matched: 0, lost: 3 })]);
    assert!(checked(&text).contains("1 frame in 64 was selected for tracing, but none departed."));
    assert!(!text.contains("One packet"));
    let mut idle = followed("forward", SlicedPackets::default());
    idle.arrived = Tally::default();
    assert!(!page(vec![idle]).contains("Where the time goes"), "the books already show that nothing came");
}
