//! Runs one scheme for twenty samples of two seconds.

use crate::traffic::{Group, Prepared, Traffic};
use engine::Outlet;
use engine::stages::{Item, StageConfig};
use measure::WorkerLoad;
use units::{Span, Time};

const SAMPLES: usize = 20;
const SAMPLE: Span = Span::from_ms(2_000);
const LIMIT: f64 = 1e6;
const BURST: usize = 32;

/// Results of a run.
pub(crate) struct Samples {
    /// Bits of the observed user, per sample.
    bits: [u64; SAMPLES],
    /// Frames that were dropped although their users stayed below their limit.
    pub(crate) lost: u64,
    pub(crate) frames: u64,
    pub(crate) loads: Vec<WorkerLoad>,
}

/// Sends the traffic of the groups through a stage. The last group is the observed user.
pub(crate) fn run(groups: &[Group; 3], scheme: &str, workers: usize) -> Samples {
    let text = format!("limit key dst-ip rate 1Mbps burst 3036B users 20481 algorithm {scheme} workers {workers}");
    let config = StageConfig::parse(&text).expect("a stage");
    let mut stage = config.build::<Prepared>(7, "bench");
    let mut traffic = Traffic::new(groups, 7);
    let end = Time::ZERO + SAMPLE * SAMPLES as u64;
    let observed = groups[2].first;
    let normal = groups[0].first..groups[0].first + groups[0].users;
    let mut samples = Samples { bits: [0; SAMPLES], lost: 0, frames: 0, loads: Vec::new() };
    let mut out = Outlet::default();
    let mut batch = Vec::with_capacity(BURST);
    loop {
        let (at, frame) = traffic.next();
        if at >= end {
            break;
        }
        samples.frames += 1;
        batch.push(Item { frame, at });
        if batch.len() == BURST {
            while let Some(due) = stage.deadline().filter(|due| *due <= at) {
                stage.wake(due, &mut out);
            }
            stage.push(at, &mut batch, &mut out);
            samples.take(&mut out, observed, &normal);
        }
    }
    stage.push(end, &mut batch, &mut out);
    while let Some(due) = stage.deadline() {
        stage.wake(due, &mut out);
    }
    samples.take(&mut out, observed, &normal);
    let StageConfig::Limit(limit) = &config else { unreachable!("it was read as one") };
    samples.loads = limit.report().map(|report| report.workers).unwrap_or_default();
    samples
}

impl Samples {
    fn take(&mut self, out: &mut Outlet<Prepared>, observed: u32, normal: &std::ops::Range<u32>) {
        let (released, dropped) = out.drain();
        for item in released {
            if item.frame.to() == observed {
                self.bits[(item.at.as_ps() / SAMPLE.as_ps()) as usize] +=
                    u64::from(packet::Frame::length(&item.frame).bytes()) * 8;
            }
        }
        self.lost += dropped.filter(|(frame, _)| normal.contains(&frame.to())).count() as u64;
    }

    /// Rate of each sample in Mbit/s, without the first sample.
    pub(crate) fn mbps(&self) -> Vec<f64> {
        self.bits[1..].iter().map(|bits| *bits as f64 / SAMPLE.as_secs_f64() / 1e6).collect()
    }

    /// Mean rate ÷ limit.
    pub(crate) fn mean(&self) -> f64 {
        self.mbps().iter().sum::<f64>() * 1e6 / LIMIT / (SAMPLES - 1) as f64
    }

    /// Largest relative error of a sample.
    pub(crate) fn worst(&self) -> f64 {
        self.mbps().iter().map(|mbps| (mbps * 1e6 / LIMIT - 1.0).abs()).fold(0.0, f64::max)
    }
}
