//! `netlathe limit` between live programs: the rates that five destinations receive at once, by the receiver's capture.
//! Tests print `SKIP: why` if labs are unavailable.

use crate::bed::{Bed, Program, number};
use crate::common::port;
use lab::Node;
use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Destinations by the last byte of their address, with rates in bit/s. The traffic to the last one stays below its
/// rate.
const RATES: [(u8, f64); 6] = [(201, 1e6), (202, 2e6), (203, 4e6), (204, 8e6), (205, 16e6), (206, 50e6)];

/// Bucket size that tolerates late frames on a busy machine: 60 ms at the rate of the fastest limited user. A smaller
/// bucket would rightly drop the burst after a pause, and the tokens of the pause would be lost.
const LATE_BURST: &str = "--burst 125kB";

/// A lab whose server has six more addresses, and a running limiter that carries frames.
fn limited(test: &str, options: &str) -> Option<(Bed, Program)> {
    limited_at(test, "--in c0 --out s0", options)
}

fn limited_at(test: &str, ports: &str, options: &str) -> Option<(Bed, Program)> {
    let bed = Bed::alone(test, |_| {})?;
    for (host, _) in RATES {
        bed.stdout(Node::Server, &format!("ip addr add 10.77.0.{host}/24 dev eth0"));
    }
    write_rates(&bed, 1.0);
    bed.await_quiet();
    let mode = if options.contains("--mode") { "" } else { "--mode police" };
    let line = format!("limit {ports} --json --duration 60s --key dst-ip --users 1000 {mode} {options}");
    let limit = bed.start(Node::Box, &line);
    let start = Instant::now();
    while !bed.output(Node::Client(1), "ping -c 1 -W 1 10.77.0.206").status.success() {
        assert!(start.elapsed() < Duration::from_secs(30), "it carries nothing");
    }
    Some((bed, limit))
}

fn write_rates(bed: &Bed, factor: f64) {
    let line = |(host, bps): &(u8, f64)| format!("10.77.0.{host} {}bps\n", (bps * factor) as u64);
    fs::write(bed.path("rates"), RATES.iter().map(line).collect::<String>()).expect("it can be written");
}

/// Runs iperf3 to all six destinations at once for `seconds`. Returns the bit/s with FCS that each received in `window`
/// seconds, starting after `after` seconds.
fn flows(bed: &Bed, udp: bool, seconds: u32, after: u64, window: u64) -> BTreeMap<u8, f64> {
    let servers: Vec<Program> = RATES
        .iter()
        .map(|(host, _)| {
            let port = format!("5{host}");
            Program::start(bed.command(
                Node::Server,
                "iperf3",
                &["-s", "-1", "-B", &format!("10.77.0.{host}"), "-p", &port],
            ))
        })
        .collect();
    let capture = bed.capture("got.pcap");
    let clients: Vec<Program> = RATES
        .iter()
        .map(|(host, bps)| {
            let offered = if *host == 206 { 4e6 } else { bps * 2.0 };
            let (to, port) = (format!("10.77.0.{host}"), format!("5{host}"));
            let (time, rate) = (seconds.to_string(), (offered as u64).to_string());
            let mut words = vec!["-c", &to, "-p", &port, "-t", &time];
            if udp {
                words.extend(["-u", "-l", "1200", "-b", &rate]);
            } else if *host == 206 {
                words.extend(["-b", &rate]);
            }
            Program::start(bed.command(Node::Client(1), "iperf3", &words))
        })
        .collect();
    for program in clients.into_iter().chain(servers) {
        let _ = program.wait();
    }
    let _ = capture.stop();
    let (records, _) = bed.records("got.pcap");
    let of_flow = |bytes: &[u8]| bytes.len() > 200 && bytes[12..14] == [8, 0] && (201..=206).contains(&bytes[33]);
    let first = records.iter().find(|record| of_flow(&record.bytes)).expect("something came").ns;
    let from = first + after * 1_000_000_000;
    let until = from + window * 1_000_000_000;
    let mut got = BTreeMap::new();
    for record in records.iter().filter(|record| (from..until).contains(&record.ns) && record.bytes.len() > 34) {
        if record.bytes[12..14] == [8, 0] && (201..=206).contains(&record.bytes[33]) {
            *got.entry(record.bytes[33]).or_insert(0.0) +=
                (record.bytes.len() as f64 + 4.0).max(64.0) * 8.0 / window as f64;
        }
    }
    got
}

/// Checks that every limited destination is within 2 % of its rate, and the median error within 1 %. The median leaves
/// out moments in which a busy machine delays the sender.
fn check(got: &BTreeMap<u8, f64>, what: &str) {
    let mut errors: Vec<f64> = RATES[..5].iter().map(|(host, bps)| (got[host] / bps - 1.0).abs()).collect();
    println!("{what}: {got:?}, errors {errors:?}");
    errors.sort_by(f64::total_cmp);
    assert!(errors[2] < 0.01 && errors[4] < 0.02, "{what}: {got:?} {errors:?}");
}

