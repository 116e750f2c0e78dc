//! What the commands promise in virtual time, judged by the files that they write and not by their own reports;
//! then the reports must agree.

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod common;

use common::{Bench, Dialect, Finished, Listed, Record, words};
use serde_json::Value;
use std::process::{Command, Stdio};

/// A model line, with the arithmetic of its byte times done anew.
#[derive(Clone, Copy)]
struct Line {
    name: &'static str,
    bps: u128,
}

/// Bit-picoseconds of a byte.
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
    /// Which byte time starts at `ps`; it must be one that does, to the rounding of a picosecond.
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

    /// Half a byte time in ps, and what rounding to whole picoseconds adds.
    fn half_byte(self) -> f64 {
        self.ps(0.5) + if BYTE.is_multiple_of(self.bps) { 0.0 } else { 1.0 }
    }
}

/// Shapes `in.pcap` onto a line and lists the frames.
fn shape(bench: &Bench, line: Line, how: &str) -> (Vec<Listed>, Value) {
    let command = words(&format!("shape --in pcap:in.pcap --out {},pcap=out.pcap,frames=out.csv {how}", line.name));
    let report = bench.report(command);
    (bench.listed("out.csv"), report)
}

/// Frames left in order with their bytes, stamped as listed.
fn check_bytes(bench: &Bench, listed: &[Listed]) {
    let (came, left) = (bench.records("in.pcap"), bench.records("out.pcap"));
    assert_eq!((came.len(), left.len()), (listed.len(), listed.len()));
    let epoch = came[0].ns;
    for ((came, left), listed) in came.iter().zip(&left).zip(listed) {
        assert!(came.bytes == left.bytes && came.original == left.original);
        assert_eq!(listed.length, u64::from(left.original + 4).max(64));
        assert!(((left.ns - epoch) * 1_000).abs_diff(listed.start_ps) <= 500, "stamps are rounded to the nearest ns");
    }
}

/// The largest distance in ps between a departure and its ask, k times `gap_ps`.
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

#[test]
fn a_gap_of_10_us_is_exact_to_the_picosecond() {
    let bench = Bench::new();
    let stream = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B";
    bench.report(["gen", "--out", "pcap:in.pcap", "--stream", stream, "--count", "100000", "--seed", "7"]);
    let sizes: Vec<_> = bench.records("in.pcap").iter().map(|record| record.original + 4).collect();
    assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&64), Some(&1518)));

    let (listed, report) = shape(&bench, WIRE_10G, "--gap 'fixed 10us'");
    assert_eq!(listed.len(), 100_000);
    assert!(listed.windows(2).all(|pair| pair[1].start_ps - pair[0].start_ps == 10_000_000));
    check_bytes(&bench, &listed);

    assert_eq!((&report["gap"]["count"], &report["starved"]), (&99_999.into(), &0.into()));
    for pointer in ["/gap/std_ns", "/gap/error/mean_ns", "/gap/error/max_ns", "/lateness/max", "/lateness/early_max"] {
        close(&report, pointer, 0.0, 0.0);
    }
    for pointer in ["/gap/mean_ns", "/gap/min_ns", "/gap/max_ns", "/gap/p50", "/gap/p999"] {
        close(&report, pointer, 10_000.0, 0.0);
    }
    assert_eq!(report["out"]["bytes"], listed.iter().map(|frame| frame.length).sum::<u64>());
}

#[test]
fn fillers_and_frames_tile_the_line() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 1_000);
    for (line, how) in [
        (WIRE_1G, "--gap 20us"),
        (WIRE_1G, "--rate 0.37Gbps --filler mac-control"),
        (WIRE_3G, "--gap 7us"),
        (WIRE_10G, "--gap 10us --filler self"),
        (WIRE_10G, "--gap 1234.567ns --filler blackhole=02:00:00:00:00:ff"),
        (WIRE_10G, "--rate 9.7Gbps"),
        (WIRE_10G, "--gap 650ns"),
        (WIRE_25G, "--rate 99%"),
        (WIRE_100G, "--gap 10us --filler self,align=8"),
        (WIRE_400G, "--rate 1.2Mpps"),
    ] {
        let keep = Line { name: &format!("{},fillers=keep", line.name).leak()[..], ..line };
        let (listed, report) = shape(&bench, keep, how);
        for pair in listed.windows(2) {
            let tiled = line.position(pair[0].start_ps) + pair[0].length + 20;
            assert_eq!(line.position(pair[1].start_ps), tiled, "{} {how}: {pair:?}", line.name);
        }
        let fillers: Vec<_> = listed.iter().filter(|frame| frame.filler).collect();
        assert!(fillers.iter().all(|filler| (64..=1518).contains(&filler.length)), "{} {how}", line.name);
        assert_eq!(listed.len() - fillers.len(), 1_000);
        assert_eq!(report["fillers"]["frames"], fillers.len());
        assert_eq!(report["fillers"]["bytes"], fillers.iter().map(|filler| filler.length).sum::<u64>());
        assert_eq!((&report["out"]["frames"], &report["underruns"]), (&1_000.into(), &0.into()));
        check_fillers(&bench, &listed, how);
    }
}

