//! `netlathe limit` on the command line, in virtual time. The passed traffic is summed from the capture alone.

use crate::common::{Bench, Dialect, Record, words};
use std::collections::BTreeMap;

/// A UDP frame to 10.0.`to` of `length` bytes with FCS, at `ns`.
fn record(ns: u64, to: u16, length: u32) -> Record {
    let mut bytes = vec![2; 12];
    bytes.extend([0x08, 0, 0x45, 0]);
    bytes.extend((length as u16 - 18).to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0]);
    bytes.extend(to.to_be_bytes());
    bytes.resize(length as usize - 4, 0);
    Record { ns, original: bytes.len() as u32, bytes }
}

/// A small version of the mix in reference 001: users at 0.5, 1.5 and 2 Mbit/s, with varying sizes.
fn mix(bench: &Bench, seconds: u64) {
    let mut records = Vec::new();
    let mut sizes = 1_u64;
    for (first, users, bps) in [(0, 16, 500_000), (100, 4, 1_500_000), (200, 1, 2_000_000)] {
        let (mut ps, mut i) = (0_u64, 0_u64);
        while ps < seconds * 1_000_000_000_000 {
            sizes = sizes.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let length = 64 + (sizes >> 40) % 1_437;
            records.push(record(ps / 1_000, (first + i % users) as u16, length as u32));
            ps += length * 8 * 1_000_000_000_000 / (bps * users);
            i += 1;
        }
    }
    records.sort_by_key(|record| record.ns);
    bench.capture("in.pcap", Dialect::USUAL, &records);
}

/// Bits of each user in samples of two seconds, without the first sample.
fn samples(records: &[Record], last: u64) -> BTreeMap<u8, Vec<u64>> {
    let mut samples = BTreeMap::new();
    for record in records {
        let sample = record.ns / 2_000_000_000;
        if (1..last).contains(&sample) {
            let of_user = samples.entry(record.bytes[33]).or_insert_with(|| vec![0; last as usize - 1]);
            of_user[sample as usize - 1] += u64::from(record.original + 4) * 8;
        }
    }
    samples
}

#[test]
fn the_experiment_of_reference_001_made_small() {
    let bench = Bench::new();
    mix(&bench, 20);
    let sent: u64 = bench.records("in.pcap").iter().filter(|record| record.bytes[33] < 100).count() as u64;
    let mut first = None;
    for (algorithm, workers) in [("gcra", 1), ("gcra", 64), ("atomic-queue", 8), ("static", 8), ("mutex", 64)] {
        let line = format!(
            "limit --in pcap:in.pcap --out pcap:out.pcap --key dst-ip --rate 1Mbps --mode police --burst 3036B --users 100 \
             --algorithm {algorithm} --workers {workers}"
        );
        let report = bench.report(words(&line));
        let out = bench.records("out.pcap");
        let got = samples(&out, 10);
        for (user, samples) in got.iter().filter(|(user, _)| **user >= 100) {
            let mean = samples.iter().sum::<u64>() as f64 / samples.len() as f64;
            assert!((mean / 2e6 - 1.0).abs() < 0.0008, "{algorithm} {workers} user {user}: {mean}");
            for sample in samples {
                assert!((*sample as f64 / 2e6 - 1.0).abs() <= 0.0092, "{algorithm} {workers} user {user}: {sample}");
            }
        }
        let kept = out.iter().filter(|record| record.bytes[33] < 100).count() as u64;
        assert_eq!(kept, sent, "users under their limit lose nothing");
        assert_eq!(report["limit"]["users"]["present"], 21);
        assert_eq!(report["limit"]["exceeding"]["frames"], report["drops"]["policed"]);
        assert_eq!(first.get_or_insert(out.clone()), &out, "{algorithm} {workers}");
    }
}