#[test]
fn udp_to_five_destinations_is_policed_and_a_sixth_is_not() {
    let Some((bed, limit)) = limited("police", "--rate 100Mbps --rates rates") else { return };
    let got = flows(&bed, true, 15, 3, 10);
    check(&got, "UDP");
    let report = limit.stop().report();
    let sixth =
        report["limit"]["talkers"].as_array().expect("talkers").iter().find(|user| user["user"] == "10.77.0.206");
    assert_eq!(sixth.expect("it sent much")["exceeded_bytes"], 0, "under its limit");
    assert!(number(&report, "/drops/policed") > 1_000);
}

#[test]
fn a_limit_on_the_return_path_is_reported_like_a_forward_one() {
    let Some(bed) = Bed::alone("back-limit", |_| {}) else { return };
    fs::write(
        bed.path("both.toml"),
        "schema = 1\nduration = '20s'\n[[pipeline]]\nname = 'sub'\nin = 'c0'\nout = 's0'\n\
         stages = ['limit key src-ip rate 1Mbps mode police']\nreturn = ['limit key dst-ip rate 5Mbps mode shape']\n\
         [[expect]]\nthat = 'sub-return.limit.conforming.frames > 0'\n",
    )
    .expect("it can be written");
    bed.await_quiet();
    let run = bed.start(Node::Box, "run both.toml --json");
    let start = Instant::now();
    while !bed.output(Node::Client(1), "ping -c 3 -i 0.2 -W 1 10.77.0.100").status.success() {
        assert!(start.elapsed() < Duration::from_secs(30), "it carries nothing");
    }
    let finished = run.stop();
    assert!(finished.status.success(), "{}", finished.stderr);
    let report = finished.whole_report();
    for (i, (name, mode)) in [("sub", "police"), ("sub-return", "shape")].into_iter().enumerate() {
        let pipeline = &report["pipelines"][i];
        assert_eq!((&pipeline["name"], &pipeline["limit"]["mode"]), (&name.into(), &mode.into()), "{pipeline}");
        assert!(number(pipeline, "/limit/conforming/frames") > 0, "{pipeline}");
    }
}

#[test]
fn several_threads_share_the_buckets() {
    for scheme in ["gcra", "static", "atomic-queue"] {
        let options = format!("--rate 100Mbps --rates rates --workers 2 --algorithm {scheme} {LATE_BURST}");
        let Some((bed, limit)) = limited(&format!("threads-{scheme}"), &options) else { return };
        let got = flows(&bed, true, 9, 2, 6);
        println!("{scheme}: {got:?}");
        // Three threads run on a machine that may have two CPUs. A preempted thread is late, but never exceeds the
        // rate.
        let mut shares: Vec<f64> = RATES[..5].iter().map(|(host, bps)| got[host] / bps).collect();
        shares.sort_by(f64::total_cmp);
        assert!(shares[4] < 1.02 && shares[2] > 0.98, "{scheme}: {got:?}");
        let report = limit.stop().report();
        let workers = report["limit"]["workers"].as_array().expect("workers");
        let frames: Vec<u64> = workers.iter().map(|load| load["frames"].as_u64().expect("frames")).collect();
        assert!(frames.len() == 2 && frames.iter().sum::<u64>() > 5_000, "{scheme}: {frames:?}");
        assert_eq!(number(&report, "/held"), 0, "{scheme}: nothing is left with a worker");
        let sixth =
            report["limit"]["talkers"].as_array().expect("talkers").iter().find(|user| user["user"] == "10.77.0.206");
        assert_eq!(sixth.expect("it sent much")["exceeded_bytes"], 0, "{scheme}: under its limit");
    }
}

#[test]
fn tcp_to_five_destinations_is_shaped() {
    let Some((bed, limit)) = limited("shape", "--rate 100Mbps --rates rates --mode shape") else { return };
    check(&flows(&bed, false, 15, 3, 10), "TCP");
    let report = limit.stop().report();
    assert!(number(&report, "/limit/delayed") > 1_000);
}

#[test]
fn a_user_over_its_rate_fills_its_own_queue_and_not_the_pool() {
    let Some((bed, limit)) = limited("own-queue", "--rate 25Mbps --mode shape") else { return };
    // 48 828 frames/s may pass and 4 882 wait, more than the smallest pool holds.
    let sender = bed.sender(1, 64, "150kpps", 150_000);
    let pings = bed.output(Node::Client(1), "ping -c 5 -i 0.1 -W 5 10.77.0.206");
    assert_eq!(number(&sender.wait().report(), "/out/frames"), 150_000);
    let report = limit.stop().report();
    assert!(pings.status.success(), "{}", String::from_utf8_lossy(&pings.stdout));
    assert!(number(&report, "/drops/limit-queue") > 1_000, "{report}");
    assert_eq!(report.pointer("/drops/pool"), None, "{report}");
}