/// The receiver's capture holds fillers where the list says so, and they are of the kind that was asked.
fn check_fillers(bench: &Bench, listed: &[Listed], how: &str) {
    let left = bench.records("out.pcap");
    let came = bench.records("in.pcap");
    let mut data = came.iter();
    assert_eq!(left.len(), listed.len());
    for (record, listed) in left.iter().zip(listed) {
        assert_eq!(u64::from(record.original + 4), listed.length);
        if !listed.filler {
            assert_eq!(data.next().map(|came| &came.bytes), Some(&record.bytes));
        } else if how.contains("mac-control") {
            assert_eq!(record.bytes[12..14], [0x88, 0x08]);
        } else if how.contains("blackhole") {
            assert_eq!(record.bytes[..6], [2, 0, 0, 0, 0, 0xff]);
        } else {
            assert_eq!(record.bytes[..6], record.bytes[6..12]);
        }
    }
}

#[test]
fn any_gap_that_fits_is_kept_to_half_a_byte_time_without_drift() {
    for (size, cases) in [
        ("random 64B-1400B", &[(WIRE_10G, "1234.567ns", 1_234_567)][..]),
        (
            "random 64B-1518B",
            &[
                (WIRE_1G, "20us", 20_000_000),
                (WIRE_1G, "15000.001ns", 15_000_001),
                (WIRE_3G, "7777.777ns", 7_777_777),
                (WIRE_10G, "9999.999ns", 9_999_999),
                (WIRE_25G, "1234.567ns", 1_234_567),
                (WIRE_40G, "777.701ns", 777_701),
                (WIRE_100G, "333.333ns", 333_333),
                (WIRE_400G, "77.777ns", 77_777),
            ],
        ),
        (
            "9000B",
            &[(WIRE_10G, "8000.123ns", 8_000_123), (WIRE_25G, "5us", 5_000_000), (WIRE_100G, "1234.567ns", 1_234_567)],
        ),
    ] {
        let bench = Bench::new();
        bench.generate(size, 10_000);
        for (line, gap, gap_ps) in cases {
            let (listed, report) = shape(&bench, *line, &format!("--gap 'fixed {gap}'"));
            assert_eq!(listed.len(), 10_000);
            let error = worst_error(&listed, *gap_ps);
            assert!(error as f64 <= line.half_byte(), "{} {gap}: off by {error} ps", line.name);
            let late = report["lateness"]["max"]
                .as_f64()
                .expect("lateness")
                .max(report["lateness"]["early_max"].as_f64().expect("earliness"));
            assert!((late * 1_000.0 - error as f64).abs() < 0.5, "{} {gap}: {late} ns is reported", line.name);
            close(&report, "/gap/error/ask_ns", *gap_ps as f64 / 1e3, 0.0);
            check_bytes(&bench, &listed);
        }
    }
}

#[test]
fn where_no_filler_fits_departures_are_off_by_42_byte_times_at_most() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 20_000);
    for (line, gap, gap_ps) in [
        (WIRE_10G, "1234.567ns", 1_234_567),
        (WIRE_10G, "1230.4ns", 1_230_400),
        (WIRE_1G, "12304ns", 12_304_000),
        (WIRE_25G, "500ns", 500_000),
        (WIRE_3G, "4102ns", 4_102_000),
    ] {
        let (listed, report) = shape(&bench, line, &format!("--gap {gap}"));
        let error = worst_error(&listed, gap_ps);
        assert!(error as f64 <= line.ps(42.0) + line.half_byte(), "{} {gap}: off by {error} ps", line.name);
        assert!(error as f64 > line.half_byte(), "{} {gap} is a case in which errors are carried", line.name);
        assert!(report["carried"].as_u64() > Some(0) && report["shortfall"].is_null());
        let last = listed[19_999].start_ps;
        close(&report, "/gap/mean_ns", last as f64 / 1e3 / 19_999.0, 1e-9);
        assert!(last.abs_diff(19_999 * gap_ps) as f64 <= line.ps(42.0) + line.half_byte(), "the mean is exact");
    }
}

