//! When frames leave on a model line: gaps, rates and fillers, in byte times.

use super::{
    Line, WIRE_1G, WIRE_3G, WIRE_10G, WIRE_25G, WIRE_40G, WIRE_100G, WIRE_400G, check_bytes, close, line, shape,
    worst_error,
};
use crate::common::{Bench, Listed};

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
    for pointer in
        ["/gap/std_ns", "/gap/error/mean_ns", "/gap/error/max_ns", "/lateness/max_ns", "/lateness/early_max_ns"]
    {
        close(&report, pointer, 0.0, 0.0);
    }
    for pointer in ["/gap/mean_ns", "/gap/min_ns", "/gap/max_ns", "/gap/p50_ns", "/gap/p999_ns"] {
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

/// Checks that the capture holds fillers where the list says so, and that they are of the requested kind.
fn check_fillers(bench: &Bench, listed: &[Listed], how: &str) {
    let left = bench.records("out.pcap");
    let arrived = bench.records("in.pcap");
    let mut data = arrived.iter();
    assert_eq!(left.len(), listed.len());
    for (record, listed) in left.iter().zip(listed) {
        assert_eq!(u64::from(record.original + 4), listed.length);
        if !listed.filler {
            assert_eq!(data.next().map(|arrived| &arrived.bytes), Some(&record.bytes));
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
            let late = report["lateness"]["max_ns"]
                .as_f64()
                .expect("lateness")
                .max(report["lateness"]["early_max_ns"].as_f64().expect("earliness"));
            assert!((late * 1_000.0 - error as f64).abs() < 0.5, "{} {gap}: {late} ns is reported", line.name);
            close(&report, "/gap/error/asked_ns", *gap_ps as f64 / 1e3, 0.0);
            check_bytes(&bench, &listed);
        }
    }
}

#[test]
fn without_room_for_a_filler_departures_err_by_at_most_42_byte_times() {
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
fn impossible_gap_or_rate_runs_at_line_rate_with_a_warning() {
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
        close(&report, "/shortfall/obtained_ratio", asked_ps as f64 / took as f64, 1e-6);
        close(&report, "/shortfall/behind_ns", (took - asked_ps) as f64 / 1e3, 1.0);
    }
}

/// The bytes of a frame that a rate counts.
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
        // At 25G, 10 µs are 31 250 byte times or 7 812.5 lanes. Such a MAC cannot do better than half a lane.
        let possible = if bps == 25_000 { 2 * line.ps(1.0) as u64 } else { 0 };
        assert_eq!(worst_error(&listed, 10_000_000), possible, "{name} align={align}");
        let (listed, _) = shape(&bench, line, &format!("--gap 10.24us --filler self,align={align}"));
        assert_eq!(worst_error(&listed, 10_240_000), 0, "{name} align={align}");

        // The gap is not a multiple of the lane. Without alignment it is off by up to a lane minus a byte.
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
