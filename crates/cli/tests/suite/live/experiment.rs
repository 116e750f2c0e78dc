//! Scenarios with a lab. Each test prints `SKIP: why` if the machine permits none.

use crate::bed::Turn;
use crate::common::{Bench, words};
use crate::typed::root;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this machine permits labs.
fn permitted() -> bool {
    let permitted = lab::privileged();
    if !permitted {
        println!("SKIP: labs need CAP_NET_ADMIN and CAP_SYS_ADMIN");
    }
    permitted
}

/// The names of all labs.
fn labs() -> Vec<String> {
    lab::list().expect("a list").into_iter().map(|lab| lab.name).collect()
}

/// A scenario with two programs that exchange packets through a lab of this name.
fn scenario(lab: &str) -> String {
    format!(
        "schema = 1
until = 'client'
[lab]
name = '{lab}'
clients = 2
[[program]]
name = 'server'
command = ['python3', '-m', 'http.server', '8000']
namespace = 'server'
ready = 'tcp 8000'
[[program]]
name = 'client'
command = 'ping -c 5 -i 0.1 $NETLATHE_SERVER'
namespace = 'client2'
after = 'server ready'
[[pipeline]]
name = 'up'
in = 'c0'
out = 's0'
stages = ['delay 40ms']
[[expect]]
that = 'client.status == 0'
[[expect]]
that = 'up.delay.p50 > 39ms'
[[expect]]
that = 'up.out.frames >= 5'
"
    )
}

#[test]
fn a_lab_with_programs_is_built_used_and_removed() {
    if !permitted() {
        return;
    }
    let _turn = Turn::shared();
    let bench = Bench::new();
    let name = format!("exp-{}", std::process::id());
    fs::write(bench.path("a.toml"), scenario(&name)).expect("a scenario");
    let finished = bench.run(words("run a.toml --json --junit r.xml"));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let report = finished.report();
    assert_eq!(report["programs"][1]["namespace"], "client2");
    let output = report["programs"][1]["stdout"].as_str().expect("the output is kept");
    assert!(output.contains("5 received"), "{output}");
    assert!(!labs().contains(&name), "the lab is left behind");

    // With this value, one expectation is missed.
    let finished = bench.run(words("run a.toml -q --junit r.xml --set up.delay=10ms"));
    assert_eq!(finished.status, Some(1), "{}", finished.stderr);
    let missed = finished.complaints();
    assert!(missed.len() == 1 && missed[0].starts_with("netlathe: expected up.delay.p50 > 39ms: it is "), "{missed:?}");
    let junit = fs::read_to_string(bench.path("r.xml")).expect("results");
    assert!(junit.contains("tests=\"3\" failures=\"1\" errors=\"0\""), "{junit}");
    assert!(!labs().contains(&name), "the lab is left behind");
}

#[test]
fn a_lab_is_removed_when_its_run_is_killed() {
    if !permitted() {
        return;
    }
    let _turn = Turn::shared();
    let bench = Bench::new();
    let name = format!("exp-kill-{}", std::process::id());
    fs::write(bench.path("a.toml"), scenario(&name)).expect("a scenario");
    let mut command = bench.command(words("run a.toml --json --set 'client.command=sleep 60'"));
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let start = Instant::now();
    while !labs().contains(&name) {
        assert!(start.elapsed() < PATIENCE, "no lab was built");
        thread::sleep(Duration::from_millis(20));
    }
    running.kill().expect("it runs");
    running.wait().expect("it ends");
    let start = Instant::now();
    while labs().contains(&name) {
        assert!(start.elapsed() < PATIENCE, "the lab is left behind");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_shipped_scenario_with_a_lab_holds() {
    if !permitted() {
        return;
    }
    if lab::which("iperf3").is_none() {
        println!("SKIP: there is no iperf3");
        return;
    }
    let _turn = Turn::alone();
    let bench = Bench::new();
    let path = root().join("scenarios/lab-iperf3.toml");
    let finished = bench.run(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("a report");
    assert_eq!(report["programs"][1]["status"], 0);
}