#[test]
fn a_gap_too_small_for_some_frames_keeps_its_mean() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 50_000);
    for (line, gap, gap_ps) in [(WIRE_10G, "800ns", 800_000), (WIRE_100G, "75ns", 75_000)] {
        let (listed, report) = shape(&bench, line, &format!("--gap {gap}"));
        let mean = listed[49_999].start_ps as f64 / 49_999.0;
        assert!((mean / f64::from(gap_ps) - 1.0).abs() < 1e-3, "{} {gap}: mean {mean} ps", line.name);
        assert!(report["crowded"].as_u64() > Some(0) && report["shortfall"].is_null(), "{report}");
        let ends = |frame: &Listed| line.position(frame.start_ps) + frame.length + 20;
        assert!(listed.windows(2).all(|pair| line.position(pair[1].start_ps) >= ends(&pair[0])));
    }
}

#[test]
fn a_gap_or_rate_that_cannot_be_had_gives_line_rate_and_says_so() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 20_000);
    let wire_bits: u64 =
        bench.records("in.pcap").iter().take(19_999).map(|record| u64::from(record.original + 24) * 8).sum();
    for (line, how, asked_ps) in [
        (WIRE_10G, "--gap 600ns", 600_000 * 19_999),
        (WIRE_1G, "--gap 100ns", 100_000 * 19_999),
        (WIRE_25G, "--rate 12Mpps", 19_999 * 1_000_000 / 12),
    ] {
        let (listed, report) = shape(&bench, line, how);
        for pair in listed.windows(2) {
            assert_eq!(line.position(pair[0].start_ps) + pair[0].length + 20, line.position(pair[1].start_ps));
        }
        let took = listed[19_999].start_ps;
        assert_eq!(u128::from(took), u128::from(wire_bits) * 1_000_000_000_000 / line.bps);
        close(&report, "/shortfall/obtained_share", asked_ps as f64 / took as f64, 1e-6);
        close(&report, "/shortfall/behind_ns", (took - asked_ps) as f64 / 1e3, 1.0);
    }
}

/// What a rate counts of a frame.
#[derive(Clone, Copy)]
enum Counted {
    Frame,
    Wire,
    Ip,
    One,
}

#[test]
fn rates_follow_the_integral_of_the_ask() {
    use Counted::{Frame, Ip, One, Wire};
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 50_000);
    for (line, rate, counted, per_second) in [
        (WIRE_10G, "3.7Gbps", Frame, 3.7e9),
        (WIRE_10G, "7Gbps", Frame, 7e9),
        (WIRE_10G, "500MB/s", Frame, 4e9),
        (WIRE_10G, "5Gbps wire", Wire, 5e9),
        (WIRE_10G, "2Gbps ip", Ip, 2e9),
        (WIRE_10G, "0.5Mpps", One, 5e5),
        (WIRE_10G, "37.5%", Wire, 3.75e9),
        (WIRE_10G, "100%", Wire, 10e9),
        (WIRE_1G, "0.37Gbps", Frame, 0.37e9),
        (WIRE_3G, "1.1Gbps wire", Wire, 1.1e9),
        (WIRE_25G, "9.99Gbps", Frame, 9.99e9),
        (WIRE_100G, "37Gbps", Frame, 37e9),
        (WIRE_400G, "30%", Wire, 120e9),
    ] {
        let (listed, report) = shape(&bench, line, &format!("--rate '{rate}'"));
        let amount = |frame: &Listed| match counted {
            Frame => frame.length as f64 * 8.0,
            Wire => (frame.length + 20) as f64 * 8.0,
            Ip => (frame.length - 18) as f64 * 8.0,
            One => 1.0,
        };
        let mut before = 0.0;
        for frame in &listed {
            let ask = before / per_second * 1e12;
            let off = (frame.start_ps as f64 - ask).abs();
            assert!(off <= line.ps(42.5) + 2.0, "{} {rate}: off by {off} ps at {}", line.name, frame.start_ps);
            before += amount(frame);
        }
        let last = &listed[49_999];
        let mean = (before - amount(last)) / last.start_ps as f64 * 1e12;
        assert!((mean / per_second - 1.0).abs() < 1e-6, "{} {rate}: the mean is {mean}", line.name);

        let bits: u64 = listed[..49_999].iter().map(|frame| frame.length * 8).sum();
        let bps = bits as f64 / last.start_ps as f64 * 1e12;
        close(&report, "/rate/mean_bps", bps, bps * 1e-9);
        assert!(report["shortfall"].is_null());
    }
}

