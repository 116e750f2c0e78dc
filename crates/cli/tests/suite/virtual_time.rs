//! Tests of commands in virtual time against the files that they write. The reports must agree with the files.

mod captures;
mod departures;
mod reports;
mod runs;
mod scenarios;
mod timeline;

use crate::common::{Bench, Listed, Record, words};
use serde_json::Value;

/// A model line. It computes byte times independently of netlathe.
#[derive(Clone, Copy)]
struct Line {
    name: &'static str,
    bps: u128,
}

/// Duration of a byte in ps, times the bit rate.
const BYTE: u128 = 8_000_000_000_000;

const fn line(name: &'static str, mbps: u128) -> Line {
    Line { name, bps: mbps * 1_000_000 }
}

const WIRE_1G: Line = line("wire:1G", 1_000);
const WIRE_3G: Line = line("wire:3G", 3_000);
const WIRE_10G: Line = line("wire:10G", 10_000);
const WIRE_25G: Line = line("wire:25G", 25_000);
const WIRE_40G: Line = line("wire:40G", 40_000);
const WIRE_100G: Line = line("wire:100G", 100_000);
const WIRE_400G: Line = line("wire:400G", 400_000);

impl Line {
    /// The number of the byte time that starts at `ps`. Panics if none starts there, within the rounding to a
    /// picosecond.
    fn position(self, ps: u64) -> u64 {
        let position = (u128::from(ps) * self.bps + BYTE / 2) / BYTE;
        let off = (position * BYTE).abs_diff(u128::from(ps) * self.bps);
        assert!(2 * off <= self.bps, "{ps} ps is not the start of a byte time of {}", self.name);
        position as u64
    }

    /// `bytes` byte times in ps, rounded up.
    fn ps(self, bytes: f64) -> f64 {
        (bytes * BYTE as f64 / self.bps as f64).ceil()
    }

    /// Half a byte time in ps, plus the rounding error of whole picoseconds.
    fn half_byte(self) -> f64 {
        self.ps(0.5) + if BYTE.is_multiple_of(self.bps) { 0.0 } else { 1.0 }
    }
}

/// Shapes `in.pcap` onto a line and returns the frame list and the report.
fn shape(bench: &Bench, line: Line, how: &str) -> (Vec<Listed>, Value) {
    let command = words(&format!("shape --in pcap:in.pcap --out {},pcap=out.pcap,frames=out.csv {how}", line.name));
    let report = bench.report(command);
    (bench.listed("out.csv"), report)
}

/// Checks that the frames left in order with the same bytes, stamped as listed.
fn check_bytes(bench: &Bench, listed: &[Listed]) {
    let (arrived, left) = (bench.records("in.pcap"), bench.records("out.pcap"));
    assert_eq!((arrived.len(), left.len()), (listed.len(), listed.len()));
    let epoch = arrived[0].ns;
    for ((arrived, left), listed) in arrived.iter().zip(&left).zip(listed) {
        assert!(arrived.bytes == left.bytes && arrived.original == left.original);
        assert_eq!(listed.length, u64::from(left.original + 4).max(64));
        assert!(((left.ns - epoch) * 1_000).abs_diff(listed.start_ps) <= 500, "stamps are rounded to the nearest ns");
    }
}

/// The largest distance in ps between a departure and its target, k times `gap_ps`.
fn worst_error(listed: &[Listed], gap_ps: u64) -> u64 {
    let first = listed[0].start_ps;
    let errors = listed.iter().zip(0..).map(|(frame, k)| (frame.start_ps - first).abs_diff(k * gap_ps));
    errors.max().expect("frames")
}

#[track_caller]
fn close(report: &Value, pointer: &str, expected: f64, tolerance: f64) {
    let value = report.pointer(pointer).and_then(Value::as_f64).expect(pointer);
    assert!((value - expected).abs() <= tolerance, "{pointer} is {value}, not {expected}");
}

/// Arrivals in ns with pauses and bursts, the same on each call.
fn uneven_arrivals(frames: u32) -> Vec<Record> {
    let mut state = 0x9e37_79b9_u32;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut ns = 1_700_000_000_000_000_123;
    let mut records = Vec::new();
    for number in 0..frames {
        ns += match draw(10) {
            0 => 100_000 + u64::from(draw(1_000_000)),
            1..=4 => u64::from(draw(100)),
            _ => u64::from(draw(12_000)),
        };
        records.push(Record::new(ns, 64 + draw(1_455), number));
    }
    records
}
