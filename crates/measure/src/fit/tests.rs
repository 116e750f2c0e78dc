use super::*;

/// Gaps of a long run; Miri takes a thousand times as long for each.
const MANY: u64 = if cfg!(miri) { 2_000 } else { 100_000 };

/// Uniform gaps from 80 to 120 µs.
struct Even;

impl Reference for Even {
    fn text(&self) -> &str {
        "uniform 80us..120us"
    }
    fn cdf(&self, ps: f64) -> (f64, f64) {
        let p = ((ps - 80e6) / 40e6).clamp(0.0, 1.0);
        (p, p)
    }
    fn limits(&self) -> (f64, f64) {
        (80e6, 120e6)
    }
    fn bins(&self) -> (f64, f64) {
        (80e6, 120e6)
    }
    fn atoms(&self) -> Option<Vec<(f64, f64)>> {
        None
    }
    fn moments(&self) -> (Option<f64>, Option<f64>) {
        (Some(100e6), None)
    }
    fn persistence(&self) -> f64 {
        0.0
    }
    fn is_idle(&self) -> bool {
        false
    }
}

/// The same law with 60 % of all gaps at 100 µs.
struct Peaked;

impl Reference for Peaked {
    fn text(&self) -> &str {
        "table"
    }
    fn cdf(&self, ps: f64) -> (f64, f64) {
        let (even, _) = Even.cdf(ps);
        let peak = |there: bool| 0.4 * even + if there { 0.6 } else { 0.0 };
        (peak(ps > 100e6), peak(ps >= 100e6))
    }
    fn limits(&self) -> (f64, f64) {
        Even.limits()
    }
    fn bins(&self) -> (f64, f64) {
        Even.bins()
    }
    fn atoms(&self) -> Option<Vec<(f64, f64)>> {
        None
    }
    fn jumps(&self) -> Vec<f64> {
        vec![100e6]
    }
    fn moments(&self) -> (Option<f64>, Option<f64>) {
        (Some(100e6), None)
    }
    fn persistence(&self) -> f64 {
        0.0
    }
    fn is_idle(&self) -> bool {
        false
    }
}

fn judge(gaps: impl Iterator<Item = u64>) -> FitReport {
    judge_by(Arc::new(Even), gaps)
}

fn judge_by(law: Arc<dyn Reference>, gaps: impl Iterator<Item = u64>) -> FitReport {
    let mut meter = FitMeter::new(law, None);
    let mut at = Time::ZERO;
    meter.record(at, FrameLen::MIN);
    for gap in gaps {
        at += Span::from_ps(gap);
        meter.record(at, FrameLen::MIN);
    }
    meter.report().expect("gaps were recorded")
}

#[test]
fn even_gaps_fit_and_shifted_gaps_do_not() {
    // 1 000 gaps in the middle of as many equal shares.
    let fit = judge((0..1_000).map(|i| 80_020_000 + i * 40_000));
    assert!((fit.ks_d.expect("d") - 0.000_5).abs() < 1e-9, "{fit:?}");
    assert!(fit.mse < 1e-12 && fit.kl_nats.expect("finite") < 1e-9 && fit.ks_p.expect("p") > 0.999);
    assert_eq!((fit.bins, fit.outside_ratio), (102, 0.0));
    let fit = judge((0..1_000).map(|i| 90_020_000 + i * 30_000));
    // A quarter of the law, above 90 µs, is missing.
    assert!((fit.ks_d.expect("d") - 0.25).abs() < 0.002 && fit.p() < 1e-4, "{fit:?}");
}

#[test]
fn values_split_by_rounding_count_as_one() {
    // 400 even gaps, and 600 on both sides of the peak, as after rounding by a line or a capture.
    let rounded = |by: u64| {
        let even = (0..400).map(|i| 80_050_000 + i * 100_000);
        judge_by(Arc::new(Peaked), even.chain((0..600).map(move |i| 100_000_000 - by + i % 2 * 2 * by)))
    };
    let fit = rounded(400);
    assert!(fit.ks_d.expect("d") < 0.001 && fit.p() > 0.99, "{fit:?}");
    // A distance beyond rounding is a different value.
    let fit = rounded(2_000);
    assert!(fit.ks_d.expect("d") > 0.29 && fit.p() < 1e-4, "{fit:?}");
}

#[test]
fn edge_includes_gaps_up_to_a_nanosecond_beyond() {
    let fit = judge([80_000_000 - 1_000, 120_000_000 + 1_000].into_iter().cycle().take(100));
    assert!(fit.outside_ratio.abs() < 1e-12 && fit.kl_nats.is_some(), "{fit:?}");
    let fit = judge([80_000_000 - 1_001, 120_000_000 + 1_001].into_iter().cycle().take(100));
    assert!((fit.outside_ratio - 1.0).abs() < 1e-12 && fit.kl_nats.is_none(), "{fit:?}");
}

#[test]
fn critical_distances_match_the_paper() {
    let fit = judge((0..MANY).map(|i| 80_000_200 + i * (40_000_000 / MANY)));
    // The paper has 100 000 gaps; the distances decrease with the square root of the number of gaps.
    let scale = (100_000.0 / MANY as f64).sqrt();
    assert!((fit.ks2_critical_05.expect("two samples") / scale - 0.006_073).abs() < 1e-6);
    assert!((fit.ks_critical_05.expect("one sample") / scale - 0.004_295).abs() < 1e-6);
    assert!(fit.ks2_d.expect("two samples") < 0.006_073 * scale);
}

#[test]
fn samples_uniformly_from_more_gaps_than_it_keeps() {
    let mut meter = FitMeter::new(Arc::new(Even), None);
    meter.most = MANY as usize / 50;
    let mut at = Time::ZERO;
    meter.record(at, FrameLen::MIN);
    // The gaps grow: only a sample of the whole run is spread evenly over the law.
    for i in 0..MANY {
        at += Span::from_ps(80_000_200 + i * (40_000_000 / MANY));
        meter.record(at, FrameLen::MIN);
    }
    let fit = meter.report().expect("gaps were recorded");
    assert_eq!((fit.count, fit.sampled_from), (MANY / 50, Some(MANY)));
    assert!(fit.p() > 0.01, "{fit:?}");
}

#[test]
fn computes_the_correlation_of_neighbours() {
    let fit = judge((0..1_000).map(|i| if i % 2 == 0 { 90_000_000 } else { 110_000_000 }));
    assert!((fit.lag1 + 1.0).abs() < 1e-9);
}