#[test]
fn the_same_command_twice_gives_the_same_files() {
    for how in ["--gap 1234.567ns", "--rate 3.7Gbps --stage 'loss 3%' --stage 'delay 1ms'", "--rate 60%"] {
        let outputs = || {
            let bench = Bench::new();
            bench.generate("random 64B-1518B", 3_000);
            let out = "wire:10G,pcap=out.pcap,frames=out.csv,fillers=keep";
            let command = words(&format!("shape --in pcap:in.pcap --out {out} {how} --seed 99 --json"));
            let finished = bench.run(command);
            (bench.read("in.pcap"), bench.read("out.pcap"), bench.read("out.csv"), finished.stdout)
        };
        assert!(outputs() == outputs(), "{how}");
    }
    let bench = Bench::new();
    let made = |seed: &str| {
        let stream = "udp random 10.0.0.1-10.0.0.99:1-9 > 10.0.0.2:2000 size random 64B-1518B";
        bench.report(["gen", "--out", "pcap:a.pcap", "--stream", stream, "--count", "1000", "--seed", seed]);
        bench.read("a.pcap")
    };
    assert!(made("1") == made("1") && made("1") != made("2"));
}

#[test]
fn aligned_fillers_cancel_the_deficit_idle_count() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 10_000);
    for (name, bps, align) in [
        ("wire:10G,dic=on", 10_000, 4_u64),
        ("wire:25G,dic=on", 25_000, 4),
        ("wire:40G,dic=on", 40_000, 8),
        ("wire:100G,dic=on", 100_000, 8),
    ] {
        let line = line(name, bps);
        let (listed, _) = shape(&bench, line, &format!("--gap 10us --filler self,align={align}"));
        // 10 µs are 31 250 byte times at 25G, 7 812.5 lanes: such a MAC cannot do better than half a lane.
        let possible = if bps == 25_000 { 2 * line.ps(1.0) as u64 } else { 0 };
        assert_eq!(worst_error(&listed, 10_000_000), possible, "{name} align={align}");
        let (listed, _) = shape(&bench, line, &format!("--gap 10.24us --filler self,align={align}"));
        assert_eq!(worst_error(&listed, 10_240_000), 0, "{name} align={align}");

        // A gap that is no multiple of the lane: without alignment it is off by up to a lane less a byte.
        let bytes = 2_501;
        let gap_ps = bytes * line.ps(1.0) as u64;
        let (listed, _) = shape(&bench, line, &format!("--gap {gap_ps}ps"));
        let worst = listed.iter().zip(0..).map(|(frame, k)| frame.start_ps.abs_diff(k * gap_ps)).max();
        assert_eq!(worst, Some((align - 1) * line.ps(1.0) as u64), "{name}");
        assert!(listed.iter().all(|frame| line.position(frame.start_ps).is_multiple_of(align)), "{name}");
    }
    // 1G has no lanes.
    let (listed, _) = shape(&bench, line("wire:1G,dic=on", 1_000), "--gap 20008ns");
    assert_eq!(worst_error(&listed, 20_008_000), 0);
}

/// Arrivals in ns with silences and bursts, the same each time.
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

#[test]
fn a_starved_schedule_restarts_at_the_arrival() {
    let bench = Bench::new();
    let came = uneven_arrivals(5_000);
    bench.capture("in.pcap", Dialect::USUAL, &came);
    for (line, gap, gap_ps) in [
        (WIRE_10G, "10us", 10_000_000),
        (WIRE_10G, "2us", 2_000_000),
        (WIRE_1G, "15000.001ns", 15_000_001),
        (WIRE_100G, "1234.567ns", 1_234_567),
        (WIRE_3G, "9us", 9_000_000),
    ] {
        let (listed, report) = shape(&bench, line, &format!("--gap {gap}"));
        let (mut due, mut starved) = (0, 0_u64);
        for (frame, came_frame) in listed.iter().zip(&came) {
            let arrival = (came_frame.ns - came[0].ns) * 1_000;
            if arrival > due {
                starved += 1;
                due = arrival;
            }
            let off = frame.start_ps.abs_diff(due) as f64;
            // Less than a smallest filler may be idle before it: then it waits for one.
            let bound = if off <= line.half_byte() { line.half_byte() } else { line.ps(84.0) };
            assert!(off <= bound, "{} {gap}: off by {off} ps", line.name);
            assert!(frame.start_ps as f64 >= arrival as f64 - line.half_byte().max(1_000.0), "left before it came");
            due += gap_ps;
        }
        assert_eq!(report["starved"], starved, "{} {gap}", line.name);
        assert!(starved > 100);
        check_bytes(&bench, &listed);
    }
}

