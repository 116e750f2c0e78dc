//! Launch time is used if the port offers it. Otherwise the error names the port.

use crate::common::{Bench, Finished, words};

fn generate(output: &str, pacer: &str) -> Finished {
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    let bench = Bench::new();
    bench.run(words(&format!("gen --out {output} --json {stream} --count 100 --gap 100us --pacer {pacer}")))
}

#[test]
fn interfaces_are_refused_before_anything_is_opened() {
    let finished = generate("eth7", "launch-time");
    assert_eq!(finished.status, Some(2));
    for word in ["--pacer", "launch-time", "NIC", "pci:", "deadline"] {
        assert!(finished.stderr.contains(word), "{word} in {}", finished.stderr);
    }
}

#[test]
fn a_device_that_does_not_offer_it_is_refused_or_does_without() {
    let plain = generate("dpdk:net_null0", "auto");
    if plain.status != Some(0) {
        println!("SKIP: no live ports here: {}", plain.stderr);
        return;
    }
    assert_eq!(plain.report()["pipelines"][0]["pacer"], "deadline");
    let asked = generate("dpdk:net_null0", "launch-time");
    assert_eq!(asked.status, Some(2));
    for word in ["net_null", "deadline", "filler"] {
        assert!(asked.stderr.contains(word), "{word} in {}", asked.stderr);
    }
    assert_eq!(asked.stderr.trim().lines().count(), 1, "{}", asked.stderr);
}