#[test]
fn rates_from_ten_kilobits_to_ten_gigabits_are_kept_to_a_frame() {
    let bench = Bench::new();
    for (rate, bps) in
        [("10kbps", 10_000_u64), ("333333bps", 333_333), ("1Gbps", 1_000_000_000), ("10Gbps", 10_000_000_000)]
    {
        // One user at twice the rate, one at half, frames of 1 000 B.
        let gap = 1_000 * 8 * 1_000_000_000 / (bps * 2);
        let of_both =
            |i| std::iter::once(record(i * gap, 1, 1_000)).chain((i % 4 == 0).then(|| record(i * gap, 2, 1_000)));
        bench.capture("in.pcap", Dialect::USUAL, &(0..5_000).flat_map(of_both).collect::<Vec<Record>>());
        let allowed = bps as f64 * (4_999 * gap) as f64 / 8e9 + 3_036.0;
        // At most of these rates, the frames of a flow are nanoseconds apart, so several workers process them at once.
        for (algorithm, workers) in
            [("gcra", 1), ("gcra", 8), ("gcra", 64), ("mutex", 64), ("static", 8), ("atomic-queue", 8)]
        {
            let report = bench.report(words(&format!(
                "limit --in pcap:in.pcap --out pcap:out.pcap --key dst-ip --rate {rate} --mode police --burst 3036B --users 2 \
                 --algorithm {algorithm} --workers {workers}"
            )));
            let of =
                |user| bench.records("out.pcap").iter().filter(|record| record.bytes[33] == user).count() as f64 * 1e3;
            assert!(
                of(1) <= allowed && of(1) > allowed - 1_000.0,
                "{rate} {algorithm} {workers}: {} of {allowed}",
                of(1)
            );
            assert!((of(2) - 1.25e6).abs() < 1e-9, "{rate} {algorithm} {workers}: it is under its limit: {report}");
        }
    }
}

/// Limits the same frames by the keys of operators' networks: subscriber lines, addresses, tunnels, prefixes.
#[test]
fn users_are_distinguished_by_fields_of_any_layer() {
    let bench = Bench::new();
    for (stream, key, users) in [
        ("udp 10.0.0.1:1 > 10.0.0.2:2 svlan 100 vlan 7-9 size 100B", "svlan+cvlan", &["100+7", "100+8", "100+9"][..]),
        (
            "udp 10.0.0.1:1 > 10.0.0.2:2 smac 02:00:00:00:00:01-02:00:00:00:00:02 size 100B",
            "smac",
            &["02:00:00:00:00:01", "02:00:00:00:00:02"],
        ),
        (
            "udp 10.0.0.7-10.0.0.9:1 > 10.0.0.2:2 in gtpu teid 5-6 in udp 192.0.2.1 > 192.0.2.2 size 150B",
            "teid+inner.src",
            &["5+10.0.0.7", "5+10.0.0.8", "5+10.0.0.9", "6+10.0.0.7", "6+10.0.0.8", "6+10.0.0.9"],
        ),
        (
            "udp 10.0.0.9-10.0.2.9:1 > 10.9.0.2:2 size 100B",
            "src/24,/56",
            &["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"],
        ),
        (
            "udp [2001:db8:0:ff::1]:1 > [2001:db8:0:100::-2001:db8:0:101::]:2 size 100B",
            "src/24,/56",
            &["2001:db8::/56"],
        ),
    ] {
        let made = format!("gen --out pcap:in.pcap --count 600 --gap 1ms -q --stream '{stream}'");
        assert_eq!(bench.run(words(&made)).status, Some(0));
        let line = format!(
            "limit --in pcap:in.pcap --out pcap:out.pcap --key {key} --rate 1Mbps --mode police --by-user users.csv"
        );
        let finished = bench.run(words(&line));
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let table = bench.read("users.csv");
        let table = String::from_utf8_lossy(&table);
        let mut listed: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
        listed.sort_unstable();
        assert_eq!(listed, users, "{key}");
    }
    for (key, what) in [
        ("vxlan.vnl", "vxlan has no field 'vnl' (column 7): write vni"),
        ("teid/24", "'teid' is not an address, and has no prefix: write teid"),
    ] {
        let line = format!("limit --in pcap:in.pcap --out null --key {key} --rate 1Mbps --mode police");
        let said = bench.run(words(&line));
        assert!(said.status == Some(2) && said.stderr.contains(what), "{}", said.stderr);
    }
}