#[test]
fn frames_of_a_capture_never_leave_before_they_came() {
    let bench = Bench::new();
    let came = uneven_arrivals(5_000);
    bench.capture("in.pcap", Dialect::USUAL, &came);
    for (line, how) in [
        (WIRE_10G, ""),
        (WIRE_10G, "--gap 1ns"),
        (WIRE_10G, "--gap 100ns"),
        (WIRE_10G, "--rate 9Gbps"),
        (WIRE_10G, "--rate 100%"),
        (WIRE_25G, "--rate 20Gbps --pacer launch-time"),
        (WIRE_100G, "--gap 50ns"),
        (WIRE_400G, ""),
    ] {
        let (listed, _) = shape(&bench, line, how);
        for (frame, record) in listed.iter().zip(&came) {
            let arrival = (record.ns - came[0].ns) * 1_000;
            assert!(frame.start_ps + 1_000 >= arrival, "{} {how}: at {} of {arrival}", line.name, frame.start_ps);
        }
        check_bytes(&bench, &listed);
    }
}

#[test]
fn delays_are_exact_and_add_up() {
    let bench = Bench::new();
    let came = uneven_arrivals(2_000);
    bench.capture("in.pcap", Dialect::USUAL, &came);
    for (stages, by) in [
        ("--stage 'delay 50ms'", 50_000_000),
        ("--stage 'delay 1us' --stage 'delay 999us' --stage 'delay 0s'", 1_000_000),
        ("--stage 'delay 3s'", 3_000_000_000),
    ] {
        let report = bench.report(words(&format!("shape --in pcap:in.pcap --out pcap:out.pcap {stages}")));
        let left = bench.records("out.pcap");
        assert_eq!((left.len(), &report["held"]), (2_000, &0.into()));
        for (came, left) in came.iter().zip(&left) {
            assert!(left.ns == came.ns + by && left.bytes == came.bytes, "{stages}");
        }
    }
}

#[test]
fn losses_are_as_many_as_asked_and_seeded() {
    let bench = Bench::new();
    bench.generate("64B", 50_000);
    let sequence = |seed: &str, stage: &str| {
        let report =
            bench.report(["shape", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--stage", stage, "--seed", seed]);
        let left = bench.records("out.pcap");
        let lost = report["drops"]["loss"].as_u64().unwrap_or(0);
        assert_eq!((&report["out"]["frames"], lost), (&left.len().into(), 50_000 - left.len() as u64));
        left.into_iter().map(|record| record.bytes).collect::<Vec<_>>()
    };
    for (stage, share) in [("loss 0%", 0.0), ("loss 0.1%", 0.001), ("loss 20%", 0.2), ("loss 100%", 1.0)] {
        let lost = 50_000.0 - sequence("3", stage).len() as f64;
        let sigma = f64::sqrt(50_000.0 * share * (1.0 - share));
        assert!((lost - 50_000.0 * share).abs() <= 4.0 * sigma, "{stage}: {lost} lost");
    }
    assert!(sequence("3", "loss 20%") == sequence("3", "loss 20%"));
    assert!(sequence("3", "loss 20%") != sequence("4", "loss 20%"));
}

#[test]
fn a_duration_cuts_with_balanced_books() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 20_000);
    for (how, end) in [
        ("--gap 10us --duration 100ms", 100_000_000_000),
        ("--gap 10us --duration 99.999999ms", 99_999_999_000),
        ("--rate 1Gbps --duration 1ms --stage 'delay 300us' --stage 'loss 10%'", 1_000_000_000),
        ("--duration 5us", 5_000_000),
        ("--stage 'delay 10ms' --duration 1ms", 1_000_000_000),
        ("--gap 10us --duration 0s", 0),
    ] {
        let (listed, report) = shape(&bench, WIRE_10G, how);
        assert!(listed.iter().all(|frame| frame.start_ps < end.max(1)), "{how}");
        assert!(listed.len() < 20_000, "{how}");
        assert_eq!(report["out"]["frames"], listed.len());
        if how.starts_with("--gap 10us") {
            assert_eq!(listed.len() as u64, end.div_ceil(10_000_000), "{how}");
        }
    }
    let report =
        bench.report(words("gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --rate 1Mpps --duration 10ms"));
    assert_eq!(report["out"]["frames"], 10_000, "one at the start, none at the very end");
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let bench = Bench::new();
    bench.generate("600B", 100_000);
    let limited = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -d 32768 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_netlathe")]).args(words(line));
        shell.current_dir(bench.path("")).stdin(Stdio::null());
        Finished::of(shell.output().expect("a shell"))
    };
    assert!(bench.read("in.pcap").len() > 60_000_000, "more than the limit allows to hold");
    for line in [
        "shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap,frames=out.csv --gap 2us --json",
        "shape --in pcap:in.pcap --out pcap:out.pcapng --rate 100Mbps --stage 'delay 1us' --json",
        "shape --in pcap:out.pcapng --out null --json",
        "measure --pcap in.pcap --write out.pcap --json",
        "gen --out pcap:out.pcap --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1500B' --count 50000 --json",
    ] {
        let finished = limited(line);
        assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{line}");
        finished.report();
    }
    let held = limited("shape --in pcap:in.pcap --out null --stage 'delay 1000s' --json");
    assert_ne!(held.status, Some(0), "the limit is real: who holds the whole file exceeds it");
}

