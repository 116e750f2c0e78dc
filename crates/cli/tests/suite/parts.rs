//! `--cores`: a pipeline that cannot be split is refused before anything starts, and the error names an alternative.

use crate::common::{Bench, Dialect, Record};

/// A scenario with these pipelines.
fn scenario(bench: &Bench, pipelines: &[&str]) {
    let mut text = "schema = 1\n".to_owned();
    for (i, pipeline) in pipelines.iter().enumerate() {
        text += &format!("[[pipeline]]\nname = \"p{i}\"\nout = \"dpdk:net_null{i}\"\n{pipeline}\n");
    }
    std::fs::write(bench.path("parts.toml"), text).expect("a scenario");
}

const MADE: &str = "stream = 'udp 10.0.0.1:1 > 10.0.0.2:80 size 90B'\ngap = '10us'";
const CLASSES: &str = "stream = 'udp 10.0.0.1:1 > 10.0.0.2:80 size 90B'\n\
     [[pipeline.class]]\nname = 'web'\nmatch = 'udp dport 80'\ngap = '10us'\nstages = ['loss 1%']\n[[pipeline.class]]";
const ANSWERS: &str = "in = 'dpdk:net_null9'\nstages = ['netem mtu 1000 icmp']\ngap = '10us'";

#[test]
#[cfg(feature = "live")]
fn cpus_without_a_part_are_refused() {
    let bench = Bench::new();
    for (pipelines, options, said) in [
        (&[MADE, MADE][..], &["--cores", "0-2"][..], "3 CPUs cannot be divided evenly among 2 pipelines"),
        (&[MADE, MADE], &["--cores", "0"], "1 CPUs cannot be divided evenly among 2 pipelines"),
        // Each CPU has its own queue, unless one thread must see all frames.
        (&[MADE, MADE], &["--cores", "0,1,900-903"], "cannot run on CPU 900"),
        (
            &[MADE, MADE],
            &["--cores", "0-5", "--slices"],
            "pipeline p0 has 3 CPUs but only 2 parts (receiving, departures)",
        ),
        (&[CLASSES], &["--cores", "0-4"], "only 4 parts (receiving, classes, stages, departures)"),
        (
            &[CLASSES],
            &["--cores", "0-3", "--slices"],
            "only 3 parts (receiving and classes, stages, departures), since --slices begins",
        ),
        (&[ANSWERS], &["--cores", "0-2"], "only 2 parts (receiving and stages, departures), since stages that"),
        (
            &[ANSWERS],
            &["--cores", "0-2", "--slices"],
            "since stages that answer must run on the CPU of the return path: name at most 2",
        ),
    ] {
        scenario(&bench, pipelines);
        let finished = bench.run(["run", "parts.toml", "--duration", "1s"].iter().chain(options));
        assert_eq!(
            (finished.status, finished.stderr.lines().count()),
            (Some(2), 1),
            "{options:?}: {}",
            finished.stderr
        );
        assert!(finished.stderr.contains(said), "{options:?}: {}", finished.stderr);
    }
}

#[test]
#[cfg(feature = "live")]
fn a_capture_that_is_sent_back_to_back_from_memory_has_one_part() {
    let bench = Bench::new();
    let records: Vec<Record> = (0..10_u32).map(|i| Record::new(u64::from(i) * 1_000, 64, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let line = ["gen", "--pcap", "in.pcap", "--speed", "max", "--out", "dpdk:net_null0", "--cores", "0,1"];
    let finished = bench.run(line);
    assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
    assert!(finished.stderr.contains("only 1 part (all of it)"), "{}", finished.stderr);
}

#[test]
fn measure_refuses_cores_and_suggests_taskset() {
    let bench = Bench::new();
    let finished = bench.run(["measure", "--pcap", "in.pcap", "--cores", "0"]);
    assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
    assert!(finished.stderr.contains("taskset -c"), "{}", finished.stderr);
}

#[test]
fn virtual_time_says_that_it_takes_no_cpus() {
    let bench = Bench::new();
    let line = ["gen", "--out", "null", "--count", "3", "--stream", "udp 10.0.0.1:1 > 10.0.0.2:2", "-q"];
    assert_eq!(bench.run(line).stderr, "");
    let finished = bench.run(line.iter().chain(&["--cores", "0,1"]));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(
        finished.stderr.starts_with("netlathe: note: --cores: it has no effect in virtual time"),
        "{}",
        finished.stderr
    );
}