#[test]
fn by_user_lists_every_user() {
    let bench = Bench::new();
    // 40 users. User n sends n frames of 1000 B at once, and the bucket holds three.
    let frames = (1..=40_u16).flat_map(|user| std::iter::repeat_n(record(0, user, 1_000), user.into()));
    bench.capture("in.pcap", Dialect::USUAL, &frames.collect::<Vec<Record>>());
    bench.write("rates", "10.0.0.7 2Mbps burst 3036B\n10.0.9.9 5Mbps\n");
    let line = "limit --in pcap:in.pcap --out pcap:out.pcap --key dst-ip --rate 1Mbps --mode police --burst 3036B --rates rates";
    let report = bench.report(words(&format!("{line} --by-user users.csv")));
    let mut expected = "user,rate_bps,passed_bytes,exceeded_bytes\n".to_owned();
    for user in 1..=40_u32 {
        let passed = user.min(3) * 1_000;
        let rate = if user == 7 { 2 } else { 1 } * 1_000_000;
        expected += &format!("10.0.0.{user},{rate},{passed},{}\n", user * 1_000 - passed);
    }
    // A user with its own rate is listed even without a frame.
    expected += "10.0.9.9,5000000,0,0\n";
    assert_eq!(String::from_utf8_lossy(&bench.read("users.csv")), expected);
    assert_eq!(report["limit"]["talkers"].as_array().map(Vec::len), Some(10));
    let before = bench.read("in.pcap");
    let same = bench.run(words(&format!("{line} --by-user in.pcap")));
    assert!(same.status == Some(2) && same.stderr.contains("would be overwritten"), "{}", same.stderr);
    assert_eq!(bench.read("in.pcap"), before);
}

#[test]
fn two_full_frames_back_to_back_fit_the_default_bucket() {
    let bench = Bench::new();
    // Each pair finds a full bucket, at instants that are not whole ticks of any clock.
    let pairs = (0..100_u64).flat_map(|i| std::iter::repeat_n(record(i * 100_000_007 + 1, 1, 1_518), 2));
    bench.capture("in.pcap", Dialect::USUAL, &pairs.collect::<Vec<Record>>());
    let police = ["", " --algorithm mutex", " --colours 'rfc2697 ebs 64B'"].map(|more| format!("--mode police{more}"));
    for options in police.into_iter().chain(["--mode shape".to_owned()]) {
        let report =
            bench.report(words(&format!("limit --in pcap:in.pcap --out null --key dst-ip --rate 1Mbps {options}")));
        assert_eq!(report["limit"]["conforming"]["frames"], 200, "{options}");
        assert_eq!(report["limit"]["delayed"].as_u64().unwrap_or(0), 0, "{options}");
    }
}