#[test]
fn every_dialect_of_capture_gives_the_same() {
    let bench = Bench::new();
    // Whole microseconds, so that every dialect can say it.
    let records: Vec<Record> =
        (0..500).map(|i| Record::new(1_700_000_000_000_000_000 + u64::from(i * i) * 1_000, 64 + i, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    bench.report(words("shape --in pcap:in.pcap --out pcap:in.pcapng"));
    let mut names = vec!["in.pcap".to_owned(), "in.pcapng".to_owned()];
    for big_endian in [false, true] {
        for nanoseconds in [false, true] {
            let name = format!("big-{big_endian}-ns-{nanoseconds}.pcap");
            bench.capture(&name, Dialect { big_endian, nanoseconds, link_type: 1 }, &records);
            names.push(name);
        }
    }
    for name in names {
        bench.report(["shape", "--in", &format!("pcap:{name}"), "--out", "pcap:out.pcap"]);
        assert!(bench.records("out.pcap") == records, "{name}");
    }
    let block = &bench.read("in.pcapng")[..4];
    assert_eq!(block, [0x0a, 0x0d, 0x0d, 0x0a]);
}

#[test]
fn cut_records_count_with_their_original_length() {
    let bench = Bench::new();
    let whole: Vec<Record> = (0..2_000).map(|i| Record::new(i, 64 + (i as u32 * 37) % 1_455, i as u32)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &whole);
    let (expected, report) = shape(&bench, WIRE_10G, "--rate 3.7Gbps");
    for snap in [18, 60, 128] {
        let mut cut = whole.clone();
        cut.iter_mut().for_each(|record| record.bytes.truncate(snap));
        bench.capture("in.pcap", Dialect::USUAL, &cut);
        let (listed, cut_report) = shape(&bench, WIRE_10G, "--rate 3.7Gbps");
        assert!(listed == expected && cut_report == report, "snap length {snap}");
        check_bytes(&bench, &listed);
        bench.report(words("shape --in pcap:in.pcap --out pcap:out.pcapng"));
        bench.report(words("shape --in pcap:out.pcapng --out pcap:back.pcap"));
        assert!(bench.records("back.pcap") == cut, "pcapng keeps both lengths");
    }
}

#[test]
fn measure_tells_hits_from_misses() {
    let bench = Bench::new();
    bench.generate("500B", 20_000);
    bench.report(words("shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap --gap 10us"));
    let status = |how: &str| {
        let finished = bench.run(words(&format!("measure --pcap out.pcap --json {how}")));
        close(&finished.report()["pipelines"][0], "/gap/mean_ns", 10_000.0, 0.0);
        let said = finished.complaints().len();
        assert_eq!(said, usize::from(finished.status == Some(1)), "{how}: {}", finished.stderr);
        finished.status
    };
    // 500 B every 10 µs: 400 Mbit/s of frames, 416 on the wire, 100 kpps.
    for (hit, expected) in [
        ("10us", Some(0)),
        ("'fixed 10us'", Some(0)),
        ("'fixed 10.0099us'", Some(0)),
        ("'fixed 10.0101us'", Some(1)),
        ("'fixed 9.9901us'", Some(0)),
        ("'fixed 9.9899us'", Some(1)),
        ("400Mbps", Some(0)),
        ("400.3Mbps", Some(0)),
        ("400.5Mbps", Some(1)),
        ("399.5Mbps", Some(1)),
        ("50MB/s", Some(0)),
        ("'416Mbps wire'", Some(0)),
        ("'400Mbps wire'", Some(1)),
        ("100kpps", Some(0)),
        ("100.2kpps", Some(1)),
        ("'const 0.1Mpps'", Some(0)),
        ("'fixed 11us' --tolerance 10%", Some(0)),
        ("'fixed 11.2us' --tolerance 10%", Some(1)),
        ("10.001us --tolerance 0%", Some(1)),
    ] {
        assert_eq!(status(&format!("--expect {hit}")), expected, "{hit}");
    }
}

#[test]
fn measure_wants_gaps_near_and_not_only_their_mean() {
    let bench = Bench::new();
    for (every, status) in [(10, Some(1)), (30, Some(0))] {
        // One frame in `every` is 5 µs late: two gaps in `every` are bad, the mean is not.
        let late = |i: u64| if i % every == 5 { 5_000 } else { 0 };
        let records: Vec<Record> = (0..1_000).map(|i| Record::new(i * 10_000 + late(i), 100, i as u32)).collect();
        bench.capture("a.pcap", Dialect::USUAL, &records);
        let finished = bench.run(words("measure --pcap a.pcap --expect 10us --json"));
        assert_eq!(finished.status, status, "{}", finished.stderr);
    }
}

#[test]
fn measure_writes_what_it_read() {
    let bench = Bench::new();
    let records = uneven_arrivals(1_000);
    bench.capture("a.pcap", Dialect::USUAL, &records);
    let report = bench.report(words("measure --pcap a.pcap --write b.pcap --count 900"));
    assert_eq!(report["in"]["frames"], 900);
    assert!(bench.records("b.pcap") == records[..900]);
    bench.report(words("measure --in pcap:a.pcap --write b.pcap --duration 1ms"));
    let written = bench.records("b.pcap");
    assert!(written == records[..written.len()] && written.len() < 900);
    assert!(written.iter().all(|record| record.ns - records[0].ns <= 1_000_000));
}

const SCENARIO: &str = r#"
schema = 1
seed = 5

[[pipeline]]
name = "made"
stream = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B"
count = 5000
out = "wire:10G,frames=made.csv"
gap = "fixed 10us"

[[pipeline]]
name = "file"
in = "pcap:in.pcap"
out = "wire:25G,frames=file.csv"
rate = "3.7Gbps"
stages = ["delay 1ms", "loss 10%"]
filler = "mac-control,align=4"

[[expect]]
that = "made.gap.error.max_ns < 1ns"
[[expect]]
that = "file.rate.mean_bps > 3.6Gbps"
[[expect]]
that = "file.drops.loss > 100"
[[expect]]
that = "made.out.frames == 5000"
"#;

#[test]
fn a_scenario_runs_and_its_expectations_are_checked() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 3_000);
    bench.write("good.toml", SCENARIO);
    let finished = bench.run(["run", "good.toml", "--json"]);
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    let report = finished.report();
    let names: Vec<_> =
        report["pipelines"].as_array().expect("two").iter().map(|pipeline| pipeline["name"].as_str()).collect();
    assert_eq!((names, report["command"].as_str()), (vec![Some("made"), Some("file")], Some("run")));
    assert_eq!(worst_error(&bench.listed("made.csv"), 10_000_000), 0);
    assert_eq!(
        bench.listed("file.csv").len() as u64,
        report["pipelines"][1]["out"]["frames"].as_u64().expect("a count")
    );

    bench.write("missed.toml", SCENARIO.replace("== 5000", "== 4999").replace("> 100\"", "< 100\""));
    let missed = bench.run(["run", "missed.toml", "--json"]);
    assert_eq!((missed.status, missed.stderr.lines().count()), (Some(1), 2), "{}", missed.stderr);
    assert!(missed.stderr.contains("made.out.frames == 4999") && missed.stderr.contains("5000"));
    assert_eq!(missed.stdout, finished.stdout, "the report is the same");

    let other = bench.run(["run", "good.toml", "--json", "--seed", "6"]);
    assert_ne!(other.stdout, finished.stdout, "--seed beats the file's");
    assert_eq!(bench.run(["run", "good.toml", "--json", "--seed", "5"]).stdout, finished.stdout);
}

