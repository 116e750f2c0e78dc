//! Captures with coarse or unordered stamps, or with frames that were never on a line. The report states what the
//! stamps cannot show.

use crate::common::{Bench, Dialect, Record, caveat, words};

/// Measures a capture of frames 10.4 µs apart. Returns the report and stderr.
fn measured(nanoseconds: bool) -> (serde_json::Value, String) {
    let bench = Bench::new();
    let records: Vec<_> = (0..1_000).map(|i| Record::new(1_000_000_000 + u64::from(i) * 10_400, 64, i)).collect();
    bench.capture("in.pcap", Dialect { nanoseconds, ..Dialect::USUAL }, &records);
    let finished = bench.run(words("measure --pcap in.pcap --json"));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    (finished.report(), finished.stderr)
}

#[test]
fn warns_of_microsecond_stamps_only() {
    let (report, said) = measured(false);
    assert_eq!(caveat(&report, "stamp-step")["step_ns"], 1_000.0);
    assert!(said.contains("in.pcap") && said.contains("1 µs") && said.contains("nano"), "{said}");
    assert_eq!(report["warnings"].as_array().map(Vec::len), Some(1));
    // This is the reason for the warning: with coarse stamps no gap is 10 400 ns, although the mean is.
    let gap = &report["pipelines"][0]["gap"];
    assert!((gap["mean_ns"].as_f64().expect("a mean") - 10_400.0).abs() < 1.0);
    assert!(gap["min_ns"].as_f64() < Some(10_001.0) && gap["max_ns"].as_f64() > Some(10_999.0));

    let (report, said) = measured(true);
    assert_eq!((&caveat(&report, "stamp-step")["step_ns"], said.as_str()), (&1.0.into(), ""));
    assert!(report["warnings"].is_null());
}

#[test]
fn warns_of_merged_frames_and_disordered_records() {
    let bench = Bench::new();
    let said = |records: &[Record]| {
        bench.capture("in.pcap", Dialect::USUAL, records);
        let finished = bench.run(words("measure --pcap in.pcap --json"));
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        (finished.report(), finished.stderr)
    };
    let at = |i: u64| 1_000_000_000 + i * 10_000;
    let mut records: Vec<_> = (0..100).map(|i| Record::new(at(i.into()), 9_234, i)).collect();
    let (report, text) = said(&records);
    assert!(report["warnings"].is_null() && text.is_empty(), "jumbo frames are on lines: {text}");
    records[7] = Record::new(at(7), 65_226, 7);
    records[9] = Record::new(at(8) - 1, 64, 9);
    let (report, text) = said(&records);
    assert!(text.contains("1 record longer than any line carries, up to 65 2") && text.contains("tso off"), "{text}");
    assert_eq!(caveat(&report, "merged-records")["records"], 1, "{report}");
    assert_eq!(caveat(&report, "disordered-records")["records"], 1, "{report}");
    assert!(text.contains("1 record stamped earlier than the preceding record"), "{text}");
}

#[test]
fn a_clock_that_was_set_back_costs_one_gap_and_a_stray_stamp_one_frame() {
    let bench = Bench::new();
    let start = 1_700_000_000_000_000_000;
    let at = |ms: &[i64]| -> Vec<Record> {
        ms.iter().map(|ms| Record::new((start + ms * 1_000_000) as u64, 64, 0)).collect()
    };
    let arrivals = |ms: &[i64]| {
        bench.capture("in.pcap", Dialect { nanoseconds: true, ..Dialect::USUAL }, &at(ms));
        let finished = bench.run(words("gen --pcap in.pcap --out pcap:out.pcap --json"));
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let records = bench.records("out.pcap");
        let gaps: Vec<u64> = records.windows(2).map(|pair| (pair[1].ns - pair[0].ns) / 1_000_000).collect();
        (gaps, finished.report(), finished.stderr)
    };
    let (gaps, report, said) = arrivals(&[0, 1, 2, -18, -17, -16, -15]);
    assert_eq!(gaps, [1, 1, 0, 1, 1, 1]);
    assert_eq!(caveat(&report, "clock-steps")["steps"], 1, "{report}");
    assert_eq!(caveat(&report, "disordered-records")["records"], 1, "{report}");
    assert!(said.contains("clock set back 1 time") && caveat(&report, "stray-stamps").is_null(), "{said}");
    for stray in [3_600_000, -3_600_000] {
        let (gaps, report, said) = arrivals(&[0, 1, stray, 3, 4]);
        assert_eq!(gaps, [1, 0, 2, 1], "{stray}");
        assert_eq!(caveat(&report, "stray-stamps")["stamps"], 1, "{report}");
        assert_eq!(caveat(&report, "disordered-records")["records"], 1, "{report}");
        assert!(said.contains("1 lone stamp far off") && caveat(&report, "clock-steps").is_null(), "{said}");
    }
}