/// Runs `limit` on `in.pcap` and returns the first pipeline of its report and the warnings.
fn limited(bench: &Bench, options: &str) -> (serde_json::Value, Vec<String>) {
    let line = format!("limit --in pcap:in.pcap --out null --json --key dst-ip --rate 1Mbps {options}");
    let finished = bench.run(words(&line));
    let report = finished.report();
    let warnings = report["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let warnings: Vec<String> = warnings.iter().map(|text| text.as_str().expect("text").to_owned()).collect();
    assert!(warnings.iter().all(|text| finished.stderr.contains(text)), "{}", finished.stderr);
    (report["pipelines"][0].clone(), warnings)
}

#[test]
fn frames_longer_than_the_bucket_are_dropped_for_that_reason() {
    let bench = Bench::new();
    let records: Vec<Record> =
        (0..20).map(|i| record(i * 400_000_000, 7, if i < 15 { 3_040 } else { 1_000 })).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    for mode in ["police", "shape", "shape --queue 1s", "police --algorithm mutex"] {
        let (report, warnings) = limited(&bench, &format!("--mode {mode}"));
        assert_eq!(report["drops"], serde_json::json!({ "longer-than-bucket": 15 }), "{mode}");
        assert_eq!(report["limit"]["longer_than_bucket"]["longest_bytes"], 3_040);
        assert!(
            matches!(&warnings[..], [one] if one.contains("15 frames") && one.contains("burst 3040B")),
            "{warnings:?}"
        );
        let (report, warnings) = limited(&bench, &format!("--burst 3040B --mode {mode}"));
        assert!(report["drops"] == serde_json::json!({}) && warnings.is_empty(), "{mode}: {report}");
    }
    // Marked frames pass at any length.
    let (report, warnings) = limited(&bench, "--mode mark");
    assert!(report["out"]["frames"] == 20 && warnings.is_empty(), "{warnings:?}");
}

#[test]
fn many_frames_without_a_key_are_a_warning() {
    let bench = Bench::new();
    for (ether_type, name) in [([0x88, 0x47], "MPLS"), ([0x88, 0x64], "PPPoE"), ([0, 38], "LLC"), ([8, 6], "ARP")] {
        for (every, many) in [(10, true), (50, false)] {
            let records: Vec<Record> = (0..100)
                .map(|i| {
                    let mut record = record(i * 10_000_000, 7, 100);
                    if i % every == 0 {
                        record.bytes[12..14].copy_from_slice(&ether_type);
                    }
                    record
                })
                .collect();
            bench.capture("in.pcap", Dialect::USUAL, &records);
            let (report, warnings) = limited(&bench, "--mode police");
            assert_eq!(report["limit"]["without_key_by_type"], serde_json::json!({ name: 100 / every }));
            assert_eq!(warnings.len(), usize::from(many), "{warnings:?}");
            let said = warnings.first().is_none_or(|text| text.contains("10 of 100 frames") && text.contains("(10 %)"));
            assert!(said && warnings.iter().all(|text| text.contains(name)), "{warnings:?}");
        }
    }
}

#[test]
fn a_policed_tcp_user_below_its_rate_is_a_warning() {
    let bench = Bench::new();
    // Bursts of 20 frames, of which the bucket holds 2.
    let mut records: Vec<Record> = (0..400).map(|i| record(i / 20 * 300_000_000 + i % 20, 7, 1_518)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let (report, warnings) = limited(&bench, "--mode police");
    assert!(warnings.is_empty() && report["limit"].get("policed_tcp").is_none(), "UDP: {warnings:?}");
    records.iter_mut().for_each(|record| record.bytes[23] = 6);
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let (report, warnings) = limited(&bench, "--mode police");
    assert!(
        matches!(&warnings[..], [one] if one.contains("less than 80 %") && one.contains("mode shape")),
        "{warnings:?}"
    );
    let least = report["limit"]["policed_tcp"]["min_ratio"].as_f64().expect("a share");
    assert!((least - 2.0 * 1_518.0 * 8.0 / 300_000.0).abs() < 0.005, "{least}");
    // A larger bucket or a queue avoids the warning.
    for options in ["--mode police --burst 100kB", "--mode shape --queue 10s"] {
        assert_eq!(limited(&bench, options).1, Vec::<String>::new(), "{options}");
    }
}

#[test]
fn the_error_of_a_window_stands_beside_one_frame_of_it() {
    let bench = Bench::new();
    let records: Vec<Record> = (0..500).map(|i| record(i * 4_000_000, 7, 1_500)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let (report, _) = limited(&bench, "--mode police");
    // 10 ms at 1 Mbit/s are 1250 B; 100 ms are ten times as much.
    for (window, one_frame) in [("10ms", 1.2), ("100ms", 0.12)] {
        let figures = &report["limit"]["error"][window];
        let figure = |name: &str| figures[name].as_f64().expect("a figure");
        assert!((figure("one_frame_ratio") - one_frame).abs() < 1e-9, "{figures}");
        assert!(figure("worst_error_ratio") <= figure("one_frame_ratio") + 1e-9, "{figures}");
    }
    let text = bench.run(words("limit --in pcap:in.pcap --out null --key dst-ip --rate 1Mbps --mode police")).stdout;
    assert!(text.contains("one frame is up to 120.00 % of a window"), "{text}");
}

#[test]
fn requires_a_mode() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &[record(0, 7, 1_000)]);
    let finished = bench.run(words("limit --in pcap:in.pcap --out null --key dst-ip --rate 1Mbps"));
    assert_eq!(finished.status, Some(2));
    for word in ["--mode police", "--mode shape", "--mode mark"] {
        assert!(finished.stderr.contains(word), "{}", finished.stderr);
    }
    bench.write(
        "stage.toml",
        "schema = 1\n[[pipeline]]\nname = 'users'\nin = 'pcap:in.pcap'\nout = 'null'\n\
         stages = ['limit key src-ip rate 8Mbps']\n",
    );
    let checked = bench.run(["check", "stage.toml"]);
    assert!(
        checked.status == Some(0) && checked.stderr.contains("write mode police, shape or mark"),
        "{}",
        checked.stderr
    );
}

#[test]
fn a_file_of_a_million_rates() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &[record(0, 7, 1_000), record(1, 7, 1_000), record(2, 8, 1_000)]);
    let lines: String = (0..1_000_000_u32)
        .map(|i| format!("{} {}Mbps\n", std::net::Ipv4Addr::from(0x0a00_0000 + i), 1 + i % 9))
        .collect();
    bench.write("rates", &lines);
    let report = bench.report(words(
        "limit --in pcap:in.pcap --out null --key dst-ip --rate 1Mbps --mode police --burst 1500B --rates rates --unknown drop",
    ));
    assert_eq!(
        (report["out"]["frames"].as_u64(), report["limit"]["users"]["present"].as_u64()),
        (Some(2), Some(1_000_000))
    );
    assert_eq!(report["limit"]["talkers"][0]["rate_bps"], 8_000_000, "10.0.0.7");
}