#[test]
fn an_expectation_of_no_drops_holds_where_there_are_none() {
    let bench = Bench::new();
    let scenario = |that: &str| SCENARIO.replace("file.drops.loss > 100", that).replace("loss 10%", "loss 0%");
    bench.generate("random 64B-1518B", 1_000);
    bench.write("a.toml", scenario("file.drops.loss == 0"));
    let finished = bench.run(["run", "a.toml", "-q"]);
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    bench.write("a.toml", scenario("file.drops.los == 0"));
    let finished = bench.run(["run", "a.toml", "-q"]);
    assert!(finished.status == Some(1) && finished.stderr.contains("no such figure"), "{}", finished.stderr);
}

#[test]
fn what_check_prints_is_a_scenario_that_check_prints_again() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 1_000);
    let odd_names = SCENARIO.replace("\"made\"", r#""made e\u0301 \"x\" \\ 'y'""#);
    // Files may have any name.
    let odd_names = odd_names.replace("made.csv\"", r#"made \u0001 \u007f.csv""#);
    assert!(odd_names.contains("\\u0001"), "{odd_names}");
    let odd_names =
        odd_names.replace("that = \"made.", "that = 'file.").replace("ns\"", "ns'").replace("5000\"", "5000'");
    let odd_names = odd_names.replace("file.gap.error.max_ns < 1ns", "file.held == 0");
    for (i, scenario) in [SCENARIO, &odd_names].iter().enumerate() {
        bench.write("a.toml", scenario);
        let printed = bench.run(["check", "a.toml"]);
        assert_eq!((printed.status, printed.stderr.as_str()), (Some(0), ""), "{i}: {scenario}");
        bench.write("b.toml", &printed.stdout);
        let again = bench.run(["check", "b.toml"]);
        assert_eq!(again.stderr, "", "{i}: {}", printed.stdout);
        assert_eq!(again.stdout, printed.stdout, "{i}");
        let run = |name| bench.run(["run", name, "--json"]).stdout;
        assert_eq!(run("a.toml"), run("b.toml"), "{i}");
    }
    assert!(!bench.files().contains(&"nothing".to_owned()));
}

#[test]
fn people_and_scripts_read_the_same_figures() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 1_000);
    let finished = bench.run(words("shape --in pcap:in.pcap --out wire:10G --gap 10us"));
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    assert!(finished.stdout.contains("1 000 frames") && finished.stdout.contains("10 µs"), "{}", finished.stdout);
    let quiet = bench.run(words("shape --in pcap:in.pcap --out wire:10G --gap 10us -q"));
    assert_eq!((quiet.status, quiet.stdout.as_str()), (Some(0), ""));
}