#[test]
fn a_signal_changes_rates_under_traffic() {
    let Some((bed, limit)) = limited("reload", &format!("--rate 100Mbps --rates rates {LATE_BURST}")) else { return };
    // From 8 s on, the rates are halved.
    let (got, signalled) = thread::scope(|scope| {
        let signalled = scope.spawn(|| {
            thread::sleep(Duration::from_secs(6));
            write_rates(&bed, 0.5);
            limit.signal("HUP");
        });
        (flows(&bed, true, 18, 11, 6), signalled.join())
    });
    signalled.expect("it was sent");
    for (host, bps) in &RATES[..5] {
        assert!((got[host] / (bps / 2.0) - 1.0).abs() < 0.02, "{host}: {got:?}");
    }
    fs::write(bed.path("rates"), "10.77.0.201 fast\n").expect("it can be written");
    limit.signal("HUP");
    thread::sleep(Duration::from_millis(500));
    let finished = limit.stop();
    assert!(finished.stderr.contains("rates of 6 users") && finished.stderr.contains("line 1"), "{}", finished.stderr);
    let report = finished.report();
    assert_eq!(number(&report, "/limit/users/reloads"), 1);
    let sixth =
        report["limit"]["talkers"].as_array().expect("talkers").iter().find(|user| user["user"] == "10.77.0.206");
    assert_eq!(sixth.expect("it sent much")["exceeded_bytes"], 0, "no conforming frame is dropped");
}

/// The bucket fills in 4.9 ms, and the limiter is stopped for 20 ms out of every 40 ms. With the kernel's stamps it
/// passes the same bytes as a limiter that always runs. The reference is a run in virtual time with the same frames, so
/// delays of the source do not matter.
#[test]
fn a_limiter_that_looks_late_lets_the_rate_through() {
    let ports = "--in if:c0,driver=af_packet --out s0";
    let Some((bed, limit)) = limited_at("late-look", ports, "--rate 5Mbps --burst 3036B") else { return };
    let capture = bed.start(Node::Box, "measure --in c0 --json --write c0.pcap --duration 60s");
    let start = Instant::now();
    while !bed.path("c0.pcap").exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "measure does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    // The driver starts taking stamps a few ms later.
    thread::sleep(Duration::from_millis(100));
    thread::scope(|scope| {
        let sender = scope.spawn(|| bed.send(1, 1_000, "7.5Mbps", 2_812));
        while !sender.is_finished() {
            for signal in ["STOP", "CONT"] {
                limit.signal(signal);
                thread::sleep(Duration::from_millis(20));
            }
        }
        assert_eq!(number(&sender.join().expect("it sent"), "/out/frames"), 2_812);
    });
    let _ = capture.stop();
    let passed = |report: &serde_json::Value| {
        let talkers = report["limit"]["talkers"].as_array().expect("talkers");
        let user = talkers.iter().find(|user| user["user"] == "10.77.0.100").expect("it sent");
        user["passed_bytes"].as_u64().expect("bytes") as f64
    };
    let report = limit.stop().report();
    assert_eq!(warns_of_buckets(&report), 0, "{report}");
    let live = passed(&report);
    let line =
        "limit --in pcap:c0.pcap --out null --json --key dst-ip --users 1000 --rate 5Mbps --mode police --burst 3036B";
    let exact = passed(&bed.run(Node::Box, line).report());
    println!("{live} B passed, {exact} B in virtual time");
    assert!((live / exact - 1.0).abs() < 0.01, "{live} B passed, {exact} B in virtual time");
}

/// The number of warnings that buckets are too small for a port without receive stamps.
fn warns_of_buckets(report: &serde_json::Value) -> usize {
    let warnings = report["warnings"].as_array();
    let of_buckets = |text: &&serde_json::Value| text.as_str().is_some_and(|text| text.contains("driver=af_packet"));
    warnings.map_or(0, |warnings| warnings.iter().filter(of_buckets).count())
}

#[test]
fn warns_of_a_bucket_that_fills_within_a_hiccup() {
    for (burst, warnings) in [("--burst 3036B", 1), ("--burst 6250B", 0)] {
        let Some((_bed, limit)) = limited("small-bucket", &format!("--rate 5Mbps {burst}")) else { return };
        let report = limit.stop().whole_report();
        let driver = port(&report, "if:c0")["driver"].as_str().expect("a driver").to_owned();
        let blind = driver != "net_af_packet" && driver != "net_af_xdp";
        assert_eq!(warns_of_buckets(&report), if blind { warnings } else { 0 }, "{burst}: {report}");
    }
}