#[test]
fn rejects_bad_limits_in_one_line() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &[record(0, 7, 1_000)]);
    bench.write("rates", "10.0.0.1 1Mbps\n10.0.0.x 1Mbps\n10.0.0.2 5\n");
    for (options, wanted) in [
        ("--key dst-ip --rate 1", "no unit"),
        ("--key dst-ip --rate 1kpps", "not a bit rate"),
        ("--key host --rate 1Mbps", "not a key"),
        ("--key dst-ip --rate 1Mbps --burst 10", "unit"),
        ("--key dst-ip --rate 1Mbps --algorithm dlb", "not an algorithm"),
        ("--key dst-ip --rate 1Mbps --mode shape --workers 4", "one worker"),
        ("--key dst-ip --rate 1Mbps --workers 0", "workers"),
        ("--key dst-ip --rate 1Mbps --rates nowhere", "nowhere"),
        ("--key dst-ip --rate 1Mbps --rates rates", "line 2"),
        ("--key dst-ip --rate 1Mbps --rates rates", "line 3"),
        ("--key dst-ip --rate 1Mbps --unknown drop", "unknown"),
        ("--key dst-ip --rate 1Mbps --burst 10", "--burst: '10'"),
        ("--key dst-ip --rate 1Mbps --mode mark --mark=", "--mark: mark is missing"),
        ("--key dst-ip --rate 1Mbps --users 1k", "--users: '1k'"),
        ("--key dst-ip --rate 1Mbps --rates=", "--rates: "),
    ] {
        let mode = if options.contains("--mode") { "" } else { "--mode police" };
        let finished = bench.run(words(&format!("limit --in pcap:in.pcap --out pcap:out.pcap {mode} {options}")));
        assert_eq!((finished.status, finished.stdout.as_str()), (Some(2), ""), "{options}: {}", finished.stderr);
        assert!(finished.stderr.contains(wanted), "{options}: {}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{options}: {}", finished.stderr);
        assert!(!bench.files().contains(&"out.pcap".to_owned()), "{options}");
    }
}

#[test]
fn a_stream_that_a_stage_lets_arrive_at_its_rate_starves_no_schedule() {
    let bench = Bench::new();
    bench.write(
        "stream.toml",
        "schema = 1\n[[pipeline]]\nname = 'users'\nstream = 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1000B'\ncount = 100\n\
         out = 'null'\nstages = ['limit key src-ip rate 8Mbps burst 1518B mode shape queue 10s']\n",
    );
    let report = bench.report(["run", "stream.toml"]);
    assert_eq!((report["starved"].as_u64(), report.get("buffer")), (Some(0), None), "{report}");
    assert_eq!(report["out"]["frames"], 100);
}

#[test]
fn the_figures_can_be_expected_in_a_scenario() {
    let bench = Bench::new();
    mix(&bench, 6);
    for (limit, status) in [("< 2%", 0), ("< 0.01%", 1)] {
        bench.write(
            "limit.toml",
            format!(
                "schema = 1\n[[pipeline]]\nname = 'users'\nin = 'pcap:in.pcap'\nout = 'null'\n\
                 stages = ['limit key dst-ip rate 1Mbps burst 3036B users 100']\n\
                 [[expect]]\nthat = 'users.limit.error.1s.worst_error {limit}'\n"
            ),
        );
        let finished = bench.run(["run", "limit.toml"]);
        assert_eq!(finished.status, Some(status), "{}{}", finished.stdout, finished.stderr);
    }
}