#[test]
fn a_disk_that_is_full_costs_no_report() {
    let bench = Bench::new();
    bench.generate("100B", 20_000);
    for (file, line, most) in [
        ("copy.pcap", "measure --pcap in.pcap --write copy.pcap", 19_999),
        ("log.csv", "emulate --in pcap:in.pcap --out null --forward 'delay 1ms' --decisions log.csv", 20_000),
    ] {
        // Files of 32 KiB at the most; writing more is an error as on a full disk.
        let line = format!("ulimit -f 64; exec {} {line} --json", env!("CARGO_BIN_EXE_netlathe"));
        let output = Command::new("sh").args(["-c", &line]).current_dir(bench.path("")).output();
        let finished = Finished::of(output.expect("sh is there"));
        assert_eq!(finished.status, Some(2), "{}", finished.stderr);
        let complaints = finished.complaints();
        assert!(complaints.len() == 1 && complaints[0].contains(file), "{complaints:?}");
        let report = finished.report();
        assert!((100..=most).contains(&report["pipelines"][0]["out"]["frames"].as_u64().expect("a count")), "{report}");
    }
}

#[test]
fn a_page_that_cannot_be_written_hides_nothing_else() {
    let bench = Bench::new();
    bench.generate("100B", 20_000);
    let line = "ulimit -f 16; exec";
    let line =
        format!("{line} {} shape --in pcap:in.pcap --out pcap:out.pcap --report page", env!("CARGO_BIN_EXE_netlathe"));
    let output = Command::new("sh").args(["-c", &line]).current_dir(bench.path("")).output();
    let finished = Finished::of(output.expect("sh is there"));
    assert_eq!(finished.status, Some(2), "{}", finished.stderr);
    let complaints = finished.complaints();
    assert!(complaints.len() == 2 && complaints[0].contains("out.pcap"), "{complaints:?}");
    assert!(complaints[1].contains("report.html") && finished.stdout.contains("out "), "{complaints:?}");
}

#[test]
fn what_names_hold_does_not_reach_the_terminal() {
    let bench = Bench::new();
    bench.write(
        "scenario.toml",
        "schema = 1\n[[pipeline]]\nname = \"a\\u001b[2Jb\\u0007\"\nin = \"pcap:x\"\nout = \"null\"\n",
    );
    for (arguments, shown) in [
        (["shape", "--in", "pcap:\u{1b}[31mred.pcap", "--out", "null"], r"\u{1b}[31mred.pcap"),
        (["measure", "--pcap", "a\rb\u{9b}c.pcap", "--progress", "never"], r"a\rb\u{9b}c.pcap"),
        (["gen", "--out", "null", "--pcap", "two\nlines.pcap"], "lines.pcap"),
        (["run", "\u{8}scenario", "--progress", "never", "-q"], r"\u{8}scenario"),
        (["run", "scenario.toml", "--progress", "never", "-q"], ""),
    ] {
        let finished = bench.run(arguments);
        assert_eq!(finished.status, Some(2), "{arguments:?}");
        assert!(finished.stderr.contains(shown), "{arguments:?}: {:?}", finished.stderr);
        for line in finished.stderr.lines() {
            assert!(line.starts_with("netlathe: ") && !line.contains(char::is_control), "{arguments:?}: {line:?}");
        }
    }
}
