//! `doctor`, in text for people and in JSON for programs.

use crate::bed::{Bed, Program, netlathe};
use lab::Node;
use serde_json::Value;
use std::process::Command;

fn doctor(arguments: &[&str]) -> crate::bed::Finished {
    let mut command = Command::new(netlathe());
    command.arg("doctor").args(arguments);
    Program::start(command).wait()
}

#[test]
fn text_and_json_reports_agree() {
    // Each run measures interruptions again. While other tests run, the count may be on either side of the bound.
    let mut pairs = (0..10).map(|_| (doctor(&["--json"]), doctor(&[])));
    let of_one_mind = |(json, text): &(crate::bed::Finished, crate::bed::Finished)| {
        let object: Value = serde_json::from_str(&json.stdout).unwrap_or_default();
        let findings = object["findings"].as_array().cloned().unwrap_or_default();
        let good = findings.iter().any(|finding| finding["what"] == "interruptions" && finding["good"] == true);
        good == text.stdout.contains("ok  interruptions")
    };
    let (json, text) = pairs.find(of_one_mind).expect("of ten pairs, two that found the same");
    assert_eq!((json.status.code(), json.stderr.as_str()), (Some(0), ""), "{json:?}");
    let object: Value = serde_json::from_str(&json.stdout).expect("one object");
    let findings = object["findings"].as_array().expect("findings");
    let what: Vec<&str> = findings.iter().map(|finding| finding["what"].as_str().expect("text")).collect();
    for expected in ["DPDK", "drivers", "AF_XDP", "huge pages", "IOMMU", "TSC", "clock source", "isolated cores"] {
        assert!(what.contains(&expected), "no {expected} in {what:?}");
    }
    for finding in findings {
        assert_eq!(finding["good"] == false, finding["remedy"].is_string(), "a fault has a remedy: {finding}");
    }

    assert_eq!((text.status.code(), text.stderr.as_str()), (Some(0), ""), "{text:?}");
    assert_eq!(text.stdout.lines().count(), findings.len(), "one line each: {text:?}");
    for (line, finding) in text.stdout.lines().zip(findings) {
        assert!(line.starts_with(if finding["good"] == true { "ok  " } else { "--  " }), "{line}");
        assert!(line[4..].starts_with(finding["what"].as_str().expect("text")), "{line}");
    }
}

#[test]
fn an_unknown_interface_is_an_error() {
    doctor(&["nosuch0"]).assert_refused(&["no interface nosuch0", "ip link"]);
    doctor(&["eth7@if9"]).assert_refused(&["no interface eth7@if9", "write eth7"]);
}

#[test]
fn finds_interface_settings_that_change_frames() {
    let Some(bed) = Bed::shared("doctor", |_| {}) else { return };
    let of_c0 = |what: &str| {
        let text = bed.stdout(Node::Box, &format!("{} doctor c0", netlathe()));
        assert!(!text.contains("s0 "), "only c0 was asked for: {text}");
        text.lines().find(|line| line[4..].starts_with(what)).expect("a line").to_owned()
    };
    assert!(of_c0("c0 pause").starts_with("ok"), "veth has no pause frames");
    assert!(of_c0("c0 offloads").starts_with("ok"), "a lab turns them off");

    bed.stdout(Node::Box, "ethtool -K c0 tx on gro on");
    let line = of_c0("c0 offloads");
    assert!(line.starts_with("--") && line.contains("merged") && line.contains("unfinished checksums"), "{line}");
    let remedy = &line[line.find("ethtool -K c0").expect("a command")..];
    bed.stdout(Node::Box, remedy);
    assert!(of_c0("c0 offloads").starts_with("ok"), "`{remedy}` mends it");
}
